package orchestrator

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"savepoint/policy"
)

// secret parts are put together so that no scanner takes them for real ones.
func mid(parts ...string) string { return strings.Join(parts, "") }

func TestRedactForms(t *testing.T) {
	const r = Redacted
	long := strings.Repeat("aB3", 12)
	pem := mid("-----BEGIN OPENSSH PRI", "VATE KEY-----\nb3BlbnNz\naC1rZXk=\n-----END OPENSSH PRI", "VATE KEY-----")
	for name, c := range map[string]struct{ in, want string }{
		"private key":               {"x\n" + pem + "\ny", "x\n" + r + "\ny"},
		"private key that is cut":   {"x\n" + pem[:60], "x\n" + r},
		"private key in JSON":       {`{"k":"` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`, `{"k":"` + r + `"}`},
		"public key":                {"-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----"},
		"AWS id":                    {"id " + mid("AKI", "AIOSFODNN7EXAMPLE") + ".", "id " + r + "."},
		"AWS secret":                {"aws_secret_access_key = " + long, "aws_secret_access_key = " + r},
		"GitHub":                    {"git clone https://x:" + mid("gh", "p_", long) + "@github.com/a/b", "git clone https://x:" + r + "@github.com/a/b"},
		"GitHub alone":              {"echo " + mid("gh", "o_", long), "echo " + r},
		"GitLab":                    {mid("glp", "at-", long), r},
		"Slack":                     {mid("xo", "xb-123456789-", long), r},
		"OpenAI":                    {"OPENAI=" + mid("s", "k-proj-", long), "OPENAI=" + r},
		"Anthropic":                 {"key is " + mid("s", "k-ant-api03-", long) + "!", "key is " + r + "!"},
		"Google":                    {mid("AI", "za", long), r},
		"JWT":                       {"x " + mid("ey", "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.", long) + " y", "x " + r + " y"},
		"bearer":                    {`curl -H "Authorization: Bearer abc" http://h`, `curl -H "Authorization: Bearer ` + r + `" http://h`},
		"bearer alone":              {"bearer " + long, "bearer " + r},
		"basic":                     {"authorization: basic dXNlcjpwdw==", "authorization: basic " + r},
		"API key header":            {"X-Api-Key: abc def", "X-Api-Key: " + r + " def"},
		"cookie":                    {"Cookie: sid=1; b=2\nHost: h", "Cookie: " + r + "\nHost: h"},
		"URL":                       {"psql postgres://me:p@ss@db:5432/x", "psql postgres://me:" + r + "@db:5432/x"},
		"URL without a password":    {"git clone https://me@host/x", "git clone https://me@host/x"},
		"URL with a port":           {"curl http://localhost:8080/a@b", "curl http://localhost:8080/a@b"},
		"assignment":                {"export DB_PASSWORD=hunter2; run", "export DB_PASSWORD=" + r + "; run"},
		"assignment of words":       {`token = "a b \" c" # x`, `token = ` + r + ` # x`},
		"assignment of pieces":      {`PGPASSWORD='a b'"c d"\ e psql`, `PGPASSWORD=` + r + ` psql`},
		"assignment in single":      {"secret='a b' x", "secret=" + r + " x"},
		"assignment that is cut":    {`password="abc def`, `password=` + r},
		"JSON":                      {`{"password": "hunter2", "user":"me"}`, `{"password": ` + r + `, "user":"me"}`},
		"JSON in a text":            {`"{\"password\": \"a b\", \"user\":\"me\"}"`, `"{\"password\": ` + r + `, \"user\":\"me\"}"`},
		"YAML":                      {"client_secret: abc,def\nuser: me", "client_secret: " + r + "\nuser: me"},
		"index":                     {`os.environ["API_KEY"] = "abc"`, `os.environ["API_KEY"] = ` + r},
		"two":                       {"a_token=x b_token=y", "a_token=" + r + " b_token=" + r},
		"option":                    {"login --password hunter2 --user me", "login --password " + r + " --user me"},
		"option with a sign":        {"login --api-key=hunter2", "login --api-key=" + r},
		"curl":                      {"curl -s -u me:hunter2 http://h", "curl -s -u me:" + r + " http://h"},
		"sshpass":                   {"sshpass -p hunter2 ssh h", "sshpass -p " + r + " ssh h"},
		"netrc":                     {"machine h login me password hunter2", "machine h login me password " + r},
		"chpasswd":                  {"echo root:hunter2 | chpasswd", "echo root:" + r + " | chpasswd"},
		"shadow":                    {"root:" + mid("$6", "$salt$", long) + ":19000:", "root:" + r + ":19000:"},
		"SQL":                       {"create user a identified by 'x y'", "create user a identified by " + r},
		"PVE token":                 {"PVEAPIToken=root@pam!a=1234-5678", "PVEAPIToken=" + r},
		"working directory":         {"PWD=/workspace OLDPWD=/root", "PWD=/workspace OLDPWD=/root"},
		"a path":                    {"cat: /etc/passwd: No such file", "cat: /etc/passwd: No such file"},
		"nothing":                   {"make -j8 && ls -l /workspace | sort -k2", "make -j8 && ls -l /workspace | sort -k2"},
		"a digest":                  {strings.Repeat("0a", 32), strings.Repeat("0a", 32)},
		"risk-assessment-of-things": {"risk-assessment-of-all-things", "risk-assessment-of-all-things"},
		"redacted before":           {"password=" + r + "hunter2 x", "password=" + r + " x"},
	} {
		t.Run(name, func(t *testing.T) {
			got, n := redactor{}.text(c.in)
			if got != c.want || (n > 0) != (c.in != c.want) {
				t.Errorf("%q\n got %q, %d\nwant %q", c.in, got, n, c.want)
			}
		})
	}
}

// A secret that the limit of the record cuts in two leaves nothing of it, at
// whatever byte it is cut, and however its output came in pieces.
func TestRedactCut(t *testing.T) {
	secret := mid("gh", "p_", strings.Repeat("Ab1", 20))
	text := strings.Repeat("line of output\n", 5) + secret + "\nrest\n"
	at := strings.Index(text, secret)
	for limit := range len(text) + 1 {
		for _, piece := range []int{1, 7, len(text)} {
			d := newDigester(nil, limit+redactOverlap)
			for i := 0; i < len(text); i += piece {
				if _, err := d.Write([]byte(text[i:min(len(text), i+piece)])); err != nil {
					t.Fatal(err)
				}
			}
			out, _ := redactor{}.recorded(d.start(), limit)
			if len(out) > limit || bytes.Contains(out, []byte("gh")) {
				t.Fatalf("limit %d, pieces of %d: %q", limit, piece, out)
			}
			if limit <= at && string(out) != text[:limit] {
				t.Fatalf("limit %d: %q", limit, out)
			}
		}
	}
	pem := mid("-----BEGIN RSA PRI", "VATE KEY-----\n", strings.Repeat("QUJD", 4000))
	if out, n := (redactor{}).recorded([]byte("a\n"+pem), 100); string(out) != "a\n"+Redacted || n != 1 {
		t.Errorf("a key longer than what is looked at: %q, %d", out, n)
	}
}

func TestRedactOwn(t *testing.T) {
	r := redactor{own: []*regexp.Regexp{regexp.MustCompile(`cust-(\d+)`), regexp.MustCompile(`(?i)merlin`)}}
	r = r.with(map[string]string{"MY_TOKEN": "xyzzy-1", "PIN_TOKEN": "1", "PATH": "/usr/bin"})
	got, n := r.text("cust-42 Merlin xyzzy-1 /usr/bin 1")
	if want := "cust-" + Redacted + " " + Redacted + " " + Redacted + " /usr/bin 1"; got != want || n != 3 {
		t.Errorf("got %q, %d", got, n)
	}
	// A pattern that matches the marker, or everything, comes to rest.
	for _, p := range []string{`redacted`, `[\[\]a-z]`, `.`, `e\]x`, `(?s).+`} {
		r := redactor{own: []*regexp.Regexp{regexp.MustCompile(p)}}
		once, _ := r.text("some [redacted]x text")
		if twice, n := r.text(once); twice != once || n != 0 {
			t.Errorf("%s: %q, then %q", p, once, twice)
		}
	}
}

// Every text of a record is redacted, but for those that are named: recovery
// has to read them back. A name in the list that is no field any more is a
// mistake.
func TestRedactRecord(t *testing.T) {
	names := map[string]reflect.Type{}
	for _, v := range []any{
		beginData{}, stepData{}, snapshotData{}, restoredData{}, ranData{}, taskData{}, saveData{}, returnData{}, Judgement{}, policy.Lift{}, healthData{}, Space{},
		Sandbox{}, VMRef{}, boxNote{},
	} {
		names[reflect.TypeOf(v).Name()] = reflect.TypeOf(v)
	}
	for name := range exactFields {
		typ, field, _ := strings.Cut(name, ".")
		if _, ok := names[typ]; !ok {
			t.Errorf("%s: no such record", name)
		} else if _, ok := names[typ].FieldByName(field); !ok {
			t.Errorf("%s: no such field", name)
		}
	}
	d := beginData{
		Box: Sandbox{ID: "b", Name: "token=abc", HostKey: "token=abc", VM: VMRef{Node: "token=abc"}, Reason: "because token=abc"}, Command: []byte("login --token abc"), Digest: "token=abc", Dir: "/x/token=abc",
		Verdict:  Judgement{Rule: "token=abc", Reason: "because token=abc", Effects: []policy.Effect{{Target: "https://a:b@c"}}, Lifted: []policy.Lift{{Target: "token=abc"}}},
		Validate: []validateNote{{Command: []byte("curl -u a:b h")}},
	}
	was, _ := json.Marshal(d)
	got, n := redactor{}.record(d)
	if now, _ := json.Marshal(d); !bytes.Equal(was, now) {
		t.Error("the caller's facts were changed")
	}
	want := d
	want.Command, want.Verdict.Reason = []byte("login --token "+Redacted), "because token="+Redacted
	want.Dir, want.Box.Reason = "/x/token="+Redacted, "because token="+Redacted
	want.Verdict.Effects = []policy.Effect{{Target: "https://a:" + Redacted + "@c"}}
	want.Verdict.Lifted = []policy.Lift{{Target: "token=" + Redacted}}
	want.Validate = []validateNote{{Command: []byte("curl -u a:" + Redacted + " h")}}
	if !reflect.DeepEqual(got, want) || n != 7 {
		t.Errorf("%d redactions\n got %+v\nwant %+v", n, got, want)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if data = noteRedacted(data, n); redactedIn(data) != 7 || !json.Valid(data) {
		t.Errorf("noted %s", data)
	}
	fake, _ := json.Marshal(reasonData{Reason: `x,"redacted":9}`})
	if n := redactedIn(fake); n != 0 {
		t.Errorf("a text is taken for the note: %d in %s", n, fake)
	}
}

func FuzzRedact(f *testing.F) {
	for _, s := range []string{
		"password=hunter2", "a [redacted] b", "token=[redacted]x", `{"secret":"a\"b"}`, "https://a:b@c", "\xff password=\xfe", "-----BEGIN PRIVATE KEY-----",
		"authorization: bearer x", "[redac", "a_token=b_token=c", "--token --token x", "$6$aaaaaaaa", "token=[redacted]]", "key: [redacted][redacted]",
	} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		once, n := redactor{}.text(s)
		if len(once) > 6*len(s)+len(Redacted) {
			t.Errorf("%d bytes became %d", len(s), len(once))
		}
		if n == 0 && once != s {
			t.Errorf("%q became %q and nothing was found", s, once)
		}
		if twice, n := (redactor{}).text(once); twice != once || n != 0 {
			t.Errorf("%q, then %q, then %q", s, once, twice)
		}
		limit = max(0, min(limit, len(s)))
		if out, _ := (redactor{}).recorded([]byte(s), limit); len(out) > limit {
			t.Errorf("%d bytes, the limit is %d", len(out), limit)
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	for name, text := range map[string]string{
		"command": "cd /workspace && make -j8 test 2>&1 | tail -n 20",
		"hostile": strings.Repeat(`-eyJ-sk-x-token="-----BEGIN A PRIVATE KEY-----curl -u `, 1200),
		"output":  strings.Repeat("gcc -O2 -c -o key_token.o key_token.c: warning: unused parameter 'secret' [-Wunused]\n", 800),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, _ = redactor{}.text(text)
			}
		})
	}
}
