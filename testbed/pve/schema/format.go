package schema

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

var (
	reNode    = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)
	reVMID    = regexp.MustCompile(`^[1-9][0-9]{2,8}$`)
	reConfig  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]+$`)
	reStorage = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]*[a-zA-Z0-9]$`)
	rePool    = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$`)
	reDNS     = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$`)
	reTag     = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.+-]*$`)
	reURL     = regexp.MustCompile(`^[-%a-zA-Z0-9_.!~*'()]*$`)
	reMAC     = regexp.MustCompile(`^[a-fA-F0-9][02468aceACE](:[a-fA-F0-9]{2}){5}$`)
	reBridge  = regexp.MustCompile(`^[-_.a-zA-Z0-9]+$`)
	reSize    = regexp.MustCompile(`^\d+(\.\d+)?[KMGT]?$`)
	reVolume  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]*[a-zA-Z0-9]:.+$`)
	reSDN     = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*[a-zA-Z0-9]$`)
	reTarget  = regexp.MustCompile(`^\d+:\d+$`)
	reRealm   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]+$`)

	reUser  = regexp.MustCompile(`^[^\s:/]+@[A-Za-z][A-Za-z0-9._-]+$`)
	reToken = regexp.MustCompile(`^[^\s:/]+@[A-Za-z][A-Za-z0-9._-]+![A-Za-z][A-Za-z0-9._-]+$`)
	reGroup = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	reEmail = regexp.MustCompile(`^([\w+~-]+(\.[\w+~-]+)*@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*)?$`)

	reController = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*[a-zA-Z0-9]$`)
)

// formats holds the check of each named format whose text matters. The texts
// end in a line break, as clients see them.
var formats = map[string]func(string) error{
	"pve-node":       match(reNode, "value does not look like a valid node name\n"),
	"pve-vmid":       match(reVMID, "value does not look like a valid VM ID\n"),
	"pve-configid":   quote(reConfig, "invalid configuration ID '%s'\n"),
	"pve-storage-id": quote(reStorage, "storage ID '%s' contains illegal characters\n"),
	"pve-poolid":     quote(rePool, "pool name '%s' contains invalid characters\n"),
	"pve-realm":      quote(reRealm, "value does not look like a valid realm\n"),
	"dns-name":       match(reDNS, "value does not look like a valid DNS name\n"),
	"urlencoded":     quote(reURL, "invalid urlencoded string: %s\n"),
	"mac-addr":       match(reMAC, "value does not look like a valid unicast MAC address\n"),
	"pve-bridge-id":  quote(reBridge, "invalid bridge name '%s'\n"),
	"disk-size":      match(reSize, "value does not look like a valid disk size\n"),
	"pve-volume-id":  match(reVolume, "unable to parse volume ID\n"),

	"pve-configid-list":              list(quote(reConfig, "invalid configuration ID '%s'\n")),
	"pve-storage-id-list":            list(quote(reStorage, "storage ID '%s' contains illegal characters\n")),
	"pve-vmid-list":                  list(match(reVMID, "value does not look like a valid VM ID\n")),
	"pve-tag-list":                   list(match(reTag, "invalid characters in tag\n")),
	"pve-task-status-type-list":      list(taskStatus),
	"address-list":                   list(address),
	"pve-storage-content":            content,
	"pve-storage-content-list":       list(content),
	"pve-volume-id-or-qm-path":       volumeOrPath,
	"pve-volume-id-or-absolute-path": volumeOrPath,
	"CIDR":                           cidr,

	"pve-userid":       quote(reUser, "value '%s' does not look like a valid user name\n"),
	"pve-userid-list":  list(quote(reUser, "value '%s' does not look like a valid user name\n")),
	"pve-tokenid-list": list(quote(reToken, "value '%s' does not look like a valid token ID\n")),
	"pve-groupid":      quote(reGroup, "group name '%s' contains invalid characters\n"),
	"pve-groupid-list": list(quote(reGroup, "group name '%s' contains invalid characters\n")),
	"pve-roleid":       quote(reGroup, "role name '%s' contains invalid characters\n"),
	"pve-roleid-list":  list(quote(reGroup, "role name '%s' contains invalid characters\n")),
	"email-opt":        match(reEmail, "value does not look like a valid email address\n"),

	"ip":                    ip,
	"ip-list":               list(ip),
	"pve-node-list":         list(match(reNode, "value does not look like a valid node name\n")),
	"pve-sdn-zone-id":       sdnID("zone", reSDN, 8),
	"pve-sdn-vnet-id":       sdnID("vnet", reSDN, 8),
	"pve-sdn-controller-id": sdnID("controller", reController, 64),
	"pve-sdn-subnet-id":     subnetID,
	"pve-sdn-bgp-rt-list":   list(match(reTarget, "value does not look like a valid bgp route-target\n")),
}

// newFormats are the checks that 9.x makes instead of those in formats: it
// tells of the pattern and the length, and nothing of the format.
var newFormats = map[string]func(string) string{
	"pve-sdn-zone-id":       patternThenLength(reSDN, 8),
	"pve-sdn-vnet-id":       patternThenLength(reSDN, 8),
	"pve-sdn-controller-id": patternThenLength(reController, 64),
}

func patternThenLength(re *regexp.Regexp, most int) func(string) string {
	return func(s string) string {
		switch {
		case !re.MatchString(s):
			return "value does not match the regex pattern"
		case len(s) > most:
			return fmt.Sprintf("value may only be %d characters long", most)
		}
		return ""
	}
}

func sdnID(what string, re *regexp.Regexp, most int) func(string) error {
	return func(s string) error {
		switch {
		case !re.MatchString(s):
			return fmt.Errorf("%s ID '%s' contains illegal characters\n", what, s)
		case len(s) > most:
			return fmt.Errorf("%s ID '%s' can't be more length than %d characters\n", what, s, most)
		}
		return nil
	}
}

// subnetID takes a network ("10.0.0.0/24") or the name of one in a zone
// ("zone1-10.0.0.0-24").
func subnetID(s string) error {
	if parts := strings.Split(s, "-"); len(parts) == 3 && !strings.Contains(s, "/") {
		s = parts[1] + "/" + parts[2]
	}
	return cidr(s)
}

func ip(s string) error {
	if _, err := netip.ParseAddr(s); err != nil {
		return errors.New("value does not look like a valid IP address\n")
	}
	return nil
}

func match(re *regexp.Regexp, text string) func(string) error {
	return func(s string) error {
		if re.MatchString(s) {
			return nil
		}
		return errors.New(text)
	}
}

func quote(re *regexp.Regexp, text string) func(string) error {
	return func(s string) error {
		if re.MatchString(s) {
			return nil
		}
		if !strings.Contains(text, "%s") {
			return errors.New(text)
		}
		return fmt.Errorf(text, s)
	}
}

// SplitList splits a list value at commas, semicolons, blanks and NULs.
func SplitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool {
		return r == ',' || r == ';' || r == 0 || r == ' ' || r == '\t' || r == '\n' || r == '\r'
	})
}

func list(one func(string) error) func(string) error {
	return func(s string) error {
		for _, e := range SplitList(s) {
			if err := one(e); err != nil {
				return err
			}
		}
		return nil
	}
}

func taskStatus(s string) error {
	switch s {
	case "ok", "error", "warning", "unknown":
		return nil
	}
	return fmt.Errorf("invalid status '%s'\n", s)
}

func content(s string) error {
	switch s {
	case "images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none":
		return nil
	}
	return fmt.Errorf("invalid content type '%s'\n", s)
}

func address(s string) error {
	if _, err := netip.ParseAddr(s); err == nil || reDNS.MatchString(s) {
		return nil
	}
	return fmt.Errorf("value does not look like a valid IP address or DNS name\n")
}

func cidr(s string) error {
	if _, err := netip.ParsePrefix(s); err != nil {
		return errors.New("value does not look like a valid CIDR network\n")
	}
	return nil
}

func volumeOrPath(s string) error {
	if s == "none" || s == "cdrom" || strings.HasPrefix(s, "/") || reVolume.MatchString(s) {
		return nil
	}
	return errors.New("unable to parse volume ID\n")
}
