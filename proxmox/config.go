package proxmox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// flexInt is a number that the API writes as a number, a string or a boolean.
type flexInt int64

func (n *flexInt) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	switch s {
	case "null", "", "false":
		*n = 0
		return nil
	case "true":
		*n = 1
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("number %q: %w", s, err)
	}
	*n = flexInt(f)
	return nil
}

// vmConfig is a VM's configuration as the API returns it: options by name,
// each a string or a number as the cluster sees fit.
type vmConfig map[string]any

// text returns an option as text, "" if it is not set.
func (v vmConfig) text(name string) string {
	switch x := v[name].(type) {
	case nil:
		return ""
	case string:
		return x
	case json.Number:
		return x.String()
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case bool:
		if x {
			return "1"
		}
		return "0"
	default:
		return fmt.Sprint(x)
	}
}

func (v vmConfig) isTemplate() bool { return v.text("template") == "1" }

var diskSlotRE = regexp.MustCompile(`\A(?:scsi|virtio|sata|ide)\d+\z|\A(?:efidisk|tpmstate)0\z`)

// disk is one volume of a VM.
type disk struct {
	slot    string
	storage string
	volume  string // without the storage
}

// disks returns the volumes that a snapshot covers, by slot: no CD-ROM drives,
// the cloud-init drive included.
func (v vmConfig) disks() []disk {
	var out []disk
	for name := range v {
		if !diskSlotRE.MatchString(name) {
			continue
		}
		value := v.text(name)
		if strings.Contains(value, "media=cdrom") || strings.Contains(value, "cloudinit") {
			continue
		}
		volid, _, _ := strings.Cut(value, ",")
		storage, volume, ok := strings.Cut(volid, ":")
		if !ok {
			continue
		}
		out = append(out, disk{slot: name, storage: storage, volume: volume})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].slot < out[j].slot })
	return out
}

// config reads a VM's configuration. A VM that is not on that node is a
// failure of class ErrNotFound.
func (c *Cluster) config(ctx context.Context, op string, vm orchestrator.VMRef) (vmConfig, error) {
	if err := checkRef(op, vm); err != nil {
		return nil, err
	}
	var conf vmConfig
	return conf, c.readVM(ctx, op, vm, "/config", nil, &conf)
}

// readVM reads one view of a VM. A token with rights on its pool only is not
// told of a VM that does not exist, but refused; whether the id is taken
// everybody may ask.
func (c *Cluster) readVM(ctx context.Context, op string, vm orchestrator.VMRef, view string, q url.Values, out any) error {
	return c.explainVM(ctx, op, vm, c.get(ctx, vmPath(vm)+view, q, out))
}

func (c *Cluster) explainVM(ctx context.Context, op string, vm orchestrator.VMRef, err error) error {
	if isForbidden(err) {
		taken, terr := c.taken(ctx, vm.ID)
		if ctx.Err() != nil {
			return explain(op, vm.String(), ctx.Err(), false)
		}
		if terr == nil && !taken {
			f := refuse(op, vm.String(), orchestrator.ErrNotFound, "there is no vm with that id in the cluster", "")
			f.missing = true
			return f
		}
	}
	return explain(op, vm.String(), err, false)
}

// taken reports whether any guest of the cluster has the id.
func (c *Cluster) taken(ctx context.Context, id orchestrator.VMID) (bool, error) {
	var free string
	err := c.get(ctx, "/cluster/nextid", url.Values{"vmid": {strconv.Itoa(int(id))}}, &free)
	if err == nil {
		return false, nil
	}
	if says(err, idTakenRE) {
		return true, nil
	}
	return false, err
}

// checkRef refuses references that name no VM, before they become a path.
func checkRef(op string, vm orchestrator.VMRef) error {
	if vm.ID < 100 || vm.ID > 999999999 {
		return refuse(op, vm.String(), orchestrator.ErrDenied, "vm ids are 100 to 999999999", "")
	}
	if !nodeRE.MatchString(vm.Node) {
		return refuse(op, vm.String(), orchestrator.ErrDenied, "that is no node name", "")
	}
	return nil
}

var nodeRE = regexp.MustCompile(`\A[a-zA-Z0-9](?:[a-zA-Z0-9\-]*[a-zA-Z0-9])?\z`)

// owned reads the configuration of a VM that is about to be changed, checks
// that it is the sandbox's and that nobody holds its lock.
func (c *Cluster) owned(ctx context.Context, op string, vm orchestrator.VMRef, sandbox orchestrator.SandboxID, halfMade bool) (vmConfig, error) {
	conf, err := c.config(ctx, op, vm)
	if err != nil {
		return nil, err
	}
	return conf, c.checkOwner(op, vm, conf, sandbox, halfMade)
}

// checkLock is ErrBusy while the VM has a config lock. It can be tried again:
// nothing was done. Whether a task holds the lock is told as far as this token
// may see; a lock is never taken away here.
func (c *Cluster) checkLock(ctx context.Context, op string, vm orchestrator.VMRef, conf vmConfig) error {
	lock := conf.text("lock")
	if lock == "" {
		return nil
	}
	f := refuse(op, vm.String(), orchestrator.ErrBusy, fmt.Sprintf("vm is locked (%s)", lock),
		fmt.Sprintf("no running task is visible; if there is none the lock is stale: check on node %s, then run qm unlock %d there as root", vm.Node, vm.ID))
	f.retry = true
	if entries, err := c.listTasks(ctx, vm.Node, "", vm.ID, time.Time{}); err == nil {
		for _, e := range entries {
			if !e.ended() {
				f.mend = fmt.Sprintf("task %s runs on it; wait for its end", e.UPID)
				break
			}
		}
	}
	return f
}

// exclusive waits until no other call of this process changes the VM.
func (c *Cluster) exclusive(ctx context.Context, op string, vm orchestrator.VMRef) (func(), error) {
	return c.exclusively(ctx, vm, caller{op: op, subject: vm.String()})
}

// exclusiveFirst is exclusive before all others that wait for the VM: going
// back is what makes everything else possible again.
func (c *Cluster) exclusiveFirst(ctx context.Context, op string, vm orchestrator.VMRef) (func(), error) {
	return c.exclusively(ctx, vm, caller{op: op, subject: vm.String(), first: true})
}

func (c *Cluster) exclusively(ctx context.Context, vm orchestrator.VMRef, who caller) (func(), error) {
	op := who.op
	if err := ctx.Err(); err != nil {
		return nil, &failure{op: op, subject: vm.String(), class: orchestrator.ErrUnavailable, err: err, cause: "not begun: " + err.Error()}
	}
	release, err := c.vms.acquire(ctx, strconv.Itoa(int(vm.ID)), who)
	if err != nil {
		return nil, &failure{op: op, subject: vm.String(), class: orchestrator.ErrBusy, err: err, cause: "another call still works on the vm (" + err.Error() + ")"}
	}
	return release, nil
}
