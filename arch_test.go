// Package savepoint_test holds the rules of the whole module as tests: who may
// import whom, which calls are not to be made, how large a file may be. They
// are written as tables with a reason for each entry. Change the code, not the
// table; a table that is relaxed to make a build pass protects nothing.
package savepoint_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "savepoint"

// layers says what each part of the module may import from the module besides
// what is below itself. The first entry that matches a package counts. A path
// that ends in "/" stands for everything below it, else for the package alone.
// Tests may import anything but cmd: they put real parts together.
var layers = []struct {
	pkg    string
	may    []string
	reason string
}{
	{"configs/", nil, "it is read by cmd alone; cmd maps its values onto the Config of each package"},
	{"policy/", []string{"policy/"}, "decisions are pure: they depend on nothing that acts"},
	{"network/", []string{"network/"}, "planning is pure: it depends on nothing that acts"},
	{"orchestrator", []string{"policy", "network/"}, "the engine defines the ports; what implements them depends on it, never the reverse"},
	{"orchestrator/", []string{"orchestrator", "policy", "network/"}, "adapters depend on the engine's ports and never on one another; cmd puts them together"},
	{"proxmox/", []string{"orchestrator", "policy", "network/"}, "adapters depend on the engine's ports and never on one another; cmd puts them together"},
	{"testbed/", []string{"configs", "policy/", "network/", "orchestrator/", "proxmox/", "testbed/"}, "the testbed may use everything but the command line"},
	{"cmd/", []string{"configs", "policy/", "network/", "orchestrator/", "proxmox/", "testbed/"}, "the command line wires everything together, and nothing imports it"},
}

// owner is who keeps one dependency to itself.
type owner struct {
	dependency string
	by         []string
	reason     string
}

// owners says who may import what comes from outside. A dependency that is not
// here has no owner: decide who keeps it behind its own types, enter it here,
// in .golangci.yml and in CONTRIBUTING.md. "tests" stands for all _test.go files,
// "tests of P" for those of one package.
var owners = []owner{
	{"github.com/luthermonson/go-proxmox", []string{"proxmox", "tests of testbed/pve"}, "its types stay behind our ports; the lab is held against it as a client"},
	{"github.com/hashicorp/go-retryablehttp", []string{"proxmox"}, "what may be sent again is decided in one place"},
	{"github.com/spf13/viper", []string{"configs"}, "everybody else gets a plain struct"},
	{"github.com/spf13/cobra", []string{"cmd/"}, "only the command line parses arguments"},
	{"github.com/spf13/pflag", []string{"cmd/"}, "only the command line parses arguments"},
	{"modernc.org/sqlite", []string{"orchestrator/journal"}, "the database is a detail of the journal"},
	{"github.com/agnivade/levenshtein", []string{"configs", "policy"}, "both guess which name was meant, and neither may import the other"},
	{"mvdan.cc/sh/v3", []string{"policy/", "testbed/sim/"}, "shell text is judged in one place"},
	{"golang.org/x/crypto", []string{"orchestrator/sshexec", "testbed/"}, "one client holds the host key checks; the testbed has the servers"},
	{"github.com/rs/zerolog", []string{"cmd/", "proxmox/", "orchestrator/journal", "orchestrator/sshexec", "orchestrator/provision", "orchestrator/agent", "orchestrator/serve", "testbed/"}, "policy, network and the engine's core do not log; they return errors and events"},
	{"go.yaml.in/yaml/v3", []string{"configs", "policy/", "orchestrator/agent", "testbed/", "cmd/"}, "files are read strictly by the package that owns their form"},
	{"github.com/oklog/ulid/v2", []string{"orchestrator/", "testbed/", "cmd/"}, "ids are made by the engine and given to everybody else"},
	{"github.com/diskfs/go-diskfs", []string{"testbed/"}, "only the lab makes disk images"},
	{"github.com/aclements/go-moremath", []string{"testbed/bench"}, "statistics are made in one place"},
	{"golang.org/x/sync", []string{"orchestrator/", "proxmox/", "testbed/", "cmd/"}, "decisions and plans are not concurrent"},
	{"golang.org/x/sys", []string{"orchestrator/journal", "testbed/", "cmd/"}, "system calls stay with file locks, the lab and the terminal"},
	{"golang.org/x/term", []string{"cmd/"}, "only the command line has a terminal"},
	{"github.com/google/go-cmp", []string{"tests", "testbed/conformance/"}, "for comparing in tests"},
	{"github.com/rogpeppe/go-internal", []string{"tests"}, "for test scripts"},
	{"go.uber.org/goleak", []string{"tests", "testbed/conformance/"}, "for finding goroutines that tests leave"},
}

// within reports whether a package, named without the module, is one of the
// patterns.
func within(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return pkg == strings.TrimSuffix(p, "/") || strings.HasSuffix(p, "/") && strings.HasPrefix(pkg, p)
	})
}

// listed is one package as go list prints it.
type listed struct {
	ImportPath                         string
	Module                             *struct{ Path string }
	Imports, TestImports, XTestImports []string
}

// name is the package without the module: "" for the root.
func (p listed) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func (p listed) ours() bool { return p.Module != nil && p.Module.Path == module }

// goList runs go list without a network; what the build needs is there.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	if testing.Short() {
		t.Skip("runs go list")
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Module,Imports,TestImports,XTestImports"}, args...)...)
	cmd.Env = append(os.Environ(), "GOPROXY=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// The arrows between our own packages point inward.
func TestLayers(t *testing.T) {
	for _, p := range goList(t, "./...") {
		name := p.name()
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module+"/"); ours {
				if reason := forbiddenArrow(name, to); reason != "" {
					t.Errorf("%s imports %s: %s", name, to, reason)
				}
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if to, ours := strings.CutPrefix(imp, module+"/"); ours && within(to, []string{"cmd/"}) && !within(name, []string{"cmd/"}) {
				t.Errorf("a test of %s imports %s: nothing imports the command line", name, to)
			}
		}
	}
}

// forbiddenArrow returns why from must not import to, or "".
func forbiddenArrow(from, to string) string {
	for _, l := range layers {
		if !within(from, []string{l.pkg}) {
			continue
		}
		// Below itself: a package and its own sub-packages belong together,
		// but for the engine, whose sub-packages are adapters.
		own := from != "orchestrator" && strings.HasPrefix(to, from+"/")
		if own || within(to, l.may) {
			return ""
		}
		return l.reason
	}
	return "it is in no layer; enter it in the table of arch_test.go"
}

// The check of the arrows finds reversed ones, and lets the others pass.
func TestForbiddenArrow(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		allowed  bool
	}{
		{"policy", "orchestrator", false},
		{"policy/shell", "policy", true},
		{"policy", "network", false},
		{"network", "proxmox", false},
		{"orchestrator", "policy", true},
		{"orchestrator", "policy/shell", false},
		{"orchestrator", "orchestrator/journal", false},
		{"orchestrator", "proxmox", false},
		{"orchestrator/journal", "orchestrator", true},
		{"orchestrator/provision", "orchestrator/journal", false},
		{"orchestrator/serve", "orchestrator/serve/wire", true},
		{"proxmox", "orchestrator/sshexec", false},
		{"proxmox", "configs", false},
		{"proxmox", "testbed/pve", false},
		{"proxmox/zfs", "proxmox", false},
		{"proxmox/zfs", "orchestrator", true},
		{"configs", "orchestrator", false},
		{"testbed/lab", "cmd/savepoint", false},
		{"testbed/lab", "testbed/qemu", true},
		{"cmd/savepoint", "testbed/lab", true},
		{"elsewhere", "policy", false},
	} {
		if reason := forbiddenArrow(tt.from, tt.to); (reason == "") != tt.allowed {
			t.Errorf("%s imports %s: allowed %v, want %v (%s)", tt.from, tt.to, reason == "", tt.allowed, reason)
		}
	}
}

// What comes from outside stays behind its owner.
func TestOwners(t *testing.T) {
	pkgs := goList(t, "-deps", "-test", "./...")
	foreign := map[string]string{} // import path → module
	for _, p := range pkgs {
		if p.Module != nil && !p.ours() {
			foreign[strings.Fields(p.ImportPath)[0]] = p.Module.Path
		}
	}
	for _, p := range goList(t, "./...") {
		check := func(imports []string, who string, patterns func([]string) bool) {
			for _, imp := range imports {
				mod, isForeign := foreign[imp]
				if !isForeign {
					continue
				}
				i := slices.IndexFunc(owners, func(o owner) bool { return o.dependency == mod })
				if i < 0 {
					t.Errorf("%s imports %s: %s has no owner; name one in arch_test.go, .golangci.yml and CONTRIBUTING.md", who, imp, mod)
				} else if !patterns(owners[i].by) {
					t.Errorf("%s imports %s: only %s may: %s", who, imp, strings.Join(owners[i].by, ", "), owners[i].reason)
				}
			}
		}
		check(p.Imports, p.name(), func(by []string) bool { return within(p.name(), by) })
		check(append(p.TestImports, p.XTestImports...), "a test of "+p.name(), func(by []string) bool {
			return slices.Contains(by, "tests") || slices.Contains(by, "tests of "+p.name()) || within(p.name(), by)
		})
	}
}

// Every dependency of ours is explained to contributors, and none that is gone;
// the linter knows every owner.
func TestDependenciesAreExplained(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	lint, err := os.ReadFile(".golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(gomod)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) == 2 && strings.HasPrefix(f[1], "v") && !strings.Contains(string(text), "- `"+f[0]+"`: ") {
			t.Errorf("CONTRIBUTING.md does not say why %s is needed; add a line \"- `%s`: …\"", f[0], f[0])
		}
	}
	for _, o := range owners {
		if !strings.Contains(string(lint), o.dependency) {
			t.Errorf(".golangci.yml does not know who owns %s", o.dependency)
		}
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "- `")
		dep, _, ends := strings.Cut(rest, "`: ")
		if ok && ends && strings.Contains(dep, ".") && strings.Contains(dep, "/") && !strings.Contains(string(gomod), dep+" ") {
			t.Errorf("CONTRIBUTING.md explains %s, which go.mod does not have", dep)
		}
	}
}

// contextRoots are the packages whose objects live on their own, until Close,
// and not as long as the call that made them.
var contextRoots = map[string]string{
	"testbed/pve/task":  "a cluster task outlives the request that started it; Close ends it",
	"testbed/jump":      "the server's connections live until Close",
	"testbed/qemu":      "machines outlive every call; Close, which ends them, has no context by its contract",
	"testbed/pve/httpd": "the server's handlers live until Close",
}

// call is one function that is not to be used, and where it is.
type call struct {
	pkg, name string // import path and name; a name of "*" is every one
	allowed   func(pkg string, test bool) bool
	instead   string
}

// testCode are packages of suites that tests of several packages call.
var testCode = []string{"testbed/conformance/"}

func never(string, bool) bool            { return false }
func inTests(pkg string, test bool) bool { return test || within(pkg, testCode) }
func inCmd(pkg string, test bool) bool   { return test || within(pkg, []string{"cmd/"}) }
func isRoot(pkg string, test bool) bool  { return inCmd(pkg, test) || contextRoots[pkg] != "" }

// viperGlobal reports whether a name of package viper works on its global.
func viperGlobal(name string) bool {
	return !slices.Contains([]string{"New", "NewWithOptions", "Viper", "DecodeHook", "DecoderConfigOption", "Option", "KeyDelimiter"}, name)
}

var calls = []call{
	{"time", "Sleep", inTests, "wait for the condition: a timer or ticker with ctx"},
	{"fmt", "Print", inCmd, "write to an io.Writer that the caller gives"},
	{"fmt", "Printf", inCmd, "write to an io.Writer that the caller gives"},
	{"fmt", "Println", inCmd, "write to an io.Writer that the caller gives"},
	{"github.com/rs/zerolog/log", "*", never, "take a zerolog.Logger in the constructor"},
	{"log", "*", inTests, "take a zerolog.Logger in the constructor"},
	{"golang.org/x/crypto/ssh", "InsecureIgnoreHostKey", never, "ssh.FixedHostKey with the pinned key"},
	{"context", "Background", isRoot, "pass ctx on; context.WithoutCancel(ctx) with an own deadline for what must finish"},
	{"context", "TODO", never, "pass ctx on"},
	{"math/rand", "*", inTests, "crypto/rand for ids and secrets, math/rand/v2 with an explicit seed for simulations"},
}

// source is one parsed file of the module.
type source struct {
	path string // slash-separated, from the root
	pkg  string // directory, "" for the root
	test bool
	file *ast.File
	fset *token.FileSet
	size int // lines
}

// sources parses every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(p) != ".go":
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(p))
		if pkg == "." {
			pkg = ""
		}
		out = append(out, source{filepath.ToSlash(p), pkg, strings.HasSuffix(p, "_test.go"), f, fset, strings.Count(string(text), "\n")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("no Go files found")
	}
	return out
}

// Calls that the module does without; the message names the replacement.
func TestForbiddenCalls(t *testing.T) {
	for _, s := range sources(t) {
		for _, problem := range forbiddenCalls(s) {
			t.Error(problem)
		}
	}
}

func forbiddenCalls(s source) []string {
	var out []string
	report := func(n ast.Node, what, instead string) {
		out = append(out, fmt.Sprintf("%s: %s; instead: %s", s.fset.Position(n.Pos()), what, instead))
	}
	imported := map[string]string{} // name in the file → path
	for _, i := range s.file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = p
		for _, c := range calls {
			if c.pkg == p && (c.name == "*" || name == ".") && !c.allowed(s.pkg, s.test) {
				report(i, "imports "+p, c.instead)
				break
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil { // a variable that hides the import
				return true
			}
			p := imported[x.Name]
			for _, c := range calls {
				if c.pkg == p && c.name == n.Sel.Name && !c.allowed(s.pkg, s.test) {
					report(n, "uses "+x.Name+"."+c.name, c.instead)
				}
			}
			if p == "github.com/spf13/viper" && viperGlobal(n.Sel.Name) {
				report(n, "uses viper's global "+n.Sel.Name, "a viper.New() of its own")
			}
		case *ast.CompositeLit:
			fields := map[string]ast.Node{}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					if k, ok := kv.Key.(*ast.Ident); ok {
						fields[k.Name] = kv
					}
				}
			}
			if at := fields["InsecureSkipVerify"]; at != nil && fields["VerifyConnection"] == nil {
				report(at, "sets InsecureSkipVerify", "RootCAs with the pinned CA; for a pinned fingerprint set VerifyConnection in the same literal")
			}
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if sel, ok := l.(*ast.SelectorExpr); ok && sel.Sel.Name == "InsecureSkipVerify" {
					report(n, "sets InsecureSkipVerify", "RootCAs with the pinned CA; for a pinned fingerprint set VerifyConnection in the same literal")
				}
			}
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				report(n, "has an init function", "a constructor that is called by cmd")
			}
		}
		return true
	})
	return out
}

// The check of calls finds what it is for.
func TestForbiddenCallsFindsThem(t *testing.T) {
	const text = `package x
import (
	"context"
	"crypto/tls"
	. "fmt"
	later "time"
	"github.com/spf13/viper"
	_ "github.com/rs/zerolog/log"
)
func init() {}
func f(c *tls.Config) {
	later.Sleep(1)
	Println()
	viper.Get("x")
	viper.New()
	_ = context.Background()
	_ = tls.Config{InsecureSkipVerify: true}
	_ = tls.Config{InsecureSkipVerify: true, VerifyConnection: nil}
	c.InsecureSkipVerify = true
}`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "x.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := forbiddenCalls(source{path: "x.go", pkg: "proxmox", file: f, fset: fset})
	want := []string{
		"imports fmt", "imports github.com/rs/zerolog/log", "has an init function",
		"uses later.Sleep", "viper's global Get", "uses context.Background", "sets InsecureSkipVerify", "sets InsecureSkipVerify",
	}
	if len(got) != len(want) {
		t.Fatalf("got %d findings, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) || !strings.Contains(got[i], "; instead: ") {
			t.Errorf("finding %d: got %s, want %s", i, got[i], want[i])
		}
	}
}

// Every package explains itself, has a telling name, and files of a size that
// one reads in one go.
func TestPackages(t *testing.T) {
	docs := map[string]string{}
	for _, s := range sources(t) {
		if _, seen := docs[s.pkg]; !seen && !s.test {
			docs[s.pkg] = ""
		}
		if path.Base(s.path) == "doc.go" {
			docs[s.pkg] = s.file.Doc.Text()
		}
		limit := 600
		if s.test {
			limit = 800
		}
		if s.size > limit {
			t.Errorf("%s has %d lines, more than %d: split it by concept", s.path, s.size, limit)
		}
	}
	for pkg, doc := range docs {
		if doc == "" {
			t.Errorf("%s has no doc.go with a package comment", cmp.Or(pkg, "the root"))
			continue
		}
		for _, heading := range []string{"# Overview", "# Invariants", "# Limits"} {
			if !strings.Contains(doc, heading+"\n") {
				t.Errorf("%s/doc.go has no heading %q", pkg, heading)
			}
		}
		if last := path.Base(pkg); slices.Contains([]string{"util", "utils", "common", "helpers", "types", "models", "base", "manager", "misc"}, last) {
			t.Errorf("%s: name the package by what it provides; put what has no name beside its user", pkg)
		}
	}
}
