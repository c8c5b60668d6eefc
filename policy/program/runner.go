package program

import (
	"net/url"
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

// runner finds the command that a package runner starts: the name of a tool
// that it fetches when it is not there, with its arguments.
func runner(name string, args []string) (rest []string, ok bool) {
	words, start := 0, 0
	switch name {
	case "npx", "bunx", "pnpx", "uvx":
	case "pnpm", "yarn", "npm", "bun", "uv", "pipx", "hatch", "poetry", "pdm", "bundle", "rye", "pipenv", "conda", "mamba", "composer", "mise", "volta":
		words = 1
	default:
		return nil, false
	}
	for start < len(args) && strings.HasPrefix(args[start], "-") {
		start = afterOption(args, start)
	}
	if words > 0 {
		if start >= len(args) {
			return nil, false
		}
		verb := args[start]
		start++
		switch name + " " + verb {
		case "uv tool":
			if start >= len(args) || args[start] != "run" {
				return nil, false
			}
			start++
		case "pnpm dlx", "pnpm exec", "yarn dlx", "yarn exec", "npm exec", "npm x", "bun x", "uv run", "pipx run", "hatch run", "poetry run", "pdm run", "bundle exec", "rye run", "pipenv run",
			"conda run", "mamba run", "composer exec", "mise exec", "mise x", "volta run":
		default:
			return nil, false
		}
		for start < len(args) && strings.HasPrefix(args[start], "-") && args[start] != "--" {
			start = afterOption(args, start)
		}
	}
	if start < len(args) && args[start] == "--" {
		start++
	}
	if start >= len(args) {
		return nil, false
	}
	return args[start:], true
}

// afterOption is the place behind an option of a package runner.
func afterOption(args []string, i int) int {
	if runnerOptions[args[i]] {
		return i + 2
	}
	return i + 1
}

// called is the shell code that -c hands to npx or npm exec in place of a
// command. Behind the command, -c is an option of that command.
func called(name string, args []string) (code string, ok bool) {
	if name != "npx" && name != "npm" {
		return "", false
	}
	verb := name == "npx" // the word exec is behind, or needs none
	for i := 0; i < len(args); {
		a := args[i]
		switch {
		case a == "-c" || a == "--call":
			return args[min(i+1, len(args)-1)], i+1 < len(args)
		case strings.HasPrefix(a, "--call="):
			return strings.TrimPrefix(a, "--call="), true
		case strings.HasPrefix(a, "-") && a != "--":
			i = afterOption(args, i)
		case !verb && (a == "exec" || a == "x"):
			verb, i = true, i+1
		default:
			return "", false
		}
	}
	return "", false
}

// runs judges what a package runner starts. The name may carry a version, and
// it may be the address of a package that nobody has seen.
func (j *Judge) runs(w *shell.Walker, sc *shell.Scope, c shell.Call, u *Use, args []string) {
	if code, ok := called(u.Name, args); ok {
		w.Source(sc.Fresh(u.Name, "sh", nil), code, c.Span)
		return
	}
	rest, ok := runner(u.Name, args)
	if !ok {
		return
	}
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
