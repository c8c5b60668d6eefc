package policy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// prover runs lines under bash in directories of their own, with a harmless
// program called zprog in front of all others that leaves a mark.
type prover struct {
	bash string
	dir  string
}

const standIn = "#!/bin/sh\nprintf '%s.' \"$#\" \"$@\" >> \"$ZMARK\"\n"

func newProver(t *testing.T) *prover {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here to prove that the disguises run")
	}
	p := &prover{bash: bash, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.dir, "zprog"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// lacks returns a tool that is absent here, or "".
func lacks(tools []string) string {
	for _, name := range tools {
		if name == "never" {
			return "a machine of its own"
		}
		if _, err := exec.LookPath(name); err != nil {
			return name
		}
	}
	return ""
}

// ran reports what the stand-in was called with while bash ran the line.
func (p *prover) ran(t *testing.T, line string) string {
	t.Helper()
	work := t.TempDir()
	mark := filepath.Join(work, "mark")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bash, "-c", line)
	cmd.Dir = work
	cmd.Env = []string{"PATH=" + p.dir + ":" + os.Getenv("PATH"), "HOME=" + work, "ZMARK=" + mark, "SHELL=" + p.bash, "LC_ALL=C.UTF-8"}
	_ = cmd.Run() // many disguises end with an error of their own
	data, err := os.ReadFile(mark)
	if err != nil {
		return ""
	}
	return string(data)
}

type proof struct{ how, line string }

// prove runs all lines, a few at a time.
func (p *prover) prove(t *testing.T, list []proof, want string) {
	t.Helper()
	work := make(chan proof)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for c := range work {
				if got := p.ran(t, c.line); !strings.Contains(got, want) {
					t.Errorf("%s: bash does not run it as it should, the program saw %q, want %q: %q", c.how, got, want, c.line)
				}
			}
		})
	}
	for _, c := range list {
		work <- c
	}
	close(work)
	group.Wait()
}

// The disguises are real: bash runs a harmless stand-in inside them, alone and
// inside one another.
func TestDisguisesRunUnderBash(t *testing.T) {
	p := newProver(t)
	const plain, want = "zprog one", "1.one."
	var usable []disguise
	var list []proof
	skipped := map[string]int{}
	for _, d := range disguises {
		if tool := lacks(d.tools); tool != "" {
			skipped[tool]++
			continue
		}
		usable = append(usable, d)
		list = append(list, proof{d.name, d.wrap(plain)})
	}
	r := fixedRand()
	pairs := 40
	if thorough() {
		pairs = 160
	}
	for i := range pairs {
		line, how := plain, "plain"
		for range 2 + i%2 {
			d := usable[r.IntN(len(usable))]
			line, how = d.wrap(line), d.name+" of "+how
		}
		list = append(list, proof{how, line})
	}
	p.prove(t, list, want)
	t.Logf("%d lines run, disguises not proved for want of: %v", len(list), skipped)
}

// The spellings are real: the shell makes the stand-in's name of them.
func TestSpellingsRunUnderBash(t *testing.T) {
	p := newProver(t)
	var list []proof
	skipped := map[string]int{}
	for _, s := range spellings {
		if tool := lacks(s.tools); tool != "" {
			skipped[tool]++
			continue
		}
		list = append(list, proof{s.name, spelled(s, "zprog one")})
		if s.anywhere {
			list = append(list, proof{s.name + " everywhere", respelled(s, "zprog one")})
		}
	}
	p.prove(t, list, "1.one.")
	if len(list) < 60 {
		t.Errorf("%d spellings are proved, want 60 or more", len(list))
	}
	t.Logf("%d lines run, spellings not proved for want of: %v", len(list), skipped)
}

// Nothing is listed twice, so that a name in a failure says which one it was.
func TestDisguisesHaveTheirOwnNames(t *testing.T) {
	var names []string
	for _, d := range disguises {
		names = append(names, "line "+d.name)
	}
	for _, s := range spellings {
		names = append(names, "word "+s.name)
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			t.Errorf("%s is there twice", names[i])
		}
	}
}
