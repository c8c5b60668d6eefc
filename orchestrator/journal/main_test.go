package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"savepoint/orchestrator"
)

// childMode makes the test binary a journal writer of its own, to be killed or
// starved by a test.
const childMode = "SAVEPOINT_JOURNAL_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		if err := child(mode, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child appends records without end and tells each one: "try N" before it,
// then "ok N", "unknown N" or "no N". With mode "kill N" it kills itself while
// the N-th append is under way. With "limit N" its files cannot grow by more
// than N bytes, with "break N" its log cannot be written from the N-th append
// on; it ends after the third failure. With "hold" it only holds the journal
// until its input ends. With "unprivileged" it says how an opener without
// privilege fares.
func child(mode, path string) error {
	verb, arg, _ := strings.Cut(mode, " ")
	n, _ := strconv.Atoi(arg)
	if verb == "unprivileged" {
		return unprivileged(path)
	}
	j, err := Open(path, Options{})
	if err != nil {
		return err
	}
	if verb == "hold" {
		fmt.Println("held")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return j.Close()
	}
	if verb == "limit" {
		fi, err := os.Stat(path + "-wal")
		if err != nil {
			return err
		}
		most := uint64(fi.Size()) + uint64(n)
		signal.Ignore(syscall.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	failures := 0
	for i := 1; ; i++ {
		fmt.Println("try", i)
		if verb == "kill" && i == n {
			go func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }()
		}
		if verb == "break" && i == n {
			if err := breakLog(path); err != nil {
				return err
			}
		}
		err := j.Append(context.Background(), sample(i))
		switch {
		case err == nil:
			fmt.Println("ok", i)
		case class(err) == orchestrator.ErrUnknownOutcome:
			fmt.Println("unknown", i)
			failures++
		default:
			fmt.Println("no", i)
			failures++
		}
		if failures == 3 {
			return nil
		}
	}
}

// breakLog replaces every descriptor of the log by one that cannot be written
// through: each write from now on is an I/O error.
func breakLog(path string) error {
	log, err := os.Open(path + "-wal")
	if err != nil {
		return err
	}
	defer log.Close()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if to, lerr := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || lerr != nil || to != path+"-wal" || fd == int(log.Fd()) {
			continue
		}
		if err := unix.Dup3(int(log.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// unprivileged gives privilege up, if there is any, and opens the journal both
// ways.
func unprivileged(path string) error {
	const nobody = 65534
	if os.Geteuid() == 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setresgid(nobody, nobody, nobody); err != nil {
			return err
		}
		if err := syscall.Setresuid(nobody, nobody, nobody); err != nil {
			return err
		}
	}
	j, err := Open(path, Options{})
	if err == nil {
		return errors.Join(errors.New("opened for writing"), j.Close())
	}
	fmt.Println("write", class(err))
	if j, err = OpenReadOnly(path); err != nil {
		return err
	}
	defer j.Close()
	rep, err := j.Verify(context.Background())
	fmt.Println("records", rep.Records)
	return err
}

func class(err error) error {
	for _, c := range []error{orchestrator.ErrUnknownOutcome, orchestrator.ErrUnavailable, orchestrator.ErrBusy, orchestrator.ErrDenied, orchestrator.ErrExists, orchestrator.ErrNotFound} {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}

// spawn runs the test binary as a child in the mode.
func spawn(t *testing.T, mode, path string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, path)
	c.Env = append(os.Environ(), childMode+"="+mode)
	c.Stderr = os.Stderr
	return c
}

// sample is the i-th record of a test: every third one settles its transaction.
func sample(i int) orchestrator.Record {
	return orchestrator.Record{
		At: time.Unix(1700000000, int64(i)).UTC(), Tx: orchestrator.TxID(fmt.Sprintf("tx%05d", (i-1)/3)),
		Sandbox: "box", State: orchestrator.StateRunning, Event: "run",
		Data: []byte(fmt.Sprintf(`{"n":%d,"pad":%q}`, i, strings.Repeat("x", 300))), Settled: i%3 == 0,
	}
}

func open(t *testing.T, path string, o Options) *Journal {
	t.Helper()
	j, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return j
}

func records(t *testing.T, j *Journal, tx orchestrator.TxID) []orchestrator.Record {
	t.Helper()
	var all []orchestrator.Record
	for r, err := range j.Records(context.Background(), tx) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// copied copies the file and the first bytes of its log, or all when log is
// negative, to another directory: what a crash at that instant leaves.
func copied(t testing.TB, path string, log int) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "journal.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if errors.Is(err, os.ErrNotExist) && suffix != "" {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if suffix != "" && log >= 0 {
			b = b[:min(log, len(b))]
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
