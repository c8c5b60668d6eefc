package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// readingOpen is a file that code opens, lists or tests without changing it:
// its path is no target of what else the code writes.
var readingOpen = regexp.MustCompile(`((?:^|[^\w.])open|\bFile\.read|readFileSync|os\.listdir|os\.path\.(?:exists|isfile|isdir|getsize|getmtime|islink)|os\.stat|file_get_contents)\s*\(\s*(?:'[^']*'|"[^"]*")\s*(?:,\s*['"](?:r[bt]?|utf-?8)['"])?\s*\)`)

// removesHome is the home directory itself as what a call removes.
var removesHome = regexp.MustCompile(`\b(?:rmtree|rmSync|rmdirSync|rmdir|rm_rf|rm_r|rm|remove_tree|remove_dir|removeSync)\s*\(\s*(?:(?:pathlib\.)?Path\.home\(\)|(?:require\(['"](?:node:)?os['"]\)|os)\.homedir\(\)|process\.env\.HOME|os\.environ\[['"]HOME['"]\]|os\.(?:environ\.get|getenv)\(['"]HOME['"]\)|os\.path\.expanduser\(['"]~['"]\)|Dir\.home|ENV\[['"]HOME['"]\])\s*[,)]`)

// touched reports the paths of code that changes or removes files.
func (j *Judge) touched(sc *shell.Scope, u *Use, text string, literals []string) {
	removes := words.remove.MatchString(text)
	if !removes && !words.write.MatchString(text) {
		return
	}
	home := words.home.MatchString(text)
	whole := removes && removesHome.MatchString(text)
	if !whole && !home && !slices.ContainsFunc(literals, pathLike) {
		return
	}
	action := Write
	if removes {
		action = Remove
	}
	if reduced := readingOpen.ReplaceAllString(text, "$1()"); reduced != text && (words.remove.MatchString(reduced) || words.write.MatchString(reduced)) {
		literals = literalsOf(reduced)
	}
	if whole {
		literals = append(literals, "~")
	}
	out := Use{Name: u.Name, Argv: u.Argv, Known: true, Span: u.Span, Via: append(sc.Via()[:len(sc.Via()):len(sc.Via())], u.Name)}
	for _, l := range literals {
		l = strings.TrimLeft(l, "+<> ")
		for _, h := range [...]string{"$ENV{HOME}", "$ENV{'HOME'}", "#{ENV['HOME']}", "#{Dir.home}", "${process.env.HOME}", "{os.environ['HOME']}", "{Path.home()}"} {
			if rest, ok := strings.CutPrefix(l, h); ok {
				l = "~" + rest
			}
		}
		switch {
		case strings.HasPrefix(l, "~"):
			l = sc.Home() + strings.TrimPrefix(l, "~")
		case strings.HasPrefix(l, "/"):
		case home && l != "" && !strings.ContainsAny(l, " \n"):
			l = sc.Home() + "/" + l
		default:
			continue
		}
		path := shell.Clean(strings.ReplaceAll(l, "*", "\x03"), "")
		out.Accesses = append(out.Accesses, Access{Action: action, Path: path, Tree: true})
		if removes && words.write.MatchString(text) || strings.Contains(text, "symlink") || strings.Contains(text, "chmod") {
			out.Accesses = append(out.Accesses, Access{Action: Write, Path: path})
		}
	}
	if len(out.Accesses) > 0 {
		j.use(out)
	}
}

// pathLike reports whether a text of the code may be a path that matters.
func pathLike(l string) bool {
	l = strings.TrimLeft(l, "+<> ")
	return l != "" && strings.IndexByte("/~$#{", l[0]) >= 0
}

// commandLines judges languages whose lines are commands without quotes.
func (j *Judge) commandLines(w *shell.Walker, sc *shell.Scope, u *Use, lang, text string) {
	run := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true})
	switch lang {
	case "tclsh", "expect", "wish":
		j.tentative++
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
			line = strings.TrimSpace(line)
			line = strings.TrimPrefix(strings.TrimPrefix(line, "exec "), "spawn ")
			if rest, ok := strings.CutPrefix(line, "file delete "); ok {
				line = "rm -rf " + strings.TrimPrefix(rest, "-force ")
			}
			w.Source(run, line, u.Span)
		}
		j.tentative--
	case "pwsh", "powershell":
		j.tentative++
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
			w.Source(run, removeItem.ReplaceAllString(line, "rm -rf "), u.Span)
		}
		j.tentative--
	case "ipython", "ipython3", "gnuplot", "dc", "irb":
		for _, line := range strings.Split(text, "\n") {
			if i := strings.IndexByte(line, '!'); i >= 0 && strings.Trim(line[:i], " 0123456789+*pkfc") == "" {
				w.Source(run, line[i+1:], u.Span)
			}
		}
	}
}

var removeItem = regexp.MustCompile(`(?i)(?:\bremove-item|^\s*(?:ri|del|rd|erase))\s`)

// direct judges the commands that calls start for sure.
func (j *Judge) direct(w *shell.Walker, sc *shell.Scope, u *Use, text string, literals []string) {
	inner := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true})
	switch u.Name {
	case "perl", "ruby", "php":
		for _, m := range rubyCommand.FindAllStringSubmatch(text, 8) {
			w.Source(inner, m[1], u.Span)
		}
		for _, m := range backquoted.FindAllStringSubmatch(text, 8) {
			w.Source(inner, m[1], u.Span)
		}
	}
	for _, m := range words.direct.FindAllStringSubmatchIndex(text, 16) {
		list := literalsOf(text[m[2]:])
		if len(list) == 0 {
			continue
		}
		w.Source(inner, list[0], u.Span)
		for _, filled := range fillings(list) {
			w.Source(inner, filled, u.Span)
		}
		if placeholder.MatchString(list[0]) {
			for _, l := range literals { // a list that a loop goes through
				if strings.HasPrefix(l, "/") || strings.HasPrefix(l, "~") {
					w.Source(inner, placeholder.ReplaceAllLiteralString(list[0], l), u.Span)
				}
			}
		}
	}
	for _, m := range words.list.FindAllStringSubmatch(text, 16) {
		if argv := literalsOf(m[1]); len(argv) > 0 && argv[0] != "" && strings.Count(m[1], ",") < len(argv) {
			w.Exec(inner, shell.Call{Argv: argv, Stdin: shell.Stream{Known: true}, Span: u.Span})
		}
	}
}

var rubyCommand = regexp.MustCompile(`%x[({\[<|!/]([^)}\]>|!/]*(?:/[^)}\]>|!]*)?)`)

var backquoted = regexp.MustCompile("`([^`]+)`")

var placeholder = regexp.MustCompile(`%[sdr]|\{[^{}]*\}`)

// fillings puts the other texts of the code into the places a template has.
func fillings(list []string) []string {
	template := list[0]
	if n := len(placeholder.FindAllString(template, 5)); n == 0 || n > 4 {
		return nil
	}
	var out []string
	for i := 1; i < len(list) && i <= 6; i++ {
		rest := list[i:]
		k := -1
		out = append(out, placeholder.ReplaceAllStringFunc(template, func(string) string {
			k++
			return rest[min(k, len(rest)-1)]
		}))
	}
	return out
}

var (
	concatenation = regexp.MustCompile(`(['"])\s*[+.]\s*(['"])`)
	adjacent      = regexp.MustCompile(`(['"])(?:\s*[+.]\s*|[ \t]+)(['"])`) // texts side by side are one
	pyAlias       = regexp.MustCompile(`\bimport\s+([\w.]+)\s+as\s+(\w+)`)
	pyFrom        = regexp.MustCompile(`\bfrom\s+([\w.]+)\s+import\s+([\w ,]+)`)
	plainSet      = regexp.MustCompile(`(?:^|[\n;{(\s])(\$?\w+)\s*=\s*('[^'\\\n]*'|"[^"\\\n$]*")\s*(?:[;\n]|$)`)
)

// separators are the ways to write a slash.
var separators = strings.NewReplacer("{chr(47)}", "/", "{os.sep}", "/", "os.path.sep", "'/'", "os.sep", "'/'", "path.sep", "'/'", "chr(47)", "'/'")

// folded resolves what a reader sees at once: names that import gives to
// modules and functions, variables set to one plain text, and texts put
// together from pieces.
func folded(lang, text string) string {
	if len(text) > 16<<10 {
		return joined(lang, text)
	}
	text = separators.Replace(text)
	if strings.Contains(text, " as ") {
		for _, m := range pyAlias.FindAllStringSubmatch(text, 8) {
			text = renamed(text, m[2]+".", m[1]+".")
		}
	}
	if strings.Contains(text, "from ") {
		text = importedNames(text)
	}
	if !words.spawn.may(text) && !words.eval.may(text) {
		return joined(lang, text)
	}
	for _, m := range plainSets(text, 8) {
		if strings.Count(text, m[1]) < 24 {
			text = substituted(text, m[1], m[2])
			if strings.HasPrefix(m[1], "$") {
				text = interpolated(text, m[1], m[2][1:len(m[2])-1])
			}
		}
	}
	return joined(lang, text)
}

// plainSets finds the variables that are set to one plain text.
func plainSets(text string, limit int) [][]string {
	var out [][]string
	for line := range strings.Lines(text) {
		if i := strings.IndexByte(line, '='); i < 0 || !strings.ContainsAny(line[i:], `'"`) {
			continue
		}
		if out = append(out, plainSet.FindAllStringSubmatch(line, limit)...); len(out) >= limit {
			return out[:limit]
		}
	}
	return out
}

// importedNames puts the module in front of functions that are imported alone.
func importedNames(text string) string {
	var found [][]string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "from ") && len(found) < 8 {
			found = append(found, pyFrom.FindAllStringSubmatch(line, 8-len(found))...)
		}
	}
	for _, m := range found {
		for _, item := range strings.Split(m[2], ",") {
			name, as, has := strings.Cut(strings.TrimSpace(item), " as ")
			if !has {
				as = name
			}
			if name != "" && slices.Contains([]string{"os", "subprocess", "shutil", "requests", "httpx", "urllib.request"}, m[1]) {
				text = renamed(text, strings.TrimSpace(as)+"(", strings.TrimPrefix(m[1], "urllib.request")+dotted(m[1])+strings.TrimSpace(name)+"(")
			}
		}
	}
	return text
}

func dotted(module string) string {
	if module == "urllib.request" {
		return ""
	}
	return "."
}

// renamed replaces a name where it starts a word.
func renamed(text, from, to string) string {
	if from == to || !strings.Contains(text, from) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], from) && (i == 0 || !wordByte(text[i-1])) {
			b.WriteString(to)
			i += len(from) - 1
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// substituted puts a plain text where the variable that holds it is used with
// an operator or as an argument.
func substituted(text, name, literal string) string {
	var b strings.Builder
	rest := text
	for {
		i := strings.Index(rest, name)
		if i < 0 {
			break
		}
		end := i + len(name)
		next := strings.TrimLeft(rest[end:], " \t\n\r\f")
		switch {
		case next == "" || strings.IndexByte("+.),]", next[0]) < 0, i > 0 && (wordByte(rest[i-1]) || rest[i-1] == '\'' || rest[i-1] == '"'):
			b.WriteString(rest[:end])
		default:
			b.WriteString(rest[:i] + literal)
		}
		rest = rest[end:]
	}
	if b.Len() == 0 {
		return text
	}
	return b.String() + rest
}

var doubleQuoted = regexp.MustCompile(`"[^"\n]*"`)

// interpolated puts a plain text where double quotes name its variable.
func interpolated(text, name, value string) string {
	return doubleQuoted.ReplaceAllStringFunc(text, func(q string) string {
		for i := strings.Index(q, name); i >= 0; i = strings.Index(q, name) {
			if end := i + len(name); wordByte(q[end]) && q[end] != '$' && q[end] != '.' {
				break
			}
			q = q[:i] + value + q[i+len(name):]
			if len(q) > 4096 {
				break
			}
		}
		return q
	})
}

// joined removes the joints of texts that are put together from pieces.
func joined(lang, text string) string {
	if !strings.ContainsAny(text, `'"`) {
		return text
	}
	joint := concatenation
	if strings.HasPrefix(lang, "py") || strings.HasPrefix(lang, "ipy") || lang == "ruby" {
		joint = adjacent
	}
	return joint.ReplaceAllStringFunc(text, func(m string) string {
		if m[0] == m[len(m)-1] {
			return ""
		}
		return m
	})
}
