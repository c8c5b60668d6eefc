package pve_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/testbed/pve"
)

// debian is Python as Debian's packages are for it.
const debian = "/usr/bin/python3"

// needLab skips outside the lab tier. In it a missing package is a failure.
func needLab(t *testing.T, probe ...string) {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("SAVEPOINT_LAB is not 1: needs Debian packages that only the lab's tests install")
	}
	if out, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: install what testbed/setup/packages.txt names\n%s", strings.Join(probe, " "), err, out)
	}
}

// clientsLab is a cluster as those who know nothing of savepoint find it: three
// nodes, a template 100, guests whose agent answers and that power down.
func clientsLab(t *testing.T, version string) *node {
	t.Helper()
	n := newNode(t, func(c *pve.Config) {
		c.Version = version
		c.Nodes = []string{"pve1", "pve2", "pve3"}
		c.Storages = []pve.Storage{{ID: "local"}, {ID: "nfs", Shared: true, Content: []string{"images"}}, {ID: "tank", Type: "zfspool"}}
	})
	n.makeVM("100", "&name=tpl&agent=1&cores=1")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	for _, id := range []int{201, 202} {
		n.mem.SetAgent(id, standIn())
		n.mem.SetPowerdown(id, true)
	}
	return n
}

// script runs a program with the API's secrets in its environment.
func (n *node) script(env []string, name string, args ...string) (string, error) {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), name, args...)
	secrets := n.srv.Credentials()
	cmd.Env = append(append(os.Environ(), "TOKEN="+secrets.Tokens["sp@pve!t1"].Reveal(), "PASSWORD="+secrets.Passwords["root@pam"].Reveal()), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Another client than the product's, in another language, that reads the
// reason of the status line and knows nothing of the lab.
func TestProxmoxer(t *testing.T) {
	needLab(t, debian, "-c", "import proxmoxer")
	for _, version := range []string{"8.4", "9.2"} {
		t.Run(version, func(t *testing.T) {
			n := clientsLab(t, version)
			out, err := n.script(nil, debian, "testdata/clients/walk.py", strings.TrimPrefix(n.url, "https://"), n.srv.CAFile(), version[:1])
			if err != nil || strings.TrimSpace(out) != "ok" {
				t.Fatalf("%v\n%s", err, out)
			}
			if paths := n.mem.Paths(); len(paths) != 1 {
				t.Errorf("images left: %v", fmt.Sprint(paths))
			}
		})
	}
}

// recap is what Ansible counts for a host.
type recap struct{ OK, Changed, Failures, Unreachable, Skipped int }

// playReport is the part of Ansible's report that is looked at.
type playReport struct {
	Stats map[string]recap
	Plays []struct {
		Tasks []struct {
			Task  struct{ Name string }
			Hosts map[string]struct {
				Failed bool
				Result any `json:"failed_when_result"`
				Msg    any
			}
		}
	}
}

// play runs the tasks of the playbook that have the tag.
func (n *node) play(env []string, tag string) recap {
	n.t.Helper()
	out, err := n.script(env, "ansible-playbook", "--tags", tag, "testdata/clients/life.yml")
	var report playReport
	if start := strings.Index(out, "{"); start < 0 || json.NewDecoder(strings.NewReader(out[start:])).Decode(&report) != nil {
		n.t.Fatalf("%s: %v\n%s", tag, err, out)
	}
	for _, p := range report.Plays {
		for _, task := range p.Tasks {
			if h := task.Hosts["localhost"]; h.Failed {
				n.t.Errorf("%s: %s: %v (condition: %v)", tag, task.Task.Name, h.Msg, h.Result)
			}
		}
	}
	got := report.Stats["localhost"]
	if err != nil || got.OK == 0 || got.Failures+got.Unreachable > 0 {
		n.t.Fatalf("%s: %v: %+v", tag, err, got)
	}
	return got
}

// Ansible's modules run a VM's life, trusting only the lab's CA, and what they
// promise to do once they do once.
func TestAnsible(t *testing.T) {
	needLab(t, "ansible-playbook", "--version")
	for _, version := range []string{"8.4", "9.2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := clientsLab(t, version)
			iso := filepath.Join(t.TempDir(), "install.iso")
			if err := os.WriteFile(iso, []byte("no medium"), 0o600); err != nil {
				t.Fatal(err)
			}
			home := t.TempDir() // Ansible keeps files in it
			env := []string{
				"HOST=" + strings.TrimPrefix(n.url, "https://"), "ISO=" + iso, "REQUESTS_CA_BUNDLE=" + n.srv.CAFile(),
				"HOME=" + home, "ANSIBLE_LOCAL_TEMP=" + home, "ANSIBLE_REMOTE_TEMP=" + home, "ANSIBLE_STDOUT_CALLBACK=ansible.posix.json",
				"ANSIBLE_PYTHON_INTERPRETER=" + debian, "ANSIBLE_PIPELINING=true", "ANSIBLE_LOCALHOST_WARNING=false", "LC_ALL=C.UTF-8",
			}
			for _, run := range []struct {
				tag, again    string
				done, changed int
				once          bool // one version is enough: each module takes a second or two
			}{
				{tag: "look", done: 6, once: true}, {tag: "make", done: 6, changed: 6}, {tag: "make", again: "1", done: 6, once: true},
				{tag: "change", done: 6, changed: 3}, {tag: "remove", done: 5, changed: 5}, {tag: "remove", again: "1", done: 2, once: true},
			} {
				if run.once && version == "8.4" {
					continue
				}
				if got := n.play(append(env, "AGAIN="+run.again), run.tag); got.OK != run.done || got.Changed != run.changed {
					t.Errorf("%s%s: %+v, want %d done and %d changed", run.tag, run.again, got, run.done, run.changed)
				}
				if run.tag == "make" && run.again != "" {
					n.inventory(env)
				}
			}
			if paths := n.mem.Paths(); len(paths) != 1 {
				t.Errorf("images left: %v", paths)
			}
		})
	}
}

// inventory reads the cluster by Ansible's inventory.
func (n *node) inventory(env []string) {
	n.t.Helper()
	out, err := n.script(env, "ansible-inventory", "-i", "testdata/clients/lab.proxmox.yml", "--list")
	var got struct {
		Meta struct {
			Vars map[string]map[string]any `json:"hostvars"`
		} `json:"_meta"`
		Running struct{ Hosts []string } `json:"proxmox_all_running"`
		Nodes   struct{ Hosts []string } `json:"proxmox_nodes"`
	}
	if start := strings.Index(out, "{"); err == nil && start >= 0 {
		err = json.NewDecoder(strings.NewReader(out[start:])).Decode(&got)
	}
	if err != nil || fmt.Sprint(got.Running.Hosts, got.Nodes.Hosts) != "[box] [pve1 pve2 pve3]" ||
		fmt.Sprint(got.Meta.Vars["box"]["proxmox_snapshots"]) != "[before]" {
		n.t.Errorf("inventory: %v\n%s", err, out)
	}
}
