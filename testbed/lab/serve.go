package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox/evpn"
	"savepoint/testbed/guest"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
)

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
	if o, err = o.Complete(); err == nil {
		err = o.Check()
	}
	if err != nil {
		return err
	}
	// The status of an earlier lab would be taken for ours until we have one.
	if err := os.Remove(statusFile(o.Dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the status of an earlier lab: %w", err)
	}
	if err := recordProcess(o.Dir); err != nil {
		return fmt.Errorf("record the lab's process: %w", err)
	}
	if err := o.record(); err != nil {
		return err
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
	return l.close(ctx)
}

// lab is a running one.
type lab struct {
	status   Status
	accel    qemu.Accelerator
	disks    disks
	net      *network // nil: user-mode networks
	machines map[string]*qemu.Machines
	api      *pve.Server
	bastion  *jump.Server
	sshd     map[string]*jump.Server // of the nodes
	serving  errgroup.Group
}

// open brings the parts up, each after what it stands on.
func open(ctx context.Context, o Options, step func(string)) (l *lab, err error) {
	l = &lab{machines: map[string]*qemu.Machines{}, sshd: map[string]*jump.Server{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close(ctx))
		}
	}()
	step("finding out how guests can run here")
	if l.accel, err = accelerator(ctx, o, step); err != nil {
		return l, err
	}
	if l.disks, err = openDisks(ctx, o); err != nil {
		return l, err
	}
	if o.Network == NetworkEVPN {
		step("making the network between the nodes")
		if l.net, err = openNetwork(ctx, o); err != nil {
			return l, err
		}
	}
	if err := l.openMachines(ctx, o); err != nil {
		return l, err
	}
	address, err := l.openAPI(ctx, o)
	if err != nil {
		return l, err
	}
	if err := l.openSSH(o); err != nil {
		return l, err
	}
	l.status = l.describe(o, "https://"+address)
	return l, l.publish(o)
}

// openMachines takes over each node's guests.
func (l *lab) openMachines(ctx context.Context, o Options) (err error) {
	for _, node := range o.nodes() {
		c := qemu.Config{
			Dir: machinesDir(o.Dir, node), Accel: l.accel, Images: l.disks.files, Notice: func(text string) { o.Log.Info().Str("node", node).Msg(text) },
		}
		if l.disks.zfs != nil {
			c.Volumes = l.disks.zfs
		}
		if l.net != nil {
			c.Tap = l.net.tapsOf(node)
		}
		if l.machines[node], err = qemu.New(ctx, c); err != nil {
			delete(l.machines, node)
			return err
		}
	}
	if l.net != nil {
		l.net.runs = func(node string, vmid int) bool { return l.machines[node].Status(vmid).Running }
	}
	return nil
}

// openAPI starts the API's server, on a network that is what it says.
func (l *lab) openAPI(ctx context.Context, o Options) (address string, err error) {
	c := apiConfig(o)
	c.Storages, c.Backends = l.disks.storages(), map[string]pve.Backend{}
	for node, m := range l.machines {
		c.Backends[node] = pve.Backend{Machines: m, Disks: l.disks.api()}
	}
	if l.net != nil {
		c.Fabric, c.Addresses = l.net, map[string]netip.Addr{}
		for _, node := range o.nodes() {
			c.Addresses[node] = l.net.Address(node)
		}
	}
	if l.api, err = pve.New(c); err != nil {
		return "", err
	}
	for _, f := range o.Faults.List {
		l.api.Faults.Add(f)
	}
	if l.net != nil {
		if err := l.net.restore(ctx, o.nodes(), l.api.RunningSDN()); err != nil {
			return "", err
		}
		if err := l.net.adopt(ctx, l.machines); err != nil {
			return "", err
		}
	}
	listen, err := pve.Listen("127.0.0.1:0")
	if err != nil {
		return "", err
	}
	l.serving.Go(func() error { return l.api.Serve(listen) })
	return listen.Addr().String(), nil
}

// openSSH starts the bastion and the sshd of the nodes, which have an account
// where there is something to do for it.
func (l *lab) openSSH(o Options) error {
	id, err := identity(o.Dir)
	if err != nil {
		return err
	}
	c := jump.Config{
		Dir: o.Dir, Authorized: []string{id.AuthorizedKey()},
		Resolve: func(guest netip.Addr, port uint16) (netip.AddrPort, bool) {
			if port != 22 {
				return netip.AddrPort{}, false
			}
			return l.api.SSHEndpoint(guest)
		},
	}
	if l.net != nil {
		c.Dial = l.net.dial
	}
	if l.bastion, err = jump.Listen(c); err != nil || l.disks.pool == nil && l.net == nil {
		return err
	}
	for _, node := range o.nodes() {
		dir := filepath.Join(o.Dir, "ssh", node)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("start the sshd of node %s: %w", node, err)
		}
		commands := map[string]jump.Command{}
		if l.disks.pool != nil {
			commands[zfsUser] = l.disks.forced(node, id.AuthorizedKey())
		}
		if l.net != nil {
			if commands[evpn.User], err = l.net.routesCommand(dir, node, id.AuthorizedKey()); err != nil {
				return fmt.Errorf("start the sshd of node %s: %w", node, err)
			}
		}
		s, err := jump.Listen(jump.Config{Dir: dir, Commands: commands})
		if err != nil {
			return fmt.Errorf("start the sshd of node %s: %w", node, err)
		}
		l.sshd[node] = s
	}
	return nil
}

// close ends what open made, in the other order, also when ctx has ended.
func (l *lab) close(ctx context.Context) error {
	var errs []error
	for _, s := range l.sshd {
		errs = append(errs, s.Close())
	}
	if l.bastion != nil {
		errs = append(errs, l.bastion.Close())
	}
	if l.api != nil {
		l.api.Close()
		errs = append(errs, l.serving.Wait())
	}
	for _, m := range l.machines {
		errs = append(errs, m.Close())
	}
	if l.net != nil {
		errs = append(errs, l.net.Close(ctx))
	}
	errs = append(errs, l.disks.close(ctx))
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

// machinesDir has the records of a node's guests.
func machinesDir(dir, node string) string {
	if node == NodeName {
		return filepath.Join(dir, machinesPrefix)
	}
	return filepath.Join(dir, machinesPrefix+"-"+node)
}

const machinesPrefix = "qemu"

func identityFile(dir string) string { return filepath.Join(dir, "id_ed25519") }

// identity is the key that savepoint shows to the jump host and the guests.
func identity(dir string) (sshexec.Identity, error) {
	if _, err := os.Stat(identityFile(dir)); err == nil {
		return sshexec.LoadIdentity(identityFile(dir))
	}
	return sshexec.CreateIdentity(identityFile(dir), "savepoint lab")
}
