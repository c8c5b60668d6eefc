package sim

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/ssh"

	"savepoint/testbed/pve"
)

const (
	hostKeyFile   = "/etc/ssh/ssh_host_ed25519_key"
	instanceFile  = "/var/lib/savepoint/instance"
	generationDir = "/var/lib/savepoint"
	generation    = generationDir + "/generation"
)

// guest is one machine that runs.
type guest struct {
	b       *Backend
	machine pve.Machine
	how     Behaviour
	pid     int
	tree    *tree             // of the boot disk; nil when nothing boots
	cidata  map[string][]byte // files of the cloud-init drive
	resume  *savedState

	listen net.Listener
	ctx    context.Context //nolint:containedctx // the machine's power
	off    context.CancelFunc
	booted chan struct{}
	wg     sync.WaitGroup
	gate   gate

	mu     sync.Mutex
	bootID string
	host   string
	clock  time.Duration // the guest's clock minus the host's
	server *ssh.ServerConfig
	conns  map[net.Conn]bool
	jobs   map[int]*job // of the guest agent
	files  map[int]*agentFile
	next   int
	killed map[string]bool // daemons, until the next boot
}

// start begins the machine's life, which ends with stop and not with ctx.
func (g *guest) start(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g.listen, g.booted = l, make(chan struct{})
	g.conns, g.jobs, g.files = map[net.Conn]bool{}, map[int]*job{}, map[int]*agentFile{}
	g.ctx, g.off = context.WithCancel(context.WithoutCancel(ctx))
	g.bootID = uuid()
	if g.resume != nil {
		g.bootID, g.host, g.clock = g.resume.bootID, g.resume.host, g.resume.clock.Sub(g.b.now())
	}
	g.wg.Go(g.accept)
	g.wg.Go(g.boot)
	return nil
}

func (g *guest) addr() netip.AddrPort { return g.listen.Addr().(*net.TCPAddr).AddrPort() }

// stop pulls the plug and returns when nothing of the machine is left.
func (g *guest) stop() error {
	g.off()
	err := g.listen.Close()
	g.cut()
	g.gate.set(false)
	g.wg.Wait()
	return err
}

// cut drops every connection. The listener stays.
func (g *guest) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Close()
	}
}

func (g *guest) isBooted() bool {
	select {
	case <-g.booted:
		return true
	default:
		return false
	}
}

func (g *guest) now() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.now().Add(g.clock)
}

func (g *guest) setClock(t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clock = t.Sub(g.b.now())
}

func (g *guest) save() savedState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return savedState{bootID: g.bootID, host: g.host, clock: g.b.now().Add(g.clock)}
}

// boot brings the guest up: at once when it resumes, after the delay and the
// work of a first boot otherwise.
func (g *guest) boot() {
	if g.how.NeverBoots || g.tree == nil {
		return
	}
	if g.resume == nil {
		select {
		case <-time.After(g.how.BootDelay):
		case <-g.ctx.Done():
			return
		}
		if err := g.firstBoot(); err != nil {
			g.log(err.Error())
			return
		}
	}
	if err := g.loadHostKey(); err != nil {
		g.log(err.Error())
		return
	}
	close(g.booted)
}

func (g *guest) log(text string) {
	g.tree.write(rootUser, "/var/log/syslog", text+"\n", true, 0o644, g.now()) //nolint:errcheck // a guest without /var/log logs nothing
}

// cloudConfig is what a guest takes from user-data.
type cloudConfig struct {
	Hostname string   `yaml:"hostname"`
	Keys     []string `yaml:"ssh_authorized_keys"`
}

// firstBoot makes the clone itself when the cloud-init drive names another
// instance than the last boot's: host name, login keys, host key, machine id.
func (g *guest) firstBoot() error {
	now := g.now()
	put := func(name, text string, perm uint32) error {
		return g.tree.write(rootUser, name, text, false, 0o600|fileMode(perm), now)
	}
	var meta struct {
		ID string `yaml:"instance-id"`
	}
	var user cloudConfig
	if err := yaml.Unmarshal(g.cidata["meta-data"], &meta); err != nil {
		return fmt.Errorf("cloud-init: meta-data: %w", err)
	}
	if err := yaml.Unmarshal(g.cidata["user-data"], &user); err != nil {
		return fmt.Errorf("cloud-init: user-data: %w", err)
	}
	if last, err := g.tree.read(rootUser, instanceFile); err == nil && (g.cidata == nil || strings.TrimSpace(last) == meta.ID) {
		if host, err := g.tree.read(rootUser, "/etc/hostname"); err == nil {
			g.mu.Lock()
			g.host = strings.TrimSpace(host)
			g.mu.Unlock()
		}
		return nil
	}
	host := user.Hostname
	if host == "" {
		host = "localhost"
	}
	g.mu.Lock()
	g.host = host
	g.mu.Unlock()
	if err := g.tree.mkdir(rootUser, "/root/.ssh", 0o700, now); err != nil && !isExist(err) {
		return err
	}
	return errors.Join(
		g.newHostKey(),
		put("/etc/hostname", host+"\n", 0o644),
		put("/etc/machine-id", strings.ReplaceAll(uuid(), "-", "")+"\n", 0o444),
		put("/root/.ssh/authorized_keys", strings.Join(user.Keys, "\n")+"\n", 0o600),
		put(instanceFile, meta.ID+"\n", 0o644), // last: an interrupted first boot is done again
	)
}

func (g *guest) newHostKey() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	now := g.now()
	if err := g.tree.write(rootUser, hostKeyFile, string(pem.EncodeToMemory(block)), false, 0o600, now); err != nil {
		return err
	}
	if err := g.tree.write(rootUser, hostKeyFile+".pub", string(ssh.MarshalAuthorizedKey(key)), false, 0o644, now); err != nil {
		return err
	}
	return g.loadHostKey()
}

// loadHostKey makes sshd use the key on the disk.
func (g *guest) loadHostKey() error {
	text, err := g.tree.read(rootUser, hostKeyFile)
	if err != nil {
		return fmt.Errorf("sshd: no host key: %w", err)
	}
	key, err := ssh.ParsePrivateKey([]byte(text))
	if err != nil {
		return fmt.Errorf("sshd: host key: %w", err)
	}
	sc := &ssh.ServerConfig{ServerVersion: "SSH-2.0-OpenSSH_9.2", PublicKeyCallback: g.authorize}
	sc.AddHostKey(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.server = sc
	return nil
}

func (g *guest) authorize(conn ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	w, ok := account(conn.User())
	if ok {
		text, _ := g.tree.read(rootUser, w.home+"/.ssh/authorized_keys")
		for line := range strings.Lines(text) {
			k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
			if err == nil && string(k.Marshal()) == string(key.Marshal()) {
				return nil, nil
			}
		}
	}
	return nil, errors.New("key is not authorised")
}

func account(name string) (who, bool) {
	switch name {
	case "root":
		return rootUser, true
	case "agent":
		return agentUser, true
	}
	return who{}, false
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
