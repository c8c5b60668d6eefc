package schema

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testSet() *Set {
	return NewSet("9",
		Int("vmid").Fmt("pve-vmid").Range(100, 999),
		Str("name").Opt().Fmt("dns-name"),
		Str("size").Opt().Match(`\+?\d+[KMG]?`),
		Int("n").Opt().Range(1, 5),
		Num("f").Opt().Min(0.5),
		Bool("b").Opt(),
		Str("long").Opt().Len(3).AtLeast(2),
		Str("kind").Opt().OneOf("a", "b"),
		Str("tags").Opt().Fmt("pve-tag-list"),
		List("cmd").Opt(),
		Str("disk").Opt().Times(2),
		Str("with").Opt().Needs("kind"),
		Str("old").Opt().To("8"),
		Str("new").Opt().From("9"),
		Str("net").Opt().PropStr(NewProps(
			Str("model").Default().OneOf("virtio", "e1000"),
			Str("mac").Opt(), Int("tag").Opt().Range(1, 10),
			Param{Name: "virtio", Alias: "mac", KeyAlias: "model"},
		)),
	)
}

func TestCheck(t *testing.T) {
	const undeclared = "property is not defined in schema and the schema does not allow additional properties"
	for _, tt := range []struct {
		name string
		in   Values
		want map[string]string
	}{
		{"good", Values{"vmid": "100", "name": "a.b", "size": "+1G", "n": json.Number("5"), "b": true, "disk1": "x", "new": "y"}, map[string]string{}},
		{"missing", Values{}, map[string]string{"vmid": "property is missing and it is not optional"}},
		{"format before bounds", Values{"vmid": "99"}, map[string]string{"vmid": "invalid format - value does not look like a valid VM ID\n"}},
		{"type", Values{"vmid": "x"}, map[string]string{"vmid": "type check ('integer') failed - got 'x'"}},
		{"all at once", Values{"vmid": "100", "n": "9", "f": "0.1", "b": "yes", "kind": "c", "zzz": "1", "disk2": "x", "old": "x"}, map[string]string{
			"n": "value must have a maximum value of 5", "f": "value must have a minimum value of 0.5",
			"b": "type check ('boolean') failed - got 'yes'", "kind": "value 'c' does not have a value in the enumeration 'a, b'",
			"zzz": undeclared, "disk2": undeclared, "old": undeclared,
		}},
		{"lengths", Values{"vmid": "100", "long": "äöüß"}, map[string]string{"long": "value may only be 3 characters long"}},
		{"short", Values{"vmid": "100", "long": "a"}, map[string]string{"long": "value must be at least 2 characters long"}},
		{"pattern", Values{"vmid": "100", "size": "1X"}, map[string]string{"size": "value does not match the regex pattern"}},
		{"array for a scalar", Values{"vmid": "100", "kind": []any{"a", "a"}}, map[string]string{"kind": "type check ('string') failed - got ARRAY"}},
		{"object", Values{"vmid": "100", "name": map[string]any{}}, map[string]string{"name": "type check ('string') failed - got HASH"}},
		{"requires", Values{"vmid": "100", "with": "x"}, map[string]string{"kind": "missing property - 'with' requires this property"}},
		{"property string", Values{"vmid": "100", "net": "tag=99,bogus=1"}, map[string]string{
			"net": "invalid format - format error\nnet.bogus: " + undeclared + "\nnet.model: property is missing and it is not optional\nnet.tag: value must have a maximum value of 10\n",
		}},
		{"null passes", Values{"vmid": "100", "name": nil}, map[string]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, testSet().Check(tt.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNormalisation(t *testing.T) {
	v := Values{"vmid": json.Number("100"), "b": false, "tags": []any{"x", "y"}, "cmd": "one"}
	if errs := testSet().Check(v); len(errs) > 0 {
		t.Fatal(errs)
	}
	if v.Int("vmid", 0) != 100 || v.Str("b") != "0" || v.Str("tags") != "x,y" {
		t.Errorf("values %v", v)
	}
	if got := v.Strings("cmd"); len(got) != 1 || got[0] != "one" {
		t.Errorf("scalar for an array: %v", got)
	}
	if v.Int("absent", 7) != 7 || v.Bool("absent") {
		t.Error("defaults of absent values")
	}
	open := NewSet("9").AllowMore()
	if errs := open.Check(Values{"x": "1"}); len(errs) > 0 {
		t.Errorf("open set: %v", errs)
	}
}

func TestPropsRoundTrip(t *testing.T) {
	p, _ := testSet().Lookup("net")
	for in, want := range map[string]string{
		"virtio":              "virtio",
		"virtio=AA,tag=3":     "virtio=AA,tag=3",
		"tag=3,model=virtio":  "virtio,tag=3",
		"model=virtio,mac=BB": "virtio=BB",
		"e1000,tag=2,,mac=CC": "e1000,mac=CC,tag=2",
	} {
		got, err := p.Props.Parse("net", in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if text := p.Props.Print(got); text != want {
			t.Errorf("%s: printed %s, want %s", in, text, want)
		}
	}
	for _, bad := range []string{"virtio,virtio=A", "a=b", "=x", "virtio,tag=", "virtio,e1000"} {
		if _, err := p.Props.Parse("net", bad); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, tt := range []struct {
		format    string
		good, bad []string
	}{
		{"pve-configid", []string{"a1", "A_-"}, []string{"a", "1a", "a.b", "-a", "ä1", ""}},
		{"pve-storage-id", []string{"local", "local-zfs", "a.b"}, []string{"l", "1a", "a/", "a-"}},
		{"pve-poolid", []string{"a", "a/b/c"}, []string{"a b", "a/b/c/d", "/a"}},
		{"dns-name", []string{"a", "a-b.c"}, []string{"-a", "a_b", "a..b", "a-"}},
		{"pve-tag-list", []string{"a;b c,d", "A+b.c"}, []string{"!!", "a;-b"}},
		{"urlencoded", []string{"ssh%20a"}, []string{"a b", "a+b", "ä"}},
		{"mac-addr", []string{"02:00:00:00:01:10"}, []string{"03:00:00:00:01:10", "02:00:00"}},
		{"CIDR", []string{"10.0.0.0/24"}, []string{"10.0.0.0"}},
		{"address-list", []string{"10.0.0.1 ::1"}, []string{"10.0.0.1 _"}},
		{"pve-volume-id-or-qm-path", []string{"none", "/dev/x", "local:1"}, []string{"x"}},
		{"pve-storage-content-list", []string{"images,iso"}, []string{"images,x"}},
		{"ip-list", []string{"10.0.0.1,::1", ""}, []string{"nothost!", "10.0.0.1,x"}},
		{"pve-node-list", []string{"a,b-c"}, []string{"a,-b"}},
		{"pve-sdn-zone-id", []string{"z1", "abcdefgh"}, []string{"a", "1z", "z-1", "z_1", "abcdefghi"}},
		{"pve-sdn-controller-id", []string{"c1", "a-b_c"}, []string{"c", "9c", "c-"}},
		{"pve-sdn-subnet-id", []string{"10.0.0.0/24", "z1-10.0.0.0-24", "z1-fd00::-64"}, []string{"bogus", "z1-10.0.0.0", "z1-x-24"}},
		{"pve-sdn-bgp-rt-list", []string{"65000:1,65000:2"}, []string{"bogus"}},
		{"disk-size", []string{"1G", "1.5T", "5"}, []string{"G", "-1"}},
	} {
		for _, s := range tt.good {
			if err := formats[tt.format](s); err != nil {
				t.Errorf("%s: %q refused: %v", tt.format, s, err)
			}
		}
		for _, s := range tt.bad {
			err := formats[tt.format](s)
			if err == nil {
				t.Errorf("%s: %q accepted", tt.format, s)
			} else if text := err.Error(); text[len(text)-1] != '\n' {
				t.Errorf("%s: text %q without its line break", tt.format, text)
			}
		}
	}
}

// 9.x tells of the pattern and the length of an id where 8.x tells of the format.
func TestFormatByVersion(t *testing.T) {
	for _, tt := range []struct{ major, in, want string }{
		{"8", "a", "invalid format - zone ID 'a' contains illegal characters\n"},
		{"8", "toolong9x", "invalid format - zone ID 'toolong9x' can't be more length than 8 characters\n"},
		{"9", "a", "value does not match the regex pattern"},
		{"9", "toolong9x", "value may only be 8 characters long"},
		{"8", "good1", ""},
		{"9", "good1", ""},
	} {
		errs := NewSet(tt.major, Str("zone").Fmt("pve-sdn-zone-id")).Check(Values{"zone": tt.in})
		if errs["zone"] != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.major, tt.in, errs["zone"], tt.want)
		}
	}
}

// Whatever a property string holds, parsing ends, and what it accepts it
// accepts again in its printed form.
func FuzzProps(f *testing.F) {
	for _, s := range []string{"virtio=AA,tag=3", ",,,", "a=b=c", "virtio,tag=9", "=", "model=e1000,mac=,"} {
		f.Add(s)
	}
	p, _ := testSet().Lookup("net")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := p.Props.Parse("net", s)
		if err != nil {
			return
		}
		again, err := p.Props.Parse("net", p.Props.Print(got))
		if err != nil {
			t.Fatalf("%q: printed form refused: %v", s, err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("%q: %s", s, diff)
		}
	})
}
