package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"savepoint/testbed/qemu"
)

// sweep ends the guests that a killed lab left.
func sweep(ctx context.Context, dir string) error {
	f, ok, err := lock(dir)
	if err != nil || !ok {
		return err
	}
	defer f.Close()
	if _, err := os.Stat(machinesDir(dir)); err != nil {
		return nil
	}
	images, err := qemu.NewImages("")
	if err != nil {
		return fmt.Errorf("end what the lab left: %w", err)
	}
	m, err := qemu.New(ctx, qemu.Config{Dir: machinesDir(dir), Images: images})
	if err != nil {
		return fmt.Errorf("end what the lab left: %w", err)
	}
	return m.Close()
}

// Purge removes the directory of a lab that is down. The lab's lock proves that
// it is one's, and keeps a new one from starting in it meanwhile.
func Purge(dir string) error {
	if _, err := os.Stat(lockFile(dir)); errors.Is(err, os.ErrNotExist) {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
			return nil
		}
		return fmt.Errorf("remove the lab's state: %s does not look like a lab's directory", dir)
	}
	f, ok, err := lock(dir)
	if err != nil {
		return fmt.Errorf("remove the lab's state: %w", err)
	}
	if !ok {
		return errors.New("remove the lab's state: it runs; stop it first")
	}
	defer f.Close()
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the lab's state: %w", err)
	}
	return nil
}
