package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"savepoint/configs"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox"
	"savepoint/proxmox/evpn"
	"savepoint/proxmox/zfs"
)

// intended is what our token has to be able to do as far as the configuration
// tells.
func intended(cfg configs.Config) proxmox.Use {
	use := proxmox.Use{ManageSDN: len(cfg.Network.Tenants) > 0, Collect: true, Look: true}
	for _, s := range []string{cfg.Cluster.Storage, cfg.Workspace.Storage, cfg.Cluster.StateStorage} {
		use.Storages = oneMore(use.Storages, s)
	}
	build := cfg.Sandbox.Bridge
	if cfg.Template.Bridge != "" {
		build = cfg.Template.Bridge
	}
	if use.ManageSDN {
		use.Zones = true
		use.Peers = true
	} else {
		use.Bridges = oneMore(nil, cfg.Sandbox.Bridge)
	}
	use.Bridges = oneMore(use.Bridges, build) // where the template's own card is
	storage, _, onStorage := strings.Cut(cfg.Template.Image, ":")
	switch {
	case strings.Contains(cfg.Template.Image, "://"):
		use.Downloads = slices.Clone(cfg.Cluster.Nodes)
		if len(use.Downloads) == 0 {
			use.Downloads = []string{"NODE"}
		}
	case onStorage:
		use.ImportStorages = []string{storage}
	}
	return use
}

// Stand-ins for what the configuration does not say. They are no valid values,
// so that nobody runs them by mistake.
const (
	setupToken   = "savepoint@pve!engine" //nolint:gosec // the name of a token, without its secret
	setupStorage = "STORAGE"
	setupImport  = "local"
	setupDataset = "POOL/savepoint"
)

// printSetup prints the script for the cluster's administrator. It asks nothing
// but the configuration, and makes our SSH key if there is none yet.
func (a *app) printSetup() error {
	cfg, err := a.load(configs.LoadOptions{File: a.configFile, Unfinished: true})
	if err != nil {
		return err
	}
	text, err := setupScript(cfg)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

func (a *app) printProgram() error {
	_, err := a.out.Write(zfs.Program)
	return err
}

// setup is the script in the making.
type setup struct {
	strings.Builder
	cfg   configs.Config
	token string
	use   proxmox.Use
	made  map[string]bool // roles that are written already
}

func (s *setup) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

func setupScript(cfg configs.Config) (string, error) {
	s := &setup{cfg: cfg, token: cfg.Cluster.TokenID, use: intended(cfg), made: map[string]bool{}}
	if s.token == "" {
		s.token = setupToken
	}
	if len(s.use.Storages) == 0 {
		s.use.Storages = []string{setupStorage}
	}
	if len(s.use.ImportStorages) == 0 {
		s.use.ImportStorages = []string{setupImport}
	}
	s.use.Pooled = true
	s.use.LookAt = s.use.Downloads // a role on the node hides the one from above it
	source := "the defaults: there is no configuration file yet"
	if cfg.Source.File != "" {
		source = cfg.Source.File
	}
	s.line("#!/bin/sh")
	s.line("# What the administrator of the cluster does once for savepoint, after %s.", source)
	s.line("# Written by savepoint doctor --setup. It is safe to run again, also after an upgrade")
	s.line("# to Proxmox VE 9, which needs other privileges. Words in capitals are to be replaced.")
	s.line("#")
	s.line("#   sh setup.sh cluster    once, as root on any node")
	s.line("#   sh setup.sh node       as root on every node that sandboxes may be on")
	s.line("#   sh setup.sh jump       as root on the jump host")
	s.line("#   sh setup.sh gc         only if you want it, see there; once, as root on any node")
	s.line("set -eu")
	s.line("umask 022")
	s.line("")
	s.helpers()
	s.line("")
	s.line("cluster() {")
	s.cluster()
	s.line("}")
	s.line("")
	s.line("gc() {")
	s.part(proxmox.ForGC, gcTitle)
	s.line("}")
	s.line("")
	s.line("node() {")
	if err := s.node(); err != nil {
		return "", err
	}
	s.line("}")
	s.line("")
	s.line("jump() {")
	if err := s.jump(); err != nil {
		return "", err
	}
	s.line("}")
	s.line("")
	s.line(`case "${1:-}" in`)
	s.line("cluster | node | jump | gc) $1 ;;")
	s.line("*)")
	s.line(`	echo "usage: sh $0 cluster|node|jump|gc" >&2`)
	s.line("	exit 2")
	s.line("	;;")
	s.line("esac")
	return s.String(), nil
}

// cluster makes pool, user, roles, their grants, and the token.
func (s *setup) cluster() {
	pool := s.cfg.Cluster.Pool
	user, name, _ := strings.Cut(s.token, "!")
	s.line("	# The pool holds every sandbox. On VMs outside of it the token has no rights.")
	s.line(`	pveum pool list --output-format json | grep -q '"poolid":"%s"' || pveum pool add %s`, pool, pool)
	s.line(`	pveum user list --output-format json | grep -q '"userid":"%s"' || pveum user add %s`, user, user)
	s.line("	# The token has its own privileges, and no more than its user. Its secret is")
	s.line("	# printed once: put it into cluster.token_secret_file, mode 0600.")
	s.line(`	pveum user token list %s --output-format json | grep -q '"tokenid":"%s"' ||`, user, name)
	s.line("		pveum user token add %s %s --privsep 1", user, name)
	s.line("")
	s.roles()
	s.line("")
	s.storage()
	s.controller()
}

// onZFS reports whether workspace volumes are, or may be, on ZFS: of what type the
// storage is nobody can be asked yet.
func (s *setup) onZFS() bool {
	return s.cfg.Workspace.Storage != "" && s.cfg.Workspace.Driver != driverBtrfs
}

// storage says what the storages have to be like.
func (s *setup) storage() {
	if w := s.cfg.Workspace.Storage; s.onZFS() {
		s.line("	# Workspace volumes are on ZFS. A storage that exists is left as it is; for another")
		s.line("	# one, POOL is a ZFS pool that the nodes have (zpool list).")
		s.line(`	pvesh get /storage --output-format json | grep -q '"storage":"%s"' ||`, w)
		s.line("		pvesm add zfspool %s --pool %s --content images,rootdir --sparse 1", w, setupDataset)
		s.line("")
	}
	s.line("	# Images of templates are put on %s: it needs the content type \"import\"", strings.Join(s.use.ImportStorages, ", "))
	s.line("	# (Datacenter, Storage, Edit, Content).")
	s.line("")
}

func (s *setup) controller() {
	switch c := s.cfg.Network.Controller; {
	case !usesEVPN(s.cfg):
	case c != "":
		s.line("	# The EVPN controller %s (network.controller) is yours to make and keep.", c)
		s.line("")
	default:
		s.line("	# savepoint network apply makes the EVPN controller, with ASN %d. A cluster can", s.cfg.Network.ASN)
		s.line("	# have only one: if there is one, write its name into network.controller.")
		s.line("")
	}
}

// node is what each node needs: packages, and the accounts for reading routes
// and for workspace volumes.
func (s *setup) node() error {
	if len(s.cfg.Network.Tenants) == 0 && !s.onZFS() {
		s.line("	echo 'Nothing: no tenants and no workspace volumes on ZFS are configured.'")
		return nil
	}
	if len(s.cfg.Network.Tenants) > 0 {
		s.line("	# Networks of tenants.")
		s.line("	apt-get install -y ifupdown2 frr frr-pythontools")
		s.line("	systemctl enable --now frr")
	}
	key, err := publicKey(cmp.Or(s.cfg.Workspace.IdentityFile, s.cfg.SSH.IdentityFile), s.cfg)
	if err != nil {
		return err
	}
	if usesEVPN(s.cfg) {
		commands, err := evpn.Setup(key)
		if err != nil {
			return err
		}
		s.line("	# Proxmox VE 8 does not show the routes of a zone: an account that can do nothing")
		s.line("	# but read them. It is reached as workspace.nodes says.")
		s.line("	case \"$(pveversion)\" in pve-manager/8*)")
		s.account(evpn.User, evpn.ProgramPath, evpn.Program, commands)
		s.line("		;;")
		s.line("	esac")
	}
	if w := s.cfg.Workspace; s.onZFS() {
		if err := s.volumes(w, key); err != nil {
			return err
		}
	}
	s.line("	echo 'For workspace.nodes in the configuration:'")
	s.line(`	echo "  - {name: $(hostname), address: $(hostname -f):22, host_key: $(cut -d' ' -f1-2 /etc/ssh/ssh_host_ed25519_key.pub)}"`)
	return nil
}

// volumes is the account for snapshots of workspace volumes. On which dataset they
// are is for the node to say: the storage's own settings do.
func (s *setup) volumes(w configs.Workspace, key string) error {
	const standIn = "DATASET"
	commands, err := zfs.Setup(w.User, key, []string{standIn})
	if err != nil {
		return err
	}
	for i, c := range commands {
		with := `"$dataset"`
		if strings.Contains(c, "'") { // it is inside of quotes there
			with = `'` + with + `'`
		}
		commands[i] = strings.ReplaceAll(c, standIn, with)
	}
	s.line("	# Snapshots of workspace volumes: an account that can do nothing but run this")
	s.line("	# program, on the dataset of storage %s.", w.Storage)
	s.line("	store=$(pvesh get /storage/%s --output-format json)", w.Storage)
	s.line(`	case "$store" in`)
	s.line(`	*'"type":"zfspool"'*)`)
	s.line(`	dataset=$(printf '%%s\n' "$store" | sed -n 's/.*"pool":"\([^"]*\)".*/\1/p')`)
	s.line(`	[ -n "$dataset" ] || { echo 'storage %s names no pool: see pvesh get /storage/%s' >&2; exit 1; }`, w.Storage, w.Storage)
	s.line(`	zfs list "$dataset" >/dev/null 2>&1 || zfs create -p "$dataset"`)
	s.account(w.User, zfs.ProgramPath, zfs.Program, commands)
	s.line("	;;")
	if w.Driver == driverZFS {
		s.line("	*) echo 'storage %s is no zfspool, and workspace.driver is zfs' >&2; exit 1 ;;", w.Storage)
	} else {
		s.line("	*) echo 'Storage %s is no zfspool: guests take the snapshots of their workspaces.' ;;", w.Storage)
	}
	s.line("	esac")
	return nil
}

// account writes how a program and the account that runs it get to the node.
func (s *setup) account(user, path string, program []byte, commands []string) {
	s.line("	mkdir -p %s", filepath.Dir(path))
	s.line("	cat >%s <<'END_OF_PROGRAM'", path)
	s.WriteString(string(program))
	s.line("END_OF_PROGRAM")
	for _, c := range commands {
		if strings.HasPrefix(c, "useradd ") {
			c = "id " + user + " >/dev/null 2>&1 || " + c
		}
		s.line("	%s", c)
	}
}

// jump is the account that forwards to sandboxes and can do nothing else.
func (s *setup) jump() error {
	j := s.cfg.SSH.Jump
	if !j.Configured() {
		s.line("	echo 'Nothing: no jump host is configured (ssh.jump); guests are dialled directly.'")
		return nil
	}
	key, err := publicKey(cmp.Or(j.IdentityFile, s.cfg.SSH.IdentityFile), s.cfg)
	if err != nil {
		return err
	}
	home := "/var/lib/" + j.User
	s.line("	# %s, ssh.jump.address: an account that opens connections to the SSH", j.Address)
	s.line("	# servers of sandboxes and can do nothing else.")
	if len(s.cfg.Network.Tenants) > 0 {
		s.legs()
	}
	s.line("	id %s >/dev/null 2>&1 || useradd --system --create-home --home-dir %s --shell /usr/sbin/nologin %s", j.User, home, j.User)
	s.jumpServer(j.User)
	s.line("	install -d -m 0755 -o root -g root %s/.ssh", home)
	s.line("	{")
	s.line("		printf 'restrict,port-forwarding'")
	s.opens()
	s.line("		printf ' %%s\\n' '%s'", key)
	s.line("	} >%s/.ssh/authorized_keys", home)
	s.line("	echo 'For ssh.jump.host_key in the configuration:'")
	s.line("	cut -d' ' -f1-2 /etc/ssh/ssh_host_ed25519_key.pub")
	return nil
}

// legs says how the host gets into zones that nothing is routed into.
func (s *setup) legs() {
	s.line("	#")
	s.line("	# No route leads into a sealed zone. This host needs an interface in every vnet,")
	s.line("	# with one of the first nine addresses of its subnet, or on a node an SSH server in")
	s.line("	# the zone (ip vrf exec vrf_ZONE sshd). It must not forward packets, and nothing")
	s.line("	# but SSH may listen there: guests reach it too. Put these addresses into")
	s.line("	# network.places with role jump, so that the proof of isolation knows them.")
	s.line("	if [ \"$(cat /proc/sys/net/ipv4/ip_forward)\" != 0 ]; then")
	s.line("		echo 'This host forwards packets: with legs in several zones it joins them. Set net.ipv4.ip_forward=0, or forbid it between the legs.' >&2")
	s.line("	fi")
}

// jumpServer has the SSH server refuse what a key's options cannot: without it who
// may open connections to sandboxes may also listen on the jump host (permitlisten
// has no word for nowhere) and open its Unix sockets, which permitopen is not asked
// about. The key is written only where that is so.
func (s *setup) jumpServer(user string) {
	file := "/etc/ssh/sshd_config.d/00-savepoint-jump.conf"
	s.line("	# It may not listen here (ssh -R) and not open this host's Unix sockets: no")
	s.line("	# option of a key says that.")
	s.line("	mkdir -p %s", filepath.Dir(file))
	s.line("	cat >%s <<'END_OF_FILE'", file)
	s.line("Match User %s", user)
	s.line("	AllowTcpForwarding local")
	s.line("	AllowStreamLocalForwarding no")
	s.line("END_OF_FILE")
	s.line("	mkdir -p /run/sshd")
	s.line("	so=$(sshd -T -C user=%s,host=localhost,addr=127.0.0.1,laddr=127.0.0.1,lport=22)", user)
	s.line("	for want in 'allowtcpforwarding local' 'allowstreamlocalforwarding no'; do")
	s.line(`		if ! printf '%%s\n' "$so" | grep -qix "$want"; then`)
	s.line(`			echo "the SSH server does not take \"$want\" for %s from %s: have /etc/ssh/sshd_config include that file, or put its lines there before every other Match, and run this again" >&2`, user, file)
	s.line("			exit 1")
	s.line("		fi")
	s.line("	done")
	s.line("	systemctl reload ssh || systemctl reload sshd")
}

// mostOpens is how many permitopen an SSH server takes.
const mostOpens = 4096

// opens names every address of a sandbox: an SSH server takes no patterns there.
func (s *setup) opens() {
	nets := s.subnets()
	if len(nets) == 0 {
		s.line("		# SUBNET is not configured: write sandbox.subnet, and print this again")
		return
	}
	hosts := 0
	for _, p := range nets {
		if p.Addr().Is6() || p.Bits() < 20 {
			hosts = mostOpens + 1
			break
		}
		hosts += 1 << (32 - p.Bits())
	}
	if hosts > mostOpens {
		s.line("		# The networks of sandboxes are too wide to be listed: the key may open any")
		s.line("		# address from there. Keep it in with a firewall on this host.")
		return
	}
	for _, p := range nets {
		for block := p.Masked().Addr().As4(); p.Contains(netip.AddrFrom4(block)); {
			first, last := int(block[3]), 255
			if p.Bits() > 24 {
				last = first + 1<<(32-p.Bits()) - 1
			}
			s.line("		for n in $(seq %d %d); do printf ',permitopen=\"%d.%d.%d.%%d:22\"' \"$n\"; done", first, last, block[0], block[1], block[2])
			if p.Bits() > 24 {
				break
			}
			block[2]++
			if block[2] == 0 {
				break
			}
		}
	}
}

// subnets are where sandboxes have their addresses, and the VM that a template is
// prepared in.
func (s *setup) subnets() []netip.Prefix {
	var out []netip.Prefix
	for _, t := range s.cfg.Network.Tenants {
		for _, v := range t.VNets {
			for _, n := range v.Subnets {
				out = append(out, n.Prefix)
			}
		}
	}
	build := s.cfg.Template.Address
	switch sandbox := s.cfg.Sandbox.Subnet; {
	case !sandbox.IsValid():
	case len(out) == 0:
		out = append(out, sandbox)
	case !build.IsValid(): // where a template is prepared
		build = lastHost(sandbox)
	}
	if build.IsValid() && !slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Contains(build.Addr()) }) {
		out = append(out, netip.PrefixFrom(build.Addr(), build.Addr().BitLen()))
	}
	return out
}

// publicKey is the key in authorized_keys form. Our own is made when it is not
// there yet; another one that is not there has to be put in by hand.
func publicKey(path string, cfg configs.Config) (string, error) {
	id, err := sshexec.LoadIdentity(path)
	if errors.Is(err, fs.ErrNotExist) && path == cfg.SSH.IdentityFile {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", fmt.Errorf("make the directory of the SSH identity: %w", err)
		}
		id, err = sshexec.CreateIdentity(path, "savepoint")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "PUBLIC KEY OF " + path, nil
	}
	if err != nil {
		return "", usageError{err}
	}
	return id.AuthorizedKey(), nil
}
