package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// client is a superuser's way to the lab's API.
type client struct {
	t     *testing.T
	ctx   context.Context //nolint:containedctx // the test's
	http  http.Client
	base  string
	login struct{ Ticket, CSRFPreventionToken string }
}

func newClient(ctx context.Context, t *testing.T, st Status) *client {
	t.Helper()
	ca, err := os.ReadFile(st.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c := &client{t: t, ctx: ctx, base: st.APIURL + "/api2/json"}
	c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	c.do("POST", "/access/ticket", url.Values{"username": {st.User}, "password": {st.Password}}, &c.login)
	return c
}

// do makes one call, which has to succeed.
func (c *client) do(method, path string, form url.Values, into any) {
	c.t.Helper()
	if err := c.try(method, path, form, into); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) try(method, path string, form url.Values, into any) error {
	req, err := http.NewRequestWithContext(c.ctx, method, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("CSRFPreventionToken", c.login.CSRFPreventionToken)
	req.AddCookie(&http.Cookie{Name: "PVEAuthCookie", Value: url.QueryEscape(c.login.Ticket)})
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %s, %w", method, path, resp.Status, bytes.TrimSpace(body), err)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, &struct{ Data any }{into})
}

// hostKey reads a guest's through its agent, once that answers.
func (c *client) hostKey(node, vmid string) ssh.PublicKey {
	c.t.Helper()
	var file struct{ Content string }
	c.until("the guest agent of vm "+vmid, func() bool {
		return c.try("GET", "/nodes/"+node+"/qemu/"+vmid+"/agent/file-read?file=/etc/ssh/ssh_host_ed25519_key.pub", nil, &file) == nil
	})
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(file.Content))
	if err != nil {
		c.t.Fatalf("host key %q of vm %s: %v", file.Content, vmid, err)
	}
	return key
}

// start begins a task; wait waits until it has ended well.
func (c *client) start(node, path string, form url.Values) (wait func()) {
	c.t.Helper()
	var upid string
	c.do("POST", "/nodes/"+node+path, form, &upid)
	return func() {
		c.t.Helper()
		c.until(path, func() bool {
			var st struct{ Status, ExitStatus string }
			c.do("GET", "/nodes/"+node+"/tasks/"+url.PathEscape(upid)+"/status", nil, &st)
			if st.Status == "stopped" && st.ExitStatus != "OK" {
				c.t.Fatalf("%s on %s: %s", path, node, st.ExitStatus)
			}
			return st.Status == "stopped"
		})
	}
}

func (c *client) until(what string, ready func() bool) {
	c.t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for !ready() {
		select {
		case <-poll.C:
		case <-c.ctx.Done():
			c.t.Fatalf("%s: not within the test's time", what)
		}
	}
}

// networks makes two tenants' zones on every node.
func (c *client) networks(st Status) {
	c.t.Helper()
	var peers []string
	for _, n := range st.Nodes {
		peers = append(peers, n.Address)
	}
	c.do("POST", "/cluster/sdn/controllers", url.Values{"controller": {"bgp"}, "type": {"evpn"}, "asn": {"65000"}, "peers": {strings.Join(peers, ",")}}, nil)
	for i, zone := range []string{"red", "blue"} {
		c.do("POST", "/cluster/sdn/zones", url.Values{"zone": {zone}, "type": {"evpn"}, "controller": {"bgp"}, "vrf-vxlan": {fmt.Sprint(2000 + i)}}, nil)
		c.do("POST", "/cluster/sdn/vnets", url.Values{"vnet": {zone + "a"}, "zone": {zone}, "tag": {fmt.Sprint(1000 + i)}}, nil)
		c.do("POST", "/cluster/sdn/vnets/"+zone+"a/subnets", url.Values{
			"subnet": {fmt.Sprintf("10.99.%d.0/24", i)}, "type": {"subnet"}, "gateway": {fmt.Sprintf("10.99.%d.1", i)},
		}, nil)
	}
	c.apply(st)
}

// apply brings the networks as they are written to every node.
func (c *client) apply(st Status) {
	c.t.Helper()
	c.do("PUT", "/cluster/sdn", url.Values{}, nil)
	c.until("zones on every node", func() bool {
		for _, n := range st.Nodes {
			var zones []struct{ Zone, Status string }
			c.do("GET", "/nodes/"+n.Name+"/sdn/zones", nil, &zones)
			if len(zones) != 2 || zones[0].Status != "available" || zones[1].Status != "available" {
				return false
			}
		}
		return true
	})
}
