package policy

import "testing"

// A relative path means what it means in the directory the command begins in.
// F05: a command that somebody thought to be elsewhere.
func TestDir(t *testing.T) {
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, command string
		user         User
		want         Decision
	}{
		{"/", "rm -rf *", Agent, Deny},
		{"/", "rm -rf *", Root, Deny},
		{"//", "rm -rf ./*", Agent, Deny},
		{"/workspace/..", "rm -rf *", Agent, Deny},
		{"/etc", "rm -rf ../*", Root, Deny},
		{"/workspace/x", "rm -rf *", Agent, Snapshot},
		{"/workspace/x", "rm -rf build", Agent, Snapshot},
		{"", "rm -rf build", Agent, Snapshot},
		{"/workspace/x", "cd / && rm -rf *", Agent, Deny},
		{"/", "cd /workspace/x && rm -rf *", Agent, Snapshot},
		{"/", "sh -c 'rm -rf *'", Agent, Deny},
		{"/", "(rm -rf *)", Agent, Deny},
		{"/", "cat etc/hostname", Agent, Allow},
		{"/workspace", "ls", Agent, Allow},
		{"workspace", "ls", Agent, Deny},
		{"../..", "ls", Agent, Deny},
		{"/work\nspace", "ls", Agent, Deny},
		{"/\x02", "rm -rf *", Agent, Deny},
	} {
		v := e.Decide(Request{Command: c.command, Dir: c.dir, User: c.user})
		if v.Decision != c.want {
			t.Errorf("%q in %q as %s: got %s (%s), want %s", c.command, c.dir, c.user, v.Decision, v.Rule, c.want)
		}
	}
	if v := e.Decide(Request{Command: "ls", Dir: "x"}); v.Rule != "request.directory" {
		t.Errorf("a relative directory is refused by %s", v.Rule)
	}
}

// A variable that the command begins with has its value.
func TestEnv(t *testing.T) {
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value, command string
		want           Decision
	}{
		{"/", "rm -rf $FOO", Deny},
		{"/workspace/x", "rm -rf $FOO", Snapshot},
		{"rm -rf /", "$FOO", Deny},
		{"rm -rf /", "${FOO:-ls}", Deny},
		{"rm -rf /", `eval "$FOO"`, Deny},
		{"rm -rf /", "bash -c '$FOO'", Deny},
		{"/", "cd $FOO && rm -rf *", Deny},
		{"ls", "$FOO", Allow},
		{"a\x02b", "$FOO", Deny},
		{"x", "cat /workspace/a", Allow},
	} {
		v := e.Decide(Request{Command: c.command, Env: map[string]string{"FOO": c.value}})
		if v.Decision != c.want {
			t.Errorf("%q with FOO=%q: got %s (%s), want %s", c.command, c.value, v.Decision, v.Rule, c.want)
		}
	}
	if v := e.Decide(Request{Command: "rm -rf ~", Env: map[string]string{"HOME": "/"}}); v.Decision != Deny {
		t.Errorf("the home is the root: %s (%s)", v.Decision, v.Rule)
	}
}
