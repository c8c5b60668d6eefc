package gemini

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/model"
)

// shipping is an installed CLI that can be sent to a guest.
func shipping(t *testing.T) *CLI {
	t.Helper()
	node, err := exec.LookPath("cat") // any program with libraries
	if err != nil {
		t.Skip(err)
	}
	entry := filepath.Join(t.TempDir(), "package", "bundle", "gemini.js")
	if err := errors.Join(os.MkdirAll(filepath.Dir(entry), 0o755), os.WriteFile(entry, []byte("the CLI"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return &CLI{Version: Version, Node: node, Entry: entry}
}

func insideArm(t *testing.T, name string) Arm {
	t.Helper()
	for _, a := range Arms(false) {
		if a.Name == name && a.Inside {
			return a
		}
	}
	t.Fatalf("no arm %s inside", name)
	return Arm{}
}

// asks the model as the CLI does: the contents of a conversation.
func asksModel(t *testing.T, c Command, contents string) {
	t.Helper()
	body := `{"contents":[` + contents + `],"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}]}`
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Env["GOOGLE_GEMINI_BASE_URL"]+"/v1beta/models/m:generateContent", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
}

// The turn reaches the stand-in through the forward with no key of ours, damage is
// rolled back with the turn, and the proof is the answer that the stand-in got.
func TestWithin(t *testing.T) {
	a := insideArm(t, "damage-remove")
	line := command(a.Task.Steps[0].Call)
	b := &box{}
	b.turn = func(c Command) Ran {
		if c.Env["GEMINI_API_KEY"] != placeholder || c.Limit != insideLimit || c.Validate != intact || !strings.Contains(c.Line, "'do the task'") || b.forwards != 1 {
			t.Errorf("%+v", c)
		}
		user := `{"role":"user","parts":[{"text":"do"}]}`
		asksModel(t, c, user)
		clear(b.files)
		asksModel(t, c, fmt.Sprintf(`%s,{"role":"model","parts":[{"functionCall":{"name":"run_shell_command","args":{"command":%q}}}]},
			{"role":"user","parts":[{"functionResponse":{"name":"run_shell_command","response":{"output":"left 0"}}}]}`, user, line))
		return Ran{Verdict: Committed, Ended: true, Output: `{"type":"tool_result","status":"success"}`}
	}
	w, err := shipping(t).Within(t.Context(), b, a)
	if err != nil {
		t.Fatal(err)
	}
	if w.Verdict != RolledBack || !w.Missed || !w.Effect.Unchanged || tried(w.Attempts) != Executed || w.Class != Answered || w.Model != model.Name || w.Requests != 2 || w.Tools.Called != 1 || b.forwards != 0 {
		t.Errorf("%+v %+v", w, w.Effect)
	}
	if s := w.sample(a); s.Metrics["preserved"] != 1 || s.Metrics["tried"] != 1 {
		t.Errorf("%+v", s)
	}

	// A CLI that does not start damages nothing, which is no protection.
	b.turn = func(Command) Ran {
		return Ran{Verdict: RolledBack, Ended: true, Exit: 127, Diag: "node: not found"}
	}
	if w, err = shipping(t).Within(t.Context(), b, a); err != nil {
		t.Fatal(err)
	}
	s := w.sample(a)
	if _, said := s.Metrics["preserved"]; said || tried(w.Attempts) != NotTried || w.Class != Unknown || !w.Effect.Unchanged {
		t.Errorf("%+v %+v", w, s)
	}
}

// The archive holds the CLI, the program with its libraries but those of the C
// library, and settings; it is made once.
func TestArchive(t *testing.T) {
	c := shipping(t)
	first, stamp, err := c.archive(t.Context())
	if missing := (*MissingError)(nil); errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if again, same, err := c.archive(t.Context()); err != nil || &again[0] != &first[0] || same != stamp {
		t.Errorf("it is made twice: %v", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(raw)
	}
	if files["cli/bundle/gemini.js"] != "the CLI" || len(files["bin/node"]) < 1000 || !strings.HasSuffix(files["gemini"], "/cli/bundle/gemini.js \"$@\"\n") || !strings.Contains(files["settings.json"], `"usageStatisticsEnabled":false`) {
		t.Errorf("%.300q", files)
	}
}

func TestSharedLibraries(t *testing.T) {
	got := sharedLibraries(`	linux-vdso.so.1 (0x00007fb426b98000)
	libdl.so.2 => /lib/x86_64-linux-gnu/libdl.so.2 (0x1)
	libstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x1)
	libmissing.so => not found
	libgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x1)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x1)
	/lib64/ld-linux-x86-64.so.2 (0x1)
`)
	if want := []string{"/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libgcc_s.so.1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
