package pve_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// masked keys differ in every run, so they are dropped on both sides.
var masked = regexp.MustCompile(`^(pid|pstart|starttime|endtime|upid|saved|digest|snaptime|ctime|meta|vmgenid|smbios1|uptime|cpu|mem|memhost|pressure.*|disk|diskread|diskwrite|netin|netout|nics|blockstat|used|avail|loadavg|ssl_fingerprint|ticket|CSRFPreventionToken|running-qemu|running-machine|runningmachine|runningcpu|proxmox-support|used_fraction|idle|wait|repoid)$`)

// rewrites bring texts of both sides into one form.
var rewrites = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`UPID:([^:]+):[0-9A-F]+:[0-9A-F]+:[0-9A-F]+:`), "UPID:$1:"},
	{regexp.MustCompile(` at (\S+|FILE) line (\d+|N)\.`), " at FILE line N."},
	{regexp.MustCompile(`BC:24:11(:[0-9A-F]{2}){3}`), "MAC"},
	{regexp.MustCompile(`state-suspend-\d{4}-\d\d-\d\d`), "state-suspend-DATE"},
	{regexp.MustCompile(`[0-9.]+ [MG]iB|[0-9.]+ B`), "SIZE"},
	{regexp.MustCompile(` in \d+s`), " in Ns"},
	{regexp.MustCompile(`Formatting '\S*/([^/']+)', fmt=(\w+).*`), "Formatting '$1' $2"},
}

func normText(s string) string {
	for _, r := range rewrites {
		s = r.re.ReplaceAllString(s, r.to)
	}
	return s
}

// keyOf names the key that makes an array of objects a set.
func keyOf(list []any) string {
	if len(list) == 0 {
		return ""
	}
	first, ok := list[0].(map[string]any)
	if !ok || first["upid"] != nil {
		return ""
	}
	for _, k := range []string{"id", "name", "vmid", "key", "storage", "volid", "subdir", "cmd", "poolid", "realm", "subnet", "vnet", "zone", "controller"} {
		if first[k] != nil {
			return k
		}
	}
	return ""
}

// comparer collects differences. With loose numbers only types count.
type comparer struct {
	loose bool
	diffs []string
}

func (c *comparer) add(path, format string, args ...any) {
	c.diffs = append(c.diffs, path+": "+fmt.Sprintf(format, args...))
}

// compare reports where got differs from want.
func (c *comparer) compare(path string, want, got any) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			c.add(path, "want an object, got %v", short(got))
			return
		}
		keys := maps.Clone(w)
		maps.Copy(keys, g)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if masked.MatchString(k) {
				continue
			}
			wv, inW := w[k]
			gv, inG := g[k]
			switch {
			case !inW:
				c.add(path+"."+k, "not in the recording, got %v", short(gv))
			case !inG:
				c.add(path+"."+k, "missing, want %v", short(wv))
			default:
				c.compare(path+"."+k, wv, gv)
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			c.add(path, "want an array, got %v", short(got))
			return
		}
		c.arrays(path, w, g)
	case json.Number:
		g, ok := got.(json.Number)
		if !ok || !c.loose && w.String() != g.String() {
			c.add(path, "want number %v, got %v", w, short(got))
		}
	case string:
		g, ok := got.(string)
		if w == "<MACHINE>" || ok && g != "" && isLockToken(w) {
			return
		}
		if !ok || c.text(path, w) != c.text(path, g) {
			c.add(path, "want %q, got %v", w, short(got))
		}
	default:
		if fmt.Sprintf("%T%v", want, want) != fmt.Sprintf("%T%v", got, got) {
			c.add(path, "want %v, got %v", short(want), short(got))
		}
	}
}

// isLockToken reports whether a recorded text stands for one.
func isLockToken(s string) bool { return strings.HasPrefix(s, "<LOCK-TOKEN") }

// text is a string in its comparable form; lists of content kinds have no order.
func (c *comparer) text(path, s string) string {
	if strings.HasSuffix(path, ".content") && strings.Contains(s, ",") {
		parts := strings.Split(s, ",")
		sort.Strings(parts)
		return strings.Join(parts, ",")
	}
	return normText(s)
}

func (c *comparer) arrays(path string, want, got []any) {
	key := keyOf(want)
	if key == "" {
		key = keyOf(got)
	}
	if key == "" {
		if len(want) != len(got) {
			c.add(path, "want %d elements, got %d", len(want), len(got))
			return
		}
		for i := range want {
			c.compare(fmt.Sprintf("%s[%d]", path, i), want[i], got[i])
		}
		return
	}
	index := func(list []any) map[string]any {
		out := map[string]any{}
		for _, e := range list {
			if o, ok := e.(map[string]any); ok {
				out[normText(fmt.Sprint(o[key]))] = o
			}
		}
		return out
	}
	w, g := index(want), index(got)
	delete(w, "digest") // a pending list's item, different in every run
	delete(g, "digest")
	all := maps.Clone(w)
	maps.Copy(all, g)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		at := fmt.Sprintf("%s[%s]", path, k)
		switch {
		case w[k] == nil:
			c.add(at, "not in the recording")
		case g[k] == nil:
			c.add(at, "missing")
		case masked.MatchString(k): // a pending list's item
		default:
			c.compare(at, w[k], g[k])
		}
	}
}

func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 200 {
		return string(b[:200]) + "…"
	}
	return string(b)
}

// compareTask compares how a task ended, and that its log says nothing that
// the recorded one did not.
func (c *comparer) compareTask(want *taskEnd, got taskEnd) {
	if want.Type != got.Type {
		c.add("task.type", "want %q, got %q", want.Type, got.Type)
	}
	if normText(want.ExitStatus) != normText(got.ExitStatus) {
		c.add("task.exitstatus", "want %q, got %q", want.ExitStatus, got.ExitStatus)
	}
	last := func(l []string) string {
		if len(l) == 0 {
			return ""
		}
		return normText(l[len(l)-1])
	}
	if last(want.Log) != last(got.Log) {
		c.add("task.log", "last line: want %q, got %q", last(want.Log), last(got.Log))
	}
	known := map[string]bool{}
	for _, l := range want.Log {
		known[normText(l)] = true
	}
	for _, l := range got.Log {
		if !known[normText(l)] {
			c.add("task.log", "line not in the recording: %q", l)
		}
	}
}
