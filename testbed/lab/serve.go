package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"savepoint/configs"
	"savepoint/orchestrator/sshexec"
	"savepoint/testbed/guest"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/qemu"
)

// Options say what lab to run.
type Options struct {
	Dir     string // all its state
	Cache   string // guest images, for the accelerator probe
	Version string // "8" or "9"
	Log     zerolog.Logger
	// Report gets what the process that waits in Up wants to know. Nil: nobody
	// waits.
	Report io.WriteCloser
}

// The lab's fixed names.
const (
	NodeName = "pve1"
	pool     = "savepoint"
	storage  = "local"
	bridge   = "vmbr0"
	user     = "savepoint@pve" // what savepoint itself uses, with the least rights
	admin    = "admin@pve"     // for people and their programs, with all rights
	token    = "lab"
	jumpUser = "jump"
)

// subnet is where guests have their addresses. It exists only inside QEMU's
// user-mode networks; the host has no address and no route there.
var subnet = netip.MustParsePrefix("10.99.0.0/20")

// Serve runs the lab until ctx ends. It adopts the guests that a killed lab
// left, and ends all guests on its way out.
func Serve(ctx context.Context, o Options) (err error) {
	r := reporter{w: o.Report}
	defer func() {
		if err != nil {
			r.send(message{Error: err.Error()})
		}
		r.close()
	}()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("make the lab's directory: %w", err)
	}
	f, ok, err := lockSoon(o.Dir, lockPatience)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("another lab runs, or is starting, in " + o.Dir)
	}
	defer f.Close()
	// The status of an earlier lab would be taken for ours until we have one.
	if err := os.Remove(statusFile(o.Dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the status of an earlier lab: %w", err)
	}
	if err := recordProcess(o.Dir); err != nil {
		return fmt.Errorf("record the lab's process: %w", err)
	}
	l, err := open(ctx, o, r.step)
	if err != nil {
		return err
	}
	r.send(message{Ready: &l.status})
	r.close()
	o.Log.Info().Str("api", l.status.APIURL).Str("jump", l.status.JumpAddress).Msg("lab is up")
	<-ctx.Done()
	o.Log.Info().Msg("lab ends")
	return l.close()
}

// lab is a running one.
type lab struct {
	status   Status
	machines *qemu.Machines
	api      *pve.Server
	jump     *jump.Server
	serving  errgroup.Group
}

func open(ctx context.Context, o Options, step func(string)) (l *lab, err error) {
	l = &lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	step("finding out how guests can run here")
	accel, err := accelerator(ctx, o, step)
	if err != nil {
		return l, err
	}
	images, err := qemu.NewImages("")
	if err != nil {
		return l, err
	}
	l.machines, err = qemu.New(ctx, qemu.Config{
		Dir: machinesDir(o.Dir), Accel: accel, Images: images, Notice: func(text string) { o.Log.Info().Msg(text) },
	})
	if err != nil {
		return l, err
	}
	if l.api, err = pve.New(apiConfig(o, l.machines, images)); err != nil {
		return l, err
	}
	listen, err := pve.Listen("127.0.0.1:0")
	if err != nil {
		return l, err
	}
	l.serving.Go(func() error { return l.api.Serve(listen) })
	id, err := identity(o.Dir)
	if err != nil {
		return l, err
	}
	l.jump, err = jump.Listen(jump.Config{
		Dir: o.Dir, Authorized: []string{id.AuthorizedKey()},
		Resolve: func(guest netip.Addr, port uint16) (netip.AddrPort, bool) {
			if port != 22 {
				return netip.AddrPort{}, false
			}
			return l.api.SSHEndpoint(guest)
		},
	})
	if err != nil {
		return l, err
	}
	secrets := l.api.Credentials()
	l.status = Status{
		Running: true, APIURL: "https://" + listen.Addr().String(), CAFile: l.api.CAFile(),
		TokenID: admin + "!" + token, TokenSecret: secrets.Tokens[admin+"!"+token].Reveal(),
		User: access.Superuser, Password: secrets.Passwords[access.Superuser].Reveal(),
		PVEVersion: l.api.Version(), Network: "user", Storage: "qcow2",
		Nodes: []Node{{Name: NodeName, Online: true}}, StateDir: o.Dir, Accelerator: accel.Name, AcceleratorReason: accel.Reason,
		Config: configFile(o.Dir), JumpAddress: l.jump.Addr().String(), PID: os.Getpid(),
	}
	return l, l.publish(o)
}

func (l *lab) close() error {
	var errs []error
	if l.jump != nil {
		errs = append(errs, l.jump.Close())
	}
	if l.api != nil {
		l.api.Close()
		errs = append(errs, l.serving.Wait())
	}
	if l.machines != nil {
		errs = append(errs, l.machines.Close())
	}
	return errors.Join(errs...)
}

// accelerator probes how guests run, with the guest's own kernel.
func accelerator(ctx context.Context, o Options, step func(string)) (qemu.Accelerator, error) {
	img, err := guest.Build(ctx, guest.Options{CacheDir: o.Cache, Progress: step})
	if err != nil {
		return qemu.Accelerator{}, err
	}
	return qemu.Accel(ctx, qemu.Probe{Kernel: img.Kernel, Initrd: img.Initrd, CacheDir: o.Cache})
}

func machinesDir(dir string) string { return filepath.Join(dir, "qemu") }

// apiConfig gives savepoint's token exactly the rights that it needs, so that
// the lab also shows that they are enough.
func apiConfig(o Options, m *qemu.Machines, disks *qemu.Images) pve.Config {
	version, agent := "9.2", "VM.GuestAgent.FileRead"
	if o.Version == "8" {
		version, agent = "8.4", "VM.Monitor"
	}
	return pve.Config{
		Dir: filepath.Join(o.Dir, "pve"), Node: NodeName, Version: version,
		Machines: m, Disks: disks, Pools: []string{pool}, Bridges: []string{bridge},
		Storages: []pve.Storage{{ID: storage}},
		Users: []access.User{
			{ID: user, Tokens: []access.Token{{ID: token}}},
			{ID: admin, Tokens: []access.Token{{ID: token, Shared: true}}},
		},
		Roles: map[string][]string{
			"SavepointPool": {
				"VM.Audit", "VM.Allocate", "VM.Clone", "VM.PowerMgmt", "VM.Snapshot",
				"VM.Config.Disk", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
				"VM.Config.HWType", "VM.Config.Options", "VM.Config.Cloudinit", "Pool.Audit", agent,
			},
			"SavepointStorage": {"Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"},
			"SavepointNetwork": {"SDN.Use"},
		},
		ACL: append(append(grant(user), grant(user+"!"+token)...),
			access.Entry{Path: "/", Subject: admin, Role: "Administrator"}),
		Logger: o.Log,
	}
}

func grant(subject string) []access.Entry {
	return []access.Entry{
		{Path: "/pool/" + pool, Subject: subject, Role: "SavepointPool"},
		{Path: "/storage/" + storage, Subject: subject, Role: "SavepointStorage"},
		{Path: "/sdn/zones/localnetwork/" + bridge, Subject: subject, Role: "SavepointNetwork"},
	}
}

func identityFile(dir string) string { return filepath.Join(dir, "id_ed25519") }

// identity is the key that savepoint shows to the jump host and the guests.
func identity(dir string) (sshexec.Identity, error) {
	if _, err := os.Stat(identityFile(dir)); err == nil {
		return sshexec.LoadIdentity(identityFile(dir))
	}
	return sshexec.CreateIdentity(identityFile(dir), "savepoint lab")
}

func configFile(dir string) string { return filepath.Join(dir, "savepoint.yaml") }

// publish writes the configuration for savepoint and then the status.
func (l *lab) publish(o Options) error {
	c := configs.Default(filepath.Join(o.Dir, "orchestrator"))
	c.Cluster.URL, c.Cluster.CAFile = l.status.APIURL, l.status.CAFile
	c.Cluster.TokenID = user + "!" + token
	c.Cluster.TokenSecret = configs.NewSecret(l.api.Credentials().Tokens[c.Cluster.TokenID].Reveal())
	c.Cluster.Nodes, c.Cluster.Pool, c.Cluster.Storage = []string{NodeName}, pool, storage
	c.Cluster.VMIDFirst, c.Cluster.VMIDLast = 9000, 9999
	c.Sandbox.Bridge, c.Sandbox.Subnet = bridge, subnet
	c.SSH.IdentityFile = identityFile(o.Dir)
	c.SSH.Jump = configs.Jump{Address: l.status.JumpAddress, User: jumpUser, HostKey: l.jump.HostKey(), IdentityFile: identityFile(o.Dir)}
	if err := configs.WriteWithSecrets(configFile(o.Dir), c); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(l.status, "", "  ") //nolint:gosec // the lab's own secrets, into a file of mode 0600
	if err != nil {
		return err
	}
	return writeFile(statusFile(o.Dir), raw)
}

// reporter tells the waiting process how far the start is. Nobody may be
// listening any more; that is no reason to stop.
type reporter struct{ w io.WriteCloser }

func (r *reporter) send(m message) {
	if r.w == nil {
		return
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return
	}
	_, _ = r.w.Write(append(raw, '\n'))
}

func (r *reporter) step(s string) { r.send(message{Step: s}) }

func (r *reporter) close() {
	if r.w != nil {
		_ = r.w.Close()
		r.w = nil
	}
}
