package pve

import "savepoint/testbed/pve/schema"

// The property strings of a VM's options.

func agentProps() *schema.Props {
	return schema.NewProps(
		schema.Bool("enabled").Default(),
		schema.Bool("fstrim_cloned_disks").Opt(),
		schema.Str("type").Opt().OneOf("virtio", "isa"),
		schema.Bool("freeze-fs-on-backup").Opt().To("8"),
		schema.Bool("freeze-fs").Opt().From("9"),
		schema.AliasOf("freeze-fs-on-backup", "freeze-fs").From("9"),
		schema.AliasOf("guest-fsfreeze", "freeze-fs").From("9"),
	)
}

func memoryProps() *schema.Props {
	return schema.NewProps(schema.Int("current").Default().Min(16))
}

func machineProps() *schema.Props {
	return schema.NewProps(
		schema.Str("type").Default().Opt().Len(40).Match(`(pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|q35|pc-q35-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|virt(?:-\d+(\.\d+)+)?(\+pve\d+)?)`),
		schema.Str("viommu").Opt().OneOf("intel", "virtio"),
		schema.Bool("enable-s3").Opt(),
		schema.Bool("enable-s4").Opt(),
		schema.Num("aw-bits").Opt().Range(32, 64).From("9"),
	)
}

func vgaProps() *schema.Props {
	return schema.NewProps(
		schema.Str("type").Default().Opt().OneOf("cirrus", "qxl", "qxl2", "qxl3", "qxl4", "none", "serial0", "serial1", "serial2", "serial3", "std", "virtio", "virtio-gl", "vmware"),
		schema.Int("memory").Opt().Range(4, 512),
		schema.Str("clipboard").Opt().OneOf("vnc"),
	)
}

func audioProps() *schema.Props {
	return schema.NewProps(
		schema.Str("device").OneOf("ich9-intel-hda", "intel-hda", "AC97"),
		schema.Str("driver").Opt().OneOf("spice", "none"),
	)
}

func ivshmemProps() *schema.Props {
	return schema.NewProps(schema.Int("size").Min(1), schema.Str("name").Opt().Match(`[a-zA-Z0-9\-]+`))
}

func spiceProps() *schema.Props {
	return schema.NewProps(
		schema.Bool("foldersharing").Opt(),
		schema.Str("videostreaming").Opt().OneOf("off", "all", "filter"),
	)
}

func usbProps() *schema.Props {
	return schema.NewProps(
		schema.Str("host").Default().Opt().Match(`(?:(0x)?([0-9A-Fa-f]{4}):(0x)?([0-9A-Fa-f]{4}))|(?:(\d+)\-(\d+(\.\d+)*))|[Ss][Pp][Ii][Cc][Ee]`),
		schema.Str("mapping").Opt().Fmt("pve-configid"),
		schema.Bool("usb3").Opt(),
	)
}

func numaProps() *schema.Props {
	const ranges = `\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*`
	return schema.NewProps(
		schema.Str("cpus").Match(ranges),
		schema.Num("memory").Opt(),
		schema.Str("hostnodes").Opt().Match(ranges),
		schema.Str("policy").Opt().OneOf("preferred", "bind", "interleave"),
	)
}

func virtiofsProps() *schema.Props {
	return schema.NewProps(
		schema.Str("dirid").Default().Fmt("pve-configid"),
		schema.Str("cache").Opt().OneOf("auto", "always", "metadata", "never"),
		schema.Bool("direct-io").Opt(),
		schema.Bool("expose-acl").Opt(),
		schema.Bool("expose-xattr").Opt(),
	)
}

func ipconfigProps() *schema.Props {
	return schema.NewProps(
		schema.Str("ip").Opt(), schema.Str("gw").Opt().Needs("ip"),
		schema.Str("ip6").Opt(), schema.Str("gw6").Opt().Needs("ip6"),
	)
}

func netProps() *schema.Props {
	models := []string{
		"e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e", "i82551", "i82557b", "i82559er",
		"ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3",
	}
	keys := []schema.Param{
		schema.Str("model").Default().OneOf(models...),
		schema.Str("macaddr").Opt().Fmt("mac-addr"),
		schema.Str("bridge").Opt().Fmt("pve-bridge-id"),
		schema.Int("queues").Opt().Range(0, 64),
		schema.Num("rate").Opt().Min(0),
		schema.Int("tag").Opt().Range(1, 4094),
		schema.Str("trunks").Opt().Match(`\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*`),
		schema.Bool("firewall").Opt(),
		schema.Bool("link_down").Opt(),
		schema.Int("mtu").Opt().Range(1, 65520),
	}
	for _, m := range models {
		key := schema.AliasOf(m, "macaddr")
		key.KeyAlias = "model"
		keys = append(keys, key)
	}
	return schema.NewProps(keys...)
}

// fileKeys are what every drive has.
func fileKeys() []schema.Param {
	return []schema.Param{
		schema.Str("file").Default().Fmt("pve-volume-id-or-qm-path"),
		schema.AliasOf("volume", "file"),
		schema.Str("import-from").Opt().Fmt("pve-volume-id-or-absolute-path"),
		schema.Str("size").Opt().Fmt("disk-size"),
	}
}

func imageFormat() schema.Param {
	return schema.Str("format").Opt().OneOf("raw", "qcow", "qed", "qcow2", "vmdk", "cloop")
}

func driveProps(bus string) *schema.Props {
	keys := append(fileKeys(), imageFormat(),
		schema.Str("media").Opt().OneOf("cdrom", "disk"),
		schema.Bool("snapshot").Opt(),
		schema.Bool("shared").Opt(),
		schema.Bool("backup").Opt(),
		schema.Bool("replicate").Opt(),
		schema.Bool("detect_zeroes").Opt(),
		schema.Str("cache").Opt().OneOf("none", "writethrough", "writeback", "unsafe", "directsync"),
		schema.Str("aio").Opt().OneOf("native", "threads", "io_uring"),
		schema.Str("discard").Opt().OneOf("ignore", "on"),
		schema.Str("rerror").Opt().OneOf("ignore", "report", "stop"),
		schema.Str("werror").Opt().OneOf("enospc", "ignore", "report", "stop"),
		schema.Str("serial").Opt().Fmt("urlencoded").Len(60),
		// the geometry went away with 9
		schema.Int("cyls").Opt().To("8"),
		schema.Int("heads").Opt().To("8"),
		schema.Int("secs").Opt().To("8"),
		schema.Str("trans").Opt().OneOf("none", "lba", "auto").To("8"),
	)
	keys = append(keys, limitKeys()...)
	if bus != "virtio" {
		keys = append(keys, schema.Bool("ssd").Opt(), schema.Str("wwn").Opt().Match(`^(0x)[0-9a-fA-F]{16}`))
	}
	if bus == "scsi" || bus == "virtio" {
		keys = append(keys, schema.Bool("iothread").Opt(), schema.Bool("ro").Opt())
	}
	switch bus {
	case "ide":
		keys = append(keys, schema.Str("model").Opt().Fmt("urlencoded").Len(120))
	case "scsi":
		keys = append(keys,
			schema.Int("queues").Opt().Min(2),
			schema.Bool("scsiblock").Opt(),
			schema.Str("product").Opt().Match(`[A-Za-z0-9\-_\s]{0,16}`),
			schema.Str("vendor").Opt().Match(`[A-Za-z0-9\-_\s]{0,8}`),
		)
	}
	return schema.NewProps(keys...)
}

// limitKeys are a drive's limits of operations and bytes per second.
func limitKeys() []schema.Param {
	var keys []schema.Param
	for _, dir := range []string{"", "_rd", "_wr"} {
		for _, unit := range []string{"bps", "iops"} {
			keys = append(keys, schema.Int(unit+dir).Opt(), schema.Int(unit+dir+"_max_length").Opt().Min(1))
			if dir != "" {
				keys = append(keys, schema.AliasOf(unit+dir+"_length", unit+dir+"_max_length"))
			}
		}
		keys = append(keys, schema.Int("iops"+dir+"_max").Opt(), schema.Num("mbps"+dir).Opt(), schema.Num("mbps"+dir+"_max").Opt())
	}
	return keys
}

func efiProps() *schema.Props {
	return schema.NewProps(append(fileKeys(), imageFormat(),
		schema.Str("efitype").Opt().OneOf("2m", "4m"),
		schema.Bool("pre-enrolled-keys").Opt(),
		schema.Str("ms-cert").Opt().OneOf("2011", "2023", "2023w", "2023k"),
	)...)
}

func tpmProps() *schema.Props {
	return schema.NewProps(append(fileKeys(),
		schema.Str("format").Opt().OneOf("raw", "qcow2", "vmdk").From("9"),
		schema.Str("version").Opt().OneOf("v1.2", "v2.0"),
	)...)
}

func unusedProps() *schema.Props {
	return schema.NewProps(schema.Str("file").Default().Fmt("pve-volume-id"), schema.AliasOf("volume", "file"))
}
