package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// orders gives an open transaction its orders, until one fails:
//
//	exec COMMAND   agent COMMAND   save NAME [BOUNDARY]   back NAME
func orders(ctx context.Context, x *orchestrator.Tx, all ...string) error {
	for _, order := range all {
		verb, rest, _ := strings.Cut(order, " ")
		var o orchestrator.Outcome
		var err error
		switch verb {
		case "exec":
			o, err = x.Exec(ctx, orchestrator.StepSpec{Command: rest})
		case "agent":
			o, err = x.Exec(ctx, orchestrator.StepSpec{Command: rest, As: policy.Agent})
		case "save":
			name, boundary, _ := strings.Cut(rest, " ")
			o, err = x.Savepoint(ctx, name, orchestrator.Boundary(boundary))
		case "back":
			o, err = x.RollbackTo(ctx, rest)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", order, err)
		}
		if o.State != orchestrator.StateOpen {
			return fmt.Errorf("%s: the transaction is %s (%s)", order, o.State, o.Reason)
		}
	}
	return nil
}

func joined(errs ...error) error { return errors.Join(errs...) }
