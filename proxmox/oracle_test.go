package proxmox_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/official"
	"savepoint/testbed/pve/schema"
)

// recorder keeps the requests that the adapter makes of a lab, and checks them
// against the official schema of the lab's release where that is there.
type recorder struct {
	release *official.Release  // nil without the schema
	against *official.Recorder // as the release

	mu   sync.Mutex
	list []schema.Request
}

// watch makes the lab's server tell of every request; at the test's end each of
// them must have been one that the release takes, F60.
func watch(t *testing.T, version string, cfg *pve.Config) *recorder {
	t.Helper()
	release, err := official.Of(version)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{release: release}
	if release != nil {
		rec.against = official.NewRecorder(release, "savepoint")
		t.Cleanup(func() {
			for _, d := range rec.against.Deviations() {
				t.Errorf("no request for %s: %s", release.File, d)
			}
		})
	}
	cfg.Seen = rec.seen
	return rec
}

// askedOf9 are questions whose answer by an older release, that it has no such
// call, is what is wanted to know.
var askedOf9 = regexp.MustCompile(`^/nodes/[^/]+/sdn/zones/[^/]+/ip-vrf$`)

func (r *recorder) seen(q schema.Request) {
	if q.Agent != "savepoint" { // the tests' own
		return
	}
	if r.against != nil && !(r.release.Major < "9" && q.Method == "GET" && askedOf9.MatchString(q.Path)) {
		r.against.Seen(q)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, q)
}

// sent are the requests so far, without the first ones.
func (r *recorder) sent(without int) []schema.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list[without:])
}

// privileges collects what a permission check names.
func privileges(check any, out map[string]bool) {
	list, ok := check.([]any)
	if !ok {
		return
	}
	if len(list) >= 3 && list[0] == "perm" {
		if names, ok := list[2].([]any); ok {
			for _, n := range names {
				out[fmt.Sprint(n)] = true
			}
		}
		return
	}
	for _, x := range list {
		privileges(x, out)
	}
}

// F60 F118: the doctor asks for every privilege that the official schema names
// for a request of the adapter, and every kind of request is one that the
// release takes (watch).
func TestAgainstTheSchema(t *testing.T) {
	releases, err := official.Releases()
	must(t, err)
	if len(releases) == 0 {
		t.Skip(official.Env + " is not set: the official schema is not part of the repository")
	}
	for _, release := range releases {
		t.Run(release.File, func(t *testing.T) {
			l := startLab(t, version(release.Major)).withTemplate()
			exercise(t, l)
			asked := map[string]bool{}
			c := l.open()
			use := labUse()
			use.ImportStorages = []string{"local"}
			use.Look, use.LookAt, use.Zones = true, []string{labNode}, true
			use.ManageSDN = true
			for _, p := range c.Privileges(proxmox.Version{Major: int(release.Major[0] - '0')}, use) {
				for _, n := range p.AnyOf {
					asked[n] = true
				}
			}
			calls := l.requests.against.Calls()
			for _, name := range calls {
				need := map[string]bool{}
				if call := release.Calls[name]; call != nil {
					privileges(call.Permissions.Check, need)
				}
				if len(need) > 0 && !slices.ContainsFunc(keys(need), func(n string) bool { return asked[n] }) {
					t.Errorf("%s needs one of %q, which the doctor does not ask for", name, keys(need))
				}
			}
			if len(calls) < 30 {
				t.Errorf("only %d different calls were made: %v", len(calls), calls)
			}
			t.Logf("%s: %d different calls of savepoint with their parameters checked", release.File, len(calls))
		})
	}
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// exerciseBuild makes a template in the other way: from an image that the node
// fetches, prepared, with a second disk; and removes it.
func exerciseBuild(t *testing.T, l *lab, c *proxmox.Cluster) {
	t.Helper()
	image, err := os.ReadFile(fakeImage(t, "two"))
	must(t, err)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(image) }))
	defer web.Close()
	l.obeys(9101)
	spec := prepared(t, "two", func(context.Context, orchestrator.VMRef) error { return nil })
	sum := sha256.Sum256(image)
	spec.VMID, spec.ImagePath, spec.ImageURL, spec.ImageSum = 9101, "", web.URL+"/image.qcow2", hex.EncodeToString(sum[:])
	tpl, err := c.BuildTemplate(t.Context(), spec)
	must(t, err)
	must(t, c.RemoveTemplate(t.Context(), tpl, nil))
}

// exercise makes every kind of call.
func exercise(t *testing.T, l *lab) {
	t.Helper()
	c := l.open(func(c *proxmox.Config) { c.TokenID, c.TokenSecret = "root@pam!admin", "admin-secret" })
	ctx := t.Context()
	spec := templateSpec(t, 9100, "one")
	tpl, err := c.BuildTemplate(ctx, spec)
	must(t, err)
	exerciseBuild(t, l, c)
	exerciseNetworks(t, c)
	full := l.cloneRequest()
	full.Full, full.CloneStorage = true, "local"
	must(t, c.VMs().Clone(ctx, full))
	clone := l.cloneRequest()
	clone.Template = tpl.VM
	must(t, c.VMs().Clone(ctx, clone))
	r := clone.VMRequest
	must(t, c.VMs().Start(ctx, r))
	serveKey(l, r.VM.ID, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n")
	_, err = c.HostKey(ctx, r.VM)
	must(t, err)
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one", Memory: true, Description: "words"}
	must(t, c.Snapshots().Create(ctx, snap))
	must(t, c.Snapshots().Rollback(ctx, snap))
	must(t, l.server.SetSnapState(int(r.VM.ID), "sp-one", "delete")) // so that it takes force
	must(t, c.Snapshots().Delete(ctx, snap))
	_, err = c.Tasks().Find(ctx, r.VM, "qmsnapshot", l.started)
	must(t, err)
	l.leaveMemory(r, "sp-lost")
	saved, _, err := c.SavedMemories(ctx)
	must(t, err)
	must(t, c.DeleteSavedMemory(ctx, r.VM, r.Sandbox, saved[0].ID, nil))
	_, _, err = c.Inventory(ctx, 100, 199)
	must(t, err)
	_, err = c.Working(ctx, r.VM, "snapshot")
	must(t, err)
	_, err = c.Guards(ctx)
	must(t, err)
	_, err = c.SeesAllTasks(ctx, labNode)
	must(t, err)
	must(t, c.VMs().Stop(ctx, r))
	must(t, c.VMs().Destroy(ctx, r))
	v, err := c.Version(ctx)
	must(t, err)
	_, err = c.MissingPrivileges(ctx, v, labUse())
	must(t, err)
	_, err = c.Bridges(ctx, labNode)
	must(t, err)
	_, err = c.Storages(ctx, labNode)
	must(t, err)
	for _, f := range c.LookAt(ctx, []string{labNode}) {
		must(t, errors.Join(f.Version.Err, f.Skew.Err, f.Certificate.Err, f.Packages.Err, f.Zones.Err, f.Bridges.Err, f.Storages.Err))
	}
	_, err = c.Membership(ctx)
	must(t, err)
	_, err = c.Edition(ctx, labNode)
	must(t, err)
	_, err = c.BackupJobs(ctx, nil)
	must(t, err)
	_, err = c.TemplateFacts(ctx, tpl.VM)
	must(t, err)
}
