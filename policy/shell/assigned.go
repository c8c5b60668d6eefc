package shell

// Assigned reports whether the text gives one of the variables a value before
// or for the call, exported or not.
func (sc *Scope) Assigned(c Call, names ...string) bool {
	for _, n := range names {
		if sc.assigned(n) {
			return true
		}
		for _, s := range c.Env {
			if s.Name == n {
				return true
			}
		}
	}
	return false
}

// Settings is what a variable may hold for a call, when the text gives it a
// value: in front of the command, or before.
func (sc *Scope) Settings(c Call, name string) ([]string, bool) {
	var values []string
	for _, s := range c.Env {
		if s.Name == name {
			values = append(values, s.Value)
		}
	}
	switch {
	case len(values) > 0:
		return values, true
	case sc.assigned(name):
		return sc.get(name), true
	}
	return nil, false
}
