package proxmox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

// failure is every error of this package that a caller sees: what was done to
// what, why it did not work, what to do, and the one class it belongs to.
type failure struct {
	op, subject string
	cause, mend string
	class       error // a class of the orchestrator, *NotLatestError or *UnsupportedError
	err         error // what it came from; may be nil
	// retry says that the cluster did nothing and that the same call may work
	// a little later.
	retry bool
	// missing says that the VM itself does not exist.
	missing bool
	// foreign says that the VM is not the one the call made.
	foreign bool
	// forgotten says that the cluster does not know the task any more.
	forgotten bool
}

func (f *failure) Error() string {
	text := f.op + " " + f.subject + ": " + f.cause
	if f.mend != "" {
		text += "; " + f.mend
	}
	return text
}

// Unwrap gives the class, and the end of the context where that was the cause.
func (f *failure) Unwrap() []error {
	out := []error{f.class}
	if errors.Is(f.err, context.Canceled) {
		out = append(out, context.Canceled)
	} else if errors.Is(f.err, context.DeadlineExceeded) {
		out = append(out, context.DeadlineExceeded)
	}
	return out
}

// refuse makes a failure that the cluster was not asked about.
func refuse(op, subject string, class error, cause, mend string) *failure {
	return &failure{op: op, subject: subject, class: class, cause: cause, mend: mend}
}

// retriable reports whether err says that nothing was done and that the call
// may be made again.
func retriable(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.retry
}

// meaning is what a text of the cluster says.
type meaning struct {
	class error
	mend  string
	retry bool
}

// rule gives the meaning of the texts that match. unsupported makes the class
// an *UnsupportedError with the text as its What.
type rule struct {
	re          *regexp.Regexp
	class       error
	unsupported bool
	mend        string
	retry       bool
}

const (
	mendRole  = "give the token's role that privilege on that path (see savepoint doctor)"
	mendStore = "choose a ZFS, LVM-thin, RBD or qcow2 storage (see savepoint doctor)"
)

// rules is read from the top; the first match decides. Each text is from a
// task's exit status or an HTTP error of PVE 8.4 or 9.
var rules = []rule{
	// Who we are and what we may.
	{re: re(`only root can set|Only root may use this option`), class: orchestrator.ErrDenied, mend: "it needs root@pam's own login; do it on the node"},
	{re: re(`Permission check failed|permission denied - invalid csrf`), class: orchestrator.ErrDenied, mend: mendRole},
	{re: re(`protection mode enabled`), class: orchestrator.ErrDenied, mend: "somebody protected the vm; take the protection flag away first"},

	// Locks: nothing was done.
	{re: re(`VM is locked \(`), class: orchestrator.ErrBusy, retry: true, mend: "wait for the task that holds the lock; if no task runs the lock is stale: run qm unlock on the node as root"},
	{re: re(`can't lock file .* - got timeout|cfs-lock .* error: got lock|got lock request timeout|trying to acquire lock|Failed to obtain guest migration lock`), class: orchestrator.ErrBusy, retry: true, mend: "other tasks hold the cluster's file locks; try again"},
	{re: re(`detected modified configuration|checksum mismatch \(file change`), class: orchestrator.ErrBusy, retry: true, mend: "somebody else changed the configuration; read it again"},
	{re: re(`is running - destroy failed`), class: orchestrator.ErrBusy, mend: "stop the vm first"},
	{re: re(`still in use by linked clone`), class: orchestrator.ErrBusy, mend: "destroy its linked clones first"},
	{re: re(`dataset is busy|dataset busy|pending changes at`), class: orchestrator.ErrBusy, mend: "something else uses it; try again"},

	// Nothing was started.
	{re: re(`got no worker upid|starting worker failed`), class: orchestrator.ErrUnavailable, retry: true, mend: "the node could not start a worker; try again"},
	{re: re(`no quorum|cluster not ready`), class: orchestrator.ErrUnavailable, mend: "the cluster has no quorum and is read-only; bring nodes back"},
	{re: re(`hostname lookup '[^']*' failed`), class: orchestrator.ErrUnavailable, mend: "the cluster does not know that node; check its name"},

	// The worker died: how far it came is not known.
	{re: re(`\Aunexpected status|unable to read tail|unable to get last line from task log|received interrupt|interrupted by signal`), class: orchestrator.ErrUnknownOutcome, mend: "the task was killed; look at the vm's lock and snapshots"},

	// Taken.
	{re: re(`snapshot name '[^']*' already used`), class: orchestrator.ErrExists, mend: "use another name or delete that snapshot"},
	{re: re(`config file already exists|VM \d+ already exists|CT \d+ already exists`), class: orchestrator.ErrExists, mend: "choose another vm id"},

	// The cluster cannot do it here.
	{re: re(`snapshot feature is not available`), unsupported: true, mend: mendStore},
	{re: re(`Linked clone feature is not supported`), unsupported: true, mend: "make a full clone, or put the template on a storage that links (ZFS, LVM-thin, RBD, qcow2)"},
	{re: re(`Full clone feature is not supported`), unsupported: true, mend: "clone from a template instead of from a snapshot"},
	{re: re(`can't clone VM to node|can't clone to non-shared storage`), unsupported: true, mend: "use a template on the node where the vm shall be"},
	{re: re(`not allowed for linked clones`), unsupported: true, mend: "leave the storage out, or make a full clone"},
	{re: re(`if it's a template|template to a template`), unsupported: true, mend: "name the sandbox's vm, not its template"},
	{re: re(`rollback to incomplete snapshot`), unsupported: true, mend: "an interrupted task left the snapshot incomplete; delete it"},
	{re: re(`bridge '[^']*' does not exist`), unsupported: true, mend: "create the bridge or vnet on the node, or configure another"},
	{re: re(`storage '[^']*' does not exist|No such storage`), unsupported: true, mend: "configure a storage that the node has (see savepoint doctor)"},
	{re: re(`storage '[^']*' does not support|does not contain .*content|content type '[^']*' is not`), unsupported: true, mend: "choose a storage with that content type (see savepoint doctor)"},
	{re: re(`Parameter verification failed|Method '.*' not implemented|unexpected property|no options specified`), unsupported: true, mend: "savepoint sent what this Proxmox VE does not take; check that it is version 8.4 or 9"},

	// Gone.
	{re: re(`no such option|unable to open file|No such file or directory|unable to activate storage`), class: orchestrator.ErrUnknownOutcome, mend: "look at the task's log on the node"},
	{re: re(`does not exist|unable to find configuration file|no such `), class: orchestrator.ErrNotFound, mend: "it is gone, or it is on another node"},
}

func re(s string) *regexp.Regexp { return regexp.MustCompile(`(?i)` + s) }

var (
	notLatestRE     = re(`can't rollback, '([^']*)' is not most recent snapshot`)
	configMissingRE = re(`configuration file '[^']*' does not exist|unable to find configuration file for VM \d+`)
	snapMissingRE   = re(`snapshot '[^']*' does not exist`)
	idTakenRE       = re(`(?:VM|CT) \d+ already exists`)
	alreadyRunsRE   = re(`\AVM \d+ already running`)
	vmLockedRE      = re(`VM is locked \(`)
	agentMissingRE  = re(`No QEMU guest agent configured`)
)

// meaningOf reads a text; ok is false for one that no rule knows.
func meaningOf(text string) (m meaning, ok bool) {
	if sub := notLatestRE.FindStringSubmatch(text); sub != nil {
		return meaning{
			class: &orchestrator.NotLatestError{Name: orchestrator.SnapshotName(sub[1])},
			mend:  "delete the newer snapshots first",
		}, true
	}
	for _, r := range rules {
		if !r.re.MatchString(text) {
			continue
		}
		m := meaning{class: r.class, mend: r.mend, retry: r.retry}
		if r.unsupported {
			m.class = &orchestrator.UnsupportedError{What: text, Mend: r.mend}
		}
		return m, true
	}
	return meaning{}, false
}

// textOf returns what the cluster said, on one line; "" if it said nothing.
func textOf(err error) string {
	var task *pve.TaskFailedError
	if errors.As(err, &task) {
		return oneLine(task.ExitStatus)
	}
	var api *pve.APIError
	if !errors.As(err, &api) {
		return ""
	}
	text := oneLine(api.Message)
	for _, name := range slices.Sorted(maps.Keys(api.Errors)) {
		text += " " + name + ": " + oneLine(api.Errors[name])
	}
	return text
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// says reports whether the cluster's text in err, also inside a failure,
// matches.
func says(err error, re *regexp.Regexp) bool {
	var f *failure
	if errors.As(err, &f) {
		return f.err != nil && re.MatchString(textOf(f.err))
	}
	return re.MatchString(textOf(err))
}

// vmMissing reports whether err says that the VM does not exist, or is not on
// that node.
func vmMissing(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.missing || says(err, configMissingRE)
}

func isForbidden(err error) bool {
	var api *pve.APIError
	return errors.As(err, &api) && api.StatusCode == http.StatusForbidden
}

// explain turns any error of a request or a task into a failure. write says
// that the request was to change something.
func explain(op, subject string, err error, write bool) error {
	if err == nil {
		return nil
	}
	var done *failure
	if errors.As(err, &done) {
		return err
	}
	f := &failure{op: op, subject: subject, err: err}
	var task *pve.TaskFailedError
	var api *pve.APIError
	switch {
	case errors.As(err, &task):
		f.explainTask(task)
	case errors.As(err, &api):
		f.explainAPI(api, write)
	default:
		f.explainTransport(err, write)
	}
	return f
}

func (f *failure) take(m meaning) { f.class, f.mend, f.retry = m.class, m.mend, m.retry }

// explainTask: a failed task without a known text has an unknown outcome until
// somebody looked at what it left.
func (f *failure) explainTask(task *pve.TaskFailedError) {
	f.cause = textOf(task)
	if f.cause == "" {
		f.cause = "the task ended without a status"
	}
	if m, ok := meaningOf(f.cause); ok {
		f.take(m)
		return
	}
	f.class = orchestrator.ErrUnknownOutcome
	f.mend = "look at the task's log: " + string(task.UPID)
}

func (f *failure) explainAPI(api *pve.APIError, write bool) {
	f.cause = textOf(api)
	if f.cause == "" {
		f.cause = api.Status
	}
	defer f.blameNode(api)
	switch code := api.StatusCode; {
	case code == http.StatusUnauthorized:
		f.class = orchestrator.ErrDenied
		f.cause = fmt.Sprintf("the cluster refused the credentials (401 %s)", f.cause)
		f.mend = "check the token's id and secret, that it has not expired and that its user is enabled"
	case code == http.StatusForbidden:
		f.explainForbidden()
	case code == http.StatusTooManyRequests:
		f.class, f.retry = orchestrator.ErrUnavailable, true
		f.mend = "the cluster asks for fewer requests; try again later"
	case code == 595:
		f.class, f.retry = orchestrator.ErrUnavailable, true
		f.cause = "the entry node could not reach the vm's node (595 " + f.cause + ")"
		f.mend = "check that node"
	case code == 502 || code == 503 || code == 504 || code >= 596:
		f.cause = fmt.Sprintf("no answer from the vm's node (%d %s)", code, f.cause)
		f.lost(write)
	default:
		if m, ok := meaningOf(f.cause); ok {
			f.take(m)
			return
		}
		if code == http.StatusNotFound {
			f.class = orchestrator.ErrNotFound
			return
		}
		f.lost(write)
	}
}

var (
	nodeInPathRE = regexp.MustCompile(`/nodes/([^/]+)`)
	noSuchNodeRE = re(`hostname lookup '[^']*' failed`)
)

// blameNode names the node where it is what was not reached, so that callers can
// tell it from a cluster that does not answer.
func (f *failure) blameNode(api *pve.APIError) {
	sub := nodeInPathRE.FindStringSubmatch(api.Path)
	if sub == nil || !errors.Is(f.class, orchestrator.ErrUnavailable) {
		return
	}
	if api.StatusCode >= 595 || noSuchNodeRE.MatchString(f.cause) {
		f.class = &orchestrator.NodeError{Node: sub[1]}
		f.mend = "check node " + sub[1] + "; what is on it can be used when it is back"
	}
}

var forbiddenRE = regexp.MustCompile(`\((/[^,()]*), ([^()]*)\)`)

// explainForbidden names the path and the privilege.
func (f *failure) explainForbidden() {
	f.class = orchestrator.ErrDenied
	f.mend = mendRole
	if sub := forbiddenRE.FindStringSubmatch(f.cause); sub != nil {
		f.cause = fmt.Sprintf("privilege %s is missing on %s", strings.ReplaceAll(sub[2], "|", " or "), sub[1])
	}
}

// lost is a request without a usable answer.
func (f *failure) lost(write bool) {
	if write {
		f.class = orchestrator.ErrUnknownOutcome
		f.mend = "it may have been done; look at the vm's tasks and state before doing anything"
		return
	}
	f.class = orchestrator.ErrUnavailable
	f.mend = "try again; savepoint doctor tells whether the cluster answers"
}

func (f *failure) explainTransport(err error, write bool) {
	var verification *tls.CertificateVerificationError
	var pin *pinError
	var te *transportError
	switch {
	case errors.As(err, &verification):
		f.class = orchestrator.ErrDenied
		f.cause = "the api's certificate is not trusted: " + verification.Err.Error()
		if certs := verification.UnverifiedCertificates; len(certs) > 0 {
			f.cause += fmt.Sprintf(" (presented: issuer %q, SHA-256 %s)", certs[0].Issuer.String(), colons(fingerprint(certs[0])))
		}
		f.mend = "set ca_file to the cluster's /etc/pve/pve-root-ca.pem and the url to a name in the certificate"
	case errors.As(err, &pin):
		f.class = orchestrator.ErrDenied
		f.cause = pin.Error()
		f.mend = "somebody is in between, or the certificate was renewed: check it and change the pin"
	case errors.As(err, &te) && !te.sent:
		f.class = orchestrator.ErrUnavailable
		f.cause = "the cluster was not reached: " + te.Error()
		f.mend = "check the url, and that pveproxy runs on that host"
	case errors.Is(err, errRedirect):
		f.class = orchestrator.ErrUnavailable
		f.cause = errRedirect.Error()
		f.mend = "set the url to the API itself, https://host:8006"
	default:
		f.cause = "the answer was lost: " + err.Error()
		f.lost(write)
	}
}

// maybeDone reports whether a write that failed with err may have been done.
func maybeDone(err error) bool {
	return errors.Is(explain("", "", err, true), orchestrator.ErrUnknownOutcome)
}

// noAnswer reports whether err is an HTTP status of somebody in between, which
// leaves open whether the request was carried out.
func noAnswer(err error) bool {
	var api *pve.APIError
	return errors.As(err, &api) && (api.StatusCode == 502 || api.StatusCode == 503 || api.StatusCode == 504 || api.StatusCode >= 596)
}

// refused reports whether err is the cluster's own error answer: whatever the
// request was to start was not started.
func refused(err error) bool {
	var api *pve.APIError
	return errors.As(err, &api) && !noAnswer(err)
}

// unexplained reports whether failed is a failure that the cluster put into
// words without a known meaning, so that a look at the state can tell what it
// came to. A request without an answer is not: its task may still begin.
func unexplained(ctx context.Context, failed error) (*failure, bool) {
	var f *failure
	if !errors.As(failed, &f) || !errors.Is(f.class, orchestrator.ErrUnknownOutcome) || ctx.Err() != nil {
		return nil, false
	}
	var task *pve.TaskFailedError
	return f, errors.As(f.err, &task) || refused(f.err)
}

// halfway reports whether failed is a task that met a busy storage, or one that
// did not get a file or storage lock of the cluster. Both stop it anywhere on its
// way, so only what it left tells whether it had begun. A lock on the VM itself
// stops a task before anything.
func halfway(ctx context.Context, failed error) (*failure, bool) {
	var f *failure
	if !errors.As(failed, &f) || !errors.Is(f.class, orchestrator.ErrBusy) || says(f, vmLockedRE) || ctx.Err() != nil {
		return nil, false
	}
	var task *pve.TaskFailedError
	return f, errors.As(f.err, &task)
}
