package sshexec

import (
	"path"
	"strings"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

// Bounds of a session; a larger one is not reported at all, because a part of
// it would be another one.
const (
	maxSession   = 64 << 10
	maxVariables = 256
)

// sessionOf reads a session frame. What comes from a command is what an agent
// wrote: names that could not be given back to a command are dropped, and so is
// the shell's own account of itself, which is made anew each time.
func sessionOf(payload []byte) *orchestrator.Session {
	f, err := wire.DecodeFields(payload)
	if err != nil || len(f) == 0 || len(payload) > maxSession || len(f) > 1+maxVariables {
		return nil
	}
	s := &orchestrator.Session{Env: map[string]string{}}
	if path.IsAbs(f[0]) {
		s.Dir = f[0]
	}
	for _, v := range f[1:] {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "PWD", "OLDPWD", "SHLVL", "_", "POSIXLY_CORRECT":
			continue
		}
		if checkName(name) == nil && !strings.ContainsRune(value, 0) {
			s.Env[name] = value
		}
	}
	return s
}
