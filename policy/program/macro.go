package program

import (
	"regexp"
	"strings"

	"savepoint/policy/shell"
)

var (
	rpmMacro    = regexp.MustCompile(`%\(([^()]*(?:\([^()]*\)[^()]*)*)\)`)
	texShell    = regexp.MustCompile(`\\(?:immediate\s*\\)?write18\s*\{([^}]*)\}`)
	pipeFile    = regexp.MustCompile(`%pipe%([^)"]*)`)
	ninjaRule   = regexp.MustCompile(`(?m)^\s*command\s*=\s*(.*)$`)
	placeOption = regexp.MustCompile(`^--(?:on-[a-z-]+|exec|hook|post-[a-z-]+|pre-[a-z-]+)=`)
)

// argumentCode judges commands that a program takes out of its arguments in a
// notation of its own, wherever they stand.
func (j *Judge) argumentCode(w *shell.Walker, sc *shell.Scope, c shell.Call, name string) {
	run := func(code string) {
		w.Source(sc.Fresh(name, "sh", nil).WithStdin(shell.Stream{Known: true}), code, c.Span)
	}
	each := func(re *regexp.Regexp) {
		for _, a := range c.Argv[1:] {
			for _, m := range re.FindAllStringSubmatch(a, 8) {
				run(m[1])
			}
		}
	}
	switch name {
	case "rpm", "rpmbuild", "rpmspec", "rpmsign", "rpmkeys", "rpmdb", "mock":
		each(rpmMacro)
		for _, a := range c.Argv[1:] {
			if i := strings.Index(a, "%{lua:"); i >= 0 {
				j.code(w, sc, &Use{Name: "lua", Argv: c.Argv, Span: c.Span}, "lua", a[i+len("%{lua:"):])
			}
		}
	case "tex", "latex", "pdftex", "pdflatex", "xetex", "xelatex", "luatex", "lualatex", "etex", "context":
		each(texShell)
	case "gs", "ghostscript", "ps2pdf", "gsnd", "dvips", "ps2ascii":
		each(pipeFile)
		j.pipedOutput(c, run)
	case "strace", "enscript", "a2ps", "gnuplot", "lpr":
		j.pipedOutput(c, run)
		if name == "enscript" {
			valueOf(c.Argv[1:], run, "-I", "--filter")
		}
	case "latexmk":
		for i, a := range c.Argv[1:] {
			if a == "-e" && i+2 < len(c.Argv) {
				j.code(w, sc, &Use{Name: "perl", Argv: c.Argv, Span: c.Span}, "perl", c.Argv[i+2])
			}
		}
	case "ninja", "samu":
		if in := c.Stdin; in.Known {
			for _, m := range ninjaRule.FindAllStringSubmatch(in.Text, 16) {
				run(m[1])
			}
		}
	default:
		j.optionCode(w, sc, c, name, run)
	}
}

// optionCode judges options whose value is a command, or code from a place
// where anybody may have put it.
func (j *Judge) optionCode(w *shell.Walker, sc *shell.Scope, c shell.Call, name string, run func(string)) {
	switch name {
	case "hg":
		valueOf(c.Argv[1:], func(v string) { j.hgConfig(w, sc, c, v, run) }, "--config")
	case "svn", "svnadmin", "svnlook":
		valueOf(c.Argv[1:], func(v string) {
			if strings.Contains(v, ":tunnels:") || strings.Contains(v, "-cmd=") {
				_, code, _ := strings.Cut(v, "=")
				run(code)
			}
		}, "--config-option")
		valueOf(c.Argv[1:], func(v string) {
			if !j.loadsPlaced(w, sc, v, c.Span) {
				run(v)
			}
		}, "--diff-cmd", "--diff3-cmd", "--editor-cmd")
	case "mysql", "mariadb", "mycli":
		valueOf(c.Argv[1:], run, "--pager")
	case "aria2c", "transmission-cli", "yt-dlp", "youtube-dl", "motion", "udiskie":
		for _, a := range c.Argv[1:] {
			if placeOption.MatchString(a) {
				_, v, _ := strings.Cut(a, "=")
				if !j.loadsPlaced(w, sc, v, c.Span) {
					run(v)
				}
			}
		}
	case "node", "nodejs", "bun", "tsx", "ts-node":
		valueOf(c.Argv[1:], func(v string) { j.loadsPlaced(w, sc, v, c.Span) }, "-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file")
	case "ruby", "irb":
		valueOf(c.Argv[1:], func(v string) { j.loadsPlaced(w, sc, v, c.Span) }, "-r")
	case "nm", "objdump", "size", "ld", "ar":
		valueOf(c.Argv[1:], func(v string) { j.loadsPlaced(w, sc, v, c.Span) }, "--plugin", "-plugin")
	}
}

// pipedOutput judges outputs that begin with a pipe.
func (j *Judge) pipedOutput(c shell.Call, run func(string)) {
	for _, a := range c.Argv[1:] {
		for _, front := range [...]string{"", "-o", "-p", "--output=", "-sOutputFile="} {
			if v, ok := strings.CutPrefix(a, front); ok && len(v) > 1 && (v[0] == '|' || v[0] == '!') {
				run(v[1:])
				break
			}
		}
	}
}

// valueOf hands on the values of options, attached or not.
func valueOf(args []string, take func(string), names ...string) {
	for i, a := range args {
		if a == "--" {
			return
		}
		for _, n := range names {
			switch {
			case a == n && i+1 < len(args):
				take(args[i+1])
			case strings.HasPrefix(n, "--") && strings.HasPrefix(a, n+"="):
				take(a[len(n)+1:])
			case len(n) == 2 && strings.HasPrefix(a, n) && len(a) > 2:
				take(a[2:])
			}
		}
	}
}

// hgConfig judges one setting of Mercurial: aliases with a mark, hooks, and
// the programs that it starts.
func (j *Judge) hgConfig(w *shell.Walker, sc *shell.Scope, c shell.Call, setting string, run func(string)) {
	key, value, ok := strings.Cut(setting, "=")
	if !ok {
		return
	}
	section, name, _ := strings.Cut(key, ".")
	switch {
	case section == "alias" && strings.HasPrefix(value, "!"):
		run(value[1:])
	case section == "alias":
		run("hg " + value)
	case section == "hooks" || name == "ssh" || section == "merge-tools" || name == "editor" || section == "extdiff" || section == "pager" && name == "pager":
		run(value)
	case section == "extensions" && value != "" && strings.Contains(value, "/"):
		w.Report(sc, FactCodeLoad, value, c.Span)
	}
}
