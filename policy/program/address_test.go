package program

import "testing"

func TestMetadataAddressesInEverySpelling(t *testing.T) {
	for host, want := range map[string]bool{
		"169.254.169.254":           true,
		"169.254.170.2":             true,
		"2852039166":                true,
		"0xa9fea9fe":                true,
		"0xA9.0xFE.0xA9.0xFE":       true,
		"0251.0376.0251.0376":       true,
		"025177524776":              true,
		"169.254.43518":             true,
		"169.16689662":              true,
		"[::ffff:169.254.169.254]":  true,
		"::ffff:a9fe:a9fe":          true,
		"64:ff9b::a9fe:a9fe":        true,
		"fd00:ec2::254":             true,
		"FD00:0EC2:0:0:0:0:0:254":   true,
		"169.254.169.254.nip.io":    true,
		"x.169-254-169-254.nip.io":  true,
		"metadata.google.internal.": true,
		"100.100.100.200":           true,
		"":                          false,
		"localhost":                 false,
		"127.0.0.1":                 false,
		"2130706433":                false,
		"169.253.1.1":               false,
		"169.254.169.254.example":   false,
		"0xa9fe.0xa9fe":             false, // the first number has room for one byte
		"999999999999":              false,
		"::1":                       false,
		"example.org":               false,
	} {
		if got := isMetadata(host); got != want {
			t.Errorf("%q: got %v, want %v", host, got, want)
		}
	}
}
