package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"savepoint/proxmox"
	"savepoint/testbed/bench"
	"savepoint/testbed/lab"
)

// place says on what cluster the experiments measure, and makes the template of their
// sandbox, by whose recipe its guest is known. What the token may not ask is left out.
func (b *benchmark) place(ctx context.Context) (bench.Environment, error) {
	if b.where != nil {
		return *b.where, nil
	}
	p := newProgress(b.app.err, b.s.secrets)
	defer p.stop()
	t, err := b.s.buildTemplate(ctx, func(step string) { p.say("%s", step) })
	if err != nil {
		return bench.Environment{}, err
	}
	workspace := "none"
	if b.s.workspaces != nil {
		if workspace, _, err = b.s.workspaces.driver(ctx); err != nil {
			return bench.Environment{}, err
		}
	}
	nodes, err := b.s.cluster.Nodes(ctx)
	if err != nil {
		return bench.Environment{}, err
	}
	var online, names []string
	for _, n := range nodes {
		names = append(names, n.Name)
		if n.Online {
			online = append(online, n.Name)
		}
	}
	storage, err := b.s.cluster.StorageType(ctx, t.Storage)
	if err != nil {
		storage = "" // its settings are not for every token
	}
	where := bench.Environment{
		Accelerator: b.accelerator,
		Versions:    nodeVersions(b.s.cluster.LookAt(ctx, online)),
		Facts: map[string]string{
			bench.FactCluster: b.s.cfg.Cluster.URL, bench.FactNodes: strings.Join(names, ", "),
			bench.FactStorage: storage, bench.FactWorkspace: workspace, bench.FactImage: t.Recipe,
		},
	}
	if b.lab != nil {
		ofLab(&where, *b.lab, qemuVersion(ctx))
	}
	drop := func(_, value string) bool { return value == "" }
	maps.DeleteFunc(where.Versions, drop)
	maps.DeleteFunc(where.Facts, drop)
	b.where = &where
	return where, nil
}

// nodeVersions are those of the programs of a cluster; several where nodes differ.
func nodeVersions(nodes []proxmox.NodeFacts) map[string]string {
	all := map[string][]string{}
	for _, n := range nodes {
		all["pve"] = append(all["pve"], n.Version.Value.Text)
		all["qemu"] = append(all["qemu"], n.Packages.Value["pve-qemu-kvm"])
	}
	out := map[string]string{}
	for name, texts := range all {
		slices.Sort(texts)
		texts = slices.DeleteFunc(slices.Compact(texts), func(s string) bool { return s == "" })
		out[name] = strings.Join(texts, ", ")
	}
	return out
}

// ofLab replaces what a lab's API answers in the place of a data centre, and its
// address, which is another at each start, by what runs.
func ofLab(e *bench.Environment, st lab.Status, qemu string) {
	e.Accelerator = st.Accelerator
	e.Versions["pve"], e.Versions["qemu"] = st.PVEVersion+" (lab)", qemu
	e.Facts[bench.FactCluster] = fmt.Sprintf("lab, network %s", st.Network)
	e.Facts[bench.FactStorage] = st.Storage
}

// qemuVersion is that of the QEMU here; "" when it cannot be asked.
func qemuVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(line, "QEMU emulator version ")
}
