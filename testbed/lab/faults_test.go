package lab

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"savepoint/testbed/pve"
)

// example is the list in FaultsHelp.
func example() string {
	_, list, _ := strings.Cut(FaultsHelp, "\n\n")
	list, _, _ = strings.Cut(list, "\n\n")
	return list
}

func faultsFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "faults.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What --help shows is what is read.
func TestFaultsExample(t *testing.T) {
	file := faultsFile(t, example())
	got, err := ReadFaults(file)
	if err != nil {
		t.Fatalf("%v in\n%s", err, example())
	}
	want := []pve.Fault{
		{Method: "POST", Path: "/nodes/*/qemu/*/snapshot", Nth: 2, Status: 596, Message: "Connection timed out"},
		{Path: "/cluster/sdn", Delay: 5 * time.Second, AfterEffect: true, Drop: true},
	}
	if !reflect.DeepEqual(got.List, want) || got.File != file || len(got.Digest) != 64 {
		t.Errorf("got %+v", got)
	}
	other, err := ReadFaults(faultsFile(t, example()+"\n"))
	if err != nil || other.Digest == got.Digest {
		t.Errorf("another file: %+v, %v; want another digest", other, err)
	}
}

// What a drill's author got wrong is said before anything starts.
func TestFaultsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":   "there is none",
		"[]": "there is none",
		"- {path: /version, drop: true}\n---\n[]": "more than one",
		"path: /version":                                         "cannot unmarshal",
		"- {pth: /version, drop: true}":                          "field pth not found",
		"- {path: /version}":                                     "fault 1: it does nothing",
		"- {drop: true}\n- {nth: -1, drop: true}":                "fault 2: nth -1",
		"- {method: get, drop: true}":                            `method "get"`,
		"- {path: version, drop: true}":                          `path "version"`,
		"- {path: /api2/json/version, drop: true}":               "below /api2/json",
		"- {path: '/nodes/[', drop: true}":                       `path "/nodes/["`,
		"- {delay: 5}":                                           "cannot unmarshal",
		"- {delay: -5s}":                                         "delay -5s",
		"- {delay: 1h}":                                          "delay 1h",
		"- {status: 200}":                                        "status 200",
		"- {status: 600}":                                        "status 600",
		"- {status: 500, drop: true}":                            "choose one",
		"- {message: no, drop: true}":                            "message without status",
		"- {status: 500, message: \"a\\r\\nSet-Cookie: b\"}":     "one line",
		"- {status: five hundred}":                               "cannot unmarshal",
		"- {nth: 2, nth: 3, drop: true}":                         "already defined",
		"- {path: /version, drop: true}\n- {path: /version, dr}": "field dr not found",
	} {
		if got, err := ReadFaults(faultsFile(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, got, err, want)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	if _, err := ReadFaults(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v; want the file", err)
	}
}
