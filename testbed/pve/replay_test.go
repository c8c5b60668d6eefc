package pve_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/memory"
	"savepoint/testbed/pve/task"
)

// TestReplay sends the recorded scenarios of the real API to our server and
// compares the answers. Every difference must stand in knownDifferences, and
// everything there must still differ.
func TestReplay(t *testing.T) {
	files := os.Getenv("SAVEPOINT_PVE_OBSERVED")
	if files == "" {
		t.Skip("SAVEPOINT_PVE_OBSERVED does not name recorded answers")
	}
	for _, file := range strings.Split(files, ":") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			t.Parallel()
			lines, version := readLines(t, file)
			newReplayer(t, version).run(lines)
		})
	}
}

// readLines reads a recording; its version stands in its answers.
func readLines(t *testing.T, file string) (lines []line, version string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.UseNumber()
		var l line
		if err := d.Decode(&l); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		lines = append(lines, l)
		if o, ok := l.BodyOut.(map[string]any); ok && l.Path == "/api2/json/version" && version == "" {
			if data, ok := o["data"].(map[string]any); ok {
				version, _ = data["release"].(string)
			}
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if version == "" {
		t.Fatalf("%s: no answer tells the version", file)
	}
	return lines, version
}

type replayer struct {
	t       *testing.T
	version string
	n       *node
	raw     *rawClient
	id      identities

	upids   map[string]string // recorded to ours
	digests map[string]string
	locks   map[string]string // lock tokens
	long    bool              // a task runs on purpose
	release func()

	compared, equal, listed int
}

func newReplayer(t *testing.T, version string) *replayer {
	const password = "a good long password"
	n := newNode(t, func(c *pve.Config) {
		c.Version = version
		c.Storages = []pve.Storage{
			{ID: "local", Content: []string{"images", "iso", "vztmpl", "backup", "rootdir", "snippets"}},
			{ID: "raw", Content: []string{"images"}},
		}
		if version[0] == '9' {
			c.Storages = append(c.Storages, pve.Storage{ID: "chain", Content: []string{"images"}, VolumeChain: true})
		}
		c.Users = []access.User{
			{ID: "sp@pve", Password: password, Tokens: []access.Token{{ID: "t1", Shared: true}}},
			{ID: "lim@pve", Tokens: []access.Token{{ID: "t1", Shared: true}}},
			{ID: access.Superuser, Tokens: []access.Token{{ID: "t1", Shared: true}}},
		}
		c.Roles = map[string][]string{"Look": {"VM.Audit"}}
		c.ACL = []access.Entry{{Path: "/", Subject: "sp@pve", Role: "Administrator"}, {Path: "/vms", Subject: "lim@pve", Role: "Look"}}
		c.UnauthorizedDelay = time.Millisecond
		c.LockTimeout = 300 * time.Millisecond
		c.AgentTimeout = 300 * time.Millisecond
	})
	u, err := url.Parse(n.url)
	if err != nil {
		t.Fatal(err)
	}
	r := &replayer{
		t: t, version: version, n: n, raw: newRawClient(t, u.Host, n.srv.CAFile()),
		upids: map[string]string{}, digests: map[string]string{}, locks: map[string]string{}, release: func() {},
	}
	cred := n.srv.Credentials()
	r.id = identities{password: password, tokens: map[string]string{}, ticket: map[string][2]string{}}
	for kind, name := range map[string]string{"token": "sp@pve!t1", "limited": "lim@pve!t1", "roottoken": "root@pam!t1"} {
		r.id.tokens[kind] = name + "=" + cred.Tokens[name].Reveal()
	}
	for _, user := range []string{"sp@pve", access.Superuser} {
		form := url.Values{"username": {user}, "password": {cred.Passwords[user].Reveal()}}.Encode()
		rep := r.must(request{
			method: "POST", target: "/api2/json/access/ticket", proto: "HTTP/1.1", body: []byte(form),
			header: [][2]string{{"Content-Type", "application/x-www-form-urlencoded"}},
		})
		data := rep.body.(map[string]any)["data"].(map[string]any)
		r.id.ticket[user] = [2]string{data["ticket"].(string), data["CSRFPreventionToken"].(string)}
	}
	return r
}

func (r *replayer) must(q request) reply {
	r.t.Helper()
	rep, err := r.raw.send(q)
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}

func (r *replayer) run(lines []line) {
	counts := map[string]int{}
	known := map[string]string{}
	for _, k := range knownDifferences {
		if k.version == "" || k.version == r.version {
			known[k.key] = k.reason
		}
	}
	seen := map[string]bool{}
	for i, l := range lines {
		base := strings.Join([]string{l.Area, l.Title, l.Method, rePathUPID.ReplaceAllString(l.Path, "UPID")}, " | ")
		counts[base]++
		key := fmt.Sprintf("%s | %d", base, counts[base])
		var next line
		if i+1 < len(lines) {
			next = lines[i+1]
		}
		diffs := r.one(l, next)
		r.compared++
		reason, isKnown := known[key]
		seen[key] = true
		switch {
		case len(diffs) == 0 && isKnown:
			r.t.Errorf("%s: listed as a difference (%s), but equal", key, reason)
		case len(diffs) == 0:
			r.equal++
		case isKnown:
			r.listed++
		default:
			r.t.Errorf("seq %d %s:\n  %s", l.Seq, key, strings.Join(diffs, "\n  "))
		}
	}
	for k := range known {
		if !seen[k] {
			r.t.Errorf("%s: listed as a difference, but not in the recording", k)
		}
	}
	r.t.Logf("%s: %d requests compared, %d equal, %d listed", r.version, r.compared, r.equal, r.listed)
}

var rePathUPID = regexp.MustCompile(`UPID%3A[^/]*`)

// one replays one line and returns the differences.
func (r *replayer) one(l, next line) []string {
	r.settle()
	undo := r.arrange(l)
	q := r.build(l)
	rep := r.must(q)
	var diffs []string
	c := &comparer{loose: strings.HasPrefix(l.Area, "3")}
	want := 0
	if l.Status != nil {
		want = *l.Status
	}
	if want != rep.status {
		c.add("status", "want %d %q, got %d %q", want, l.Reason, rep.status, rep.reason)
	} else if want != 0 && normText(l.Reason) != normText(rep.reason) {
		c.add("reason", "want %q, got %q", l.Reason, rep.reason)
	}
	if want != 0 && want == rep.status {
		if noType := strings.Contains(l.Note, "[no content type]"); noType != rep.noType {
			c.add("content type", "want none: %v, got none: %v", noType, rep.noType)
		}
		body := l.BodyOut
		if o, ok := body.(map[string]any); ok && isTaskList(l) {
			delete(o, "total")
			delete(rep.body.(map[string]any), "total")
		}
		c.compare("body", body, rep.body)
	}
	diffs = append(diffs, c.diffs...)
	r.learn(l, rep)
	if upid := upidOf(rep.body); upid != "" && l.Task != nil {
		c := &comparer{}
		c.compareTask(l.Task, r.await(upid))
		diffs = append(diffs, c.diffs...)
	}
	undo(next)
	return diffs
}

func isTaskList(l line) bool { return strings.HasSuffix(l.Path, "/tasks") }

// settle waits for tasks that nobody waited for, unless one runs on purpose.
func (r *replayer) settle() {
	if r.long {
		return
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if list := r.n.data("/nodes/pve1/tasks?source=active").([]any); len(list) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal("a task does not end")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// await waits for a task and returns how it ended.
func (r *replayer) await(upid string) taskEnd {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	get := func(what string) any { return r.n.data("/nodes/pve1/tasks/" + url.PathEscape(upid) + what) }
	for {
		data := get("/status").(map[string]any)
		if data["status"] == "stopped" {
			end := taskEnd{Type: data["type"].(string), ExitStatus: data["exitstatus"].(string)}
			for _, e := range get("/log?limit=0").([]any) {
				end.Log = append(end.Log, e.(map[string]any)["t"].(string))
			}
			return end
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("task %s does not end", upid)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func upidOf(body any) string {
	if o, ok := body.(map[string]any); ok {
		if s, ok := o["data"].(string); ok && strings.HasPrefix(s, "UPID:") {
			return s
		}
	}
	return ""
}

// learn remembers which of our names stand for which recorded ones.
func (r *replayer) learn(l line, rep reply) {
	if want, got := upidOf(l.BodyOut), upidOf(rep.body); want != "" && got != "" {
		r.upids[want] = got
	}
	data := func(v any) string {
		o, _ := v.(map[string]any)
		s, _ := o["data"].(string)
		return s
	}
	if want, got := data(l.BodyOut), data(rep.body); isLockToken(want) && got != "" {
		r.locks[want] = got
	}
	digest := func(v any) string {
		if o, ok := v.(map[string]any); ok {
			if data, ok := o["data"].(map[string]any); ok {
				s, _ := data["digest"].(string)
				return s
			}
		}
		return ""
	}
	if want, got := digest(l.BodyOut), digest(rep.body); want != "" && got != "" {
		r.digests[want] = got
	}
}

// build makes the request of a line.
func (r *replayer) build(l line) request {
	subst := func(k, v string) string {
		if v == "<PASSWORD>" {
			return r.id.password
		}
		if t, ok := r.locks[v]; ok && k == "lock-token" {
			return t
		}
		if d, ok := r.digests[v]; ok && k == "digest" {
			return d
		}
		return v
	}
	path := l.Path
	for want, got := range r.upids {
		path = strings.ReplaceAll(path, url.QueryEscape(want), url.QueryEscape(got))
	}
	q := request{method: l.Method, target: path, proto: "HTTP/1.1"}
	if query := encodePairs(l.Query, subst); query != "" {
		q.target += "?" + query
	}
	if l.ContentType != "" {
		q.header = append(q.header, [2]string{"Content-Type", l.ContentType})
	}
	switch {
	case strings.HasPrefix(l.ContentType, "application/json"):
		var text string
		if json.Unmarshal(l.Body, &text) == nil {
			q.body = []byte(text)
		} else if string(l.Body) != "null" {
			q.body = l.Body
		}
	default:
		q.body = []byte(encodePairs(l.Body, subst))
	}
	switch l.Title {
	case "chunked body":
		q.chunked = true
	case "HTTP/2.0 in the request line":
		q.proto = "HTTP/2.0"
	case "HTTP/1.0 in the request line":
		q.proto = "HTTP/1.0"
	case "70 headers":
		for i := range 70 {
			q.header = append(q.header, [2]string{"X-H" + strconv.Itoa(i), "v"})
		}
	case "9000 bytes of header":
		q.header = append(q.header, [2]string{"X-Long", strings.Repeat("h", 9000)})
	}
	r.id.apply(l, &q)
	return q
}

var (
	reVMPath = regexp.MustCompile(`/qemu/(\d+)`)
	reLock   = regexp.MustCompile(`"?lock: ([a-z-]+)"?`)
)

// arrange makes the state that a line's note tells of; the function returned
// undoes it when the next line does not tell of it any more.
func (r *replayer) arrange(l line) func(next line) {
	nothing := func(line) {}
	vmid := 0
	if m := reVMPath.FindStringSubmatch(l.Path); m != nil {
		vmid, _ = strconv.Atoi(m[1])
	}
	switch {
	case strings.Contains(l.Note, "the worker is killed"):
		remove := r.n.srv.Faults.AddTask(pve.TaskFault{Type: "qmsnapshot", Step: "prepared", Action: task.Action{Kill: true}})
		return func(line) { r.settle(); remove() }
	case strings.Contains(l.Note, "the lock line was removed"):
		r.n.must(r.n.srv.SetLock(vmid, ""))
	case strings.HasPrefix(l.Title, "rollback with start"):
		r.release, r.long = r.n.mem.Hold("Start"), true
	case strings.HasPrefix(l.Title, "tasks after it"):
		return func(line) { r.release(); r.long = false }
	case l.Title == "a long task":
		r.long = true
	case l.Title == "stop it":
		return func(line) { r.long = false }
	case l.Title == "agent answering: create VM":
		r.n.mem.SetAgent(180, standIn())
	}
	if m := reLock.FindStringSubmatch(l.Note); m != nil && vmid != 0 {
		r.n.must(r.n.srv.SetLock(vmid, m[1]))
		if strings.Contains(l.Note, "[s2]") {
			r.n.must(r.n.srv.SetSnapState(vmid, "s2", "delete"))
		}
		return func(next line) {
			if !strings.Contains(next.Note, "lock: ") {
				_ = r.n.srv.SetLock(vmid, "") // the VM may be gone
			}
		}
	}
	return nothing
}

// standIn is the recording's guest agent.
func standIn() memory.AgentFunc {
	pid := 999
	runs := map[int][]string{}
	refuse := func(class, desc string) (any, error) { return nil, &pve.AgentError{Class: class, Desc: desc} }
	return func(command string, args any) (any, error) {
		a, _ := args.(map[string]any)
		switch command {
		case "guest-ping":
			return map[string]any{}, nil
		case "guest-info":
			return map[string]any{"version": "7.2.0", "supported_commands": []any{map[string]any{"name": "guest-ping", "enabled": true, "success-response": true}}}, nil
		case "guest-get-osinfo":
			return map[string]any{"id": "debian", "name": "Debian GNU/Linux", "version-id": "12", "kernel-release": "6.1.0", "machine": "x86_64"}, nil
		case "guest-get-host-name":
			return map[string]any{"host-name": "guest"}, nil
		case "guest-get-time":
			return int64(1700000000000000000), nil
		case "guest-network-get-interfaces":
			return []any{map[string]any{"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": []any{
				map[string]any{"ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8},
			}}}, nil
		case "guest-fsfreeze-status":
			return "thawed", nil
		case "guest-fsfreeze-freeze", "guest-fsfreeze-thaw":
			return 1, nil
		case "guest-exec":
			path, _ := a["path"].(string)
			if path == "nosuch" {
				return refuse("GenericError", `Failed to execute child process "nosuch" (No such file or directory)`)
			}
			if strings.Contains(path, " ") {
				return refuse("GenericError", fmt.Sprintf("Failed to execute child process “%s” (No such file or directory)", path))
			}
			more, _ := a["arg"].([]string)
			pid++
			runs[pid] = append([]string{path}, more...)
			return map[string]any{"pid": pid}, nil
		case "guest-exec-status":
			id, _ := a["pid"].(int)
			run, ok := runs[id]
			if !ok {
				return refuse("GenericError", fmt.Sprintf("PID %d does not exist", id))
			}
			if run[0] == "sleep" {
				return map[string]any{"exited": false}, nil
			}
			code := 0
			if len(run) > 1 && run[1] == "fail" {
				code = 3
			}
			return map[string]any{"exited": true, "exitcode": code, "out-data": base64.StdEncoding.EncodeToString([]byte("some text\n"))}, nil
		}
		if strings.HasPrefix(command, "guest-") {
			return refuse("CommandNotFound", fmt.Sprintf("The command %s has not been found", command))
		}
		return nil, errors.New("silent")
	}
}
