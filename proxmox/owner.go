package proxmox

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// What savepoint owns carries two tags and one line at the beginning of its
// description:
//
//	tags         savepoint; savepoint-<instance>
//	sandbox      savepoint/1 instance=<instance> sandbox=<id> state=cloning|ready
//	template     savepoint/1 instance=<instance> template=<recipe> state=building|ready
//
// A sandbox's description is that line and nothing else; a template's may go
// on with text for people. state=cloning is written by the clone call itself,
// before the tags can be; such a VM may be destroyed on the strength of the
// description alone, and nothing else may be done to it.

const ownerTag = "savepoint"

func instanceTag(instance string) string { return ownerTag + "-" + instance }

const templateTag = ownerTag + "-template"

// mark is the machine-readable line of a description.
type mark struct {
	instance string
	sandbox  orchestrator.SandboxID // "" for a template
	recipe   string                 // "" for a sandbox
	state    string
}

const (
	stateCloning  = "cloning"
	stateBuilding = "building"
	stateReady    = "ready"
)

func (m mark) String() string {
	if m.recipe != "" {
		return fmt.Sprintf("savepoint/1 instance=%s template=%s state=%s", m.instance, m.recipe, m.state)
	}
	return fmt.Sprintf("savepoint/1 instance=%s sandbox=%s state=%s", m.instance, m.sandbox, m.state)
}

const instancePattern = `([a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?)`

var (
	sandboxMarkRE  = regexp.MustCompile(`\Asavepoint/1 instance=` + instancePattern + ` sandbox=([0-9a-z][0-9a-z-]{0,63}) state=(cloning|ready)\n?\z`)
	templateMarkRE = regexp.MustCompile(`\Asavepoint/1 instance=` + instancePattern + ` template=([0-9a-f]{16,64}) state=(building|ready)(?:\n(?s:.*))?\z`)
	sandboxIDRE    = regexp.MustCompile(`\A[0-9a-z][0-9a-z-]{0,63}\z`)
)

// parseMark reads a whole description; ok is false for anything but exactly
// what String writes (and, for a template, text for people below it).
func parseMark(description string) (m mark, ok bool) {
	if sub := sandboxMarkRE.FindStringSubmatch(description); sub != nil {
		return mark{instance: sub[1], sandbox: orchestrator.SandboxID(sub[2]), state: sub[3]}, true
	}
	if sub := templateMarkRE.FindStringSubmatch(description); sub != nil {
		return mark{instance: sub[1], recipe: sub[2], state: sub[3]}, true
	}
	return mark{}, false
}

// splitTags reads the tags property; the cluster accepts ';', ',' and blanks.
func splitTags(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
}

// ownerOf returns the mark of a VM that is provably ours: the instance in the
// description is this one, and both tags are there. A VM in state cloning is
// ours without tags.
func (c *Cluster) ownerOf(conf vmConfig) (mark, bool) {
	m, ok := parseMark(conf.text("description"))
	if !ok || m.instance != c.cfg.Instance {
		return mark{}, false
	}
	if m.state == stateCloning {
		return m, true
	}
	tags := splitTags(conf.text("tags"))
	if !slices.Contains(tags, ownerTag) || !slices.Contains(tags, instanceTag(c.cfg.Instance)) {
		return mark{}, false
	}
	return m, true
}

// checkOwner returns a denial unless the VM is the sandbox's. halfMade also
// lets a VM pass whose clone call did not come to its end.
func (c *Cluster) checkOwner(op string, vm orchestrator.VMRef, conf vmConfig, want orchestrator.SandboxID, halfMade bool) error {
	m, ok := c.ownerOf(conf)
	var cause string
	switch {
	case want == "":
		cause = "the request names no sandbox as owner"
	case !ok:
		cause = fmt.Sprintf("the vm is not provably savepoint's: its tags must hold %s and %s and its description must be our mark", ownerTag, instanceTag(c.cfg.Instance))
	case m.sandbox != want:
		cause = fmt.Sprintf("the vm belongs to sandbox %q, not to %q", m.sandbox, want)
	case m.state == stateCloning && !halfMade:
		cause = "the vm is half-made: its clone call did not come to its end"
	default:
		return nil
	}
	return refuse(op, vm.String(), orchestrator.ErrDenied, cause, "nothing was changed; compare the vm's notes and tags with savepoint sandbox show")
}
