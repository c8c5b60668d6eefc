package zfs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays zfs when it is called by that name: a fake with the
// state of a pool in a file beside it, which is all that the program on the node
// can tell from the real one.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "zfs" {
		os.Exit(playZFS(filepath.Dir(os.Args[0]), os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// pool is everything on the node.
type pool struct {
	Seq      uint64
	Datasets map[string]*dataset
	Free     int64
	Newer    string   // taken of the dataset right before the next rollback
	Faults   []fault  // used up in order, each by its verb
	Log      []string // every call
	Mounted  bool     // the guest has the volume mounted
	Crimes   []string

	out strings.Builder
}

type fault struct{ Verb, Text string }

type dataset struct {
	Props   map[string]string
	Content string
	Txg     uint64
	Made    int64
	Taken   []taken
}

type taken struct {
	Name, Content string // with '@' or '#'
	Props         map[string]string
	Txg           uint64
	Made          int64
	Clone         string
}

func stateFile(dir string) string { return filepath.Join(dir, "pool.json") }

func loadPool(dir string) (*pool, error) {
	raw, err := os.ReadFile(stateFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return &pool{Datasets: map[string]*dataset{}, Free: 1 << 30}, nil
	}
	var p pool
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	return &p, err
}

// answer does what savepoint-zfs does with a request that is well formed; that
// both answer alike is a test of its own. It spares most tests the processes.
func (p *pool) answer(request string) string {
	const key = "savepoint:owner"
	f := map[string]string{}
	for line := range strings.Lines(request) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		f[k] = v
	}
	volume, snap := f["dataset"], f["dataset"]+"@"+f["name"]
	var b strings.Builder
	b.WriteString("savepoint-zfs 1\n")
	say := func(mark, text string) {
		for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			b.WriteString(mark + " " + line + "\n")
		}
	}
	end := ""
	act := func(args ...string) (out string) {
		if end != "" {
			return ""
		}
		out, ok := p.run(args...)
		if !ok {
			say("!", out)
			end = "failed"
		}
		return out
	}
	has := func(out string) string {
		v, ok := strings.CutSuffix(strings.TrimSuffix(out, "\n"), "\tlocal")
		if !ok {
			return ""
		}
		return v
	}
	own := func(subject string) {
		if v := has(act("get", "-H", "-o", "value,source", key, subject)); end == "" && v != f["owner"] {
			say("!", fmt.Sprintf("%s has the owner '%s', not '%s'", subject, v, f["owner"]))
			end = "denied"
		}
	}
	switch f["do"] {
	case "claim":
		if v := has(act("get", "-H", "-o", "value,source", key, volume)); v != "" {
			own(volume)
		} else {
			act("set", key+"="+f["owner"], volume)
		}
	case "create":
		own(volume)
		free, reserve := 0, 0
		_, _ = fmt.Sscan(act("get", "-H", "-p", "-o", "value", "available", volume), &free)
		_, _ = fmt.Sscan(f["reserve"], &reserve)
		if end == "" && free < reserve {
			say("!", fmt.Sprintf("%d bytes are free, fewer than %d", free, reserve))
			end = "full"
		}
		args := []string{"snapshot", "-o", key + "=" + f["owner"]}
		if f["text"] != "" {
			args = append(args, "-o", "savepoint:text="+f["text"])
		}
		act(append(args, snap)...)
	case "rollback":
		own(volume)
		own(snap)
		act("rollback", snap)
	case "delete":
		own(volume)
		if end != "" {
			break
		}
		if out, ok := p.run("get", "-H", "-o", "value,source", key, snap); ok {
			own(snap)
			act("destroy", snap)
		} else if !strings.Contains(out, "does not exist") {
			say("!", out)
			end = "failed"
		}
	}
	if out := act("get", "-H", "-p", "-r", "-d", "1", "-o", "name,property,value,source", "type,creation,createtxg,available,savepoint:owner,savepoint:text", volume); end == "" {
		say("=", out)
		end = "ok"
	}
	return b.String() + "end " + end + "\n"
}

func (p *pool) save(dir string) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	tmp := stateFile(dir) + ".part"
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, stateFile(dir))
}

func playZFS(dir string, args []string) int {
	p, err := loadPool(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fake zfs:", err)
		return 99
	}
	out, ok := p.run(args...)
	if err := p.save(dir); err != nil {
		fmt.Fprintln(os.Stderr, "fake zfs:", err)
		return 99
	}
	if !ok {
		fmt.Fprintln(os.Stderr, out)
		return 1
	}
	fmt.Print(out)
	return 0
}

// run is one call of zfs: what it prints, or its complaint.
func (p *pool) run(args ...string) (out string, ok bool) {
	p.Log = append(p.Log, strings.Join(args, " "))
	i := slices.IndexFunc(p.Faults, func(f fault) bool { return f.Verb == args[0] })
	if i >= 0 {
		text := p.Faults[i].Text
		p.Faults = slices.Delete(p.Faults, i, i+1)
		return text, false
	}
	p.out.Reset()
	if text := p.do(args); text != "" {
		return text, false
	}
	return p.out.String(), true
}

// do carries one command out and returns zfs's complaint.
func (p *pool) do(args []string) string {
	subject := args[len(args)-1]
	name, snap, isSnap := strings.Cut(subject, "@")
	d := p.Datasets[name]
	at := -1
	if d != nil && isSnap {
		at = slices.IndexFunc(d.Taken, func(t taken) bool { return t.Name == "@"+snap })
	}
	missing := fmt.Sprintf("cannot open '%s': dataset does not exist", subject)
	if d == nil || isSnap && at < 0 && args[0] != "snapshot" {
		return missing
	}
	props := map[string]string{}
	for i, a := range args {
		if k, v, ok := strings.Cut(a, "="); ok && (args[0] == "set" || args[i-1] == "-o") {
			props[k] = v
		}
	}
	switch args[0] {
	case "get":
		return p.get(args, name, d, at)
	case "set":
		maps.Copy(d.Props, props)
	case "snapshot":
		if at >= 0 {
			return fmt.Sprintf("cannot create snapshot '%s': dataset already exists", subject)
		}
		d.take(p, "@"+snap, props)
	case "rollback":
		if p.Newer != "" {
			d.take(p, "@"+p.Newer, nil)
			p.Newer = ""
		}
		return p.rollback(subject, d, at)
	case "destroy":
		if c := d.Taken[at].Clone; c != "" {
			return fmt.Sprintf("cannot destroy '%s': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\n%s", subject, c)
		}
		d.Taken = slices.Delete(d.Taken, at, at+1)
	default:
		return "unrecognized command '" + args[0] + "'"
	}
	return ""
}

func (d *dataset) take(p *pool, name string, props map[string]string) {
	p.Seq++
	d.Taken = append(d.Taken, taken{Name: name, Content: d.Content, Props: props, Txg: p.Seq, Made: time.Now().Unix()})
}

func (p *pool) rollback(subject string, d *dataset, at int) string {
	if newer := d.Taken[at+1:]; len(newer) > 0 {
		lines := []string{fmt.Sprintf("cannot rollback to '%s': more recent snapshots or bookmarks exist", subject), "use '-r' to force deletion of the following snapshots and bookmarks:"}
		for _, t := range slices.Backward(newer) { // in no helpful order, as the real one
			lines = append(lines, strings.Split(subject, "@")[0]+t.Name)
		}
		return strings.Join(lines, "\n")
	}
	if p.Mounted {
		p.Crimes = append(p.Crimes, "rolled back below a mounted file system")
	}
	d.Content = d.Taken[at].Content
	return ""
}

// get prints what the three calls of savepoint-zfs ask for.
func (p *pool) get(args []string, name string, d *dataset, at int) string {
	own, from := d.Props, "local"
	if at >= 0 {
		own = d.Taken[at].Props
	}
	switch joined := strings.Join(args[1:len(args)-1], " "); joined {
	case "-H -o value,source savepoint:owner":
		value := own["savepoint:owner"]
		if value == "" && at >= 0 && d.Props["savepoint:owner"] != "" {
			value, from = d.Props["savepoint:owner"], "inherited from "+name
		} else if value == "" {
			value, from = "-", "-"
		}
		fmt.Fprintf(&p.out, "%s\t%s\n", value, from)
	case "-H -p -o value available":
		fmt.Fprintln(&p.out, p.Free)
	case "-H -p -r -d 1 -o name,property,value,source type,creation,createtxg,available,savepoint:owner,savepoint:text":
		p.print(name, "volume", d.Made, d.Txg, fmt.Sprint(p.Free), d.Props, nil)
		for _, t := range slices.Backward(d.Taken) {
			p.print(name+t.Name, "snapshot", t.Made, t.Txg, "-", t.Props, d.Props)
		}
		p.print(name+"/child", "filesystem", d.Made, d.Txg, "7", map[string]string{"savepoint:owner": "evil/x"}, nil)
	default:
		return "bad property list: " + joined
	}
	return ""
}

func (p *pool) print(name, kind string, made int64, txg uint64, free string, props, above map[string]string) {
	row := func(k, v, source string) { fmt.Fprintf(&p.out, "%s\t%s\t%s\t%s\n", name, k, v, source) }
	row("type", kind, "-")
	row("creation", fmt.Sprint(made), "-")
	row("createtxg", fmt.Sprint(txg), "-")
	row("available", free, "-")
	for _, k := range []string{"savepoint:owner", "savepoint:text"} {
		switch {
		case props[k] != "":
			row(k, props[k], "local")
		case above[k] != "":
			row(k, above[k], "inherited from "+strings.Split(name, "@")[0])
		default:
			row(k, "-", "-")
		}
	}
}
