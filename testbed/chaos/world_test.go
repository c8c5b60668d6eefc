package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/guest"
	"savepoint/testbed/lab"
)

const box = "box"

// world is a lab with one sandbox, and savepoint as its user runs it.
type world struct {
	t     *testing.T
	ctx   context.Context //nolint:containedctx // the test's life
	bin   string
	dir   string // everything
	cache string
	zfs   bool // the lab's disks are on ZFS
	api   *relay
	jump  *relay
	node  *relay // the node's sshd

	sandbox orchestrator.Sandbox
	agent   user
	took    map[string]time.Duration // how long each transaction takes undisturbed
	newest  orchestrator.TxID        // of the last round
	head    string                   // of the journal, when it was last proved
	beside  standing                 // of the bystander
}

// newWorld builds savepoint unless there is one, starts the lab and makes the
// sandbox.
func newWorld(ctx context.Context, t *testing.T, bin string, zfs bool) *world {
	t.Helper()
	cache, err := guest.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: ctx, dir: t.TempDir(), bin: bin, cache: cache, zfs: zfs, took: map[string]time.Duration{}}
	if w.bin == "" {
		w.bin = filepath.Join(w.dir, "savepoint")
		build := exec.CommandContext(ctx, "go", "build", "-o", w.bin, "savepoint/cmd/savepoint")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build savepoint: %v\n%s", err, out)
		}
	}
	t.Cleanup(func() { // also what a killed lab left
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		_, err := lab.Down(ctx, w.labDir())
		if err := errors.Join(err, lab.Purge(ctx, w.labDir())); err != nil {
			t.Errorf("end the lab: %v", err)
		}
	})
	w.labUp()
	st := w.status()
	w.api, w.jump = newRelay(t, apiAddr(st)), newRelay(t, st.JumpAddress)
	w.node = newRelay(t, st.Nodes[0].SSH)
	w.configure(st)
	w.settleIn()
	w.must("template", "build")
	w.create()
	return w
}

func (w *world) create() {
	w.t.Helper()
	w.must("sandbox", "create", box)
	if err := json.Unmarshal([]byte(w.must("sandbox", "show", box, "--output", "json")), &w.sandbox); err != nil {
		w.t.Fatal(err)
	}
	w.agent = user{"agent", strings.TrimSpace(w.must("run", box, "--", "stat -c %u:%g /home/agent"))}
}

func (w *world) state() string  { return filepath.Join(w.dir, "state") }
func (w *world) labDir() string { return filepath.Join(w.state(), "lab") }

// kind is what the lab's disks are, as lab up calls it.
func (w *world) kind() string {
	if w.zfs {
		return "zfs"
	}
	return "qcow2"
}

func (w *world) config() string { return filepath.Join(w.dir, "savepoint.yaml") }

func apiAddr(st lab.Status) string { return strings.TrimPrefix(st.APIURL, "https://") }

func (w *world) status() lab.Status {
	w.t.Helper()
	st, err := lab.Read(w.labDir())
	if err != nil || !st.Running {
		w.t.Fatalf("the lab: running %t, %v", st.Running, err)
	}
	return st
}

// configure makes savepoint take the way through the relays.
func (w *world) configure(st lab.Status) {
	w.t.Helper()
	text, err := os.ReadFile(st.Config)
	if err != nil {
		w.t.Fatal(err)
	}
	ways := map[string]string{apiAddr(st): w.api.addr(), st.JumpAddress: w.jump.addr()}
	if w.zfs {
		ways[st.Nodes[0].SSH] = w.node.addr()
	}
	for from, to := range ways {
		if !bytes.Contains(text, []byte(from)) {
			w.t.Fatalf("%s does not name %s", st.Config, from)
		}
		text = bytes.ReplaceAll(text, []byte(from), []byte(to))
	}
	if err := os.WriteFile(w.config(), text, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// labUp starts the lab, which adopts the guests of a killed one.
func (w *world) labUp() {
	w.t.Helper()
	p := w.start([]string{"SAVEPOINT_STATE_DIR=" + w.state()}, "lab", "up", "--storage", w.kind())
	if r := p.wait(10 * time.Minute); r.code != 0 {
		w.t.Fatalf("start the lab: %s", r)
	}
	if w.api != nil {
		st := w.status()
		w.api.aim(apiAddr(st))
		w.jump.aim(st.JumpAddress)
		w.node.aim(st.Nodes[0].SSH)
	}
}

// result is how a savepoint process ended.
type result struct {
	args   []string
	code   int // -1: killed
	stdout string
	stderr string
	begun  time.Time
	took   time.Duration
}

func (r result) String() string {
	command, _, _ := strings.Cut(strings.Join(r.args, " "), "\n")
	said := r.stdout
	if len(said) > 1000 {
		said = "…" + said[len(said)-1000:]
	}
	return fmt.Sprintf("%s savepoint %s: exit code %d after %.1f s\n%s%s", r.begun.Format("15:04:05.000"), command, r.code, r.took.Seconds(), said, r.stderr)
}

// proc is a savepoint process.
type proc struct {
	w      *world
	cmd    *exec.Cmd
	out    bytes.Buffer
	err    bytes.Buffer
	begun  time.Time
	ended  chan struct{}
	result result
}

// start starts savepoint; more replaces the environment that leads it to the
// lab through the relays.
func (w *world) start(more []string, args ...string) *proc {
	w.t.Helper()
	if more == nil {
		more = []string{"SAVEPOINT_CONFIG=" + w.config()}
	}
	p := &proc{w: w, cmd: exec.Command(w.bin, args...), begun: time.Now(), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = w.dir, &p.out, &p.err
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "SAVEPOINT_CACHE=" + w.cache}, more...)
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	var once sync.Once
	w.t.Cleanup(func() { once.Do(p.kill); <-p.ended })
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		p.result = result{args: args, stdout: p.out.String(), stderr: p.err.String(), begun: p.begun, took: time.Since(p.begun)}
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			p.result.code = exit.ExitCode()
		} else if err != nil {
			p.result.code = -2
			p.result.stderr += err.Error()
		}
	}()
	return p
}

func (p *proc) kill() { _ = p.cmd.Process.Kill() }

// wait kills the process when it does not end within the time.
func (p *proc) wait(most time.Duration) result {
	ctx, cancel := context.WithTimeout(p.w.ctx, most)
	defer cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.kill()
		<-p.ended
		p.result.stderr += "\n(killed by the test: it did not end)"
		p.result.code = hung
	}
	return p.result
}

// hung is the code of a process that the test had to kill.
const hung = -3

// patience bounds one command. The machine may be slow, but not that slow.
const patience = 5 * time.Minute

func (w *world) savepoint(args ...string) result { return w.start(nil, args...).wait(patience) }

func (w *world) must(args ...string) string {
	w.t.Helper()
	r := w.savepoint(args...)
	if r.code != 0 {
		w.t.Fatalf("%s", r)
	}
	return r.stdout
}

// transaction is what the rounds need of what tx show prints.
type transaction struct {
	ID             orchestrator.TxID  `json:"transaction"`
	State          orchestrator.State `json:"state"`
	RunningAtBegin bool               `json:"running_at_begin"`
	Ended          time.Time          `json:"ended"`
	Reason         string             `json:"reason"`
	Steps          []struct {
		At     time.Time `json:"at"`
		Event  string    `json:"event"`
		Detail string    `json:"detail"`
	} `json:"steps"`
}

// history is the transaction's way in one line.
func (t transaction) history() string {
	var out []string
	for _, s := range t.Steps {
		out = append(out, strings.TrimSpace(s.At.Format("05.000 ")+s.Event+" "+s.Detail))
	}
	return string(t.ID) + ": " + strings.Join(out, " | ")
}

// last returns the newest transaction, if it is not that of an earlier round.
func (w *world) last() (transaction, error) {
	r := w.savepoint("tx", "list", "--sandbox", string(w.sandbox.ID), "--limit", "1", "--output", "json")
	var txs []transaction
	if r.code != 0 {
		return transaction{}, errors.New(r.String())
	}
	if err := json.Unmarshal([]byte(r.stdout), &txs); err != nil {
		return transaction{}, fmt.Errorf("%w: %s", err, r)
	}
	if len(txs) == 0 || txs[0].ID == w.newest {
		return transaction{}, nil
	}
	return w.show(txs[0].ID)
}

func (w *world) show(id orchestrator.TxID) (tx transaction, err error) {
	r := w.savepoint("tx", "show", string(id), "--output", "json")
	if r.code != 0 {
		return tx, errors.New(r.String())
	}
	if err := json.Unmarshal([]byte(r.stdout), &tx); err != nil {
		return tx, fmt.Errorf("%w: %s", err, r)
	}
	return tx, nil
}

// client is a way to the lab's API past the relay.
func (w *world) client() (*http.Client, lab.Status, error) {
	st := w.status()
	ca, err := os.ReadFile(st.CAFile)
	if err != nil {
		return nil, st, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}, st, nil
}

// call makes one request and decodes the data of the answer.
func (w *world) call(c *http.Client, req *http.Request, into any) error {
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	resp, err := c.Do(req.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", req.Method, req.URL, resp.Status)
	}
	return json.Unmarshal(body, &struct {
		Data any `json:"data"`
	}{into})
}

func nodeURL(st lab.Status, path string) string {
	return fmt.Sprintf("%s/api2/json/nodes/%s/%s", st.APIURL, lab.NodeName, path)
}

// vmPath is the sandbox's VM below its node.
func (w *world) vmPath(path string) string { return fmt.Sprintf("qemu/%d/%s", w.sandbox.VM.ID, path) }

// ask reads what the lab's API says of the sandbox's VM.
func (w *world) ask(path string, into any) error {
	return w.request(http.MethodGet, w.vmPath(path), nil, into)
}

// request makes a request below the node with an administrator's token.
func (w *world) request(method, path string, values url.Values, into any) error {
	c, st, err := w.client()
	if err != nil {
		return err
	}
	req, err := form(method, nodeURL(st, path), values)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "PVEAPIToken="+st.TokenID+"="+st.TokenSecret)
	return w.call(c, req, into)
}

// form is a request with values in its body, if there are any.
func form(method, to string, values url.Values) (*http.Request, error) {
	req, err := http.NewRequest(method, to, strings.NewReader(values.Encode()))
	if err == nil && values != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, err
}

// unlock does what qm unlock does: the operator's part, which no token may play.
func (w *world) unlock() error {
	c, st, err := w.client()
	if err != nil {
		return err
	}
	var login struct {
		Ticket string `json:"ticket"`
		CSRF   string `json:"CSRFPreventionToken"`
	}
	req, err := form(http.MethodPost, st.APIURL+"/api2/json/access/ticket", url.Values{"username": {st.User}, "password": {st.Password}})
	if err == nil {
		err = w.call(c, req, &login)
	}
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	if req, err = form(http.MethodPut, nodeURL(st, w.vmPath("config")), url.Values{"delete": {"lock"}, "skiplock": {"1"}}); err != nil {
		return err
	}
	req.AddCookie(&http.Cookie{Name: "PVEAuthCookie", Value: login.Ticket})
	req.Header.Set("CSRFPreventionToken", login.CSRF)
	return w.call(c, req, nil)
}

// vmState is what the cluster says of the VM.
type vmState struct {
	Status string `json:"status"`
	Lock   string `json:"lock"`
}

func (w *world) vm() (s vmState, err error) { return s, w.ask("status/current", &s) }

// snapshots lists the names of the VM's snapshots.
func (w *world) snapshots() ([]string, error) {
	var all []struct {
		Name string `json:"name"`
	}
	if err := w.ask("snapshot", &all); err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.Name != "current" {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// volumes lists what the VM has on the storages: saved memory of a snapshot that
// is gone would stay there unseen.
func (w *world) volumes() ([]string, error) {
	storages := []string{"local"}
	if w.zfs {
		storages = append(storages, "local-zfs")
	}
	var out []string
	for _, s := range storages {
		var all []struct {
			ID string `json:"volid"`
			VM int    `json:"vmid"`
		}
		if err := w.request(http.MethodGet, "storage/"+s+"/content?content=images", nil, &all); err != nil {
			return nil, err
		}
		for _, v := range all {
			if v.VM == int(w.sandbox.VM.ID) {
				out = append(out, v.ID)
			}
		}
	}
	return out, nil
}
