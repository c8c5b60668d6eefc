package zfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	driver "savepoint/proxmox/zfs"
	"savepoint/testbed/pve"
)

// programPrefix begins the names of the nodes' copies of savepoint-zfs.
const programPrefix = "savepoint-zfs-"

// Storage is the pool as a storage of a cluster: on each node that node's group.
func (p *Pool) Storage(id string) pve.Storage {
	return pve.Storage{ID: id, Type: "zfspool", Pool: p.c.Name, Path: filepath.Join(p.c.mounts(), pve.NodeMark)}
}

// Forced is the forced command of savepoint's key on a node: it runs savepoint-zfs
// for the volumes of the node's group. It returns how that ended, and an error
// when it could not be run. When ctx ends first, what zfs does goes on, as it does
// on a node whose client is gone, and the group's next order waits for it.
func (p *Pool) Forced(ctx context.Context, group string, in io.Reader, out io.Writer) (exit int, err error) {
	if !nameRE.MatchString(group) {
		return 0, fmt.Errorf("run savepoint-zfs: %q is not the name of a group", group)
	}
	// No whole request is longer than what the program reads of it.
	request, err := io.ReadAll(io.LimitReader(in, 8192))
	if err != nil {
		return 0, fmt.Errorf("run savepoint-zfs for %s: read its request: %w", group, err)
	}
	file, err := p.program(group)
	if err != nil {
		return 0, fmt.Errorf("run savepoint-zfs for %s: %w", group, err)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", file, p.Dataset(group))
	cmd.Env = []string{"PATH=" + p.c.programs(), "LC_ALL=C", "TZ=UTC"}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(request), out
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ctx.Err() == nil {
		return ended.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run savepoint-zfs for %s: %w", group, err)
	}
	return 0, nil
}

// program is the node's copy of savepoint-zfs. The program locks its own file, so
// an existing one is replaced only when it is another.
func (p *Pool) program(group string) (string, error) {
	file := filepath.Join(p.c.Dir, programPrefix+group)
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, driver.Program) {
		return file, nil
	}
	part, err := os.CreateTemp(p.c.Dir, programPrefix+group+".*")
	if err != nil {
		return "", err
	}
	_, err = part.Write(driver.Program)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(part.Name()))
	}
	return file, nil
}
