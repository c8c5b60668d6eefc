package lab

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"

	"savepoint/configs"
	"savepoint/testbed/fabric"
	"savepoint/testbed/notes"
	"savepoint/testbed/pve/access"
)

func configFile(dir string) string { return filepath.Join(dir, "savepoint.yaml") }

// unsealed says why guests of a user-mode lab are not proved apart.
const unsealed = "user-mode networking joins no two guests and has no zones, so nothing about isolation can be shown; savepoint lab up --network evpn has them and needs root"

// describe is the status of a lab that is ready.
func (l *lab) describe(o Options, api string) Status {
	secrets := l.api.Credentials()
	st := Status{
		Running: true, APIURL: api, CAFile: l.api.CAFile(),
		TokenID: admin + "!" + token, TokenSecret: secrets.Tokens[admin+"!"+token].Reveal(),
		User: access.Superuser, Password: secrets.Passwords[access.Superuser].Reveal(),
		PVEVersion: l.api.Version(), Network: o.Network, Storage: o.Storage, StateDir: o.Dir,
		Isolation: o.Network == NetworkEVPN, Accelerator: l.accel.Name, AcceleratorReason: l.accel.Reason,
		Faults: o.Faults.File, FaultsDigest: o.Faults.Digest,
		Config: configFile(o.Dir), JumpAddress: l.bastion.Addr().String(), PID: os.Getpid(),
	}
	if !st.Isolation {
		st.IsolationReason = unsealed
	}
	for _, name := range o.nodes() {
		n := Node{Name: name, Online: true}
		if s := l.sshd[name]; s != nil {
			n.SSH = s.Addr().String()
		}
		if l.net != nil {
			n.Address = l.net.Address(name).String()
		}
		st.Nodes = append(st.Nodes, n)
	}
	return st
}

// config is what makes savepoint use this lab.
func (l *lab) config(o Options) configs.Config {
	c := configs.Default(filepath.Join(o.Dir, "orchestrator"))
	c.Cluster.URL, c.Cluster.CAFile = l.status.APIURL, l.status.CAFile
	c.Cluster.TokenID = user + "!" + token
	c.Cluster.TokenSecret = configs.NewSecret(l.api.Credentials().Tokens[c.Cluster.TokenID].Reveal())
	c.Cluster.Nodes, c.Cluster.Pool, c.Cluster.Storage = o.nodes(), pool, storage
	c.Cluster.VMIDFirst, c.Cluster.VMIDLast = 9000, 9999
	c.Workspace.Storage = c.Cluster.Storage // on files the guests take the snapshots
	c.Sandbox.Bridge, c.Sandbox.Subnet = bridge, subnet
	c.SSH.IdentityFile = identityFile(o.Dir)
	c.SSH.Jump = configs.Jump{
		Address: l.status.JumpAddress, User: jumpUser, HostKey: l.bastion.HostKey(), IdentityFile: identityFile(o.Dir),
	}
	if l.net != nil {
		c.Sandbox.Subnet, c.Sandbox.Tenant = buildSubnet, tenants[0].name
		c.Network = networkConfig(c.Network, l.net.Fabric, o.nodes())
	}
	if o.Storage == StorageZFS {
		c.Cluster.Storage, c.Workspace.Storage = zfsStorage, zfsStorage
		c.Cluster.StateStorage = storage // ZFS through FUSE takes memory in slowly
		c.Workspace.User, c.Workspace.IdentityFile = zfsUser, identityFile(o.Dir)
	}
	for _, name := range o.nodes() {
		if s := l.sshd[name]; s != nil {
			c.Workspace.Nodes = append(c.Workspace.Nodes, configs.NodeSSH{Name: name, Address: s.Addr().String(), HostKey: s.HostKey()})
		}
	}
	return c
}

// networkConfig has the lab's tenants, and the places that none of them may reach.
func networkConfig(n configs.Network, f *fabric.Fabric, nodes []string) configs.Network {
	for _, t := range tenants {
		n.Tenants = append(n.Tenants, configs.Tenant{Name: t.name, VNets: []configs.VNet{{
			Name: "main", Subnets: []configs.Subnet{{Prefix: t.subnet, Gateway: t.gateway()}},
		}}})
	}
	place := func(role, name string, tcp []int, addresses ...netip.Addr) {
		p := configs.Place{Role: role, Name: name, TCP: tcp, UDP: []int{53}}
		for _, a := range addresses {
			p.Addresses = append(p.Addresses, a.String())
		}
		n.Places = append(n.Places, p)
	}
	for _, name := range nodes {
		n.Peers = append(n.Peers, f.Address(name).String())
		place("node", name, []int{22, 8006}, f.Address(name))
	}
	// The orchestrator has no address in the lab's networks: what is beyond the
	// cluster stands for it.
	place("orchestrator", "beyond the cluster", []int{22}, f.Address(fabric.Outside))
	place("metadata", "metadata", []int{80}, fabric.Metadata)
	place("outside", "web", []int{80, 443}, fabric.Web)
	return n
}

// publish writes the configuration for savepoint and then the status.
func (l *lab) publish(o Options) error {
	if err := configs.WriteWithSecrets(configFile(o.Dir), l.config(o)); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(l.status, "", "  ") //nolint:gosec // the lab's own secrets, into a file of mode 0600
	if err != nil {
		return err
	}
	return notes.Write(statusFile(o.Dir), raw)
}
