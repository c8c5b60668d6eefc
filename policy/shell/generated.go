package shell

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// generators print shell code that is meant to be evaluated unseen: programs
// with patterns for all of their arguments, in one line.
var generators = byName(map[string]string{
	"ssh-agent":       `|-[sck](?: -t \S+)?`,
	"lesspipe|resize": ``,
	"dircolors":       `-[bc](?: \S+)?`,
	"direnv":          `(?:hook|export)(?: [a-z]+)?`,
	"pyenv|rbenv|nodenv|goenv|jenv|phpenv|plenv|tfenv|luaenv":           `(?:init|virtualenv-init)(?: (?:-|--path|--no-rehash|--no-push-path|bash|zsh|sh))*|-`,
	"starship|zoxide|atuin|oh-my-posh|mcfly|navi|scmpuff|any-nix-shell": `init(?: (?:bash|zsh|sh|--print-full-init|--cmd|cd|--no-aliases|--hook|prompt|pwd|none|--disable-up-arrow|--config[ =][\w./~:-]+))*`,
	"thefuck":                       `--alias(?: [a-z]+)?`,
	"fnm":                           `env(?: (?:--use-on-cd|--shell[ =]bash|--shell[ =]zsh|--version-file-strategy=\w+|--corepack-enabled|--resolve-engines))*`,
	"opam":                          `env(?: --\S+)*|config env`,
	"mise|rtx":                      `(?:activate|hook-env|env)(?: (?:bash|zsh|sh|--shims|--quiet|-q|-s|--shell))*`,
	"asdf":                          `exec env`,
	"conda|mamba|micromamba":        `shell\.(?:bash|zsh|posix) (?:hook|activate \w+)|(?:activate|hook|shell)(?: (?:hook|activate|-s|--shell|bash|zsh|posix|[\w.-]+))*`,
	"brew":                          `shellenv(?: [a-z]+)?`,
	"keychain|gpg-agent":            `(?:--eval|--daemon|--quiet|--noask|--nogui|-q|--agents|ssh|gpg|id_[a-z0-9]+| )+`,
	"minikube":                      `(?:(?:-p|--profile)[ =][\w-]+ )?docker-env(?: (?:-u|--unset|--shell[ =]\w+|(?:-p|--profile)[ =][\w-]+))*|(?:-p [\w-]+ )?podman-env`,
	"docker-machine":                `env(?: [\w-]+)*`,
	"podman":                        `machine env`,
	"poetry":                        `env activate(?: [a-z]+)?`,
	"nix":                           `print-dev-env(?: [\w.#-]+)?`,
	"luarocks":                      `path(?: (?:--bin|--local|--tree[ =][\w./~-]+|--lua-version[ =]?[0-9.]+))*`,
	"perl":                          `(?:-I ?[\w./~-]+ )?-Mlocal::lib(?:=[\w./~-]+)?`,
	"register-python-argcomplete":   `[\w.-]+`,
	"fzf|sk|just":                   `--(?:bash|zsh|completions? (?:bash|zsh))`,
	"npm|pnpm|gulp|grunt":           `completion(?: \w+)?|--completion(?:=\w+)?`,
	"uv|uvx":                        `(?:generate-shell-completion|--generate-shell-completion)(?: \w+)?`,
	"pip|pip3|stern":                `completion --(?:bash|zsh)|--completion(?:[ =]\w+)?`,
	"rustup":                        `completions? bash(?: (?:rustup|cargo))?`,
	"gh|hub":                        `completion(?: -s \w+)?|alias -s`,
	"setup-envtest":                 `use(?: -[a-z]+| -p env| [0-9.x]+)*`,
	"rsvm|goup|gvm|sdk|volta|proto": `(?:env|init|activate)(?: (?:bash|zsh|sh))?`,
	"vcpkg|xmake":                   `integrate (?:bash|zsh)`,
	"aws":                           `configure export-credentials(?: --(?:profile[ =][\w.-]+|format[ =]env))*`,
})

// byName gives every name the pattern of its row, which is compiled when the
// first of them is asked.
func byName(table map[string]string) map[string]func() *regexp.Regexp {
	out := map[string]func() *regexp.Regexp{}
	for names, args := range table {
		re := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:` + args + `)$`) })
		for _, n := range strings.Split(names, "|") {
			out[n] = re
		}
	}
	return out
}

// completes is how most programs are asked for the code that completes their
// own names, whatever the program.
var completes = regexp.MustCompile(`^(?:shell-)?completions?(?: (?:generate|-s|--shell))? (?:bash|zsh)$`)

// installed are directories into which people install programs of their
// account; what lies elsewhere may come from the work itself.
var installed = regexp.MustCompile(`^(?:/usr(?:/local)?/s?bin|/s?bin|/opt/(?:[\w.-]+/)*bin|/home/linuxbrew/\.linuxbrew/bin|(?:/root|/home/[\w-]+)/(?:\.[\w-]+/(?:[\w.-]+/)*|(?:mini|ana)conda3?/|miniforge3?/|mambaforge/|perl5/|go/)bin)/[\w.-]+$`)

// generated reports whether a command prints shell code that is meant to be
// evaluated unseen.
func generated(argv []string) bool {
	name := argv[0]
	if strings.Contains(name, "/") {
		if !installed.MatchString(Clean(name, "")) {
			return false
		}
		name = Name(name)
	}
	args := strings.Join(argv[1:], " ")
	if !Known(args) || strings.ContainsAny(args, "\n") {
		return false
	}
	if re := generators[name]; re != nil && re().MatchString(args) {
		return true
	}
	return completes.MatchString(args) && !slices.Contains([]string{"echo", "printf", "cat", "bash", "sh", "env"}, name)
}

// generatedBy reports whether statements are one such command.
func (w *Walker) generatedBy(sc *Scope, stmts []*syntax.Stmt) bool {
	if len(stmts) != 1 || stmts[0].Negated {
		return false
	}
	c, ok := stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(c.Assigns) > 0 {
		return false
	}
	var argv []string
	for _, a := range c.Args {
		if substitutes(a) {
			return false
		}
		argv = append(argv, w.fields(sc, a)...)
	}
	if len(argv) == 0 || len(sc.funcs[argv[0]]) > 0 {
		return false
	}
	_, made := sc.File(argv[0])
	return !made && generated(argv)
}
