package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"savepoint/testbed/fabric"
	"savepoint/testbed/qemu"
)

// sweep ends what a killed lab left: guests first, then what they stood on.
func sweep(ctx context.Context, dir string) error {
	f, ok, err := lock(dir)
	if err != nil || !ok {
		return err
	}
	defer f.Close()
	return endAll(ctx, dir, endPool)
}

// endAll does it for whoever holds the lab's lock, the pool's part by way of pool.
func endAll(ctx context.Context, dir string, pool func(context.Context, string) error) error {
	if err := endGuests(ctx, dir); err != nil {
		return fmt.Errorf("end what the lab left: %w", err)
	}
	if err := errors.Join(fabric.Sweep(ctx, fabricDir(dir)), pool(ctx, dir)); err != nil {
		return fmt.Errorf("end what the lab left: %w", err)
	}
	return nil
}

// endGuests ends every node's, by their records.
func endGuests(ctx context.Context, dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e os.DirEntry) bool { return !e.IsDir() || !strings.HasPrefix(e.Name(), machinesPrefix) })
	if len(all) == 0 {
		return nil
	}
	images, err := qemu.NewImages("")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range all {
		m, err := qemu.New(ctx, qemu.Config{Dir: filepath.Join(dir, e.Name()), Images: images})
		if err == nil {
			err = m.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Purge removes the directory of a lab that is down. The lab's lock proves that
// it is one's, and keeps a new one from starting in it meanwhile. What a killed
// lab left is ended first: the records of it go too.
func Purge(ctx context.Context, dir string) error {
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
	if err := endAll(ctx, dir, removePool); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the lab's state: %w", err)
	}
	return nil
}
