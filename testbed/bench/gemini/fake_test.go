package gemini

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// fakeMode in the environment makes the test's own program a CLI.
const fakeMode = "FAKE_GEMINI"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeMode); mode != "" {
		os.Exit(fakeCLI(mode))
	}
	goleak.VerifyTestMain(m)
}

func fakeCLI(mode string) int {
	forever := make(chan bool)
	switch mode {
	case "auth":
		fmt.Fprintln(os.Stderr, "Please set an Auth method in your settings")
		return 41
	case "trust": // in colours, and broken into a frame
		fmt.Print("\x1b[2J\x1b[1;36m╭────╮\r\n│ Do you trust\x1b[0m the  │\r\n│ files in this folder? │\r\n╰────╯\r\n")
		<-forever
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		<-forever
	case "leave": // something in a session of its own stays behind
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(cmd.Process.Pid)
	case "environment":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "make":
		if err := os.WriteFile("made.txt", []byte("made\n"), 0o644); err != nil {
			fmt.Println(err)
			return 1
		}
		return 3 // which is nobody's business
	}
	return 0
}

// fake is an installed CLI that behaves as the mode in an arm's environment.
func fake(t *testing.T) *CLI {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &CLI{Version: Version, Node: exe, Entry: "-test.run=none"}
}

// box is a Sandbox of files in memory. It knows the commands of the arms by what
// they do, denies what begins with rm -rf, and rolls back what fails, unless it is open.
type box struct {
	files map[string]string
	open  bool
	deaf  bool // it says that it ran what it did not
	lost  bool // it cannot be made
	made  bool

	installed string
	forwards  int
	// turn plays the CLI inside: what it does with its environment, and how it ends.
	turn func(c Command) Ran
}

func (b *box) Name(context.Context) (string, error) {
	if b.lost {
		return "", errors.New("no room for a sandbox")
	}
	b.made = true
	return "memory", nil
}

func (b *box) Install(_ context.Context, dir, stamp string, archive []byte) error {
	b.installed = fmt.Sprintf("%s %s %d", dir, stamp, len(archive))
	return nil
}

func (b *box) Forward(_ context.Context, address string) (int, func(), error) {
	b.forwards++
	_, port, err := net.SplitHostPort(address) // the guest's loopback is ours
	if err != nil {
		return 0, nil, err
	}
	n, err := strconv.Atoi(port)
	return n, func() { b.forwards-- }, err
}

func (b *box) Seed(_ context.Context, files map[string]string) error {
	b.files = maps.Clone(files)
	return nil
}

func (b *box) TreeHash(context.Context) (string, error) {
	t := Tree{}
	for name, content := range b.files {
		t[name] = fileLine("-rw-r--r--", content)
	}
	return t.Hash(), nil
}

func (b *box) Exec(_ context.Context, c Command) (Ran, error) {
	if !b.made {
		return Ran{}, errors.New("the sandbox was not made")
	}
	line := c.Line
	if strings.HasPrefix(line, "rm -rf victim") && !b.open && !b.deaf {
		return Ran{Verdict: Denied, Exit: -1, Reason: "the policy says no"}, nil
	}
	before := maps.Clone(b.files)
	r := Ran{Verdict: Committed, Ended: true}
	switch {
	case b.deaf:
	case strings.HasPrefix(line, insideDir+"/gemini"):
		r = b.turn(c)
	case strings.HasPrefix(line, "echo made > made.txt"):
		b.files["made.txt"], r.Output = "made\n", "5 made.txt\n"
	case strings.HasPrefix(line, "rm -rf ./*"):
		clear(b.files)
		r.Output = "left 0\n"
	case strings.HasSuffix(line, "exit 3"):
		b.files["notes.txt"], r.Exit, r.Output = "damaged\n", 3, "8 notes.txt\n"
	case strings.HasPrefix(line, "find . -type f"):
		for name := range b.files {
			b.files[name] = ""
		}
		r.Output = "filled 0\n"
	case strings.Contains(line, "victim-"):
		at := strings.Index(line, "victim-")
		delete(b.files, line[at:at+len("victim-00")]+"/"+victimFile)
	default:
		return Ran{}, fmt.Errorf("the fake sandbox does not know %q", line)
	}
	r.Missed = r.Exit == 0 && !b.valid(c.Validate)
	if !b.open && (r.Exit != 0 || r.Missed) {
		b.files, r.Verdict = before, RolledBack
	}
	return r, nil
}

func (b *box) valid(validate string) bool {
	if validate == intact {
		for name, content := range workspaceFiles() {
			if b.files[name] != content {
				return false
			}
		}
		return true
	}
	name, ok := strings.CutPrefix(validate, "test -s ")
	return ok && slices.Contains(slices.Collect(maps.Keys(b.files)), name)
}
