package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"savepoint/testbed/notes"
)

// open makes sure that the daemon, which runs, has the pool and mounts it.
func (p *Pool) open(ctx context.Context) error {
	if _, err := p.run(ctx, "zpool", "list", "-H", "-o", "name", p.c.Name); errors.Is(err, ErrNotFound) {
		if err := p.importOrMake(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	// From here on the disk may hold something.
	if err := p.c.note(made); err != nil {
		return err
	}
	return p.mount(ctx)
}

func (p *Pool) importOrMake(ctx context.Context) error {
	_, err := os.Stat(p.c.image())
	if errors.Is(err, os.ErrNotExist) {
		return p.make(ctx)
	}
	if err != nil {
		return err
	}
	// -f: an earlier daemon that was killed had it, and it is ours.
	_, err = p.run(ctx, "zpool", "import", "-f", "-d", p.c.Dir, "-o", "cachefile=none", p.c.Name)
	if err == nil {
		return nil
	}
	if state, serr := p.c.state(); serr != nil {
		return errors.Join(err, serr)
	} else if state != making {
		return fmt.Errorf("%w; its disk %s is left as it is: mend what keeps it from being imported, or remove the disk to begin with an empty pool", err, p.c.image())
	}
	if err := os.Remove(p.c.image()); err != nil { // its making was cut short: nothing was ever in it
		return err
	}
	return p.make(ctx)
}

// make makes the pool on a new disk, never on one that is there.
func (p *Pool) make(ctx context.Context) error {
	if err := p.c.note(making); err != nil {
		return err
	}
	f, err := os.OpenFile(p.c.image(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(p.c.Size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	_, err = p.run(ctx, "zpool", "create", "-o", "ashift=9", "-o", "cachefile=none", "-O", "atime=off", "-O", "canmount=off", "-m", "none", p.c.Name, p.c.image())
	return err
}

// What the note says of the disk. One without a note is somebody's, as one that
// was made is.
const (
	making = "making\n"
	made   = "made\n"
)

func (c Config) state() (string, error) {
	raw, err := os.ReadFile(c.noteFile())
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(raw), err
}

// note is on disk when it returns.
func (c Config) note(state string) error {
	if have, err := c.state(); err != nil || have == state {
		return err
	}
	return notes.Write(c.noteFile(), []byte(state))
}
