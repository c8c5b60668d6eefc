package program

import (
	"regexp"
	"strings"

	"savepoint/policy/shell"
)

// Facts about code in other languages.
const (
	FactCodeNetwork = "code-network" // code opens a connection or sends data
	FactCodeSpawn   = "code-spawn"   // code starts a program that is not a plain text
	FactCodeKill    = "code-kill"    // code ends the first or every process
	FactCodeDecode  = "code-decode"  // code runs text that it decodes itself
)

// interpreter judges python, perl, node and their like.
func (j *Judge) interpreter(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	if len(p.operands) > 0 && (p.operands[0] == "eval" && u.Name == "deno") {
		p.options = append(p.options, Option{Name: "-e", Value: strings.Join(p.operands[1:], " "), Has: true, Known: true})
		p.operands = p.operands[1:]
	}
	u.Options, u.Operands = p.options, p.operands
	if version(u.Name, p) && trusted(c.Argv[0]) {
		u.ReadOnly = true
		j.use(u)
		return shell.Stream{}
	}
	if o, ok := p.given("-i"); ok && o.kind == Change && (u.Name == "perl" || u.Name == "ruby") {
		for _, f := range p.operands {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(f)})
		}
	}
	j.use(u)
	inline := false
	// perl -MModule makes the module's functions known to the code.
	prelude := ""
	for _, o := range p.options {
		if o.Name == "-M" {
			prelude += "use " + o.Value + ";"
		}
	}
	for _, o := range p.options {
		if o.kind == Code || o.Name == "-e" && o.Has {
			inline = true
			j.code(w, sc, &u, u.Name, prelude+o.Value)
		}
		if o.Name == "-m" && o.Has {
			inline = true
		}
	}
	switch {
	case inline:
	case len(p.operands) > 0 && p.operands[0] != "-":
		f := w.Content(sc, p.operands[0])
		switch {
		case f.Fetched, f.Decoded:
			w.Run(sc, f, c.Span)
		case f.Known:
			j.code(w, sc, &u, u.Name, f.Text)
		}
	case c.Stdin.Known:
		j.code(w, sc, &u, u.Name, c.Stdin.Text)
	case c.Stdin.Inherit || c.Stdin.File != "" && !c.Stdin.Fetched && !c.Stdin.Decoded:
	default:
		w.Run(sc, c.Stdin, c.Span)
	}
	return shell.Stream{}
}

// version reports whether an interpreter is only asked for its version. The
// same letter starts a session elsewhere: python -v is verbose.
func version(name string, p parsed) bool {
	if len(p.options) != 1 || len(p.operands) > 0 {
		return false
	}
	switch p.options[0].Name {
	case "--version", "--help":
		return true
	case "-V":
		return strings.HasPrefix(name, "python") || name == "deno"
	case "-v":
		return name == "node" || name == "nodejs" || name == "php" || name == "ruby" || name == "perl" || name == "bun"
	}
	return false
}

// patterns are the words that matter in code, whatever the language.
type patterns struct {
	spawn, remove, network, decode, run, write, direct, list, fork, kill, stdin *regexp.Regexp
}

var words = patterns{
	spawn:   regexp.MustCompile(`\b(?:os\.(?:system|popen|exec[lv]p?e?|spawn[lv]p?e?|posix_spawn)|subprocess|pty\.spawn|commands\.getoutput|system|exec|execl|execv|execvp|popen|qx|shell_exec|passthru|proc_open|child_process|execSync|spawnSync|execFileSync|spawn|execFile|Deno\.Command|Deno\.run|Bun\.spawn|Open3|IO\.popen|os\.execute|io\.popen|getattr|ProcessBuilder|Runtime\.getRuntime|System\.cmd|shell-command|call-process|start-process|syscmd|esyscmd|Process\.system|callCommand)\b|` + "`"),
	remove:  regexp.MustCompile(`\b(?:rmtree|remove_tree|rmSync|rmdirSync|unlinkSync|unlink|rm_rf|rm_r|remove_entry|remove_dir|removeSync|removeAll|rmdir|os\.remove|os\.unlink|os\.removedirs|rimraf|FileUtils|Deno\.remove\w*|fs\.rm|shutil\.move|truncate|writeFileSync|chmodSync|os\.chmod|os\.rename|delete-directory|delete-file)\b`),
	network: regexp.MustCompile(`\b(?:socket\.socket|create_connection|connect\(\(|TCPSocket|IO::Socket|fsockopen|net\.connect|net\.Socket|createConnection|requests\.(?:post|put|patch|delete)|urlopen\([^)]*data|method\s*[:=]\s*['"](?:POST|PUT|DELETE|PATCH)|http\.client|smtplib|ftplib|paramiko|require\(['"](?:net|dgram|tls)['"]\)|Net::(?:FTP|SMTP|SSH)|LWP::UserAgent|http\.server|SimpleHTTPServer|socketserver|httpx\.(?:post|put))`),
	decode:  regexp.MustCompile(`\b(?:b64decode|b32decode|fromhex|unhexlify|a85decode|decode_base64|base64_decode|unpack|pack|atob|Buffer\.from|fromCharCode|chr|hex2bin|gzinflate|zlib\.decompress|rot13|codecs\.decode|marshal\.loads|pickle\.loads|str_rot13|strrev)\b`),
	run:     regexp.MustCompile(`\b(?:exec|eval|compile|__import__|system|popen|Function|assert|importlib|getattr|create_function|instance_eval)\b|\bsubprocess\b|child_process`),
	kill:    regexp.MustCompile(`\bkill\s*\(?\s*['"]?-?\w+['"]?\s*,\s*-1|\bkill\s*\(?\s*['"]?-?(?:9|KILL|SIGKILL|TERM|15)['"]?\s*,\s*1\b|(?:os\.kill|process\.kill|posix_kill)\(\s*-?1\b`),
	stdin:   regexp.MustCompile(`/dev/stdin|sys\.stdin|STDIN\.read|php://stdin`),
	// direct and list are calls whose first text is a command line, or whose
	// list is an argument vector, for sure.
	direct: regexp.MustCompile(`\b(?:os\.system|os\.popen|subprocess\.(?:run|call|check_output|check_call|Popen|getoutput|getstatusoutput)|shell_exec|passthru|execSync|(?:^|[\s;(])system)\s*\(?\s*(['"])`),
	list:   regexp.MustCompile(`\b(?:subprocess\.(?:run|call|check_output|check_call|Popen)|s\.(?:run|call))\s*\(\s*\[([^\]]*)\]`),
	fork:   regexp.MustCompile(`fork\s*(?:\(\))?\s*while|while\s*\(?\s*(?:True|true|1|:)?\s*\)?\s*[:{]?\s*(?:\w+\.)?fork|for\s*\(;;\)\s*\{?\s*fork|loop\s*\{?\s*fork|fork\s*while\s*(?:1|true|fork)`),
	write:  regexp.MustCompile(`\bopen\s*\(?\s*['"][^'"]*['"]\s*,\s*['"][wax+]|writeFile|appendFile|file_put_contents|File\.write|\.write_text|open\s*\([^)]*['"]>|open\s*\(?\s*\$?\w+\s*,`),
}

// code judges text in a language other than the shell. It looks for programs
// started with plain text, for the removal of paths, for connections, and for
// text that is decoded and run; nothing here proves that code is harmless.
func (j *Judge) code(w *shell.Walker, sc *shell.Scope, u *Use, lang, text string) {
	switch {
	case shell.Has(text, shell.HoleFetched):
		w.Report(sc, shell.FactFetched, text, u.Span)
		return
	case shell.Has(text, shell.HoleDecoded):
		w.Report(sc, shell.FactDecoded, text, u.Span)
		return
	case strings.Trim(text, "\x01\x02\x05\x10\" \n") == "" && text != "" && !shell.Known(text):
		w.Report(sc, shell.FactOpaque, text, u.Span)
		return
	}
	text = joined(text)
	if words.network.MatchString(text) {
		w.Report(sc, FactCodeNetwork, u.Name, u.Span)
	}
	if words.decode.MatchString(text) && words.run.MatchString(text) {
		w.Report(sc, FactCodeDecode, u.Name, u.Span)
	}
	if words.fork.MatchString(text) {
		w.Report(sc, shell.FactForkBomb, u.Name, u.Span)
	}
	if words.kill.MatchString(text) {
		w.Report(sc, FactCodeKill, u.Name, u.Span)
	}
	if words.stdin.MatchString(text) && words.run.MatchString(text) {
		w.Report(sc, shell.FactOpaque, u.Name, u.Span)
	}
	literals := literalsOf(text)
	for _, l := range literals {
		if cmd := strings.Trim(strings.TrimSpace(l), "|"); cmd != strings.TrimSpace(l) && words.write.MatchString(text) {
			w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true}), cmd, u.Span) // a pipe that open starts
		}
	}
	if words.spawn.MatchString(text) {
		if len(literals) == 0 {
			w.Report(sc, FactCodeSpawn, u.Name, u.Span)
		}
		j.direct(w, sc, u, text)
		j.spawned(w, sc, u, text, literals)
	}
	if lang == "m4" && strings.Contains(text, "syscmd") {
		w.Report(sc, FactCodeSpawn, u.Name, u.Span) // its quotes are not plain texts
	}
	switch lang {
	case "tclsh", "expect", "wish":
		j.tentative++
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
			line = strings.TrimSpace(line)
			line = strings.TrimPrefix(strings.TrimPrefix(line, "exec "), "spawn ")
			w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true}), line, u.Span)
		}
		j.tentative--
	}
	if words.remove.MatchString(text) || words.write.MatchString(text) {
		action := Write
		if words.remove.MatchString(text) {
			action = Remove
		}
		touched := Use{Name: u.Name, Argv: u.Argv, Known: true, Span: u.Span, Via: append(sc.Via()[:len(sc.Via()):len(sc.Via())], u.Name)}
		for _, l := range literals {
			l = strings.TrimLeft(l, "+<> ")
			if strings.HasPrefix(l, "/") || strings.HasPrefix(l, "~") {
				if strings.HasPrefix(l, "~") {
					l = sc.Home() + strings.TrimPrefix(l, "~")
				}
				touched.Accesses = append(touched.Accesses, Access{Action: action, Path: shell.Clean(strings.ReplaceAll(l, "*", "\x03"), ""), Tree: true})
			}
		}
		if len(touched.Accesses) > 0 {
			j.use(touched)
		}
	}
}

// spawned judges every text in the code that may be a command line, and every
// list of texts that may be an argument vector.
func (j *Judge) spawned(w *shell.Walker, sc *shell.Scope, u *Use, text string, literals []string) {
	inner := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true})
	j.tentative++
	defer func() { j.tentative-- }()
	for _, l := range literals {
		if strings.TrimSpace(l) == "" || len(l) > 8192 {
			continue
		}
		w.Source(inner, l, u.Span)
		if j.tentative < 3 && words.spawn.MatchString(l) && len(l) < len(text) {
			j.spawned(w, sc, u, l, literalsOf(l)) // code in a text of the code
		}
	}
	if len(literals) > 1 {
		for i := range literals {
			if i > 8 {
				break
			}
			argv := literals[i:]
			if len(argv) > 16 {
				argv = argv[:16]
			}
			if argv[0] != "" && j.tables.Known(shell.Name(argv[0])) {
				w.Exec(inner, shell.Call{Argv: argv, Stdin: shell.Stream{Known: true}, Span: u.Span})
			}
		}
	}
}

// direct judges the commands that calls start for sure.
func (j *Judge) direct(w *shell.Walker, sc *shell.Scope, u *Use, text string) {
	inner := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true})
	for _, m := range words.direct.FindAllStringSubmatchIndex(text, 16) {
		if list := literalsOf(text[m[2]:]); len(list) > 0 {
			w.Source(inner, list[0], u.Span)
		}
	}
	for _, m := range words.list.FindAllStringSubmatch(text, 16) {
		if argv := literalsOf(m[1]); len(argv) > 0 && argv[0] != "" && strings.Count(m[1], ",") < len(argv) {
			w.Exec(inner, shell.Call{Argv: argv, Stdin: shell.Stream{Known: true}, Span: u.Span})
		}
	}
}

var concatenation = regexp.MustCompile(`(['"])\s*[+.]\s*(['"])`)

// joined removes the joints of texts that are put together from pieces.
func joined(text string) string {
	return concatenation.ReplaceAllStringFunc(text, func(m string) string {
		if m[0] == m[len(m)-1] {
			return ""
		}
		return m
	})
}

// literalsOf returns the texts inside quotes, backquotes, q() and qw(), as
// far as a scan can tell.
func literalsOf(text string) []string {
	var out []string
	for i := 0; i < len(text) && len(out) < 64; i++ {
		switch c := text[i]; {
		case c == '\'' || c == '"' || c == '`':
			end := i + 1
			for end < len(text) && text[end] != c {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end, len(text))
			out = append(out, unescapeLiteral(text[i+1:end]))
			i = end
		case c == 'q' && (i == 0 || !wordByte(text[i-1])):
			n, body := perlQuote(text[i:])
			if n > 0 {
				if strings.HasPrefix(text[i:], "qw") {
					out = append(out, strings.Fields(body)...)
				}
				out = append(out, body)
				i += n - 1
			}
		}
	}
	return out
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '$'
}

// perlQuote reads q(...), qq{...}, qw/.../ and qx[...] at the start of s.
func perlQuote(s string) (int, string) {
	n := 1
	if len(s) > 1 && strings.IndexByte("qwx", s[1]) >= 0 {
		n = 2
	}
	for n < len(s) && s[n] == ' ' {
		n++
	}
	if n >= len(s) {
		return 0, ""
	}
	closer, ok := map[byte]byte{'(': ')', '{': '}', '[': ']', '<': '>', '/': '/', '|': '|', '!': '!', '#': '#', '"': '"', '\'': '\''}[s[n]]
	if !ok {
		return 0, ""
	}
	end := strings.IndexByte(s[n+1:], closer)
	if end < 0 {
		return 0, ""
	}
	return n + 1 + end + 1, s[n+1 : n+1+end]
}

func unescapeLiteral(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`, `\n`, "\n", `\t`, "\t", `\x20`, " ", `\x2f`, "/", `\57`, "/", `\x72`, "r", `\x6d`, "m", `\x2d`, "-").Replace(s)
}
