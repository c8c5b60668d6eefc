package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestReadCases(t *testing.T) {
	in := caseHeader + "\n" +
		"deny\tfiles\trm -rf /\n" +
		`allow` + "\tescapes\t" + `a\\n\n\t\r\0\e\q\` + "\n" +
		"snapshot\tplain\ttouch ü" // no newline at the end
	got, err := ReadCases(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	want := []Case{
		{Line: 2, Want: Deny, Class: "files", Command: "rm -rf /"},
		{Line: 3, Want: Allow, Class: "escapes", Command: "a\\n\n\t\r\x00\x1b\\q\\"},
		{Line: 4, Want: Snapshot, Class: "plain", Command: "touch ü"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestReadCasesIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"empty":           {"", "there are none"},
		"only a header":   {caseHeader + "\n", "there are none"},
		"no header":       {"deny\tx\trm -rf /\n", "line 1: the header"},
		"CRLF":            {caseHeader + "\r\ndeny\tx\tls\r\n", "line 1"},
		"four columns":    {caseHeader + "\ndeny\tx\tls\tx\n", "line 2: 4 columns"},
		"two columns":     {caseHeader + "\nallow\tx\tls\ndeny\tx\n", "line 3: 2 columns"},
		"an empty line":   {caseHeader + "\nallow\tx\tls\n\n", "line 3"},
		"unknown verdict": {caseHeader + "\nneeds-snapshot\tx\tls\n", `line 2: decision "needs-snapshot"`},
		"upper case":      {caseHeader + "\nDeny\tx\tls\n", "line 2"},
		"no class":        {caseHeader + "\ndeny\t\tls\n", "line 2: the class"},
		"no command":      {caseHeader + "\ndeny\tx\t\n", "line 2: the command"},
		"not UTF-8":       {caseHeader + "\ndeny\tx\t\xff\n", "line 2: not valid"},
		"a long line":     {caseHeader + "\ndeny\tx\t" + strings.Repeat("a", maxCheckLine) + "\n", "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := ReadCases(strings.NewReader(c.in))
			if err == nil || !strings.Contains(err.Error(), c.want) || list != nil {
				t.Errorf("%d cases, error %v, want %q", len(list), err, c.want)
			}
		})
	}
}

func TestTestCountsAnswers(t *testing.T) {
	e := newEngine(t)
	r := e.Test(Request{}, []Case{
		{Line: 2, Want: Deny, Class: "b", Command: "rm -rf /"},
		{Line: 3, Want: Allow, Class: "a", Command: "ls"},
		{Line: 4, Want: Allow, Class: "a", Command: "touch x"},
		{Line: 5, Want: Snapshot, Class: "a", Command: "rm -rf /"},
		{Line: 6, Want: Deny, Class: "b", Command: "ls"},
	})
	var m Matrix
	m[Deny][Deny], m[Allow][Allow], m[Allow][Snapshot], m[Snapshot][Deny], m[Deny][Allow] = 1, 1, 1, 1, 1
	if r.Matrix != m || r.Cases != 5 || r.Right != 2 || m.Total() != 5 || m.Weaker() != 1 {
		t.Errorf("matrix %v, %d cases, %d right, %d weaker", r.Matrix, r.Cases, r.Right, r.Matrix.Weaker())
	}
	if want := []ClassCount{{"a", 3, 1}, {"b", 2, 1}}; !reflect.DeepEqual(r.Classes, want) {
		t.Errorf("classes %+v, want %+v", r.Classes, want)
	}
	if len(r.Misses) != 3 || r.Misses[0].Case.Line != 4 || r.Misses[0].Got != Snapshot || r.Misses[0].Rule != "local-change" || r.Misses[2].Verdict.Decision != Allow {
		t.Errorf("misses %+v", r.Misses)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"matrix":[{"want":"deny","deny":1,"snapshot":0,"allow":1}`, `"classes":[{"class":"a","cases":3,"right":1}`, `"line":4`, `"got":"snapshot"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	if text, _ := json.Marshal(e.Test(Request{}, nil)); strings.Contains(string(text), "null") {
		t.Errorf("an empty report holds null: %s", text)
	}
}

func TestDecisionsAreRead(t *testing.T) {
	for _, d := range []Decision{Deny, Snapshot, Allow} {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		got := Allow
		if err := json.Unmarshal(text, &got); err != nil || got != d {
			t.Errorf("%s: %s, %v", d, got, err)
		}
	}
	for _, s := range []string{"", "ALLOW", "allow ", "permit"} {
		d := Allow
		if err := d.UnmarshalText([]byte(s)); err == nil || d != Deny {
			t.Errorf("%q is read as %s, %v", s, d, err)
		}
	}
}
