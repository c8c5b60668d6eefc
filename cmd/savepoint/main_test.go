package main

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
	"savepoint/testbed/sim"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"savepoint": main})
}

// TestStories runs the command-line stories in testdata/script against a
// cluster with simulated guests. A story can disturb the cluster:
//
//	template [STORAGE]     build the template
//	image NAME [THING...]  serve a guest's image that lacks these things: IMAGE_URL, IMAGE_SHA256
//	half-template VMID     make a VM that says it is a template of ours in the making
//	lock VMID [NAME]       hold a config lock, as another administrator would; no name frees it
//	hostkey VMID           change the guest's SSH host key
//	never-boots VMID       let the guest hang in its next boot
//	down                   stop the API
//	node NAME on|off       a node loses its power, or has it again; scripts called nodes_*
//	                       and doctor_cluster have three nodes, and a storage "shared" of the first two
//	hex BYTES              compare the last stdout
//	let NAME               set a variable to the last stdout
//	disown VMID            take our tags off the VM, as another administrator could; own undoes it
//	stray VMID [INSTANCE]  make a VM that says it is a sandbox of ours, or of that instance
//	snapshot VMID NAME     take a snapshot, as another tool would
//	kill-task TYPE [STEP]  kill the worker of the next task of that type when it comes to the step
//	fail-task TYPE TEXT    let the next task of that type fail with this text
//	kept TEXT              the text is in a file of the state directory, in clear or in base64
//	ha VMID STATE          let HA manage the VM; replicate VMID NODE replicates it
//	await-running          wait until a command runs in a guest
//	interrupt COMMAND...   interrupt it once its command runs in the guest; it has to
//	                       end with 130; its stderr is in the file "err", or, with
//	                       -unread first, a pipe that nobody reads any more
//	crash COMMAND...       the same with SIGKILL
//	exits CODE COMMAND...  run a command that has to end with this exit code
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		WorkdirRoot:         t.TempDir(), // removed also when only some scripts run
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", os.Getenv("GORACE"))
			top, err := filepath.Abs(filepath.Join("..", ".."))
			if err != nil {
				return err
			}
			e.Setenv("CHECKOUT", top)
			dir := filepath.Join(e.WorkDir, ".cluster")
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			nodes, storages := []string{"pve1"}, []pve.Storage{{ID: "local"}, {ID: "raw", Format: "raw"}}
			if name := filepath.Base(e.WorkDir); strings.HasPrefix(name, "script-nodes_") || name == "script-doctor_cluster" {
				nodes = []string{"pve1", "pve2", "pve3"}
				storages = append(storages, pve.Storage{ID: "shared", Shared: true, Nodes: nodes[:2]})
			}
			release := ""
			if name := filepath.Base(e.WorkDir); strings.HasPrefix(name, "script-network_") {
				nodes = []string{"pve1", "pve2", "pve3"}
				if strings.HasSuffix(name, "_8") {
					release = "8.4"
				}
			}
			c, err := startClusterOf(dir, release, nodes, storages...)
			if err != nil {
				return err
			}
			e.Defer(c.close)
			if err := writeOtherCA(filepath.Join(dir, "other.pem")); err != nil {
				return err
			}
			e.Values[clusterKey{}] = c
			e.Setenv("SAVEPOINT_CONFIG", c.file)
			e.Setenv("SAVEPOINT_STATE_DIR", filepath.Join(dir, "state"))
			e.Setenv("HOME", dir)
			return nil
		},
		Cmds: with(with(with(doctorCommands, networkCommands), poolCommands), map[string]func(*testscript.TestScript, bool, []string){
			"template": func(ts *testscript.TestScript, neg bool, args []string) {
				storage := "local"
				if len(args) > 0 {
					storage = args[0]
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				ts.Check(of(ts).buildTemplate(ctx, ts.MkAbs("."), storage))
			},
			"image": func(ts *testscript.TestScript, neg bool, args []string) {
				address, digest := of(ts).serveImage(args[0], args[1:])
				ts.Setenv("IMAGE_URL", address)
				ts.Setenv("IMAGE_SHA256", digest)
			},
			"half-template": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(of(ts).halfTemplate(number(ts, args)))
			},
			"lock": func(ts *testscript.TestScript, neg bool, args []string) {
				name := ""
				if len(args) > 1 {
					name = args[1]
				}
				ts.Check(of(ts).api.SetLock(number(ts, args), name))
			},
			"hostkey": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(of(ts).backend.ChangeHostKey(number(ts, args)))
			},
			"never-boots": func(ts *testscript.TestScript, neg bool, args []string) {
				of(ts).backend.Behave(number(ts, args), sim.Behaviour{NeverBoots: true})
			},
			"exits": exits,
			"let": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
			},
			"hex": func(ts *testscript.TestScript, neg bool, args []string) {
				if got := hex.EncodeToString([]byte(ts.ReadFile("stdout"))); got != args[0] {
					ts.Fatalf("stdout is %s, want %s", got, args[0])
				}
			},
			"disown": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(of(ts).disown(number(ts, args)))
			},
			"own": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(of(ts).own(number(ts, args)))
			},
			"stray": func(ts *testscript.TestScript, neg bool, args []string) {
				instance := ""
				if len(args) > 1 {
					instance = args[1]
				}
				ts.Check(of(ts).stray(number(ts, args), instance))
			},
			"snapshot": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(of(ts).snapshot(number(ts, args), args[1]))
			},
			"kill-task": func(ts *testscript.TestScript, neg bool, args []string) {
				f := pve.TaskFault{Type: args[0], Nth: 1, Action: task.Action{Kill: true}}
				if len(args) > 1 {
					f.Step = args[1]
				}
				of(ts).api.Faults.AddTask(f)
			},
			"fail-task": func(ts *testscript.TestScript, neg bool, args []string) {
				of(ts).api.Faults.AddTask(pve.TaskFault{Type: args[0], Nth: 1, Action: task.Action{Fail: args[1]}})
			},
			"node": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(of(ts).api.SetNode(args[0], args[1] == "on"))
			},
			"kept": kept,
			"ha": func(ts *testscript.TestScript, neg bool, args []string) {
				of(ts).api.SetHA(number(ts, args), args[1])
			},
			"replicate": func(ts *testscript.TestScript, neg bool, args []string) {
				of(ts).api.SetReplication(number(ts, args), args[1])
			},
			"await-running": awaitRunning,
			"interrupt":     interrupt,
			"crash":         crash,
			"down":          func(ts *testscript.TestScript, neg bool, args []string) { of(ts).api.Close() },
		}),
	})
}

// with joins two tables of commands.
func with(a, b map[string]func(*testscript.TestScript, bool, []string)) map[string]func(*testscript.TestScript, bool, []string) {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

type clusterKey struct{}

func of(ts *testscript.TestScript) *cluster { return ts.Value(clusterKey{}).(*cluster) }

func number(ts *testscript.TestScript, args []string) int {
	if len(args) == 0 {
		ts.Fatalf("a VM id is needed")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	return n
}

// interrupt sends a running transaction what Ctrl-C sends.
func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	signalRunning(ts, args, os.Interrupt, exitInterrupted)
}

// crash ends savepoint in the middle of a transaction, with no chance to do
// anything about it.
func crash(ts *testscript.TestScript, _ bool, args []string) {
	signalRunning(ts, args, os.Kill, -1)
}

// signalRunning runs a command, waits until the journal says that its
// transaction is running, signals it, and wants that exit code.
func signalRunning(ts *testscript.TestScript, args []string, sig os.Signal, code int) {
	signalWhen(ts, args, sig, code, running)
}

// signalWhen runs a command, signals it when what the journal's file says is
// what is awaited, and wants that exit code.
func signalWhen(ts *testscript.TestScript, args []string, sig os.Signal, code int, ready func(file string) bool) {
	unread := args[0] == "-unread"
	if unread {
		args = args[1:]
	}
	bin := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, args[0]); fileExists(p) {
			bin = p
			break
		}
	}
	cmd := exec.Command(bin, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "SAVEPOINT_CONFIG", "SAVEPOINT_STATE_DIR", "SAVEPOINT_CACHE", "SAVEPOINT_REDACT"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	stderr, err := os.Create(ts.MkAbs("err"))
	ts.Check(err)
	defer stderr.Close()
	cmd.Stderr = stderr
	if unread { // as behind "| tee", which the same Ctrl-C ends
		r, w, err := os.Pipe()
		ts.Check(err)
		ts.Check(r.Close())
		defer w.Close()
		cmd.Stderr = w
	}
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	file := filepath.Join(labPath(ts), "orchestrator", "journal.db")
	if c, ok := ts.Value(clusterKey{}).(*cluster); ok {
		file = journalFile(c.config)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for sent := false; ; {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !sent || !errors.As(err, &exit) || exit.ExitCode() != code {
				ts.Fatalf("signalled: %v, ended: %v; want exit code %d\n%s", sent, err, code, ts.ReadFile("err"))
			}
			return
		case <-deadline:
			_ = cmd.Process.Kill()
			<-ended
			ts.Fatalf("it did not end; signalled: %v\n%s", sent, ts.ReadFile("err"))
		case <-tick.C:
			if !sent && ready(file) {
				sent = true
				ts.Check(cmd.Process.Signal(sig))
			}
		}
	}
}

// awaitRunning waits until the journal says that a command was sent.
func awaitRunning(ts *testscript.TestScript, _ bool, _ []string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !running(journalFile(of(ts).config)) {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("no command runs")
		}
	}
}

// running reports whether the journal has a transaction whose command was sent.
func running(file string) bool {
	j, err := journal.OpenReadOnly(file)
	if err != nil {
		return false
	}
	defer j.Close()
	txs, err := orchestrator.List(context.Background(), j, orchestrator.Filter{States: []orchestrator.State{orchestrator.StateRunning}})
	return err == nil && len(txs) == 1
}
