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
