package lab

import (
	"encoding/json"
	"io"
)

// reporter tells the waiting process how far the start is. Nobody may be
// listening any more; that is no reason to stop.
type reporter struct{ w io.WriteCloser }

func (r *reporter) send(m message) {
	if r.w == nil {
		return
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return
	}
	_, _ = r.w.Write(append(raw, '\n'))
}

func (r *reporter) step(s string) { r.send(message{Step: s}) }

func (r *reporter) close() {
	if r.w != nil {
		_ = r.w.Close()
		r.w = nil
	}
}
