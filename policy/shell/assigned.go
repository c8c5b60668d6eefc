package shell

// Values returns what a variable may hold.
func (sc *Scope) Values(name string) []string { return sc.get(name) }

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

// Setting is the value that a variable has for a call, when the text gives it
// one: in front of the command, or before.
func (sc *Scope) Setting(c Call, name string) (string, bool) {
	for _, s := range c.Env {
		if s.Name == name {
			return s.Value, true
		}
	}
	if !sc.assigned(name) {
		return "", false
	}
	v := sc.get(name)
	if len(v) == 0 {
		return "", false
	}
	return v[0], true
}
