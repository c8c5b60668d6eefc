package shell

// frame is one construct that a command can leave early: a loop, a function or
// a subshell. What is behind break, continue, return and exit is walked
// whether or not it would run, so the state at that point is kept and joined
// where the shell goes on.
type frame struct {
	kind  frameKind
	outer *frame
	level int    // of a line: the nesting of its statements
	left  bool   // something left it, or a frame around it
	out   *Scope // the state behind it, when it was left
	next  *Scope // the state in front of the next round
	files *disk  // of a subshell: the files as they were before one of its commands
	// locals are the variables of a function's own, with what they were before.
	locals map[string]variable
}

type frameKind byte

const (
	shellFrame frameKind = iota
	functionFrame
	loopFrame
	lineFrame // a line, which an error in an expansion ends
)

func (sc *Scope) enter(kind frameKind) *frame {
	sc.frame = &frame{kind: kind, outer: sc.frame}
	return sc.frame
}

// leave notes that the shell may go on elsewhere: behind the loop, the function,
// the line with an error or the subshell. n counts loops; below one it may be any
// of them. how is the builtin, or empty when a command fails and that ends the
// shell.
func (sc *Scope) leave(how string, n int) {
	any := n < 1
	if how == "" && !sc.frame.nested() {
		return // the line ends
	}
	for f := sc.frame; f != nil; f = f.outer {
		f.left = true
		switch {
		case f.kind == shellFrame:
			note(&f.out, sc)
			return
		case how == "abort" && f.kind == lineFrame:
			note(&f.out, sc)
		case how == "return" && f.kind == functionFrame:
			note(&f.out, sc)
			return
		case (how == "break" || how == "continue") && f.kind == loopFrame:
			n--
			if !any && n > 0 && f.inLoop() {
				continue
			}
			if how == "break" {
				note(&f.out, sc)
			} else {
				note(&f.next, sc)
			}
			if !any {
				return
			}
		}
	}
}

// nested reports whether there is a subshell around.
func (f *frame) nested() bool {
	for ; f != nil; f = f.outer {
		if f.kind == shellFrame {
			return true
		}
	}
	return false
}

// inLoop reports whether there is a loop around.
func (f *frame) inLoop() bool {
	for f = f.outer; f != nil && f.kind != shellFrame; f = f.outer {
		if f.kind == loopFrame {
			return true
		}
	}
	return false
}

func note(at **Scope, sc *Scope) {
	if *at == nil {
		*at = sc.branch()
		return
	}
	(*at).join((*at).branch(), sc.branch())
}

// also joins a state that may have come about instead.
func (sc *Scope) also(other *Scope) {
	if other != nil {
		sc.join(sc.branch(), other)
	}
}

// round ends one round of a loop.
func (sc *Scope) round(f *frame) {
	sc.also(f.next)
	f.next = nil
}

// closed ends a subshell: whoever left it early has written the files up to
// there.
func (sc *Scope) closed(out Stream) Stream {
	f := sc.frame
	if f == nil || f.kind != shellFrame {
		return out
	}
	if f.out != nil {
		sc.also(f.out)
		f.out = nil
	}
	if f.files != nil && f.files.stamp != sc.disk.stamp {
		sc.written([]*Scope{{disk: sc.disk, shared: sc.shared}, {disk: f.files, shared: sc.shared}})
	}
	f.files = nil
	return out
}

// cut notes the files as they are: a subshell can end, or be ended, at any
// point, and the shell around goes on with them.
func (sc *Scope) cut() {
	f := sc.frame
	for f != nil && f.kind != shellFrame {
		f = f.outer
	}
	switch {
	case f == nil:
	case f.files == nil:
		f.files = sc.disk.fork()
	case f.files.stamp != sc.disk.stamp:
		b := &Scope{disk: f.files, shared: sc.shared}
		b.written([]*Scope{{disk: f.files.fork(), shared: sc.shared}, {disk: sc.disk, shared: sc.shared}})
	}
}

func leaveBuiltin(w *Walker, sc *Scope, c Call, args []string) (Stream, bool) {
	n := 1
	if len(args) > 0 {
		n, _ = number(args[0])
	}
	sc.leave(c.Argv[0], n)
	return Stream{}, false
}
