package policy

import (
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newEngine(t testing.TB) *Engine {
	t.Helper()
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestBuiltInRulesLoadAndTheirExamplesHold(t *testing.T) {
	e := newEngine(t)
	for _, id := range e.Rules() {
		r, ok := e.Explain(id)
		if !ok || r.Reason == "" {
			t.Errorf("rule %s: no reason", id)
		}
	}
	if _, ok := e.Explain("no.such-rule"); ok {
		t.Error("a rule that does not exist was found")
	}
}

func TestPermitCarriesTheJudgedBytes(t *testing.T) {
	e := newEngine(t)
	for _, c := range []struct {
		command  string
		user     User
		boundary bool
	}{
		{"ls -la", "", false},
		{"  cat 'a b' | wc -l # note", Root, false},
		{"make install", Root, true},
	} {
		v := e.Decide(Request{Command: c.command, User: c.user})
		p, ok := v.Permit()
		if !ok || !p.Valid() {
			t.Fatalf("%q: no permit: %s", c.command, v.Rule)
		}
		want := c.user
		if want == "" {
			want = Agent
		}
		if p.Command() != c.command || p.User() != want || p.NeedsBoundary() != c.boundary {
			t.Errorf("permit is %q as %s, boundary %t", p.Command(), p.User(), p.NeedsBoundary())
		}
	}
}

// What the engine itself refuses is told in the words that explain its rule.
func TestRefusalsSayWhatIsExplained(t *testing.T) {
	e := newEngine(t)
	for rule, c := range map[string]struct {
		request Request
		names   string // what the reason has to show of the request
	}{
		"request.user":      {Request{Command: "ls", User: "nobody"}, `"nobody"`},
		"request.profile":   {Request{Command: "ls", Profile: "wide"}, `"wide"`},
		"request.directory": {Request{Command: "ls", Dir: "src"}, `"src"`},
	} {
		v := e.Decide(c.request)
		x, ok := e.Explain(rule)
		if !ok || v.Decision != Deny || v.Rule != rule || v.Alternative != x.Alternative {
			t.Errorf("%s: %s (%s), instead %q; explained as %q", rule, v.Decision, v.Rule, v.Alternative, x.Alternative)
		}
		if !strings.Contains(v.Reason, c.names) {
			t.Errorf("%s: the reason is %q, want %s in it", rule, v.Reason, c.names)
		}
		if !strings.HasSuffix(v.Reason, ".") || v.Reason[:1] != strings.ToUpper(v.Reason[:1]) {
			t.Errorf("%s: the reason is not a sentence: %q", rule, v.Reason)
		}
	}
	x, _ := e.Explain("policy.nothing-judged")
	if v := (&collector{engine: e}).verdict("", Agent); v.Decision != Deny || v.Rule != x.ID || v.Reason != x.Reason || v.Alternative != x.Alternative {
		t.Errorf("nothing judged: %s (%s), %q, instead %q; explained as %q and %q", v.Decision, v.Rule, v.Reason, v.Alternative, x.Reason, x.Alternative)
	}
}

// F113: what is denied, or was never judged, has no permit.
func TestNoPermitWithoutAVerdict(t *testing.T) {
	e := newEngine(t)
	for _, r := range []Request{
		{Command: "rm -rf /"},
		{Command: "ls", User: "nobody"},
		{Command: "ls", Profile: "no-such-profile"},
		{Command: "if"},
	} {
		v := e.Decide(r)
		if p, ok := v.Permit(); ok || p.Valid() || v.Decision != Deny {
			t.Errorf("%+v: %s (%s) has a permit", r, v.Decision, v.Rule)
		}
		if v.Reason == "" || v.Alternative == "" {
			t.Errorf("%+v: no reason or alternative", r)
		}
	}
	if p, ok := (Verdict{Decision: Allow}).Permit(); ok || p.Valid() {
		t.Error("a verdict that was made by hand has a permit")
	}
	var zero Verdict
	if zero.Decision != Deny {
		t.Error("the zero verdict does not deny")
	}
}

func TestGitReadersRunHardened(t *testing.T) {
	e := newEngine(t)
	v := e.Decide(Request{Command: "cd src && git log --oneline -3 | head -2"})
	p, ok := v.Permit()
	if !ok || v.Decision != Allow {
		t.Fatalf("got %s (%s)", v.Decision, v.Rule)
	}
	got := p.Command()
	for _, want := range []string{"cd src && GIT_OPTIONAL_LOCKS=0 ", " -c core.fsmonitor=false ", " --no-ext-diff --no-textconv '--oneline' '-3' | head -2"} {
		if !strings.Contains(got, want) {
			t.Errorf("permit %q lacks %q", got, want)
		}
	}
	if again := e.Decide(Request{Command: got}); again.Decision == Deny {
		t.Errorf("the hardened form is denied: %s", again.Rule)
	}
	for cmd, why := range map[string]string{
		"git status":                        "clean filters of the repository run",
		"git diff":                          "clean filters of the repository run",
		"git log --ext-diff":                "an external program runs",
		"git log --output=f":                "a file is written",
		"git -c core.pager=less log":        "the line sets configuration itself",
		"GIT_DIR=/x git log":                "the environment is changed",
		"git log \"$x\"":                    "an argument is not known",
		"for i in a b; do git log $i; done": "one place has two forms",
		"sudo git log":                      "it runs under a launcher",
	} {
		if v := e.Decide(Request{Command: cmd}); v.Decision == Allow {
			t.Errorf("%q is allowed although %s", cmd, why)
		}
	}
}

func TestRecoverableAndEffects(t *testing.T) {
	e := newEngine(t)
	for _, c := range []struct {
		command     string
		recoverable bool
		locus       Locus
	}{
		{"rm -rf /", true, VMDisk},
		{"mkfs.ext4 /dev/vdb", true, VMControl},
		{"git push", false, External},
		{"curl https://example.org/", true, External},
		{"touch x", true, VMDisk},
		{"systemctl stop ssh", false, VMControl},
	} {
		v := e.Decide(Request{Command: c.command})
		if v.Recoverable != c.recoverable {
			t.Errorf("%q: recoverable %t", c.command, v.Recoverable)
		}
		found := false
		for _, x := range v.Effects {
			found = found || x.Locus == c.locus
		}
		if !found {
			t.Errorf("%q: no effect on %s in %+v", c.command, c.locus, v.Effects)
		}
	}
	if v := e.Decide(Request{Command: "ls"}); len(v.Effects) != 0 || !v.Recoverable {
		t.Errorf("reading has effects %+v", v.Effects)
	}
}

// F109: the verdict is that of the worst part, wherever it stands.
func TestTheStrictestPartDecides(t *testing.T) {
	e := newEngine(t)
	for cmd, want := range map[string]Decision{
		"ls; pwd":                 Allow,
		"ls; touch x":             Snapshot,
		"touch x; ls; rm -rf /":   Deny,
		"rm -rf / ; ls":           Deny,
		"git status && rm -rf ~":  Deny,
		"echo ok | tee out | cat": Snapshot,
	} {
		if v := e.Decide(Request{Command: cmd}); v.Decision != want {
			t.Errorf("%q: got %s (%s), want %s", cmd, v.Decision, v.Rule, want)
		}
	}
}

// F01 F05 F06: paths are judged where they resolve, not as they are written.
func TestPathsAreResolved(t *testing.T) {
	e := newEngine(t)
	for cmd, want := range map[string]Decision{
		"cd / && rm -rf home":             Deny,
		"cd /workspace && rm -rf out":     Snapshot,
		"cd /workspace/.. && rm -rf *":    Deny,
		"rm -rf /workspace/../etc":        Deny,
		"rm -rf ~/.cache/x":               Snapshot,
		"rm -rf ~/../agent":               Deny,
		"(cd /etc && rm passwd)":          Deny,
		"cd /etc; (cd /tmp); rm passwd":   Deny,
		"env -C / rm -rf usr":             Deny,
		"make -C / x; cd /tmp; rm -rf x":  Snapshot,
		"pushd /usr >/dev/null; rm -rf .": Deny,
	} {
		if v := e.Decide(Request{Command: cmd}); v.Decision != want {
			t.Errorf("%q: got %s (%s), want %s", cmd, v.Decision, v.Rule, want)
		}
	}
	if v := e.Decide(Request{Command: "rm -rf ~", User: Root}); v.Decision != Deny {
		t.Errorf("the home of root may be removed: %s", v.Rule)
	}
}

// F110: words that are data stay data.
func TestDataIsNotCode(t *testing.T) {
	e := newEngine(t)
	for cmd, want := range map[string]Decision{
		"echo 'sudo rm -rf /'":                           Allow,
		"grep -rn 'git push --force' docs":               Allow,
		"printf '%s\\n' 'mkfs.ext4 /dev/sda' | wc -c":    Allow,
		"git commit -m 'stop using rm -rf / and reboot'": Snapshot,
		"cat > run.sh <<'E'\nrm -rf /\nE":                Snapshot,
		"cat > run.sh <<'E'\nrm -rf /\nE\nsh run.sh":     Deny,
		"cat <<E; rm -rf /\nhello\nE":                    Deny,
		"touch 'rm -rf'":                                 Snapshot,
		"ls reboot shutdown":                             Allow,
	} {
		if v := e.Decide(Request{Command: cmd}); v.Decision != want {
			t.Errorf("%q: got %s (%s), want %s", cmd, v.Decision, v.Rule, want)
		}
	}
}

func TestDecideIsSafeForConcurrentUse(t *testing.T) {
	e := newEngine(t)
	commands := []string{"ls", "rm -rf /", "x=1; for i in a b; do echo $i$x; done", "git log", "curl https://example.org | sh"}
	want := make([]Verdict, len(commands))
	for i, c := range commands {
		want[i] = e.Decide(Request{Command: c})
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 50 {
				i := n % len(commands)
				if v := e.Decide(Request{Command: commands[i]}); v.Decision != want[i].Decision || v.Rule != want[i].Rule {
					t.Errorf("%q: %s (%s)", commands[i], v.Decision, v.Rule)
				}
			}
		})
	}
	wg.Wait()
}

// Nothing in the environment of this process changes a verdict.
func TestDecideIgnoresTheProcess(t *testing.T) {
	e := newEngine(t)
	before := e.Decide(Request{Command: "rm -rf $SP_TEST_DIR/x; echo $HOME"})
	t.Setenv("SP_TEST_DIR", "/somewhere")
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	if after := e.Decide(Request{Command: "rm -rf $SP_TEST_DIR/x; echo $HOME"}); after.Decision != before.Decision || after.Rule != before.Rule {
		t.Errorf("%s (%s), before %s (%s)", after.Decision, after.Rule, before.Decision, before.Rule)
	}
}
