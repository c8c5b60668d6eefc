package sim

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"savepoint/testbed/pve"
)

// Behaviour is how the guest of one VM boots and answers.
type Behaviour struct {
	// BootDelay passes between Start and the first answer. A resume takes none.
	BootDelay time.Duration
	// NeverBoots: neither sshd nor the agent ever answers.
	NeverBoots bool
	// AgentSilent: the guest agent does not answer; sshd does.
	AgentSilent bool
	// IgnoresPowerdown: a graceful stop has no effect.
	IgnoresPowerdown bool
}

// Backend holds the disks and machines of one node. New makes one; Close ends
// it.
type Backend struct {
	now func() time.Time

	mu       sync.Mutex
	closed   bool
	machines map[int]*guest
	images   map[string]*image
	states   map[string]savedState
	behave   map[int]Behaviour
	deflt    Behaviour
	pid      int
}

// savedState is the memory of a machine at one instant.
type savedState struct {
	bootID string
	clock  time.Time // of the guest
	host   string
}

// New makes an empty backend. Every guest behaves as deflt until Behave says
// otherwise for its VM.
func New(deflt Behaviour) *Backend {
	return &Backend{now: time.Now, machines: map[int]*guest{}, images: map[string]*image{}, states: map[string]savedState{},
		behave: map[int]Behaviour{}, deflt: deflt, pid: 1000}
}

// Machines returns the side that runs VMs.
func (b *Backend) Machines() Machines { return Machines{b} }

// Disks returns the side that keeps disks.
func (b *Backend) Disks() Disks { return Disks{b} }

var (
	_ pve.Machines = Machines{}
	_ pve.Pauser   = Machines{}
	_ pve.Disks    = Disks{}
)

// Behave sets how the VM boots from its next start on, and answers from now on.
func (b *Backend) Behave(vmid int, how Behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behave[vmid] = how
}

func (b *Backend) behaviour(vmid int) Behaviour {
	b.mu.Lock()
	defer b.mu.Unlock()
	if how, ok := b.behave[vmid]; ok {
		return how
	}
	return b.deflt
}

// guest returns a machine that runs.
func (b *Backend) guest(vmid int) (*guest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.machines[vmid]
	if g == nil {
		return nil, fmt.Errorf("vm %d does not run", vmid)
	}
	return g, nil
}

// Freeze stops a machine's world: connections stay open and silent until it is
// thawed with frozen false.
func (b *Backend) Freeze(vmid int, frozen bool) error {
	g, err := b.guest(vmid)
	if err != nil {
		return err
	}
	g.gate.set(frozen)
	return nil
}

// Cut drops every SSH connection of a machine, as a lost network does. The
// processes of its commands are ended by the guest when it notices, at once.
func (b *Backend) Cut(vmid int) error {
	g, err := b.guest(vmid)
	if err != nil {
		return err
	}
	g.cut()
	return nil
}

// ChangeHostKey gives a machine another host key, on its disk and for every
// connection from now on.
func (b *Backend) ChangeHostKey(vmid int) error {
	g, err := b.guest(vmid)
	if err != nil {
		return err
	}
	return g.newHostKey()
}

// SetClockOffset puts a guest's clock that much before (negative) or after the
// host's.
func (b *Backend) SetClockOffset(vmid int, off time.Duration) error {
	g, err := b.guest(vmid)
	if err != nil {
		return err
	}
	g.setClock(b.now().Add(off))
	return nil
}

// ReadFile returns a file of a disk, for tests. It sees the running machine's
// present content.
func (b *Backend) ReadFile(disk, name string) (string, error) {
	t, err := b.treeOf(disk)
	if err != nil {
		return "", err
	}
	return t.read(rootUser, name)
}

// WriteFile puts a file on a disk, for tests; its directory must exist.
func (b *Backend) WriteFile(disk, name, content string) error {
	t, err := b.treeOf(disk)
	if err != nil {
		return err
	}
	return t.write(rootUser, name, content, false, 0o644, b.now())
}

func (b *Backend) treeOf(disk string) (*tree, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	img := b.images[disk]
	if img == nil || img.tree == nil {
		return nil, fmt.Errorf("disk %s holds no files", disk)
	}
	return img.tree, nil
}

// SSH returns where the guest with an address is reached on loopback: a
// Resolve function for testbed/jump.
func (b *Backend) SSH(address netip.Addr, port uint16) (netip.AddrPort, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.machines {
		if port == 22 && g.machine.Address.IsValid() && g.machine.Address.Addr() == address {
			return g.addr(), true
		}
	}
	return netip.AddrPort{}, false
}

// Close ends every machine.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	all := b.machines
	b.machines = map[int]*guest{}
	b.mu.Unlock()
	var errs []error
	for _, g := range all {
		errs = append(errs, g.stop())
	}
	return errors.Join(errs...)
}

var _ io.Closer = (*Backend)(nil)
