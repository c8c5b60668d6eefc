package policy

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

// route is where a command writes to, or why that cannot be read from it.
type route struct {
	to  []destination
	why string // continues "the profile does not open it: "
	how string // what to write instead
}

func hidden(why, how string) route { return route{why: why, how: how} }

// opening reports whether the profile may open what a rule denies: only
// built-in denials of writing outside, never a rule of the deployment.
func (c *collector) opening(r *rule) bool {
	return c.profile == OpenEgress && r.decision == Deny && r.Locus == External && !r.own
}

// egress adds a finding of a rule that the profile may open. It is open when
// every place the part writes to is listed.
func (c *collector) egress(p *part, r *rule, u *program.Use) {
	rt := routeOf(u)
	for _, d := range rt.to {
		if rt.why == "" && !c.engine.opens(d) {
			rt.why, rt.how = "the host "+d.String()+" is not one that it opens", r.Alternative
		}
	}
	if rt.why != "" {
		target := shell.Show(strings.Join(u.Argv, " "))
		p.add(r, Deny, c.effect(r, target), target, u.Via)
		f := &p.found[len(p.found)-1]
		f.reason, f.alternative = closed(r, rt.why), rt.how
		return
	}
	var effects []Effect
	for _, d := range rt.to {
		effects = append(effects, Effect{Locus: External, Target: d.String()})
	}
	p.add(r, Snapshot, effects, rt.to[0].String(), u.Via)
	f := &p.found[len(p.found)-1]
	f.opened, f.reason = true, "It writes to "+rt.to[0].String()+", which the profile opens; no rollback undoes that."
}

func closed(r *rule, why string) string {
	return r.Reason + " The profile " + OpenEgress + " does not open it: " + why + "."
}

// settle closes what was opened when another part of the command may send it
// elsewhere: parts are not judged in the order in which they run.
func (c *collector) settle() {
	if c.elsewhere == "" {
		return
	}
	for i := range c.all {
		if f := &c.all[i]; f.opened {
			f.decide, f.opened = Deny, false
			f.reason, f.alternative = closed(f.rule, c.elsewhere+" may send it elsewhere"), "Send it in a command of its own, without setting variables or configuration."
		}
	}
}

// routeOf reads the destinations of a use. It knows the programs listed here
// and, of those, only options that cannot send the data elsewhere.
func routeOf(u *program.Use) route {
	args := u.Argv[min(1, len(u.Argv)):]
	if slices.ContainsFunc(args, mayBeAnOption) {
		return hidden("an argument is not known, so it may send it elsewhere", "Write the arguments in plain text; write ./*.txt in place of *.txt.")
	}
	switch u.Name {
	case "git":
		return gitRoute(u)
	case "npm", "pnpm", "yarn", "bun", "cnpm":
		return registryRoute(u.Name, args)
	case "docker", "podman", "nerdctl", "buildah":
		return imageRoute(u, args)
	case "twine":
		return optionRoute(args, "upload", "--repository-url", "twine upload --repository-url https://HOST/ dist/*")
	case "gem":
		return optionRoute(args, "push", "--host", "gem push --host https://HOST FILE")
	case "cargo":
		return optionRoute(args, "publish", "--index", "cargo publish --index https://HOST/INDEX")
	case "uv":
		return optionRoute(args, "publish", "--publish-url", "uv publish --publish-url https://HOST/")
	case "curl", "wget":
		return webRoute(u)
	case "http", "https", "xh", "xhs":
		return wordsRoute(args)
	case "scp", "rsync":
		return copyRoute(u)
	case "ssh", "slogin", "sftp":
		return sshRoute(u)
	case "psql", "mysql", "mariadb", "redis-cli", "mongosh", "mongo", "createdb", "dropdb", "pg_restore", "mysqladmin":
		return databaseRoute(u.Name, args)
	}
	return hidden("the command does not show the host it writes to", "Use a command that names the host, such as curl, git push URL, scp or ssh.")
}

// mayBeAnOption reports whether an argument is not known: only the names that
// a pattern stands for may be open, when they cannot begin with a dash.
func mayBeAnOption(a string) bool {
	rest := strings.NewReplacer(string(shell.HoleStar), "", string(shell.HoleChar), "").Replace(a)
	return !shell.Known(rest) || rest != a && (a[0] == shell.HoleStar || a[0] == shell.HoleChar || a[0] == '-')
}

const gitForm = "Write the address of the repository in the command: git push https://HOST/REPOSITORY BRANCH."

func gitRoute(u *program.Use) route {
	if len(u.Sub) != 1 || u.Sub[0] != "push" {
		return hidden("only git push with an address can be opened", gitForm)
	}
	remote := ""
	if len(u.Operands) > 0 {
		remote = u.Operands[0]
	}
	for _, o := range u.Options {
		switch o.Name {
		case "--repo":
			if len(u.Operands) == 0 {
				remote = o.Value
			}
		case "-c", "--config-env", "--exec-path", "--receive-pack", "--exec", "--recurse-submodules":
			return hidden("option "+o.Name+" can send it elsewhere", gitForm)
		}
		if !o.Known {
			return hidden("option "+shell.Show(o.Name)+" is not known", gitForm)
		}
	}
	if d, ok := parseAddress(remote, "https", "http", "ssh", "git"); ok {
		return route{to: []destination{d}}
	}
	if strings.Contains(remote, ":") && !strings.Contains(remote, "://") && !strings.Contains(remote, "::") {
		if d, ok := parseRemote(remote); ok {
			return route{to: []destination{d}}
		}
	}
	if remote == "" || !strings.ContainsAny(remote, ":/") {
		return hidden("the host is not shown: the address of a named remote is in the repository's configuration", gitForm)
	}
	return hidden("the address of the repository is not a plain one", gitForm)
}

// registryRoute reads npm and its like, which take the registry as an option.
func registryRoute(name string, args []string) route {
	how := "Write the registry in the command: " + name + " publish --registry https://HOST/."
	i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if i != 0 {
		return hidden("an option stands in front of the sub-command", how)
	}
	switch args[0] {
	case "publish", "unpublish", "deprecate", "dist-tag":
	default:
		return hidden("only publish, unpublish, deprecate and dist-tag can be opened", how)
	}
	var r route
	for n := 1; n < len(args); n++ {
		a := args[n]
		option, value, has := strings.Cut(a, "=")
		switch {
		case a == "" || a[0] != '-':
		case option == "--registry" || strings.HasPrefix(option, "--@") && strings.HasSuffix(option, ":registry"):
			if !has {
				if n++; n >= len(args) {
					return hidden("the registry is missing", how)
				}
				value = args[n]
			}
			d, ok := parseAddress(value, "https")
			if !ok {
				return hidden("the registry is not a plain https address", how)
			}
			r.to = append(r.to, d)
		case slices.Contains([]string{"--access", "--tag", "--otp", "--dry-run", "--provenance", "--ignore-scripts", "--no-git-checks", "--force", "-f", "--json", "--silent", "-s", "--workspaces", "--workspace", "-w", "--non-interactive"}, option):
		default:
			return hidden("option "+shell.Show(option)+" may send it elsewhere", how)
		}
	}
	if len(r.to) == 0 {
		return hidden("the host is not shown: the registry is in a configuration file", how)
	}
	return r
}

func imageRoute(u *program.Use, args []string) route {
	how := "Write the registry in the name of the image: " + u.Name + " push HOST/NAME:TAG."
	if len(args) > 1 && args[0] == "image" {
		args = args[1:]
	}
	if len(args) == 0 || args[0] != "push" {
		return hidden("only push directly behind "+u.Name+" can be opened", how)
	}
	image := ""
	for _, a := range args[1:] {
		switch {
		case a == "-q" || a == "--quiet" || a == "-a" || a == "--all-tags":
		case a == "" || a[0] == '-' || image != "":
			return hidden("argument "+shell.Show(a)+" may send it elsewhere", how)
		default:
			image = a
		}
	}
	first, _, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(first, ".:") {
		return hidden("the host is not shown: the name of the image has no registry in front", how)
	}
	d, ok := parseHost(first, defaultPorts["https"])
	if !ok {
		return hidden("the registry is not a plain host", how)
	}
	return route{to: []destination{d}}
}

// optionRoute reads programs that take the address of the registry as one
// option. Any other option that could name one is refused.
func optionRoute(args []string, sub, option, form string) route {
	how := "Write the address in the command: " + form + "."
	if len(args) == 0 || args[0] != sub {
		return hidden("only "+sub+" can be opened", how)
	}
	var r route
	for n := 1; n < len(args); n++ {
		name, value, has := strings.Cut(args[n], "=")
		switch {
		case name == option:
			if !has {
				if n++; n >= len(args) {
					return hidden("the address is missing", how)
				}
				value = args[n]
			}
			d, ok := parseAddress(value, "https")
			if !ok {
				return hidden("the address is not a plain https one", how)
			}
			r.to = append(r.to, d)
		case slices.Contains([]string{"--skip-existing", "--non-interactive", "--verbose", "-v", "--allow-dirty", "--dry-run", "--no-verify", "--quiet", "-q"}, name):
		case strings.HasPrefix(name, "-"):
			return hidden("argument "+shell.Show(name)+" may send it elsewhere", how)
		}
	}
	if len(r.to) == 0 {
		return hidden("the host is not shown: it is in a configuration file", how)
	}
	return r
}

// detours are options of web clients that send a request elsewhere than to the
// address that is shown.
var detours = regexp.MustCompile(`^(-x|--proxy\S*|--preproxy|--socks\S*|--connect-to|--resolve|--doh-\S*|--dns-\S*|--unix-socket|--abstract-unix-socket|-K|--config|--netrc-file|--alt-svc|--hsts|--location-trusted|--post30\d|-e|--execute|-i|--input-file|--base|-B|--use-askpass|-Q|--quote|--mail-\S*|--proto-default|--haproxy-\S*|--ipfs-gateway|--interface|-t|--telnet-option|--url-query|--ech)$`)

// detoured returns the option of a web client that may send the data
// elsewhere. For curl, -e, -i, -B and -t mean other, harmless things.
func detoured(u *program.Use) string {
	for _, o := range u.Options {
		if u.Name == "curl" && (o.Name == "-e" || o.Name == "-i" || o.Name == "-B") || u.Name == "wget" && (o.Name == "-x" || o.Name == "-K" || o.Name == "-Q" || o.Name == "-t") {
			continue
		}
		if !o.Known || detours.MatchString(o.Name) {
			return shell.Show(o.Name)
		}
	}
	return ""
}

func webRoute(u *program.Use) route {
	how := "Name the host in a plain address: https://HOST/PATH."
	if o := detoured(u); o != "" {
		return hidden("option "+o+" may send it elsewhere", how)
	}
	var r route
	for _, a := range u.Accesses {
		if a.Action != program.Fetch && a.Action != program.Upload {
			continue
		}
		d, ok := parseAddress(a.Path, "https", "http", "ftp", "ftps")
		if !ok {
			return hidden("the address is not a plain one with a scheme, a host in lower case and no account", how)
		}
		r.to = append(r.to, d)
	}
	if len(r.to) == 0 {
		return hidden("the command shows no address", how)
	}
	return r
}

// wordsRoute reads httpie: METHOD, address, items.
func wordsRoute(args []string) route {
	how := "Write METHOD and a plain address first: http POST https://HOST/PATH name=value."
	for i, a := range args {
		if a == "" || a[0] == '-' {
			return hidden("an option may send it elsewhere", how)
		}
		if i == 0 && strings.ToUpper(a) == a && !strings.Contains(a, ":") {
			continue
		}
		if d, ok := parseAddress(a, "https", "http"); ok && !slices.ContainsFunc(args[i+1:], func(s string) bool { return strings.HasPrefix(s, "-") }) {
			return route{to: []destination{d}}
		}
		break
	}
	return hidden("the address is not a plain one", how)
}
