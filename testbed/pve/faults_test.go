package pve_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

// Each kind of fault, before and after the effect (F39 F53 F55).
func TestRequestFaults(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	cores := func() any { return n.object("/nodes/pve1/qemu/100/config")["cores"] }
	put := func(value string) (int, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", n.url+"/api2/json/nodes/pve1/qemu/100/config", strings.NewReader("cores="+value))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Authorization", "PVEAPIToken=sp@pve!t1="+n.srv.Credentials().Tokens["sp@pve!t1"].Reveal())
		res, err := n.http.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		_, reason, _ := strings.Cut(res.Status, " ")
		return res.StatusCode, reason, nil
	}
	path := "/nodes/*/qemu/*/config"
	for i, tt := range []struct {
		name   string
		fault  pve.Fault
		status int // 0 = no answer
		reason string
		done   bool
	}{
		{"500", pve.Fault{Method: "PUT", Path: path, Status: 500, Message: "got no worker upid - start worker failed"}, 500, "got no worker upid - start worker failed", false},
		{"596 before", pve.Fault{Path: path, Method: "PUT", Status: 596, Message: "Connection timed out"}, 596, "Connection timed out", false},
		{"596 after", pve.Fault{Path: path, Method: "PUT", Status: 596, Message: "Connection timed out", AfterEffect: true}, 596, "Connection timed out", true},
		{"drop before", pve.Fault{Path: path, Method: "PUT", Drop: true}, 0, "", false},
		{"drop after", pve.Fault{Path: path, Method: "PUT", Drop: true, AfterEffect: true}, 0, "", true},
		{"other path", pve.Fault{Path: "/nodes/*/qemu", Method: "PUT", Drop: true}, 200, "OK", true},
		{"delay", pve.Fault{Path: path, Method: "PUT", Delay: 20 * time.Millisecond}, 200, "OK", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old, value := cores(), string(rune('2'+i))
			defer n.srv.Faults.Add(tt.fault)()
			status, reason, err := put(value)
			if status != tt.status || reason != tt.reason || (err != nil) != (tt.status == 0) {
				t.Errorf("answer %d %q %v", status, reason, err)
			}
			if changed := cores() != old; changed != tt.done {
				t.Errorf("done %v, want %v", changed, tt.done)
			}
		})
	}
	n.srv.Faults.Clear()

	t.Run("nth", func(t *testing.T) {
		n.srv.Faults.Add(pve.Fault{Path: "/version", Nth: 2, Status: 595, Message: "No route to host"})
		var got []int
		for range 3 {
			status, _, _ := n.do("GET", "/version", "")
			got = append(got, status)
		}
		if got[0] != 200 || got[1] != 595 || got[2] != 200 {
			t.Errorf("statuses %v", got)
		}
	})
	t.Run("go-proxmox sees it", func(t *testing.T) {
		defer n.srv.Faults.Add(pve.Fault{Path: "/version", Status: 596, Message: "Connection timed out"})()
		_, err := n.client.Version(t.Context())
		var api *proxmox.APIError
		if !errors.As(err, &api) || api.StatusCode != 596 || !proxmox.IsNodeUnreachable(err) {
			t.Errorf("error %v", err)
		}
	})
}

// Tasks that fail, hang and lose their worker at a step.
func TestTaskFaults(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.srv.Faults.AddTask(pve.TaskFault{Type: "qmstart", Nth: 1, Action: task.Action{Fail: "start failed: org.freedesktop.systemd1: timeout"}})
	n.srv.Faults.AddTask(pve.TaskFault{Type: "qmstart", Nth: 2, Action: task.Action{Kill: true}})
	var got []string
	for range 3 {
		got = append(got, n.run("POST", "/nodes/pve1/qemu/100/status/start", ""))
	}
	if got[0] != "start failed: org.freedesktop.systemd1: timeout" || got[1] != "unable to read tail (got 0 bytes)" || got[2] != "OK" {
		t.Errorf("exit statuses %q", got)
	}
}

// F34: the lock file's timeout is the server's own; who holds it is not told.
func TestLockFile(t *testing.T) {
	n := newNode(t, func(c *pve.Config) { c.LockTimeout = 50 * time.Millisecond })
	n.makeVM("100", "")
	release, err := n.srv.HoldFile(100)
	n.must(err)
	const text = "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"
	if _, reason, _ := n.do("PUT", "/nodes/pve1/qemu/100/config", "cores=2"); reason != text {
		t.Errorf("config: %q", reason)
	}
	if st := n.run("POST", "/nodes/pve1/qemu/100/clone", "newid=101"); st != text {
		t.Errorf("clone: %q", st)
	}
	release()
	if status, reason, _ := n.do("PUT", "/nodes/pve1/qemu/100/config", "cores=2"); status != 200 {
		t.Errorf("after release: %q", reason)
	}
}

// Clones of one stopped source run side by side; none waits for another's end.
func TestParallelClones(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	var upids []string
	release := n.mem.Hold("Link")
	for _, id := range []string{"101", "102", "103", "104"} {
		upids = append(upids, n.begin("POST", "/nodes/pve1/qemu/100/clone", "newid="+id))
	}
	n.reaches("all hold the source", func() bool { return len(n.data("/nodes/pve1/qemu").([]any)) == 5 })
	// F42 F44: an id that is being made is taken, before anything is done
	if _, reason, _ := n.do("POST", "/nodes/pve1/qemu/100/clone", "newid=102"); reason != "unable to create VM 102: config file already exists" {
		t.Errorf("clone to a taken id: %q", reason)
	}
	release()
	for _, u := range upids {
		if st := n.exit(u); st != "OK" {
			t.Errorf("%s: %s", u, st)
		}
	}
}

// A server that closes ends what waits in it.
func TestCloseEndsEverything(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.srv.Faults.AddTask(pve.TaskFault{Type: "qmstart", Action: task.Action{Hang: true}})
	n.begin("POST", "/nodes/pve1/qemu/100/status/start", "")
	release, err := n.srv.HoldFile(100)
	n.must(err)
	defer release()
	waiting := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		waiting <- n.client.Put(ctx, "/nodes/pve1/qemu/100/config", map[string]any{"cores": 2}, nil)
	}()
	n.srv.Close()
	if err := <-waiting; err == nil {
		t.Error("the waiting call was answered with success")
	}
}
