package pve

import (
	"strconv"
	"strings"

	"savepoint/testbed/pve/schema"
)

// vmOption is one option of a VM's configuration.
type vmOption struct {
	schema.Param
	priv string // needed to change it
	hot  bool   // takes effect on a running VM
	root bool   // only the superuser may change it
}

// The privileges that options need.
const (
	privOptions = "VM.Config.Options"
	privCPU     = "VM.Config.CPU"
	privMemory  = "VM.Config.Memory"
	privHW      = "VM.Config.HWType"
	privNet     = "VM.Config.Network"
	privDisk    = "VM.Config.Disk"
	privCDROM   = "VM.Config.CDROM"
	privCI      = "VM.Config.Cloudinit"
)

// vmOptionTable is every option of a VM that can be set.
func vmOptionTable() []vmOption {
	opt := func(p schema.Param, priv string) vmOption { return vmOption{Param: p.Opt(), priv: priv} }
	hot := func(o vmOption) vmOption { o.hot = true; return o }
	root := func(o vmOption) vmOption { o.root = true; return o }
	str, num, boolean, integer := schema.Str, schema.Num, schema.Bool, schema.Int
	return []vmOption{
		// what it is called and how the node treats it
		hot(opt(str("name").Fmt("dns-name"), privOptions)),
		hot(opt(str("description").Len(8192), privOptions)),
		hot(opt(str("tags").Fmt("pve-tag-list"), privOptions)),
		hot(opt(boolean("onboot"), privOptions)),
		hot(opt(str("startup").Fmt("pve-startup-order"), privOptions)),
		hot(opt(boolean("protection"), privOptions)),
		hot(root(opt(str("lock").OneOf("backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete", "suspending", "suspended"), privOptions))),
		hot(root(opt(str("hookscript").Fmt("pve-volume-id"), privOptions))),
		hot(opt(str("vmstatestorage").Fmt("pve-storage-id"), privOptions)),
		opt(boolean("template"), privOptions),
		opt(boolean("autostart"), privOptions),
		opt(boolean("reboot"), privOptions),
		opt(boolean("freeze"), privOptions),
		opt(str("hotplug").Fmt("pve-hotplug-features"), privOptions),
		opt(str("agent").PropStr(agentProps()), privOptions),
		opt(str("boot").Fmt("pve-qm-boot"), privOptions),
		opt(str("bootdisk").Fmt("pve-qm-bootdisk").Match(`(ide|sata|scsi|virtio)\d+`), privOptions),
		opt(str("ostype").OneOf("other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26", "solaris"), privOptions),
		opt(str("smbios1").Fmt("pve-qm-smbios1").Len(512), privOptions),
		opt(str("vmgenid").Match(`(?:[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}|[01])`), privOptions),
		root(opt(str("args"), privOptions)),
		opt(str("startdate").Match(`(now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?)`), privOptions),
		opt(boolean("localtime"), privOptions),
		opt(boolean("tdf"), privOptions),
		opt(boolean("acpi"), privOptions),
		opt(boolean("kvm"), privOptions),
		opt(boolean("tablet"), privOptions),
		hot(opt(num("migrate_downtime").Min(0), privOptions)),
		hot(opt(integer("migrate_speed").Min(0), privOptions)),
		opt(str("watchdog").Fmt("pve-qm-watchdog"), privOptions),

		// processors and memory
		opt(integer("cores").Min(1), privCPU),
		opt(integer("sockets").Min(1), privCPU),
		opt(integer("smp").Min(1), privCPU),
		opt(integer("vcpus").Min(1), privCPU),
		opt(str("cpu").Fmt("pve-vm-cpu-conf"), privCPU),
		opt(num("cpulimit").Range(0, 128), privCPU),
		opt(integer("cpuunits").Range(1, 262144), privCPU),
		opt(str("affinity").Fmt("pve-cpuset"), privCPU),
		opt(boolean("numa"), privCPU),
		opt(str("numa").Times(8).PropStr(numaProps()), privCPU),
		opt(str("memory").PropStr(memoryProps()), privMemory),
		opt(integer("balloon").Min(0), privMemory),
		hot(opt(integer("shares").Range(0, 50000), privMemory)),
		opt(str("hugepages").OneOf("any", "2", "1024"), privMemory),
		opt(boolean("keephugepages"), privMemory),
		opt(boolean("allow-ksm").From("9"), privMemory),

		// devices
		opt(str("arch").OneOf("x86_64", "aarch64"), privHW),
		opt(str("bios").OneOf("seabios", "ovmf"), privHW),
		opt(str("machine").PropStr(machineProps()), privHW),
		opt(str("scsihw").OneOf("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"), privHW),
		opt(str("vga").PropStr(vgaProps()), privHW),
		opt(str("keyboard").OneOf("de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch", "hu", "is", "it", "ja", "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr"), privHW),
		opt(str("audio0").PropStr(audioProps()), privHW),
		opt(str("rng0").Fmt("pve-qm-rng"), privHW),
		opt(str("ivshmem").PropStr(ivshmemProps()), privHW),
		opt(str("spice_enhancements").PropStr(spiceProps()), privHW),
		opt(str("amd-sev").Fmt("pve-qemu-sev-fmt"), privHW),
		opt(str("intel-tdx").Fmt("pve-qemu-tdx-fmt").From("9"), privHW),
		opt(str("hostpci").Times(16).Fmt("pve-qm-hostpci"), privHW),
		opt(str("usb").Times(14).PropStr(usbProps()), privHW),
		opt(str("serial").Times(4).Match(`(/dev/.+|socket)`), privHW),
		opt(str("parallel").Times(3).Match(`/dev/parport\d+|/dev/usb/lp\d+`), privHW),
		opt(str("virtiofs").Times(10).PropStr(virtiofsProps()), privHW),

		// disks and networks
		opt(str("ide").Times(4).PropStr(driveProps("ide")), privDisk),
		opt(str("sata").Times(6).PropStr(driveProps("sata")), privDisk),
		opt(str("scsi").Times(31).PropStr(driveProps("scsi")), privDisk),
		opt(str("virtio").Times(16).PropStr(driveProps("virtio")), privDisk),
		opt(str("efidisk0").PropStr(efiProps()), privDisk),
		opt(str("tpmstate0").PropStr(tpmProps()), privDisk),
		opt(str("unused").Times(256).PropStr(unusedProps()), privDisk),
		opt(str("cdrom").Fmt("pve-qm-ide"), privCDROM),
		opt(str("net").Times(32).PropStr(netProps()), privNet),

		// cloud-init
		opt(str("ciuser"), privCI),
		opt(str("cipassword"), privCI),
		opt(str("citype").OneOf("configdrive2", "nocloud", "opennebula"), privCI),
		opt(str("cicustom").Fmt("pve-qm-cicustom"), privCI),
		opt(boolean("ciupgrade"), privCI),
		opt(str("sshkeys").Fmt("urlencoded"), privCI),
		opt(str("nameserver").Fmt("address-list"), privCI),
		opt(str("searchdomain"), privCI),
		opt(str("ipconfig").Times(32).Fmt("pve-qm-ipconfig").PropStr(ipconfigProps()), privCI),
	}
}

// vmOptions finds options by their full names in one version.
type vmOptions struct {
	byName map[string]vmOption
	net    *schema.Props
	drive  map[string]*schema.Props // by bus
}

func newVMOptions(major string) *vmOptions {
	v := &vmOptions{byName: map[string]vmOption{}, drive: map[string]*schema.Props{}}
	for _, o := range vmOptionTable() {
		set := schema.NewSet(major, o.Param)
		for _, name := range set.Names() {
			p, _ := set.Lookup(name)
			o := o
			o.Param = p
			v.byName[name] = o
		}
	}
	v.net = v.byName["net0"].Props
	for _, bus := range []string{"ide", "sata", "scsi", "virtio"} {
		v.drive[bus] = v.byName[bus+"0"].Props
	}
	v.drive["efidisk"], v.drive["tpmstate"] = v.byName["efidisk0"].Props, v.byName["tpmstate0"].Props
	v.drive["unused"] = v.byName["unused0"].Props
	return v
}

// splitName splits a numbered option's name: "scsi12" is "scsi" and 12.
func splitName(name string) (string, int) {
	i := strings.IndexAny(name, "0123456789")
	if i <= 0 {
		return name, -1
	}
	n, err := strconv.Atoi(name[i:])
	if err != nil {
		return name, -1
	}
	return name[:i], n
}

// busOf returns the kind of drive an option is, "" for other options.
func busOf(name string) string {
	bus, n := splitName(name)
	switch bus {
	case "ide", "sata", "scsi", "virtio", "efidisk", "tpmstate":
		if n >= 0 {
			return bus
		}
	}
	return ""
}

// jsonValue is an option's value as an answer holds it: numbers for options
// that are numbers or booleans, text for all others.
func (v *vmOptions) jsonValue(name, value string) any {
	o, ok := v.byName[name]
	if name == "snaptime" || ok && (o.Type == schema.Integer || o.Type == schema.Boolean) {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			return n
		}
	}
	if ok && o.Type == schema.Number {
		if f, err := strconv.ParseFloat(value, 64); err == nil {
			return f
		}
	}
	return value
}

// params are the descriptions of all options, for the calls that set them.
func optionParams() []schema.Param {
	var ps []schema.Param
	for _, o := range vmOptionTable() {
		ps = append(ps, o.Param)
	}
	return ps
}

// diskSlots lists the names of all drives, in the order the API gives them.
func diskSlots(more ...string) []string {
	var names []string
	for _, bus := range []struct {
		name  string
		count int
	}{{"ide", 4}, {"scsi", 31}, {"virtio", 16}, {"sata", 6}} {
		for i := range bus.count {
			names = append(names, bus.name+strconv.Itoa(i))
		}
	}
	return append(names, more...)
}
