package shell

func (w *Walker) sourceFile(sc *Scope, c Call, args []string) Stream {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		w.report(sc, FactAssign, "", c.Span)
		return Stream{Known: true}
	}
	saved := sc.args
	f := sc.enter(functionFrame) // return ends the file
	defer func() {
		sc.frame = f.outer
		sc.also(f.out)
		if len(args) > 1 {
			sc.args = saved
		}
	}()
	if len(args) > 1 {
		sc.args = args[1:]
	}
	s := w.content(sc, args[0])
	if !s.Known {
		w.host.Run(w, sc, c)
	}
	return w.Run(sc, s, c.Span)
}

// Run judges the content of a stream that a shell executes: known text is
// walked, a local file is a program like any other, the rest is opaque.
func (w *Walker) Run(sc *Scope, s Stream, at Span) Stream {
	switch {
	case len(s.Either) > 0:
		var branches []*Scope
		for _, one := range s.Either {
			b := sc.branch()
			w.Run(b, one, at)
			branches = append(branches, b)
		}
		sc.join(branches...)
		return Stream{Fetched: s.Fetched, Decoded: s.Decoded}
	case s.Fetched:
		w.report(sc, FactFetched, s.File, at)
	case s.Known:
		return w.Source(sc, s.Text, at)
	case s.Decoded:
		w.report(sc, FactDecoded, s.File, at)
	case s.Made && !s.Local && !s.Script:
		// The line wrote the file with text that is not known: running it is
		// no different from a pipe into the shell.
		w.report(sc, FactOpaque, s.File, at)
	case s.Script, s.File != "":
		if s.Said != "" {
			w.Source(sc, s.Said, at)
		}
		w.report(sc, FactScript, s.File, at)
		if !s.Made && s.File != "" && len(sc.shared.ran) < maxFields {
			sc.shared.ran[Clean(s.File, sc.cwd)] = true
		}
	case s.Inherit:
		w.report(sc, FactAssign, "", at)
	default:
		w.report(sc, FactOpaque, "standard input", at)
	}
	return Stream{}
}
