package pve

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"savepoint/testbed/pve/task"
)

// drive is a parsed disk or CD option.
type drive struct {
	slot  string
	props map[string]string
}

// parseDrive reads a drive's option, which was checked before.
func (v *vmOptions) parseDrive(slot, value string) (drive, error) {
	bus, _ := splitName(slot)
	p := v.drive[bus]
	if p == nil {
		return drive{}, fail("%s is no drive", slot)
	}
	props, err := p.Parse(slot, value)
	if err != nil {
		return drive{}, fail("unable to parse drive options of %s: %w", slot, err)
	}
	return drive{slot: slot, props: props}, nil
}

func (v *vmOptions) printDrive(d drive) string {
	bus, _ := splitName(d.slot)
	return v.drive[bus].Print(d.props)
}

func (d drive) file() string { return d.props["file"] }

// cdrom reports whether it is a read-only medium, the cloud-init drive included.
func (d drive) cdrom() bool {
	return d.props["media"] == "cdrom" || d.file() == "none" || d.file() == "cdrom" || d.cloudinit()
}

// cloudinit reports whether it is the cloud-init drive.
func (d drive) cloudinit() bool {
	return strings.Contains(d.file(), "-cloudinit") || strings.HasSuffix(d.file(), ":cloudinit")
}

// image reports whether it is a disk with a volume.
func (d drive) image() bool { return !d.cdrom() && strings.Contains(d.file(), ":") }

// drives lists the drives of a configuration, sorted by slot.
func (v *vmOptions) drives(o options) []drive {
	var ds []drive
	for k, value := range o {
		if busOf(k) == "" {
			continue
		}
		if d, err := v.parseDrive(k, value); err == nil {
			ds = append(ds, d)
		}
	}
	slices.SortFunc(ds, func(a, b drive) int {
		ba, na := splitName(a.slot)
		bb, nb := splitName(b.slot)
		if c := strings.Compare(ba, bb); c != 0 {
			return c
		}
		return na - nb
	})
	return ds
}

// images lists the drives with volumes that snapshots and clones cover.
func (v *vmOptions) images(o options) []drive {
	return slices.DeleteFunc(v.drives(o), func(d drive) bool { return !d.image() })
}

var (
	reNewDisk = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9_.-]*):(\d+(\.\d+)?)$`)
	reCI      = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9_.-]*):cloudinit$`)
)

// checkDrive says at once what is wrong with a drive that is to be set.
func (s *Server) checkDrive(c *call, vmid int, d drive) error {
	file := d.file()
	if file == "none" || file == "cdrom" {
		return nil
	}
	if strings.HasPrefix(file, "/") {
		if !c.who.root() {
			return fail("Only root can pass arbitrary filesystem paths.")
		}
		return nil
	}
	st, err := s.storage(storageID(file))
	if err != nil {
		return err
	}
	isNew := reNewDisk.MatchString(file) || reCI.MatchString(file)
	if isNew {
		if err := c.need("/storage/"+st.ID, "Datastore.AllocateSpace"); err != nil {
			return err
		}
		if !st.has("images") {
			return fail("storage '%s' does not support content-type 'images'", st.ID)
		}
	}
	if from := d.props["import-from"]; from != "" {
		if strings.HasPrefix(from, "/") && !c.who.root() {
			return fail("Only root can pass arbitrary filesystem paths.")
		}
		if _, err := s.importSource(from); err != nil {
			return err
		}
		if err := c.mayImport(from); err != nil {
			return err
		}
	}
	if isNew {
		return nil
	}
	if _, name, _ := strings.Cut(file, ":"); strings.HasPrefix(name, "iso/") {
		if _, err := s.contentFile(st, name); err != nil {
			return fail("volume '%s' does not exist", file)
		}
		return checkPrivs(s.access, c.who, "/storage/"+st.ID, true, "Datastore.Audit", "Datastore.AllocateSpace")
	}
	v, err := s.volume(file)
	if err != nil {
		return err
	}
	if v.VMID != vmid && !c.may("/storage/"+st.ID, "Datastore.Allocate") {
		return forbidden("/storage/" + st.ID + ", Datastore.Allocate")
	}
	return nil
}

// mayImport refuses a source of a new disk that the caller must not read.
func (c *call) mayImport(from string) error {
	if strings.HasPrefix(from, "/") {
		return nil // the superuser's, as was checked
	}
	storage := "/storage/" + storageID(from)
	if v, err := c.s.volume(from); err == nil {
		if c.may(storage, "Datastore.Allocate") {
			return nil
		}
		return c.need("/vms/"+itoa(v.VMID), privDisk)
	}
	return checkPrivs(c.s.access, c.who, storage, true, "Datastore.Audit", "Datastore.AllocateSpace")
}

// makeDrive allocates what a drive asks for and returns its final option.
func (s *Server) makeDrive(w *task.Worker, ctx context.Context, vmid int, d drive) (string, error) {
	file := d.file()
	if m := reCI.FindStringSubmatch(file); m != nil {
		st, err := s.storage(m[1])
		if err != nil {
			return "", err
		}
		v, err := s.reserve(w, st, vmid, "cloudinit", "qcow2", 4<<20, "")
		if err != nil {
			return "", err
		}
		d.props["file"], d.props["media"] = v.ID, "cdrom"
		return s.vmOpts.printDrive(d), nil
	}
	m := reNewDisk.FindStringSubmatch(file)
	if m == nil {
		if v, err := s.volume(file); err == nil && d.image() {
			d.props["size"] = sizeText(v.Size)
		}
		delete(d.props, "format")
		return s.vmOpts.printDrive(d), nil
	}
	st, err := s.storage(m[1])
	if err != nil {
		return "", err
	}
	format := d.props["format"]
	if format == "" {
		format = st.Format
	}
	var v volume
	if from := d.props["import-from"]; from != "" {
		v, err = s.importDisk(w, ctx, st, vmid, from, format)
	} else {
		gib, perr := strconv.ParseFloat(m[2], 64)
		if perr != nil || gib <= 0 {
			return "", fail("unable to create image: bad size '%s'", m[2])
		}
		v, err = s.allocate(ctx, w, st, vmid, "disk", format, int64(gib*(1<<30)))
	}
	if err != nil {
		return "", err
	}
	delete(d.props, "import-from")
	delete(d.props, "format")
	d.props["file"], d.props["size"] = v.ID, sizeText(v.Size)
	text := s.vmOpts.printDrive(d)
	if w != nil {
		w.Log("%s: successfully created disk '%s'", d.slot, text)
	}
	return text, nil
}

// importSource is the image that a new disk is filled from.
func (s *Server) importSource(from string) (Disk, error) {
	path := from
	if !strings.HasPrefix(from, "/") {
		if v, err := s.volume(from); err == nil {
			return v.disk(""), nil
		}
		st, err := s.storage(storageID(from))
		if err != nil {
			return Disk{}, err
		}
		_, name, _ := strings.Cut(from, ":")
		if path, err = s.contentFile(st, name); err != nil {
			return Disk{}, fail("volume '%s' does not exist", from)
		}
	}
	format := "raw"
	if filepath.Ext(path) == ".qcow2" {
		format = "qcow2"
	}
	return Disk{Path: path, Format: format}, nil
}

func (s *Server) importDisk(w *task.Worker, ctx context.Context, st Storage, vmid int, from, format string) (volume, error) {
	src, err := s.importSource(from)
	if err != nil {
		return volume{}, err
	}
	v, err := s.copyDisk(w, ctx, st, vmid, src, "", format, 0)
	if err != nil {
		return v, err
	}
	if v.Size, _, err = s.cfg.Disks.Size(ctx, v.disk("")); err != nil {
		return v, fail("import of '%s' failed: %w", from, err)
	}
	return v, s.saveVolume(w, v)
}

// copyDisk makes a volume with the content of an image, or of its snapshot.
// size is 0 when only the copy will tell it.
func (s *Server) copyDisk(w *task.Worker, ctx context.Context, st Storage, vmid int, src Disk, tag, format string, size int64) (volume, error) {
	v, err := s.reserve(w, st, vmid, "disk", format, size, "")
	if err != nil {
		return v, err
	}
	if err := s.prepareDir(v); err != nil {
		return v, err
	}
	if size > 0 {
		logFormatting(w, v, "")
	}
	if err := s.cfg.Disks.Copy(ctx, src, tag, v.disk("")); err != nil {
		return v, joinCleanup(fail("unable to create image: %w", err), s.dropVolume(v.ID))
	}
	if w != nil && !strings.HasPrefix(tag, cloneTag) && size > 0 {
		w.Log("transferred %s of %s (100.00%%)", humanSize(size), humanSize(size))
	}
	return v, nil
}

// sizeText writes a size in the largest unit that divides it.
func sizeText(n int64) string {
	for _, u := range []struct {
		unit  string
		bytes int64
	}{{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseSize reads "32G", "512M", "1.5G", "1048576".
func parseSize(text string) (int64, error) {
	unit := int64(1)
	if i := strings.IndexAny(text, "KMGT"); i >= 0 {
		unit = map[byte]int64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}[text[i]]
		text = text[:i]
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("bad size %q", text)
	}
	return int64(f * float64(unit)), nil
}

// humanSize writes a size for a log: "1.0 GiB".
func humanSize(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}
