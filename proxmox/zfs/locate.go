package zfs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"savepoint/orchestrator"
)

// Locate names the dataset of a volume on a node: it is looked for below each
// dataset that the node lets us work on. ErrNotFound: it is in none of them.
// ErrDenied: it is in several, and nothing says which one the VM uses.
func (c *Client) Locate(ctx context.Context, node, volume string) (string, error) {
	const op = "find the dataset of"
	subject := "volume " + volume + " on " + node
	if volume == "" || strings.ContainsAny(volume, "/@# \t") {
		return "", &failure{op: op, subject: subject, class: orchestrator.ErrDenied, cause: "not the name of a volume"}
	}
	below, err := c.Hello(ctx, node)
	if err != nil {
		return "", err
	}
	var found []string
	for _, d := range below {
		dataset := d + "/" + volume
		switch _, err := c.List(ctx, Target{Node: node, Dataset: dataset}); {
		case err == nil:
			found = append(found, dataset)
		case !errors.Is(err, orchestrator.ErrNotFound):
			return "", err
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", &failure{
			op: op, subject: subject, class: orchestrator.ErrNotFound,
			cause: fmt.Sprintf("it is in none of the datasets that savepoint may work on there (%s)", strings.Join(below, ", ")),
			mend:  "give savepoint-zfs the pool of the storage that the volume is on (see savepoint doctor --setup)",
		}
	}
	return "", &failure{
		op: op, subject: subject, class: orchestrator.ErrDenied, cause: "there are several: " + strings.Join(found, ", "),
		mend: "give savepoint-zfs only the pool of the storage that workspaces are on",
	}
}
