package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"savepoint/testbed/guest"
	"savepoint/testbed/notes"
)

// Modes of this test binary when it plays another process.
const (
	modeVar = "SAVEPOINT_TEST_LAB"
	dirVar  = "SAVEPOINT_TEST_LAB_DIR"

	modeServe    = "serve"    // a lab without guests
	modeStubborn = "stubborn" // one that does not end on SIGTERM
	modeSlow     = "slow"     // one that never becomes ready
	modeFail     = "fail"     // one that says why it cannot start
	modeDie      = "die"      // one that ends without a word
	modeCluster  = "cluster"  // a real one of three nodes
	modeInnocent = "innocent" // a process that has nothing to do with labs
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		os.Exit(play(mode, os.Getenv(dirVar)))
	}
	goleak.VerifyTestMain(m)
}

// play is the lab's process with everything real but the cluster in it: lock,
// record, status, report, end.
func play(mode, dir string) int {
	if mode == modeInnocent {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test lets go
		return 0
	}
	if mode == modeCluster {
		return playCluster(dir)
	}
	if mode == modeStubborn {
		signal.Ignore(unix.SIGTERM)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if mode != modeStubborn {
		ctx, stop = signal.NotifyContext(context.Background(), unix.SIGTERM)
	}
	defer stop()
	r := reporter{w: os.NewFile(3, "report")}
	f, ok, err := lockSoon(dir, lockPatience)
	if err == nil && !ok {
		err = errors.New("another lab runs in " + dir)
	}
	if err == nil {
		defer f.Close()
		err = recordProcess(dir)
	}
	if mode == modeFail {
		err = errors.New("qemu is not installed")
	}
	if err != nil {
		r.send(message{Error: err.Error()})
		return 1
	}
	if mode == modeDie {
		return 3
	}
	r.step("starting")
	if mode != modeSlow {
		st := Status{Running: true, StateDir: dir, Nodes: []Node{{Name: NodeName, Online: true}}, TokenSecret: "s3cret", PID: os.Getpid()}
		raw, err := json.Marshal(st)
		if err != nil {
			return 1
		}
		if err := notes.Write(statusFile(dir), raw); err != nil {
			return 1
		}
		r.send(message{Ready: &st})
		r.close()
	}
	<-ctx.Done()
	return 0
}

// playCluster is the whole lab.
func playCluster(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	cache, err := guest.CacheDir()
	if err == nil {
		err = Serve(ctx, Options{
			Dir: dir, Cache: cache, Nodes: 3, Network: NetworkEVPN, Log: zerolog.New(os.Stderr), Report: os.NewFile(3, "report"),
		})
	}
	if err != nil {
		return 1
	}
	return 0
}
