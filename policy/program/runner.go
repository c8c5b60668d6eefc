package program

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// FactCodeLoad is code of a place that anybody may write, or of the network,
// which an option or a setting hands to a program.
const FactCodeLoad = "code-load"

// runnerOptions are the options of package runners that take a value.
var runnerOptions = map[string]bool{
	"-p": true, "--package": true, "--from": true, "--with": true, "--python": true, "--spec": true, "--index": true, "--index-url": true, "--pip-args": true, "--prefix": true, "--cache": true,
	"--registry": true, "--with-requirements": true, "--directory": true, "--project": true, "--extra": true, "--group": true, "--env-file": true, "-w": true, "--workspace": true, "--userconfig": true, "--filter": true, "-C": true, "--dir": true,
	"--node-options": true, "--script-shell": true, "--loglevel": true,
}

// runnerFlags are the options of package runners that take none.
var runnerFlags = map[string]bool{
	"-y": true, "--yes": true, "-q": true, "--quiet": true, "-s": true, "--silent": true, "--verbose": true, "-v": true, "--version": true, "-h": true, "--help": true, "--no": true, "-n": true,
	"--prefer-offline": true, "--prefer-online": true, "--offline": true, "--ignore-existing": true, "--ignore-scripts": true, "--force": true, "-f": true, "-g": true, "--global": true,
	"--frozen": true, "--locked": true, "--isolated": true, "-r": true, "--recursive": true, "--bun": true, "-ws": true, "--if-present": true, "--always-spawn": true,
}

// readings lists the places at which what follows an option may go on: behind
// it, or behind its value. Of an option that nobody listed, both may be so.
func readings(args []string, i int) []int {
	a := args[i]
	switch {
	case runnerOptions[a]:
		return []int{i + 2}
	case runnerFlags[a] || strings.Contains(a, "=") || strings.HasPrefix(a, "--no-") || i+1 >= len(args) || strings.HasPrefix(args[i+1], "-"):
		return []int{i + 1}
	}
	return []int{i + 1, i + 2}
}

// runs is what a package runner may start: commands, and lines of shell code.
type runs struct {
	name     string
	args     []string
	seen     map[[2]int]bool
	commands [][]string
	code     []string
}

// runner finds the commands that a package runner starts: the name of a tool
// that it fetches when it is not there, with its arguments. There are several
// when it is not known which options take a value.
func runner(name string, args []string) *runs {
	r := &runs{name: name, args: args, seen: map[[2]int]bool{}}
	switch name {
	case "npx", "bunx", "pnpx", "uvx":
		r.follow(0, true)
	case "pnpm", "yarn", "npm", "bun", "uv", "pipx", "hatch", "poetry", "pdm", "bundle", "rye", "pipenv", "conda", "mamba", "composer", "mise", "volta":
		r.follow(0, false)
	}
	return r
}

// follow goes on at a place; behind the word that says run, the command is
// next.
func (r *runs) follow(i int, verb bool) {
	key := [2]int{i, 0}
	if verb {
		key[1] = 1
	}
	if r.seen[key] || i >= len(r.args) {
		return
	}
	r.seen[key] = true
	a := r.args[i]
	calls := r.name == "npx" || r.name == "npm"
	switch {
	case a == "--":
		if verb {
			r.start(i + 1)
		} else {
			r.verb(i + 1)
		}
	case calls && call.MatchString(a):
		if _, code, ok := strings.Cut(a, "="); ok {
			r.code = append(r.code, code)
		} else if i+1 < len(r.args) {
			r.code = append(r.code, r.args[i+1])
		}
	case strings.HasPrefix(a, "-"):
		for _, next := range readings(r.args, i) {
			r.follow(next, verb)
		}
	case verb:
		r.start(i)
	default:
		r.verb(i)
	}
}

// call is the option of npx and npm exec that takes shell code in place of a
// command, alone, behind flags of one letter, or shortened. Behind the command,
// it is an option of that command.
var call = regexp.MustCompile(`^(-[a-zA-Z]*c|--?call?)(=|$)`)

// verb goes on behind the word that says run, when it does.
func (r *runs) verb(i int) {
	if i >= len(r.args) {
		return
	}
	verb := r.args[i]
	switch r.name + " " + verb {
	case "uv tool":
		if i+1 < len(r.args) && r.args[i+1] == "run" {
			r.follow(i+2, true)
		}
	case "pnpm dlx", "pnpm exec", "yarn dlx", "yarn exec", "npm exec", "npm exe", "npm x", "bun x", "uv run", "pipx run", "hatch run", "poetry run", "pdm run", "bundle exec", "rye run", "pipenv run",
		"conda run", "mamba run", "composer exec", "mise exec", "mise x", "volta run":
		r.follow(i+1, true)
	}
}

func (r *runs) start(i int) {
	if i < len(r.args) {
		r.commands = append(r.commands, r.args[i:])
	}
}

// runs judges what a package runner starts. The name may carry a version, and
// it may be the address of a package that nobody has seen.
func (j *Judge) runs(w *shell.Walker, sc *shell.Scope, c shell.Call, u *Use, args []string) {
	r := runner(u.Name, args)
	for _, code := range r.code {
		w.Source(sc.Fresh(u.Name, "sh", nil), code, c.Span)
	}
	for _, rest := range r.commands {
		j.started(w, sc, c, u, args, rest)
	}
}

// started judges one command that a package runner starts.
func (j *Judge) started(w *shell.Walker, sc *shell.Scope, c shell.Call, u *Use, args, rest []string) {
	valueOf(args[:len(args)-len(rest)], func(v string) {
		if strings.Contains(v, "://") && loopback.FindStringSubmatch(v) == nil {
			w.Report(sc, shell.FactFetched, v, c.Span)
		}
	}, "-p", "--package", "--from", "--with", "--spec")
	word := rest[0]
	if strings.Contains(word, "://") {
		if loopback.FindStringSubmatch(word) == nil {
			w.Report(sc, shell.FactFetched, word, c.Span)
		}
		return
	}
	if at := strings.LastIndexByte(word, '@'); at > 0 {
		word = word[:at]
	}
	if strings.HasPrefix(word, "@") {
		word = shell.Name(word) // the scope of the package
	}
	if word == "" || strings.HasPrefix(word, "-") || strings.HasSuffix(word, ".py") || strings.HasSuffix(word, ".ts") || strings.HasSuffix(word, ".js") {
		return
	}
	w.Exec(sc.Under(u.Name), shell.Call{Argv: append([]string{word}, rest[1:]...), Env: c.Env, Stdin: c.Stdin, Span: c.Span})
}

// flatpak judges flatpak run, of which an option names the program.
func (j *Judge) flatpak(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	u.Operands = args
	j.use(u)
	i := slices.Index(args, "run")
	if i < 0 {
		j.guess(w, sc, c, u.Name, args)
		return shell.Stream{}
	}
	command := ""
	for i++; i < len(args) && strings.HasPrefix(args[i], "-"); i++ {
		if v, ok := strings.CutPrefix(args[i], "--command="); ok {
			command = v
		}
	}
	if command != "" && i < len(args) {
		return w.Exec(sc.Under(u.Name), shell.Call{Argv: append([]string{command}, args[i+1:]...), Stdin: c.Stdin, Span: c.Span})
	}
	return shell.Stream{}
}

// anyoneWrites reports whether a path lies where every program may put files.
func anyoneWrites(path string) bool {
	for _, d := range [...]string{"/tmp/", "/var/tmp/", "/dev/shm/"} {
		if strings.HasPrefix(path, d) {
			return true
		}
	}
	return false
}

// loadsPlaced reports a program or module that a setting takes from a place
// where anybody may have put it, or from the network.
func (j *Judge) loadsPlaced(w *shell.Walker, sc *shell.Scope, value string, at shell.Span) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(value), " ")
	remote := strings.HasPrefix(word, "http://") || strings.HasPrefix(word, "https://") || strings.HasPrefix(word, "data:")
	if !remote && !anyoneWrites(sc.Path(word)) {
		return false
	}
	w.Report(sc, FactCodeLoad, value, at)
	return true
}

// fetchedProgram reports whether the line itself has fetched the program that a
// plain name starts, into one of the directories where the shell looks.
func fetchedProgram(sc *shell.Scope, name string) bool {
	for _, dir := range [...]string{"/usr/local/bin/", "/usr/bin/", "/bin/", "/usr/local/sbin/", "/usr/sbin/", sc.Home() + "/.local/bin/", sc.Home() + "/bin/"} {
		if f, ok := sc.File(dir + name); ok && f.Content.Fetched {
			return true
		}
	}
	return false
}

// hostOf is the host of an address, in lower case and without brackets.
func hostOf(address string) string {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(shell.Show(address))
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
