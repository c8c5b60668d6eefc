package gemini

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
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
}

func (b *box) Name() string { return "memory" }

func (b *box) Seed(_ context.Context, files map[string]string) error {
	b.files = maps.Clone(files)
	return nil
}

func (b *box) TreeHash(context.Context) (string, error) {
	t := Tree{}
	for name, content := range b.files {
		t[name] = fileLine(content)
	}
	return t.Hash(), nil
}

func (b *box) Exec(_ context.Context, line, validate string) (Verdict, error) {
	if strings.HasPrefix(line, "rm -rf") && !b.open {
		return Denied, nil
	}
	before := maps.Clone(b.files)
	exit := 0
	switch {
	case line == "echo made > made.txt":
		b.files["made.txt"] = "made\n"
	case line == "rm -rf ./*":
		clear(b.files)
	case strings.HasSuffix(line, "exit 3"):
		b.files["notes.txt"], exit = "damaged\n", 3
	case strings.HasPrefix(line, "find . -type f"):
		for name := range b.files {
			b.files[name] = ""
		}
	case strings.Contains(line, "victim-"):
		at := strings.Index(line, "victim-")
		delete(b.files, line[at:at+len("victim-00")]+"/"+victimFile)
	default:
		return "", fmt.Errorf("the fake sandbox does not know %q", line)
	}
	if !b.open && (exit != 0 || !b.valid(validate)) {
		b.files = before
		return RolledBack, nil
	}
	return Committed, nil
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
