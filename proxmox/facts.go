package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"savepoint/orchestrator"
)

// Answer is what one question brought: a value, or why there is none. Where the
// token may not ask, the error wraps orchestrator.ErrDenied.
type Answer[T any] struct {
	Value T
	Err   error
}

// Denied reports whether the token may not ask.
func (a Answer[T]) Denied() bool { return errors.Is(a.Err, orchestrator.ErrDenied) }

// NodeFacts are what a node says of itself, each asked for on its own.
type NodeFacts struct {
	Node        string
	Version     Answer[Version]
	Skew        Answer[time.Duration] // its clock minus ours, as much of it as is certain
	Certificate Answer[Certificate]
	Packages    Answer[map[string]string] // installed ones, by name
	Zones       Answer[map[string]string] // zone → status, of those that the token may audit
	Bridges     Answer[[]string]
	Storages    Answer[[]Storage]
}

// LookAt asks nodes for their facts, all at a time.
func (c *Cluster) LookAt(ctx context.Context, nodes []string) []NodeFacts {
	out := make([]NodeFacts, len(nodes))
	settings, serr := c.storageSettings(ctx)
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askNode)
			defer cancel()
			f := NodeFacts{Node: node}
			f.Version = answered(c.nodeVersion(ctx, node))
			f.Skew = answered(c.skew(ctx, node))
			f.Certificate = answered(c.certificate(ctx, node))
			f.Packages = answered(c.packages(ctx, node))
			f.Zones = answered(c.zoneStatus(ctx, node))
			f.Bridges = answered(c.Bridges(ctx, node))
			f.Storages = answered(c.Storages(ctx, node))
			for i, s := range f.Storages.Value {
				f.Storages.Value[i] = settings[s.ID].on(s)
			}
			if f.Storages.Err == nil {
				f.Storages.Err = serr
			}
			out[i] = f
		})
	}
	wg.Wait()
	return out
}

func answered[T any](v T, err error) Answer[T] { return Answer[T]{v, err} }

func (c *Cluster) nodeVersion(ctx context.Context, node string) (Version, error) {
	return c.versionAt(ctx, nodePath(node)+"/version", "node "+node)
}

// skew is how far the node's clock is from ours. It tells whole seconds, and the
// question takes its time: what those can explain is not counted.
func (c *Cluster) skew(ctx context.Context, node string) (time.Duration, error) {
	var out struct {
		Time flexInt `json:"time"`
	}
	asked := c.cfg.Now()
	if err := c.get(ctx, nodePath(node)+"/time", nil, &out); err != nil {
		return 0, explain("ask the clock of", "node "+node, err, false)
	}
	told := c.cfg.Now()
	at := time.Unix(int64(out.Time), 0)
	switch {
	case at.After(told):
		return at.Sub(told), nil
	case at.Add(time.Second).Before(asked):
		return at.Add(time.Second).Sub(asked), nil
	}
	return 0, nil
}

// packages lists what is installed of the packages that the cluster rests on.
func (c *Cluster) packages(ctx context.Context, node string) (map[string]string, error) {
	var list []struct {
		Package string `json:"Package"`
		Version string `json:"Version"`
		Old     string `json:"OldVersion"`
		State   string `json:"CurrentState"`
	}
	if err := c.get(ctx, nodePath(node)+"/apt/versions", nil, &list); err != nil {
		return nil, explain("ask the packages of", "node "+node, err, false)
	}
	out := map[string]string{}
	for _, p := range list {
		if p.State != "Installed" {
			continue
		}
		if out[p.Package] = p.Old; p.Old == "" {
			out[p.Package] = p.Version
		}
	}
	return out, nil
}

func (c *Cluster) zoneStatus(ctx context.Context, node string) (map[string]string, error) {
	var list []struct {
		Zone   string `json:"zone"`
		Status string `json:"status"`
	}
	if err := c.get(ctx, nodePath(node)+"/sdn/zones", nil, &list); err != nil {
		return nil, explain("ask the zones of", "node "+node, err, false)
	}
	out := map[string]string{}
	for _, z := range list {
		out[z.Zone] = z.Status
	}
	return out, nil
}

// Membership is the cluster as its nodes see each other.
type Membership struct {
	Name    string // "" for a node alone
	Quorate bool
	Online  []string
	Offline []string
}

// Membership asks who is in the cluster and whether it is quorate: without
// quorum it changes nothing. A node alone always is.
func (c *Cluster) Membership(ctx context.Context) (Membership, error) {
	var list []struct {
		Type    string  `json:"type"`
		Name    string  `json:"name"`
		Quorate flexInt `json:"quorate"`
		Online  flexInt `json:"online"`
	}
	if err := c.get(ctx, "/cluster/status", nil, &list); err != nil {
		return Membership{}, explain("ask the quorum of", c.cfg.URL, err, false)
	}
	m := Membership{Quorate: true}
	for _, e := range list {
		switch {
		case e.Type == "cluster":
			m.Name, m.Quorate = e.Name, e.Quorate != 0
		case e.Online != 0:
			m.Online = append(m.Online, e.Name)
		default:
			m.Offline = append(m.Offline, e.Name)
		}
	}
	slices.Sort(m.Online)
	slices.Sort(m.Offline)
	return m, nil
}

// Edition says what the node is subscribed to: "community" when to nothing.
func (c *Cluster) Edition(ctx context.Context, node string) (string, error) {
	var out struct {
		Status  string `json:"status"`
		Product string `json:"productname"`
		Level   string `json:"level"`
	}
	if err := c.get(ctx, nodePath(node)+"/subscription", nil, &out); err != nil {
		return "", explain("ask the subscription of", "node "+node, err, false)
	}
	if out.Status != "active" {
		return "community", nil
	}
	if out.Product != "" {
		return out.Product, nil
	}
	return "level " + out.Level, nil
}

// BackupJob is a job of the cluster's own backups that can reach sandboxes.
type BackupJob struct {
	ID  string
	Why string // "it backs up every VM", "it backs up pool savepoint", …
	// Mend is the command that leaves sandboxes out of it.
	Mend string
}

// BackupJobs lists the enabled jobs that back up the pool of our VMs, one of
// these VMs, or everything without leaving them out. A backup holds the lock of
// its VM and freezes its guest.
func (c *Cluster) BackupJobs(ctx context.Context, vms []orchestrator.VMID) ([]BackupJob, error) {
	var list []struct {
		ID      string   `json:"id"`
		Enabled *flexInt `json:"enabled"`
		All     flexInt  `json:"all"`
		Pool    string   `json:"pool"`
		VMs     string   `json:"vmid"`
		Exclude string   `json:"exclude"`
	}
	if err := c.get(ctx, "/cluster/backup", nil, &list); err != nil {
		return nil, explain("list backup jobs of", c.cfg.URL, err, false)
	}
	var out []BackupJob
	for _, j := range list {
		if j.Enabled != nil && *j.Enabled == 0 {
			continue
		}
		named, excluded := splitList(j.VMs), splitList(j.Exclude)
		set := "pvesh set /cluster/backup/" + j.ID + " "
		var hit, ids []string
		left := false
		for _, id := range vms {
			text := fmt.Sprint(id)
			ids = append(ids, text)
			if slices.Contains(named, text) {
				hit = append(hit, text)
			}
			left = left || !slices.Contains(excluded, text)
		}
		switch {
		case j.Pool != "" && j.Pool == c.cfg.Pool:
			out = append(out, BackupJob{j.ID, "it backs up pool " + j.Pool, set + "--enabled 0 (or --pool with another pool)"})
		case j.All != 0 && (left || len(vms) == 0):
			out = append(out, BackupJob{j.ID, "it backs up every VM", set + mendAll(excluded, ids)})
		case len(hit) > 0:
			kept := slices.DeleteFunc(named, func(id string) bool { return slices.Contains(hit, id) })
			mend := "--vmid " + strings.Join(kept, ",")
			if len(kept) == 0 {
				mend = "--enabled 0"
			}
			out = append(out, BackupJob{j.ID, "it backs up vm " + strings.Join(hit, ", "), set + mend})
		}
	}
	return out, nil
}

// mendAll has a job of every VM leave these out. That holds for the sandboxes of
// today; a job of other pools would be for good.
func mendAll(excluded, ids []string) string {
	if len(ids) == 0 {
		return "--all 0 --pool with the pool of what is to be backed up"
	}
	all := append(slices.Clone(excluded), ids...)
	slices.Sort(all)
	return "--exclude " + strings.Join(slices.Compact(all), ",") + " (again for later sandboxes; for good: --all 0 --pool with the pool of what is to be backed up)"
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
}

// storageSetting is what the cluster's configuration says of a storage.
type storageSetting struct {
	pool, kind    string
	sparse, chain bool
}

// on fills in a storage what its node does not say.
func (t storageSetting) on(s Storage) Storage {
	s.Pool, s.Sparse, s.Chain = t.pool, t.sparse, t.chain
	return s
}

func (c *Cluster) storageSettings(ctx context.Context) (map[string]storageSetting, error) {
	var list []struct {
		ID     string  `json:"storage"`
		Type   string  `json:"type"`
		Pool   string  `json:"pool"`
		Sparse flexInt `json:"sparse"`
		Chain  flexInt `json:"snapshot-as-volume-chain"`
	}
	if err := c.get(ctx, "/storage", url.Values{}, &list); err != nil {
		return nil, explain("list storages of", c.cfg.URL, err, false)
	}
	out := map[string]storageSetting{}
	for _, s := range list {
		out[s.ID] = storageSetting{s.Pool, s.Type, s.Sparse != 0, s.Chain != 0}
	}
	return out, nil
}
