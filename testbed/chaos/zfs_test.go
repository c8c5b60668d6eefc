package chaos

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// foreignName is the snapshot that somebody else takes, as tools that run by a
// timer do.
const foreignName = "autodaily"

// zpool runs the node's zfs, as its administrator.
func (w *world) zpool(args ...string) (string, error) {
	out, err := exec.CommandContext(w.ctx, "zfs", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("zfs %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// takeForeign takes a snapshot that is not savepoint's in the middle of a
// transaction: of the whole VM through the API, or of its workspace volume alone.
// While the VM is locked it tries again, until over is closed.
func (w *world) takeForeign(whole bool, over <-chan struct{}) (bool, error) {
	if !whole {
		_, err := w.zpool("snapshot", w.sandbox.Workspace+"@"+foreignName)
		return err == nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := w.order(w.vmPath("snapshot"), url.Values{"snapname": {foreignName}})
		if err == nil {
			return true, nil
		}
		if !strings.Contains(err.Error(), "lock") {
			return false, err
		}
		select {
		case <-over:
			return false, nil
		case <-w.ctx.Done():
			return false, w.ctx.Err()
		case <-tick.C:
		}
	}
}

// ofVolume lists what is on the workspace volume and not of the whole VM. Without
// ZFS the guest has them: see checkGuest.
func (w *world) ofVolume() ([]string, error) {
	if !w.zfs {
		return nil, nil
	}
	whole, err := w.snapshots()
	if err != nil {
		return nil, err
	}
	text, err := w.zpool("list", "-H", "-t", "snapshot", "-o", "name", "-r", w.sandbox.Workspace)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, line := range strings.Fields(text) {
		if _, name, ok := strings.Cut(line, "@"); ok && !slices.Contains(whole, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// dropForeign deletes the foreign snapshot, wherever it is.
func (w *world) dropForeign() error {
	own, err := w.ofVolume()
	if err == nil && slices.Contains(own, foreignName) {
		_, err = w.zpool("destroy", w.sandbox.Workspace+"@"+foreignName)
	}
	whole, lerr := w.snapshots()
	if lerr == nil && slices.Contains(whole, foreignName) {
		lerr = w.change(http.MethodDelete, w.vmPath("snapshot/"+foreignName), nil)
	}
	return errors.Join(err, lerr)
}

// checkForeign deletes the foreign snapshot, which nobody but an operator may
// have deleted before, and counts it as a violation if somebody did.
func (w *world) checkForeign(r *report) error {
	own, err := w.ofVolume()
	whole, werr := w.snapshots()
	if err = errors.Join(err, werr); err != nil {
		return err
	}
	if r.hit && !r.cleared && !slices.Contains(append(own, whole...), foreignName) {
		r.violate("the snapshot of somebody else is gone")
	}
	return w.dropForeign()
}

// fillPool leaves less room on the pool than a snapshot needs, for a while: a
// reservation takes it without writing. What is there can go on.
func (w *world) fillPool(outage time.Duration) error {
	pool, _, _ := strings.Cut(w.sandbox.Workspace, "/")
	text, err := w.zpool("get", "-H", "-p", "-o", "value", "available", pool)
	if err != nil {
		return err
	}
	var free int64
	if _, err := fmt.Sscan(text, &free); err != nil {
		return fmt.Errorf("the pool's room %q: %w", text, err)
	}
	filler := pool + "/filler"
	if _, err := w.zpool("create", "-o", "mountpoint=none", "-o", fmt.Sprintf("reservation=%d", free-(64<<20)), filler); err != nil {
		return err
	}
	w.pause(outage)
	_, err = w.zpool("destroy", filler)
	return err
}
