package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// query judges tools of which a few options only list: dpkg, unzip, ssh-keygen.
// Everything else about them is as the table says.
func (j *Judge) query(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	remote := slices.ContainsFunc(args, func(o string) bool { return strings.Contains(o, "://") })
	lists := asks(u.Name, p, args) && (!p.odd || len(spec.options) == 0) && !p.loose && !remote && trusted(c.Argv[0])
	switch u.Name {
	case "dpkg", "rpm", "unzip":
		u.Options, u.Operands = p.options, p.operands
		changed := j.options(w, sc, &u, p.options)
		u.ReadOnly = lists && !changed
		if d, ok := p.given("-d"); ok && u.Name == "unzip" {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(d.Value) + "/\x01"})
		}
		j.use(u)
		return shell.Stream{}
	case "ssh-keygen":
		if !lists {
			keyFiles(sc, &u, p)
		}
	case "yq":
		if hasFlag(p, "-i", "--inplace", "--in-place") {
			for _, o := range p.operands {
				u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(o)})
			}
		}
	case "cpio":
		if d, ok := workDir(p.options); ok && hasFlag(p, "-i", "--extract") {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(d)})
		}
	}
	if !lists {
		if len(spec.options) > 0 { // generic does it for the others
			results(sc, &u, args)
		}
		return j.generic(w, sc, c, spec, u, args)
	}
	u.Options, u.Operands = p.options, p.operands
	u.ReadOnly = !j.options(w, sc, &u, p.options)
	j.use(u)
	return output(spec, u, p, c)
}

var (
	listLetters  = regexp.MustCompile(`^-?[tpvOf]*[tp][vOf]*$`)
	compilerAsks = regexp.MustCompile(`^-(?:dumpversion|dumpfullversion|dumpmachine|dumpspecs|print-[a-z-]+)$|^--version$`)
)

// asks reports whether the options only ask. Options that are not in the table
// are looked at by the caller.
func asks(name string, p parsed, args []string) bool {
	none := len(p.operands) == 0
	first := ""
	if !none {
		first = p.operands[0]
	}
	switch name {
	case "dpkg":
		return hasFlag(p, "-l", "--list", "-L", "--listfiles", "-s", "--status", "-S", "--search", "--print-architecture", "--get-selections", "-V", "--verify", "--compare-versions", "-p") && !hasFlag(p, "-i")
	case "rpm":
		return hasFlag(p, "-q", "--query") && !hasFlag(p, "-i") || hasFlag(p, "-q") && hasFlag(p, "-i")
	case "unzip":
		return hasFlag(p, "-l", "-v", "-t", "-Z", "-p", "-c")
	case "date": // an operand without a plus sets the clock
		return !slices.ContainsFunc(p.operands, func(o string) bool { return !strings.HasPrefix(o, "+") })
	case "mount":
		return none && !slices.ContainsFunc(p.options, func(o Option) bool {
			return o.Name != "-l" && o.Name != "-v" && o.Name != "--show-labels"
		})
	case "swapon":
		return none && hasFlag(p, "-s", "--show", "--summary")
	case "ldconfig":
		return none && hasFlag(p, "-p", "--print-cache") && len(p.options) == 1
	case "sysctl":
		return !slices.ContainsFunc(p.operands, func(o string) bool { return strings.Contains(o, "=") || !shell.Known(o) })
	case "update-alternatives":
		return none && hasFlag(p, "--list", "--display", "--query", "--get-selections")
	case "ssh-keygen":
		return hasFlag(p, "-l", "-y", "-F", "-B", "-L", "-e") && !hasFlag(p, "-H", "-R", "-A", "-D", "-K", "-p", "-c", "-s", "-Y", "-M", "-k", "-w", "-U")
	case "openssl":
		in, _ := p.given("-in")
		return !strings.Contains(in.Value, ":") && !hasFlag(p, "-out")
	case "xmllint":
		return len(p.operands) < 2 || !hasFlag(p, "-o", "--output")
	case "yq":
		return !hasFlag(p, "-i", "--inplace", "--in-place") && !slices.ContainsFunc(p.operands, func(o string) bool { return strings.Contains(o, "system(") })
	case "ar":
		return listLetters.MatchString(first) || hasFlag(p, "-t") && !hasFlag(p, "--output")
	case "7z", "7za", "7zr", "7zz":
		return first == "l" || first == "t" || first == "i"
	case "cpio":
		f, _ := p.given("-F", "-I", "--file")
		return hasFlag(p, "-t") && !hasFlag(p, "-o", "-p", "--create", "--pass-through") && !strings.Contains(f.Value, ":")
	case "gcc", "cc", "g++", "c++", "clang", "clang++":
		return len(args) == 1 && compilerAsks.MatchString(args[0])
	}
	return false
}

// keyFiles notes the key that ssh-keygen makes or changes.
func keyFiles(sc *shell.Scope, u *Use, p parsed) {
	if o, ok := p.given("-f"); ok {
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(o.Value)})
	}
	if hasFlag(p, "-A") {
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: "/etc/ssh/ssh_host_rsa_key"})
	}
}
