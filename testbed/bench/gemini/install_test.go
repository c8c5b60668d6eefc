package gemini

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// halves are the directories of installations in a cache.
func halves(t *testing.T, cache string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), installing) {
			out = append(out, e.Name())
		}
	}
	return out
}

// programs makes a directory with Node and an npm, and puts it on the path.
func programs(t *testing.T, npm string) {
	t.Helper()
	bin := t.TempDir()
	putProgram(t, bin, "node", "echo v22.1.0")
	putProgram(t, bin, "npm", npm)
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	t.Setenv("CALLS", filepath.Join(t.TempDir(), "calls"))
}

// What an installer left that is gone is removed, by the next one and by who finds
// the CLI installed; what another is at is not.
func TestInstallRemovesLeftovers(t *testing.T) {
	programs(t, npmText)
	cache := t.TempDir()
	leave := func(name string) string {
		dir := filepath.Join(cache, name)
		if err := os.MkdirAll(filepath.Join(dir, "node_modules", "half"), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	install := func(want ...string) {
		t.Helper()
		if _, err := Install(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
		if got := halves(t, cache); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	leave("installing-1")
	live, err := os.Open(leave("installing-2"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if err := syscall.Flock(int(live.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	install("installing-2")
	leave("installing-3")
	install("installing-2")
	if err := live.Close(); err != nil {
		t.Fatal(err)
	}
	install()
}

// An installer that is killed leaves its directory, which is npm's as long as that
// goes on.
func TestInstallerIsKilled(t *testing.T) {
	if cache := os.Getenv("GEMINI_TEST_KILLED"); cache != "" {
		_, err := Install(t.Context(), cache)
		t.Fatalf("lives on: %v", err)
	}
	cache, dir := t.TempDir(), t.TempDir()
	begun, gate := filepath.Join(dir, "begun"), filepath.Join(dir, "gate")
	for _, fifo := range []string{begun, gate} {
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	programs(t, "mkdir -p \"$3/node_modules/half\"\necho begun > "+begun+"\nread x < "+gate+"\n")
	cmd := exec.Command(os.Args[0], "-test.run=^TestInstallerIsKilled$")
	cmd.Env = append(os.Environ(), "GEMINI_TEST_KILLED="+cache)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() { // npm's end
		if ended {
			return
		}
		ended = true
		if err := os.WriteFile(gate, []byte("on\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
	f, err := os.Open(begun)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if line, err := bufio.NewReader(f).ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("%q, %v", line, err)
	}
	defer end()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	programs(t, npmText)
	if _, err := Install(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	if left := halves(t, cache); len(left) != 1 {
		t.Fatalf("there are %q, and npm is at one", left)
	}
	end()
	for deadline := time.Now().Add(20 * time.Second); len(halves(t, cache)) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("there are %q still", halves(t, cache))
		}
		if _, err := Install(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
	}
}
