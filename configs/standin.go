package configs

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// standIn is what stands in examples and printed set-ups for a value that only
// the reader knows: <node>, CHANGE-ME, AAAA..., xxxx, and the example's SSH key.
var standIn = regexp.MustCompile(`<[^<>]*>|(?i:\b(?:change|replace)[-_ ]?(?:me|this)\b)|\.\.\.|…|^(?i:x{3,}|todo|tbd|fixme|placeholder)$|ExampleExample`)

// capitals are the words that savepoint doctor --setup prints for what the
// configuration does not say.
var capitals = []string{"STORAGE", "NODE", "POOL", "POOL/savepoint", "SUBNET", "HOST:PORT"}

// mayHold are keys whose values can hold what looks like a stand-in.
var mayHold = []string{"redact", "state_dir"}

// standIns refuses stand-ins that were left where a value belongs: most have the
// form of one, and what would come of them is an error of something else later.
func (k checker) standIns() {
	for _, leaf := range keys() {
		if slices.Contains(mayHold, leaf.name) {
			continue
		}
		v := reflect.ValueOf(*k.c).FieldByIndex(leaf.index)
		if found := findStandIn(v); found != "" {
			k.bad(leaf.name, fmt.Sprintf("still has the stand-in %q", found), "put the real value there, or remove the key if it is not needed")
		}
	}
	if f := strings.ToLower(strings.ReplaceAll(k.c.Cluster.Fingerprint, ":", "")); len(f) == 64 && strings.Count(f, f[:2]) == 32 {
		k.bad("cluster.fingerprint", "is an example: all of its bytes are the same",
			"openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem, on a node, prints the real one")
	}
}

// findStandIn returns the first stand-in of a value, "" for none.
func findStandIn(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return standInOf(v.String())
	case reflect.Slice:
		for i := range v.Len() {
			if found := findStandIn(v.Index(i)); found != "" {
				return found
			}
		}
	case reflect.Struct:
		if s, ok := v.Interface().(Secret); ok {
			if standInOf(s.Reveal()) != "" {
				return redacted // it may be more than that
			}
			return ""
		}
		if !isSection(v.Type()) {
			return ""
		}
		for i := range v.NumField() {
			if found := findStandIn(v.Field(i)); found != "" {
				return found
			}
		}
	default: // holds no text
	}
	return ""
}

func standInOf(text string) string {
	if slices.Contains(capitals, text) {
		return text
	}
	return standIn.FindString(text)
}
