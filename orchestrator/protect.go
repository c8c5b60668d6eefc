package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"savepoint/policy"
)

// Guard says what a command may not have changed when it is committed.
type Guard struct {
	// Protect are absolute paths of files and trees that have to be as before,
	// besides those of Config.Guards.
	Protect []string `json:",omitempty"`
	// Unprotect lifts the protection of these paths and what is below them.
	Unprotect []string `json:",omitempty"`
	// OnlyChange are the only paths, with what is below them, that may differ
	// below Watch. Empty: no such limit.
	OnlyChange []string `json:",omitempty"`
	// Watch are the trees that OnlyChange and Changes look at. Empty: those of
	// Config.Guards, else all that the account can write.
	Watch []string `json:",omitempty"`
	// Changes asks for the list of what differs below Watch, without a limit.
	Changes bool `json:",omitempty"`
}

// Guards are what all transactions of an engine are validated by, besides how
// the command ended and what the caller asks for. The zero value protects no
// paths and has the defaults for the rest. All of it needs a Guest that is an
// Examiner too.
type Guards struct {
	// Protected are absolute paths of files and trees that a command may not
	// change; see ProtectedPaths. A command of the agent is looked at only
	// where it can write.
	Protected []string
	// Watch is where Guard.OnlyChange and Guard.Changes look; nil = everything
	// for root, AgentRoots without /tmp for the agent.
	Watch []string
	// Volatile are paths that the guest changes by itself, besides
	// VolatilePaths; they are never a change below Watch.
	Volatile []string
	// AgentRoots are the trees that the agent can write; nil = /home/agent,
	// /workspace, /tmp and /var/tmp.
	AgentRoots []string
	MaxEntries int // of one list of files; 0 = DefaultManifestLimit
	// MinFree and MinInodes are what a command has to leave of each file
	// system; zero = 16 MiB and 1 %.
	MinFree, MinInodes Least
	// MaxSkew is how far the guest's clock may be off; 0 = 1 s.
	MaxSkew time.Duration
}

// VolatilePaths are the trees that a Linux guest changes by itself: kernel
// interfaces, scratch, logs, caches, timers, leases, and savepoint's marker.
func VolatilePaths() []string {
	return []string{
		"/dev", "/proc", "/run", "/sys", "/tmp",
		"/var/cache", "/var/lib/apt/lists", "/var/lib/apt/periodic", "/var/lib/chrony", "/var/lib/cloud", "/var/lib/dhcp",
		"/var/lib/fwupd", "/var/lib/logrotate", "/var/lib/NetworkManager", "/var/lib/private/systemd", "/var/lib/savepoint",
		"/var/lib/systemd", "/var/lib/ubuntu-advantage", "/var/lib/update-notifier", "/var/lock", "/var/log", "/var/run",
	}
}

// What stands for several paths in a list of protected ones.
const (
	ProtectDefault = "default"
	ProtectNone    = "none"
)

// filled returns the guards with their defaults.
func (g Guards) filled() Guards {
	g.MinFree, g.MinInodes = g.MinFree.or(Least{Count: 16 << 20}), g.MinInodes.or(Least{Percent: 1})
	if g.MaxSkew <= 0 {
		g.MaxSkew = maxSkew
	}
	return g
}

// ProtectedPaths puts the list of a configuration into paths: "default", and an
// empty list, stand for what savepoint's hold of a guest rests on, and "none"
// for nothing.
func ProtectedPaths(list []string) []string {
	if len(list) == 0 {
		list = []string{ProtectDefault}
	}
	var out []string
	for _, p := range list {
		switch p {
		case ProtectDefault:
			out = append(out,
				// How we log in, and who may become root. The lists of accounts are
				// not here: installing a package may add one.
				"/root/.ssh", "/root/.profile", "/root/.bashrc", "/etc/sudoers", "/etc/sudoers.d",
				// What answers us, and what it is started by.
				"/etc/ssh", "/usr/sbin/sshd", "/usr/lib/openssh", "/usr/sbin/qemu-ga", "/etc/qemu", "/lib/systemd/system/ssh.service",
				"/lib/systemd/system/ssh.socket", "/lib/systemd/system/qemu-guest-agent.service", "/etc/systemd/system/ssh.service",
				"/etc/systemd/system/sshd.service", "/etc/systemd/system/ssh.service.d", "/etc/systemd/system/qemu-guest-agent.service",
				"/etc/systemd/system/qemu-guest-agent.service.d",
				"/etc/ld.so.preload",
				// How it boots and where it is on the network.
				"/etc/fstab", "/etc/network", "/etc/netplan", "/etc/systemd/network",
			)
		case ProtectNone:
		default:
			out = append(out, path.Clean(p))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// normal checks the paths and brings them into their shortest form.
func (g Guard) normal() (Guard, error) {
	for _, list := range []struct {
		what  string
		paths *[]string
	}{{"protect", &g.Protect}, {"unprotect", &g.Unprotect}, {"only-change", &g.OnlyChange}, {"watch", &g.Watch}} {
		clean := make([]string, 0, len(*list.paths))
		for _, p := range *list.paths {
			if !strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) {
				return g, &UsageError{What: fmt.Sprintf("%s %q: not an absolute path", list.what, p), Mend: "give the whole path, from the root on"}
			}
			clean = append(clean, path.Clean(p))
		}
		if *list.paths = nil; len(clean) > 0 {
			slices.Sort(clean)
			*list.paths = slices.Compact(clean)
		}
	}
	if len(g.Watch) > 0 && !g.watches() {
		return g, &UsageError{What: "watch: there is nothing to watch for", Mend: "use it together with only-change or changes"}
	}
	for _, p := range g.OnlyChange {
		if len(g.Watch) > 0 && !slices.ContainsFunc(g.Watch, func(w string) bool { return within(p, w) || within(w, p) }) {
			return g, &UsageError{What: fmt.Sprintf("only-change %s: it is outside of what is watched (%s)", p, strings.Join(g.Watch, ", ")), Mend: "watch it too"}
		}
	}
	return g, nil
}

// orNil is the guard as it is recorded: nothing when nothing was asked for.
func (g Guard) orNil() *Guard {
	if !g.asks() && len(g.Unprotect) == 0 {
		return nil
	}
	return &g
}

func (g Guard) watches() bool { return g.Changes || len(g.OnlyChange) > 0 }

// asks reports whether the caller wants more than the engine does by itself.
func (g Guard) asks() bool { return g.watches() || len(g.Protect) > 0 }

// within reports whether p is root or below it.
func within(p, root string) bool {
	return p == root || root == "/" || strings.HasPrefix(p, root) && p[len(root)] == '/'
}

func withinAny(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return within(p, r) })
}

func (g Guards) agentRoots() []string {
	if g.AgentRoots != nil {
		return g.AgentRoots
	}
	return []string{"/home/agent", "/tmp", "/var/tmp", "/workspace"}
}

// protected are the paths to compare after a command of the account.
func (g Guards) protected(of Guard, root bool) (paths []string) {
	for _, p := range slices.Concat(g.Protected, of.Protect) {
		reach := root || slices.ContainsFunc(g.agentRoots(), func(r string) bool { return within(p, r) || within(r, p) })
		if reach && !withinAny(p, of.Unprotect) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// watched are the trees to compare after a command of the account.
func (g Guards) watched(of Guard, root bool) []string {
	switch {
	case !of.watches():
		return nil
	case len(of.Watch) > 0:
		return of.Watch
	case len(g.Watch) > 0:
		return g.Watch
	case root:
		return []string{"/"}
	}
	return slices.DeleteFunc(slices.Clone(g.agentRoots()), g.volatile)
}

func (g Guards) volatile(p string) bool {
	return withinAny(p, VolatilePaths()) || withinAny(p, g.Volatile)
}

// trees is what was noted of the guest's files before a command.
type trees struct {
	protected, watched []string // the roots
	hashed, listed     Manifest
	explicit           []string // watched by name: nothing below these is volatile
}

// changes are what a command did to the files that were looked at.
type changes struct{ list []Change }

// maxChanges bounds what is recorded and reported of a command's changes.
const maxChanges = 200

// add merges a sorted list, which other lists may share paths with.
func (c *changes) add(list []Change) *changes {
	if c == nil {
		c = &changes{}
	}
	known := map[string]bool{}
	for _, o := range c.list {
		known[o.Path] = true
	}
	for _, o := range list {
		if !known[o.Path] {
			c.list = append(c.list, o)
		}
	}
	slices.SortFunc(c.list, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return c
}

// capped is what goes into the record: the first changes and their number.
func (c *changes) capped() (first []Change, total int) {
	if c == nil {
		return nil, 0
	}
	return c.list[:min(len(c.list), maxChanges)], len(c.list)
}

// privileged reports whether the command or a validation may write as root.
func (t *tx) privileged() bool {
	may := t.spec.As != policy.Agent && t.spec.Command != "" && !(t.verdict.Decision == policy.Allow && len(t.env) == 0)
	for _, p := range t.probes {
		may = may || p.as != policy.Agent && !(p.verdict.Decision == policy.Allow && len(t.spec.Env) == 0)
	}
	return may
}

// examiner is the Guest's ability to be looked into, nil without.
func (t *tx) examiner() Examiner {
	x, _ := t.e.c.Guest.(Examiner)
	return x
}

// askable refuses a guard that cannot be evaluated, before anything is done.
func (t *tx) askable() error {
	if t.spec.Guard.asks() && t.examiner() == nil {
		return &UnsupportedError{What: "this guest cannot list its files, so protected and changed paths cannot be told", Mend: "run without --protect, --only-change and --changes"}
	}
	return nil
}

// before notes the state of the files that the command may not change, or not
// all of which it may. A command that is proved read-only changes none.
func (t *tx) before(ctx context.Context) error {
	t.was, t.changed, t.noted = nil, nil, 0
	x, g := t.examiner(), t.e.c.Guards
	if x == nil || t.boundary == BoundaryNone {
		return nil
	}
	root := t.privileged()
	was := &trees{protected: g.protected(t.spec.Guard, root), watched: g.watched(t.spec.Guard, root)}
	was.explicit = append(slices.Clone(t.spec.Guard.Watch), t.spec.Guard.OnlyChange...)
	if len(was.protected)+len(was.watched) == 0 {
		return nil
	}
	start := t.e.c.Now()
	defer func() { t.noted = t.e.c.Now().Sub(start) }()
	var err error
	if was.hashed, err = t.list(ctx, x, was.protected, true); err != nil {
		return fmt.Errorf("note the protected paths: %w", err)
	}
	if was.listed, err = t.listed(ctx, x, was.watched); err != nil {
		return fmt.Errorf("note the watched paths: %w", err)
	}
	t.was = was
	return nil
}

// unnoted ends a transaction whose files could not be noted: nothing ran. Too
// many files are an answer to the caller, who can narrow the list, and no error.
func (t *tx) unnoted(ctx context.Context, cause error) (Outcome, error) {
	out, err := t.giveUpBegun(ctx, "the state before the command could not be noted", cause)
	var many *narrowError
	if errors.As(cause, &many) && out.State == StateRolledBack {
		return out, nil
	}
	return out, err
}

// unnotedStep is why a step was not run; its transaction stays open.
func (t *tx) unnotedStep(cause error) error {
	var many *narrowError
	if errors.As(cause, &many) {
		return &UsageError{What: fmt.Sprintf("run in transaction %s: nothing was run: %v", t.view.ID, many)}
	}
	return fmt.Errorf("run in transaction %s: nothing was run: %w", t.view.ID, classed(cause))
}

// list makes one manifest.
func (t *tx) list(ctx context.Context, x Examiner, roots []string, hash bool) (Manifest, error) {
	if len(roots) == 0 {
		return Manifest{Hash: hash}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Validate)
	defer cancel()
	m, err := x.Manifest(ctx, t.view.Sandbox, ManifestRequest{Roots: roots, Hash: hash, Limit: t.e.c.Guards.MaxEntries})
	var many *TooManyError
	if errors.As(err, &many) {
		return m, &narrowError{many: many, roots: roots}
	}
	return m, err
}

// listed is list without digests, and with what is mounted below the roots: a
// manifest ends at its file system.
func (t *tx) listed(ctx context.Context, x Examiner, roots []string) (Manifest, error) {
	all, err := t.list(ctx, x, roots, false)
	for fresh := all.Entries; err == nil; {
		var more []string
		for _, e := range fresh {
			if e.Mount && e.Type == EntryDir && !slices.Contains(roots, e.Path) && !t.e.c.Guards.volatile(e.Path) {
				more = append(more, e.Path)
			}
		}
		if len(more) == 0 {
			break
		}
		roots = slices.Concat(roots, more)
		var m Manifest
		if m, err = t.list(ctx, x, more, false); err == nil {
			fresh = m.Entries
			// The mounted root itself stands in both.
			all.Entries = slices.DeleteFunc(all.Entries, func(e ManifestEntry) bool { return slices.Contains(more, e.Path) })
			all.Entries = append(all.Entries, fresh...)
			all.Sort()
		}
	}
	return all, err
}

// narrowError says what to do about a tree with too many files.
type narrowError struct {
	many  *TooManyError
	roots []string
}

func (e *narrowError) Error() string {
	return fmt.Sprintf("there are more than %d files below %s; narrow what is watched (--watch or validate.watch), or raise validate.max_entries",
		e.many.Limit, strings.Join(e.roots, ", "))
}

func (e *narrowError) Unwrap() error { return e.many }

// protectedCheck compares the protected paths.
func (t *tx) protectedCheck(ctx context.Context) *bad {
	now, err := t.list(ctx, t.examiner(), t.was.protected, true)
	if err != nil {
		return &bad{reason: fmt.Sprintf("the protected paths could not be looked at after the command: %v", err), unknown: true}
	}
	diff := slices.DeleteFunc(t.was.hashed.Diff(now), func(c Change) bool { return withinAny(c.Path, t.spec.Guard.Unprotect) })
	t.changed = t.changed.add(diff)
	if len(diff) == 0 {
		return nil
	}
	return &bad{reason: fmt.Sprintf("protected path %s; if that is meant, allow it for one command with --unprotect %s", said(diff), diff[0].Path)}
}

// watchedCheck compares the watched trees.
func (t *tx) watchedCheck(ctx context.Context) *bad {
	now, err := t.listed(ctx, t.examiner(), t.was.watched)
	if err != nil {
		return &bad{reason: fmt.Sprintf("the watched paths could not be looked at after the command: %v", err), unknown: true}
	}
	diff := slices.DeleteFunc(t.was.listed.Diff(now), func(c Change) bool {
		return t.e.c.Guards.volatile(c.Path) && !withinAny(c.Path, t.was.explicit)
	})
	t.changed = t.changed.add(diff)
	only := t.spec.Guard.OnlyChange
	if len(only) == 0 {
		return nil
	}
	other := slices.DeleteFunc(slices.Clone(diff), func(c Change) bool {
		// A directory on the way to what may change has to be made first.
		way := c.Kind == ChangeAdded && c.What == string(EntryDir) && slices.ContainsFunc(only, func(p string) bool { return within(p, c.Path) })
		return way || withinAny(c.Path, only)
	})
	if len(other) == 0 {
		return nil
	}
	return &bad{reason: fmt.Sprintf("%s, and only %s may change", said(other), strings.Join(only, ", "))}
}

// said names the first changes of a list that is not empty.
func said(list []Change) string {
	var parts []string
	for _, c := range list[:min(3, len(list))] {
		s := fmt.Sprintf("%s was %s", printablePath(c.Path), c.Kind)
		if c.Kind == ChangeChanged && c.What != "" {
			s += " (" + c.What + ")"
		}
		parts = append(parts, s)
	}
	if n := len(list) - len(parts); n > 0 {
		parts = append(parts, fmt.Sprintf("%d more", n))
	}
	return strings.Join(parts, ", ")
}

// printablePath keeps a reason on one line whatever a file is called.
func printablePath(p string) string {
	if q := fmt.Sprintf("%q", p); q != `"`+p+`"` {
		return q
	}
	return p
}
