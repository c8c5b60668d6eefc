package proxmox

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

func TestParseUPID(t *testing.T) {
	u, err := parseUPID(testUPID)
	if err != nil {
		t.Fatal(err)
	}
	if u.node != "pve1" || u.kind != "qmsnapshot" || u.user != testToken || u.vm() != testVM || u.started.Unix() != 0x6B0EFD04 {
		t.Errorf("got %+v", u)
	}
	for _, good := range []string{
		"UPID:a:00000001:000000001:00000001:reloadnetworkall::root@pam:",
		"UPID:pve-2:0000008C:100098F82:6B0EFD04:srvreload:networking:root@pam:",
	} {
		if _, err := parseUPID(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "null", "UPID", testUPID + "x", strings.TrimSuffix(testUPID, ":"), " " + testUPID,
		"UPID:pve1:0000008C:00098F82:6B0EFD04:qmsnapshot:100:",
		"UPID:pve1:0000008C:00098F82:6B0EFD04:qmsnapshot:../100:sp@pve!t1:",
		"UPID:-pve:0000008C:00098F82:6B0EFD04:qmsnapshot:100:sp@pve!t1:",
	} {
		if u, err := parseUPID(bad); err == nil {
			t.Errorf("%q was taken as %+v", bad, u)
		}
	}
}

// Await tells a task's end by its exit status and nothing else.
func TestAwaitExitStatus(t *testing.T) {
	for _, tc := range []struct {
		name, exit string
		class      error // nil = success
	}{
		{"OK", "OK", nil},
		{"warnings are success, F46", "WARNINGS: 2", nil},
		{"a failed task ends the wait at once, F48 F51", "snapshot name 'sp' already used", orchestrator.ErrExists},
		{"200 is not success, F49", "VM is locked (backup)", orchestrator.ErrBusy},
		{"killed worker", "unexpected status", orchestrator.ErrUnknownOutcome},
		{"unknown text", "something nobody knows", orchestrator.ErrUnknownOutcome},
		{"no text", "", orchestrator.ErrUnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t)
			s.inTurn(statusKey, running(), running(), stopped(tc.exit))
			err := s.open(t).Tasks().Await(t.Context(), testUPID)
			if tc.class == nil {
				if err != nil {
					t.Fatal(err)
				}
			} else {
				wantClass(t, err, tc.class)
				wantText(t, err, testUPID)
			}
			if n := s.count(statusKey); n != 3 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// F55: failed polls say nothing about the task.
func TestPollSurvivesBadMoments(t *testing.T) {
	s := newScripted(t)
	s.inTurn(statusKey,
		answer{status: 596, message: "Connection timed out"}, answer{drop: true}, answer{status: 500, message: "got timeout"},
		answer{status: 595, message: "no route"}, running(), answer{status: 503}, answer{drop: true}, answer{drop: true}, answer{drop: true},
		answer{drop: true}, answer{status: 429}, stopped("OK"))
	if err := s.open(t).Tasks().Await(t.Context(), testUPID); err != nil {
		t.Fatal(err)
	}
}

// F38: how long a task is followed has nothing to do with how long a request
// may take; an answer that does not come in time is asked for again.
func TestTaskOutlastsTheRequestTimeout(t *testing.T) {
	s := newScripted(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	slow := running()
	slow.hang = hang
	s.inTurn(statusKey, slow, running(), slow, stopped("OK"))
	c := s.open(t, func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
	if err := c.Tasks().Await(t.Context(), testUPID); err != nil {
		t.Fatal(err)
	}
}

func TestPollEndsWhenRefused(t *testing.T) {
	s := newScripted(t)
	s.always(statusKey, answer{status: 403, message: "Permission check failed (/nodes/pve1, Sys.Audit)"})
	err := s.open(t).Tasks().Await(t.Context(), testUPID)
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	wantText(t, err, testUPID, "privilege Sys.Audit is missing on /nodes/pve1")
}

// F56: the wait has an end of its own; the task's fate is unknown then.
func TestOwnDeadline(t *testing.T) {
	s := newScripted(t)
	s.always(statusKey, running())
	c := s.open(t, func(c *Config) { c.CloneTimeout = 60 * time.Millisecond })
	err := c.Tasks().Await(t.Context(), testUPID)
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	wantText(t, err, testUPID, "did not end within 60ms", "not stopped")
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("the caller's context did not end, but the error says so")
	}
}

func TestCancelReturnsAtOnceAndLeavesTheTask(t *testing.T) {
	s := newScripted(t)
	asked := make(chan struct{}, 1000)
	hang := make(chan struct{})
	defer close(hang)
	s.on(statusKey, func(*http.Request, []byte) answer { asked <- struct{}{}; return answer{hang: hang} })
	c := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Tasks().Await(ctx, testUPID) }()
	<-asked
	cancel()
	select {
	case err := <-done:
		wantClass(t, err, orchestrator.ErrUnknownOutcome)
		wantText(t, err, testUPID, "was not stopped")
		if !errors.Is(err, context.Canceled) {
			t.Error("the error does not hold the context's end")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("await did not return")
	}
	if n := s.count("DELETE /nodes/pve1/tasks/" + testUPID); n != 0 {
		t.Error("the task was stopped")
	}
}

// A task of ours that the cluster forgot before it told its end has done
// anything or nothing; it is not "not found", which would say that the
// snapshot or the VM is missing.
func TestForgottenTaskOfAnOrder(t *testing.T) {
	s := newScripted(t)
	s.always("GET /nodes/pve1/qemu/100/config", sandboxConfig())
	s.always("GET /nodes/pve1/qemu/100/snapshot", answer{data: []map[string]any{{"name": "sp", "snaptime": 1}, {"name": "current", "parent": "sp"}}})
	s.always("POST /nodes/pve1/qemu/100/snapshot/sp/rollback", answer{data: testUPID})
	s.always(statusKey, answer{status: 400, message: "Parameter verification failed.", errors: map[string]string{"upid": "no such task"}})
	s.always("GET /nodes/pve1/tasks", answer{data: []any{}})
	err := s.open(t).Snapshots().Rollback(t.Context(), orchestrator.SnapshotRequest{Sandbox: testSandbox, VM: testVM, Name: "sp"})
	wantClass(t, err, orchestrator.ErrUnknownOutcome)
	if errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("also not found: %v", err)
	}
	wantText(t, err, testUPID, "look at the vm")
}

func TestForgottenTask(t *testing.T) {
	noSuch := answer{status: 400, message: "Parameter verification failed.", errors: map[string]string{"upid": "no such task"}}
	list := func(status string) answer {
		return answer{data: []map[string]any{{"upid": testUPID, "type": "qmsnapshot", "id": "100", "status": status, "starttime": 1796144388, "endtime": 1796144389, "user": "sp@pve"}}}
	}
	for _, tc := range []struct {
		name  string
		list  answer
		class error
	}{
		{"in the list as OK", list("OK"), nil},
		{"in the list as failed", list("VM is locked (clone)"), orchestrator.ErrBusy},
		{"nowhere", answer{data: []any{}}, orchestrator.ErrNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t)
			s.always(statusKey, noSuch)
			s.always("GET /nodes/pve1/tasks", tc.list)
			err := s.open(t).Tasks().Await(t.Context(), testUPID)
			if tc.class == nil && err != nil {
				t.Fatal(err)
			}
			if tc.class != nil {
				wantClass(t, err, tc.class)
			}
		})
	}
	err := newScripted(t).open(t).Tasks().Await(t.Context(), "UPID:nonsense")
	wantClass(t, err, orchestrator.ErrNotFound)
}

func TestFindTasks(t *testing.T) {
	at := func(hex, id, kind string) string {
		return "UPID:pve1:0000008C:00098F82:" + hex + ":" + kind + ":" + id + ":sp@pve!t1:"
	}
	s := newScripted(t)
	s.on("GET /nodes/pve1/tasks", func(r *http.Request, _ []byte) answer {
		q := r.URL.Query()
		if q.Get("vmid") != "100" || q.Get("typefilter") != "qmrollback" || q.Get("since") != "1796144388" || q.Get("source") != "all" {
			return answer{status: 400, message: "bad query " + r.URL.RawQuery}
		}
		return answer{data: []map[string]any{
			{"upid": at("6B0EFD06", "100", "qmrollback"), "status": "RUNNING"},
			{"upid": at("6B0EFD05", "100", "qmrollback"), "status": "VM is locked (backup)", "endtime": 1},
			{"upid": at("6B0EFD04", "100", "qmrollback"), "status": "WARNINGS: 1", "endtime": "1796144389"},
			{"upid": at("6B0EFD04", "101", "qmrollback"), "status": "OK"}, // the server's filter is not relied upon
			{"upid": at("6B0EFD03", "100", "qmrollback"), "status": "OK"},
			{"upid": "broken", "status": "OK"},
		}}
	})
	got, err := s.open(t).Tasks().Find(t.Context(), testVM, "qmrollback", time.Unix(1796144388, 999))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || !got[0].Running || got[0].Failure != "" || got[1].Running || got[1].Failure != "VM is locked (backup)" || got[2].Failure != "" || got[2].Running || got[2].VM != testVM {
		t.Errorf("got %+v", got)
	}
}

func TestSeenTasksStaysSmall(t *testing.T) {
	var s seenTasks
	id := func(i int) orchestrator.UPID { return orchestrator.UPID(strings.Repeat("x", i)) }
	for i := range 3000 {
		s.add(id(i))
		s.add(id(i))
	}
	if len(s.known) > len(s.ring) || !s.has(id(2999)) || s.has(id(1)) {
		t.Errorf("%d known", len(s.known))
	}
}

// The order's answer was lost: the task is found and followed, and the order
// is not sent again, F39.
func TestLostAnswerIsRecovered(t *testing.T) {
	const post = "POST /nodes/pve1/qemu/100/snapshot"
	now := time.Unix(0x6B0EFD04, 0)
	old := strings.Replace(testUPID, "6B0EFD04", "6B0EFC04", 1)
	foreign := strings.Replace(testUPID, testToken, "other@pve!x", 1)
	for _, tc := range []struct {
		name string
		list []string
		want error
	}{
		{"found", []string{foreign, testUPID, old}, nil},
		{"only somebody else's", []string{foreign}, orchestrator.ErrUnknownOutcome},
		{"only an old one", []string{old}, orchestrator.ErrUnknownOutcome},
		{"none", nil, orchestrator.ErrUnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t)
			s.always(post, answer{drop: true})
			s.always(statusKey, stopped("OK"))
			s.on("GET /nodes/pve1/tasks", func(*http.Request, []byte) answer {
				list := []map[string]any{}
				for _, u := range tc.list {
					list = append(list, map[string]any{"upid": u, "status": "OK"})
				}
				return answer{data: list}
			})
			c := s.open(t, func(c *Config) {
				c.Now = func() time.Time { return now }
				if tc.want == nil {
					c.ReconcileTimeout = 10 * time.Second
				}
			})
			c.clock.offset.Store(0)
			var told []orchestrator.UPID
			err := c.carryOut(t.Context(), order{
				op: "create snapshot", subject: "vm", node: "pve1", kind: "qmsnapshot", id: 100,
				started: func(u orchestrator.UPID) error { told = append(told, u); return nil },
				send: func(ctx context.Context) (string, error) {
					id, err := c.postTask(ctx, "/nodes/pve1/qemu/100/snapshot", nil)
					c.clock.offset.Store(0) // the scripted server has the real time
					return id, err
				},
			})
			if n := s.count(post); n != 1 {
				t.Errorf("sent %d times", n)
			}
			if tc.want != nil {
				wantClass(t, err, tc.want)
				return
			}
			if err != nil || len(told) != 1 || told[0] != testUPID {
				t.Errorf("told %q, %v", told, err)
			}
		})
	}
}

// An answer that is no task id is not success.
func TestAnswerWithoutTask(t *testing.T) {
	for _, data := range []any{nil, "", "UPID:x"} {
		s := newScripted(t)
		s.always("POST /x", answer{data: data})
		c := s.open(t)
		err := c.carryOut(t.Context(), order{op: "do", subject: "it", node: "pve1", send: func(ctx context.Context) (string, error) { return c.postTask(ctx, "/x", nil) }})
		wantClass(t, err, orchestrator.ErrUnknownOutcome)
	}
}
