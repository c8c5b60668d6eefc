package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"savepoint/proxmox/evpn"
	"savepoint/testbed/jump"
)

// routesCommand is the account of a node that reads the routing tables of its
// zones: the program that real nodes have, with the lab's FRR.
func (n *network) routesCommand(dir, node string, authorized ...string) (jump.Command, error) {
	sockets, err := n.Sockets(node)
	if err != nil {
		return jump.Command{}, err
	}
	program := filepath.Join(dir, "savepoint-evpn")
	if err := os.WriteFile(program, evpn.Program, 0o700); err != nil {
		return jump.Command{}, fmt.Errorf("write the program that reads routes: %w", err)
	}
	return jump.Command{
		Authorized: authorized,
		Run: func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int {
			cmd := exec.CommandContext(ctx, program, "-d", sockets)
			cmd.WaitDelay = time.Second
			cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
			if err := cmd.Run(); err != nil {
				fmt.Fprintln(stderr, err)
				return 1
			}
			return 0
		},
	}, nil
}
