package proxmox

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

// The texts that the cluster uses, as HTTP errors and as exit statuses of
// tasks, and what each means.
func TestTexts(t *testing.T) {
	unsupported := errors.New("unsupported")
	notLatest := errors.New("not latest")
	for _, tc := range []struct {
		text  string
		class error
		retry bool
	}{
		{"VM is locked (backup)", orchestrator.ErrBusy, true},
		{"VM is locked (snapshot-delete)", orchestrator.ErrBusy, true},
		{"can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout", orchestrator.ErrBusy, true}, // F34
		{"clone failed: can't lock file '/var/lock/pve-manager/pve-storage-data-zfs' - got timeout", orchestrator.ErrBusy, true},
		{"cfs-lock 'storage-x' error: got lock request timeout", orchestrator.ErrBusy, true}, // F36
		{"trying to acquire lock...", orchestrator.ErrBusy, true},
		{"Failed to obtain guest migration lock - replication running?", orchestrator.ErrBusy, true},
		{"detected modified configuration - file changed by other user? Try again.", orchestrator.ErrBusy, true},
		{"checksum mismatch (file change by other user?)", orchestrator.ErrBusy, true},
		{"VM 103 is running - destroy failed", orchestrator.ErrBusy, false},
		{"base volume 'local:100/base-100-disk-0.qcow2' is still in use by linked cloned", orchestrator.ErrBusy, false},
		{"got no worker upid - start worker failed", orchestrator.ErrUnavailable, true}, // F50
		{"starting worker failed: unable to create output file", orchestrator.ErrUnavailable, true},
		{"cluster not ready - no quorum?", orchestrator.ErrUnavailable, false},
		{"no quorum!", orchestrator.ErrUnavailable, false},
		{"hostname lookup 'pveX' failed - failed to get address info for: pveX", orchestrator.ErrUnavailable, false},
		{"unexpected status", orchestrator.ErrUnknownOutcome, false},
		{"unable to read tail (got 0 bytes)", orchestrator.ErrUnknownOutcome, false},
		{"command '/usr/bin/qemu-img' failed: received interrupt", orchestrator.ErrUnknownOutcome, false},
		{"clone failed: unable to create image: interrupted by signal", orchestrator.ErrUnknownOutcome, false},
		{"start failed: QEMU exited with code 1", orchestrator.ErrUnknownOutcome, false},
		{"snapshot name 's1' already used", orchestrator.ErrExists, false}, // F61
		{"unable to create VM 120: config file already exists", orchestrator.ErrExists, false},
		{"unable to create VM 110 - VM 110 already exists on node 'pve1'", orchestrator.ErrExists, false},
		{"snapshot feature is not available", unsupported, false},
		{"you can't take a snapshot if it's a template", unsupported, false},
		{"you can't start a vm if it's a template", unsupported, false},
		{"Linked clone feature is not supported for 'local:110/vm-110-disk-0.qcow2' (scsi0)", unsupported, false},
		{"Full clone feature is not supported for a snapshot of 'local-zfs:vm-102-disk-0' (scsi0)", unsupported, false}, // F83
		{"can't clone VM to node 'pve2' (VM uses local storage)", unsupported, false},
		{"unable to rollback to incomplete snapshot (snapstate = prepare)", unsupported, false},
		{"bridge 'vmbr9' does not exist", unsupported, false},
		{"storage 'nostore' does not exist", unsupported, false},
		{"can't rollback, 's1' is not most recent snapshot on 'local-zfs:vm-100-disk-0'", notLatest, false}, // F70
		{"can't rollback, 's1' is not most recent snapshot on '100/vm-100-disk-0.qcow2'", notLatest, false},
		{"snapshot 'nope' does not exist", orchestrator.ErrNotFound, false},
		{"can't rollback, snapshot 'X' does not exist on 'tank:vm-100-disk-0'", orchestrator.ErrNotFound, false}, // F74
		{"Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist", orchestrator.ErrNotFound, false},
		{"unable to find configuration file for VM 777 on node 'pve1'", orchestrator.ErrNotFound, false},
		{"can't remove VM 121 - protection mode enabled", orchestrator.ErrDenied, false},
		{"only root can set 'lock' config", orchestrator.ErrDenied, false},
		{"Permission check failed (/vms/100, VM.Snapshot)", orchestrator.ErrDenied, false},
	} {
		t.Run(tc.text, func(t *testing.T) {
			task := explain("do", "vm 100", &pve.TaskFailedError{UPID: testUPID, ExitStatus: tc.text}, true)
			api := explain("do", "vm 100", &pve.APIError{StatusCode: 500, Status: "500 " + tc.text, Message: tc.text}, true)
			for _, err := range []error{task, api} {
				var u *orchestrator.UnsupportedError
				var n *orchestrator.NotLatestError
				switch tc.class {
				case unsupported:
					if !errors.As(err, &u) || u.Mend == "" {
						t.Errorf("%v is no *UnsupportedError that says what to do", err)
					}
				case notLatest:
					if !errors.As(err, &n) || n.Name != "s1" {
						t.Errorf("%v is no *NotLatestError of s1", err)
					}
				default:
					wantClass(t, err, tc.class)
				}
				if retriable(err) != tc.retry {
					t.Errorf("retriable = %v", retriable(err))
				}
				wantText(t, err, "do vm 100: ")
				if !strings.Contains(err.Error(), "; ") {
					t.Errorf("%q does not say what to do", err)
				}
			}
		})
	}
}

func TestHTTPErrors(t *testing.T) {
	api := func(code int, message string, params map[string]string) error {
		return &pve.APIError{StatusCode: code, Status: http.StatusText(code), Message: message, Errors: params}
	}
	for _, tc := range []struct {
		name        string
		err         error
		read, write error
		says        []string
	}{
		{"401", api(401, "Authentication failed!", nil), orchestrator.ErrDenied, orchestrator.ErrDenied, []string{"credentials", "token"}},
		{"403, F117", api(403, "Permission check failed (/vms/100, VM.GuestAgent.FileRead|VM.GuestAgent.Unrestricted)", nil), orchestrator.ErrDenied, orchestrator.ErrDenied,
			[]string{"VM.GuestAgent.FileRead or VM.GuestAgent.Unrestricted", "/vms/100", "doctor"}},
		{"403 pool", api(403, "Permission check failed (pool 'nopool' does not exist)", nil), orchestrator.ErrDenied, orchestrator.ErrDenied, []string{"nopool"}},
		{"500 unknown", api(500, "strange", nil), orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, []string{"strange"}},
		{"595", api(595, "Connection refused", nil), orchestrator.ErrUnavailable, orchestrator.ErrUnavailable, []string{"595"}},
		{"596", api(596, "Broken pipe", nil), orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, []string{"596", "Broken pipe"}},
		{"599", api(599, "x", nil), orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, nil},
		{"400 no such task", api(400, "Parameter verification failed.", map[string]string{"upid": "no such task"}), nil, nil, []string{"no such task"}},
		{"sent and lost", &transportError{method: "POST", sent: true, err: errors.New("EOF")}, orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, []string{"EOF"}},
		{"never sent", &transportError{method: "POST", err: errors.New("connect: refused")}, orchestrator.ErrUnavailable, orchestrator.ErrUnavailable, []string{"refused", "url"}},
		{"not JSON", errors.New("invalid character '<'"), orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for write, class := range map[bool]error{false: tc.read, true: tc.write} {
				err := explain("do", "vm 100", tc.err, write)
				if class != nil {
					wantClass(t, err, class)
				}
				wantText(t, err, tc.says...)
			}
		})
	}
	var u *orchestrator.UnsupportedError
	err := explain("do", "vm", api(400, "Parameter verification failed.", map[string]string{"snapname": "invalid format", "b": "x"}), true)
	if !errors.As(err, &u) {
		t.Errorf("%v", err)
	}
	wantText(t, err, "b: x snapname: invalid format")
}

func TestExplainKeepsWhatIsExplained(t *testing.T) {
	inner := refuse("a", "b", orchestrator.ErrBusy, "c", "")
	if got := explain("x", "y", inner, true); got != error(inner) {
		t.Errorf("got %v", got)
	}
	if explain("x", "y", nil, true) != nil {
		t.Error("nil is explained")
	}
	lost := explain("x", "y", &transportError{method: "POST", sent: true, err: context.Canceled}, true)
	if !errors.Is(lost, context.Canceled) {
		t.Error("the end of the context is hidden")
	}
}
