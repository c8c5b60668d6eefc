package pve

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// options are the options of a VM, or of one of its snapshots, as text.
type options map[string]string

// vmConf is the configuration of one VM. Its file has one option per line,
// "key: value", then a section per snapshot and one for pending changes:
//
//	cores: 2
//	scsi0: local:100/vm-100-disk-0.qcow2,size=1G
//
//	[PENDING]
//	memory: 2048
//
//	[before]
//	cores: 1
//	snaptime: 1700000000
type vmConf struct {
	main    options
	pending options
	drop    []string           // options whose removal is pending, sorted
	snaps   map[string]options // by name
}

const pendingSection = "PENDING"

func newVMConf() *vmConf {
	return &vmConf{main: options{}, pending: options{}, snaps: map[string]options{}}
}

func (c *vmConf) clone() *vmConf {
	n := &vmConf{
		main: maps.Clone(c.main), pending: maps.Clone(c.pending), drop: slices.Clone(c.drop),
		snaps: make(map[string]options, len(c.snaps)),
	}
	for name, s := range c.snaps {
		n.snaps[name] = maps.Clone(s)
	}
	return n
}

var (
	escapes   = strings.NewReplacer("%", "%25", "\n", "%0A", "\r", "%0D")
	unescapes = strings.NewReplacer("%25", "%", "%0A", "\n", "%0D", "\r")
)

func writeOptions(b *strings.Builder, o options) {
	for _, k := range slices.Sorted(maps.Keys(o)) {
		fmt.Fprintf(b, "%s: %s\n", k, escapes.Replace(o[k]))
	}
}

// encode is the file's text; equal configurations have equal texts.
func (c *vmConf) encode() []byte {
	var b strings.Builder
	writeOptions(&b, c.main)
	if len(c.pending) > 0 || len(c.drop) > 0 {
		fmt.Fprintf(&b, "\n[%s]\n", pendingSection)
		if len(c.drop) > 0 {
			fmt.Fprintf(&b, "delete: %s\n", strings.Join(c.drop, ","))
		}
		writeOptions(&b, c.pending)
	}
	for _, name := range slices.Sorted(maps.Keys(c.snaps)) {
		fmt.Fprintf(&b, "\n[%s]\n", name)
		writeOptions(&b, c.snaps[name])
	}
	return []byte(b.String())
}

// digest names the configuration's content.
func (c *vmConf) digest() string {
	sum := sha1.Sum(c.encode())
	return hex.EncodeToString(sum[:])
}

// parseVMConf reads a file's text.
func parseVMConf(text []byte) (*vmConf, error) {
	c := newVMConf()
	section := c.main
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" {
			continue
		}
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			name := line[1 : len(line)-1]
			if name == pendingSection {
				section = c.pending
				continue
			}
			section = options{}
			c.snaps[name] = section
			continue
		}
		k, v, ok := strings.Cut(line, ": ")
		if !ok {
			k, v, ok = strings.Cut(line, ":")
		}
		if !ok || k == "" {
			return nil, fmt.Errorf("line %d: no option in %q", n+1, line)
		}
		section[k] = unescapes.Replace(v)
	}
	if d, ok := c.pending["delete"]; ok {
		c.drop = strings.Split(d, ",")
		delete(c.pending, "delete")
	}
	return c, nil
}

// locked is the complaint about a set lock, nil when there is none.
func (c *vmConf) locked() error {
	if l := c.main["lock"]; l != "" {
		return fail("VM is locked (%s)", l)
	}
	return nil
}

// template reports whether the VM is one.
func (c *vmConf) template() bool { return c.main["template"] == "1" }

// snapshot returns the options of a snapshot.
func (c *vmConf) snapshot(name string) (options, error) {
	if s, ok := c.snaps[name]; ok {
		return s, nil
	}
	return nil, fail("snapshot '%s' does not exist", name)
}
