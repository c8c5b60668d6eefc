package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"savepoint/policy"
)

// SessionView is what may be shown of an account's session: of its variables
// the names only.
type SessionView struct {
	As        policy.User `json:"as"`
	Dir       string      `json:"dir,omitempty"` // "" = the user's home
	Variables []string    `json:"variables,omitempty"`
}

// Sessions returns what the commands committed last have left in the sandbox,
// by account. A journal that keeps no sessions has none.
func Sessions(ctx context.Context, j Journal, sb SandboxID) ([]SessionView, error) {
	k, ok := j.(SessionKeeper)
	if !ok {
		return nil, nil
	}
	data, err := k.Session(ctx, sb)
	if err != nil {
		return nil, &JournalError{fmt.Errorf("read the session of sandbox %s: %w", sb, classed(err))}
	}
	var s sessions
	if len(data) > 0 {
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, fmt.Errorf("read the session of sandbox %s: %v: %w", sb, err, ErrDenied)
		}
	}
	var views []SessionView
	for as, d := range s {
		d = d.safe()
		if d.Dir != "" || len(d.Env) > 0 {
			views = append(views, SessionView{As: as, Dir: d.Dir, Variables: slices.Sorted(maps.Keys(d.Env))})
		}
	}
	slices.SortFunc(views, func(a, b SessionView) int { return cmp.Compare(a.As, b.As) })
	return views, nil
}
