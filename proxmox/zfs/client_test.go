package zfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox/zfs"
)

// whole is a request that the node carries out.
func whole(replace ...string) string {
	r := "savepoint-zfs 1\ndo create\ndataset " + volume + "\nname sp-one\nowner " + owner + "\ntext words\nreserve 5\ngo\n"
	return strings.NewReplacer(replace...).Replace(r)
}

// The program on the node does nothing for a request that is not exactly right:
// no option, no other dataset, no range of snapshots, no half of an order, and
// nothing that a shell would do (F22, F72, F121).
func TestProgramRefuses(t *testing.T) {
	w := newNode(t)
	for _, request := range []string{
		"", "\n", "go\n", "savepoint-zfs 2\ngo\n",
		whole("go\n", ""),                  // cut off
		whole("go\n", "g"),                 // cut off
		whole()[20:],                       // without its head
		whole() + "do delete\ngo\n",        // goes on
		whole("do create", "do destroy"),   // no such order
		whole("do create", "do"),           //
		whole("do create", "do create -r"), //
		whole("reserve 5", "force 1"),      // no such field
		whole("reserve 5", "reserve -1"),   //
		whole("reserve 5", "reserve 1 2"),  //
		whole("reserve 5", "reserve 0x10"), //
		whole(volume, "tank/elsewhere/vm"), // not below a prefix
		whole(volume, "tank/sandboxes"),    // the prefix itself
		whole(volume, "tank/sandboxes/"),   //
		whole(volume, "tank/sandboxesx/v"), // begins like one
		whole(volume, "tank/sandboxes/../x"),
		whole(volume, "tank/sandboxes/./x"),
		whole(volume, "tank/sandboxes//x"),
		whole(volume, "/tank/sandboxes/x"),
		whole(volume, "-r"),
		whole(volume, volume+"@x"),
		whole(volume, volume+" x"),
		whole(volume, volume+";touch x"),
		whole(volume, volume+"$(touch x)"),
		whole(volume, volume+"ä"),
		whole("name sp-one", "name -r"),
		whole("name sp-one", "name sp-one%sp-two"),
		whole("name sp-one", "name sp-one,sp-two"),
		whole("name sp-one", "name sp one"),
		whole("name sp-one", "name sp-one@x"),
		whole("name sp-one", "name s"),
		whole("name sp-one", "name "+strings.Repeat("s", 41)),
		whole("name sp-one", "name"),
		whole("owner "+owner, "owner "),
		whole("owner "+owner, "owner -x"),
		whole("owner "+owner, "owner LAB"),
		whole("text words", "text w\x1b[2J"),
		whole("text words", "text "+strings.Repeat("w", 300)),
		whole("text words", "text "+strings.Repeat("w", 5000)),
	} {
		out, err := w.run(t.Context(), request)
		if err != nil || !strings.HasSuffix(out, "\nend refused\n") {
			t.Errorf("%.60q: %v %q", request, err, out)
		}
	}
	if log := w.pool(nil).Log; len(log) != 0 {
		t.Errorf("zfs was called: %q", log)
	}
	if out, err := w.run(t.Context(), whole("text words", "text -o x=y; `id` $(id) 'a' \"b\" \\ *")); err != nil || !strings.HasSuffix(out, "\nend ok\n") {
		t.Errorf("a text of odd but printable characters: %v %q", err, out)
	}
	if got := w.pool(nil).Datasets[volume].Taken[0].Props["savepoint:text"]; got != "-o x=y; `id` $(id) 'a' \"b\" \\ *" {
		t.Errorf("the text became %q", got)
	}
}

// The simulated node of the other tests answers every order as the program does,
// and zfs gets the same commands from both.
func TestSimulatedNodeIsTheProgram(t *testing.T) {
	real, simulated := newNode(t), newWorld(t)
	made := regexp.MustCompile(`creation\t[0-9]+`)
	same := func(what, request string) {
		t.Helper()
		var answers, logs []string
		for _, w := range []*world{real, simulated} {
			out, err := w.run(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, made.ReplaceAllString(out, "creation"))
			w.pool(func(p *pool) { logs, p.Log = append(logs, strings.Join(p.Log, "\n")), nil })
		}
		if answers[0] != answers[1] || logs[0] != logs[1] {
			t.Errorf("%s: the program answered\n%safter\n%s\nthe simulated node\n%safter\n%s", what, answers[0], logs[0], answers[1], logs[1])
		}
	}
	orders := func(what, name, dataset string, dos ...string) {
		t.Helper()
		for _, do := range dos {
			same(what+" "+do, whole("do create", "do "+do, "sp-one", name, volume, dataset))
		}
	}
	both := func(change func(*pool)) {
		real.pool(change)
		simulated.pool(change)
	}
	owned := func(by string) { both(func(p *pool) { p.Datasets[volume].Props["savepoint:owner"] = by }) }
	orders("first", "sp-one", volume, "list", "create", "create", "rollback")
	orders("second", "sp-two", volume, "create", "delete", "delete", "rollback")
	orders("missing", "sp-two", volume+"0", "list", "create", "delete")
	same("without a text", whole("text words\n", "", "sp-one", "sp-three"))
	orders("not the newest", "sp-one", volume, "rollback")
	both(func(p *pool) { p.Datasets[volume].take(p, "@foreign", nil) })
	orders("foreign", "foreign", volume, "rollback", "delete")
	both(func(p *pool) { p.Free = 4 })
	orders("full", "sp-four", volume, "create")
	both(func(p *pool) { p.Free = 1 << 30 })
	for verb, do := range map[string]string{"get": "list", "snapshot": "create", "rollback": "rollback", "destroy": "delete", "set": "claim"} {
		name := map[bool]string{true: "sp-new", false: "sp-three"}[verb == "snapshot"]
		both(func(p *pool) { p.Faults = []fault{{verb, "cannot: so\nand so"}} })
		if verb == "set" {
			owned("")
		}
		orders("refused", name, volume, do)
		owned(owner)
	}
	owned("")
	orders("nobody's", "sp-three", volume, "create", "rollback", "delete", "claim", "claim")
	owned("other/x")
	orders("another's", "sp-three", volume, "claim", "delete")
}

// A program that was installed without datasets is for none.
func TestProgramWithoutDatasets(t *testing.T) {
	w := newNode(t)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(w.dir, "savepoint-zfs"))
	cmd.Stdin = strings.NewReader(whole())
	if out, err := cmd.Output(); err != nil || !strings.HasSuffix(string(out), "\nend refused\n") {
		t.Errorf("%v %q", err, out)
	}
}

// A zfs command that outlives its caller keeps the lock: the next order waits
// until it has ended (F73).
func TestProgramWaitsForAnEarlierOrder(t *testing.T) {
	w := newNode(t)
	holder := exec.CommandContext(t.Context(), "flock", filepath.Join(w.dir, "savepoint-zfs"), "/bin/sh", "-c", "echo held; read line")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.run(t.Context(), whole())
		done <- err
	}()
	waits := func() bool { // the kernel lists who waits for a lock with an arrow
		st, err := os.Stat(filepath.Join(w.dir, "savepoint-zfs"))
		if err != nil {
			t.Fatal(err)
		}
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "->") && strings.Contains(line, fmt.Sprintf(":%d ", st.Sys().(*syscall.Stat_t).Ino)) {
				return true
			}
		}
		return false
	}
	for !waits() {
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
	}
	if n := len(w.pool(nil).Log); n != 0 {
		t.Errorf("%d zfs commands beside an earlier order", n)
	}
	if _, err := in.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	if got := w.names(); len(got) != 1 {
		t.Errorf("taken %q", got)
	}
}

// An answer that is not whole proves nothing: an order is of unknown outcome, a
// look may be repeated (F99).
func TestAnswers(t *testing.T) {
	w := newNode(t)
	good, err := w.run(t.Context(), whole())
	if err != nil {
		t.Fatal(err)
	}
	target := zfs.Target{Node: "pve1", Dataset: volume, Owner: owner}
	for _, answer := range []string{
		"", "hello\n", "savepoint-zfs 2\nend ok\n", "This account is currently not available.\n",
		"savepoint-zfs 1\nend ok\n", "savepoint-zfs 1\nend what\n",
		strings.Replace(good, "end ok", "end", 1), good + "x", good + "end failed\n",
		good[:len(good)-1], good[:len(good)-8], good[:len(good)/2],
		strings.ReplaceAll(good, "createtxg\t", "createtxg\tx"), strings.ReplaceAll(good, "available\t1", "available\tx"),
	} {
		c := zfs.NewClient(func(context.Context, string, []byte) ([]byte, error) { return []byte(answer), nil })
		if _, err := c.Delete(t.Context(), target, "sp-one"); !errors.Is(err, orchestrator.ErrUnknownOutcome) {
			t.Errorf("%.40q: %v, want ErrUnknownOutcome", answer, err)
		}
		if _, err := c.List(t.Context(), target); !errors.Is(err, orchestrator.ErrUnavailable) || errors.Is(err, orchestrator.ErrUnknownOutcome) {
			t.Errorf("%.40q: %v, want ErrUnavailable", answer, err)
		}
	}
	c := zfs.NewClient(func(context.Context, string, []byte) ([]byte, error) { return []byte(good), nil })
	v, err := c.List(t.Context(), target)
	if err != nil || len(v.Taken) != 1 || v.Taken[0].Text != "words" || v.Taken[0].Owner != owner || v.Free != 1<<30 {
		t.Errorf("%v %+v", err, v)
	}
}

// The node says below which datasets the key works.
func TestHello(t *testing.T) {
	w := newNode(t)
	got, err := w.client.Hello(t.Context(), "pve1")
	if err != nil || strings.Join(got, " ") != "tank/sandboxes other" {
		t.Errorf("%q %v", got, err)
	}
}

// A value with a line break never becomes a line of its own.
func TestClientRefusesLineBreaks(t *testing.T) {
	w := newNode(t)
	target := zfs.Target{Node: "pve1", Dataset: volume, Owner: owner}
	if _, err := w.client.Snapshot(t.Context(), target, "sp-one", "a\ndo delete", 0); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("%v, want ErrDenied", err)
	}
	if len(w.calls) != 0 {
		t.Errorf("sent: %q", w.calls)
	}
}

// The commands for the administrator make the key good for this and nothing
// else, and a shell reads them as they are meant.
func TestSetup(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3 savepoint"
	commands, err := zfs.Setup("savepoint", key, []string{"tank/sandboxes", "fast/sandboxes"})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(commands, "\n")
	for _, want := range []string{
		`restrict,command="` + zfs.ProgramPath + ` tank/sandboxes fast/sandboxes" ` + key,
		"zfs allow -u savepoint snapshot,rollback,destroy,mount,userprop tank/sandboxes",
		"zfs allow -u savepoint snapshot,rollback,destroy,mount,userprop fast/sandboxes",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	file := filepath.Join(t.TempDir(), "commands")
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, bad := range [][]string{{"x'; reboot; '", "tank/x"}, {key, "tank/$(id)"}, {key + "\nssh-rsa AA", "tank/x"}, {key}} {
		if _, err := zfs.Setup("savepoint", bad[0], bad[1:]); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
