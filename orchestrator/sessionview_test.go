package orchestrator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
)

// kept is a journal with one session and nothing else.
type kept struct {
	orchestrator.Journal
	data string
	err  error
}

func (k kept) Session(context.Context, orchestrator.SandboxID) ([]byte, error) {
	return []byte(k.data), k.err
}

// Of a session only names are shown, and nothing that is not kept any more.
func TestSessions(t *testing.T) {
	for name, c := range map[string]struct {
		j    orchestrator.Journal
		want []orchestrator.SessionView
		err  error
	}{
		"none":       {kept{}, nil, nil},
		"no keeper":  {struct{ orchestrator.Journal }{}, nil, nil},
		"unreadable": {kept{data: "{"}, nil, orchestrator.ErrDenied},
		"no answer":  {kept{err: orchestrator.ErrUnavailable}, nil, orchestrator.ErrUnavailable},
		"accounts": {
			kept{data: `{"root":{"dir":"/srv"},"agent":{"dir":"/workspace","env":{"B":"2","A":"1"}}}`},
			[]orchestrator.SessionView{{As: "agent", Dir: "/workspace", Variables: []string{"A", "B"}}, {As: "root", Dir: "/srv"}}, nil,
		},
		"nothing left": {kept{data: `{"agent":{"env":{"LD_PRELOAD":"x","API_TOKEN":"y"}},"root":{"dir":"here"}}`}, nil, nil},
	} {
		got, err := orchestrator.Sessions(context.Background(), c.j, "box")
		if d := cmp.Diff(c.want, got); d != "" || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v (-want +got):\n%s", name, err, c.err, d)
		}
	}
}
