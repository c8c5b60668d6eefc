package policy

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/program"
	"savepoint/policy/shell"
)

const remoteForm = "Name the host as user@host, without options that change the way there."

// copyRoute reads scp and rsync: every remote side has to be listed.
func copyRoute(u *program.Use) route {
	port := ""
	for _, o := range u.Options {
		switch o.Name {
		case "-o", "-F", "-J", "-S", "-D", "-e", "--rsh", "--rsync-path", "--daemon", "--config", "-M":
			if u.Name == "rsync" && (o.Name == "-o" || o.Name == "-F" || o.Name == "-J" || o.Name == "-S" || o.Name == "-D") {
				continue // owner, filter, times, sparse, devices
			}
			return hidden("option "+o.Name+" may send it elsewhere", remoteForm)
		case "-P", "--port":
			if u.Name == "scp" || o.Name == "--port" {
				port = o.Value
			}
		}
		if !o.Known {
			return hidden("option "+shell.Show(o.Name)+" is not known", remoteForm)
		}
	}
	var r route
	for _, a := range u.Accesses {
		if a.Action != program.Fetch && a.Action != program.Upload {
			continue
		}
		d, ok := parseAddress(a.Path, "rsync", "scp", "sftp")
		if !ok && !strings.Contains(a.Path, "://") {
			d, ok = parseRemote(a.Path)
		}
		if ok {
			d, ok = d.withPort(port, defaultPorts[u.Name])
		}
		if !ok {
			return hidden("the host is not a plain one", remoteForm)
		}
		r.to = append(r.to, d)
	}
	if len(r.to) == 0 {
		return hidden("the command shows no host", remoteForm)
	}
	return r
}

// withPort applies a port that an option gives.
func (d destination) withPort(port, usual string) (destination, bool) {
	if port == "" {
		return d, true
	}
	if d.port != "" || !shell.Known(port) {
		return d, false
	}
	return parseHost(d.host+":"+port, usual)
}

func sshRoute(u *program.Use) route {
	port := ""
	for _, o := range u.Options {
		switch o.Name {
		case "-p":
			port = o.Value
		case "-1", "-2", "-4", "-6", "-a", "-A", "-C", "-c", "-i", "-l", "-m", "-n", "-q", "-T", "-t", "-v", "-x", "-b", "-k":
		default:
			return hidden("option "+shell.Show(o.Name)+" may send it elsewhere", remoteForm)
		}
	}
	if len(u.Operands) > 1 && strings.HasPrefix(u.Operands[1], "-") {
		return hidden("an option behind the host may send it elsewhere", remoteForm)
	}
	host := ""
	for _, a := range u.Accesses {
		if a.Action == program.Upload {
			if host != "" {
				return hidden("the command shows more than one host", remoteForm)
			}
			host = a.Path
		}
	}
	d, ok := parseAddress(host, "ssh", "sftp")
	if !ok && !strings.Contains(host, "://") && (u.Name == "sftp" || !strings.Contains(host, ":")) {
		d, ok = parseRemote(host)
	}
	if ok {
		d, ok = d.withPort(port, defaultPorts["ssh"])
	}
	if !ok {
		return hidden("the host is not a plain one", remoteForm)
	}
	return route{to: []destination{d}}
}

// elsewhere is text with which a database client or server goes to another
// host than the one it was given.
var elsewhere = regexp.MustCompile(`(?i)\\c(\s|$|onnect\b)|\b(migrate|slaveof|replicaof)\b|\bservice\s*=`)

// databaseScheme is the scheme of the addresses that a database client takes.
func databaseScheme(name string) string {
	switch name {
	case "psql", "createdb", "dropdb", "pg_restore":
		return "postgres"
	case "mysql", "mariadb", "mysqladmin":
		return "mysql"
	case "redis-cli":
		return "redis"
	case "mongosh", "mongo":
		return "mongodb"
	}
	return ""
}

// databaseRoute reads database clients: -h, --host, a connection text with
// host=, or an address.
func databaseRoute(name string, args []string) route {
	how := "Name the host once: -h HOST."
	var r route
	port := ""
	scheme := databaseScheme(name)
	portOption := "-p"
	if scheme == "mysql" {
		portOption = "-P"
	}
	for n := 0; n < len(args); n++ {
		a := args[n]
		option, value, has := strings.Cut(a, "=")
		switch {
		case strings.Contains(a, "://"):
			d, ok := databaseAddress(a)
			if !ok {
				return hidden("the address of the database is not a plain one", how)
			}
			r.to = append(r.to, d)
		case a == "-h" || option == "--host" || a == portOption || option == "--port":
			if !has {
				if n++; n >= len(args) {
					return hidden("a value is missing", how)
				}
				value = args[n]
			}
			if a == portOption || option == "--port" {
				port = value
				continue
			}
			d, ok := parseHost(value, "")
			if !ok || d.port != "" {
				return hidden("the host is not a plain one", how)
			}
			r.to = append(r.to, d)
		case strings.HasPrefix(a, "-h") && len(a) > 2 && a[1] == 'h' && scheme != "mongodb":
			d, ok := parseHost(a[2:], "")
			if !ok || d.port != "" {
				return hidden("the host is not a plain one", how)
			}
			r.to = append(r.to, d)
		case strings.HasPrefix(a, "--h"), strings.HasPrefix(a, "--so"), strings.HasPrefix(a, "--defaults"), strings.HasPrefix(a, "--login-path"), strings.HasPrefix(a, "--po"), strings.HasPrefix(a, "--pr"),
			strings.HasPrefix(a, portOption), a != "" && a[0] == '-' && len(a) > 2 && a[1] != '-' && strings.ContainsAny(a[1:], "h"):
			return hidden("option "+shell.Show(option)+" may send it elsewhere", how)
		case strings.Contains(a, "host=") || strings.Contains(a, "hostaddr="), elsewhere.MatchString(a):
			return hidden("an argument may send it elsewhere", how)
		}
	}
	for i := range r.to {
		d, ok := r.to[i].withPort(port, defaultPorts[scheme])
		if !ok {
			return hidden("the port is not a plain one", how)
		}
		r.to[i] = d
	}
	if len(r.to) == 0 {
		return hidden("the host is not shown: it is in the environment or in a file", how)
	}
	return r
}

// databaseAddress reads one address. Its parameters may name another host.
func databaseAddress(a string) (destination, bool) {
	if i := strings.IndexByte(a, '='); strings.HasPrefix(a, "--") && i > 0 {
		a = a[i+1:]
	}
	_, query, _ := strings.Cut(a, "?")
	if strings.Contains(query, "host") || strings.Contains(query, "service") || strings.Contains(query, "%") || strings.Contains(query, "proxy") {
		return destination{}, false
	}
	return parseAddress(a, "postgresql", "postgres", "mysql", "mariadb", "rediss", "redis", "mongodb")
}

// staying are variables that cannot send anything elsewhere.
var staying = [...]string{"LC_*", "LANG", "LANGUAGE", "TZ", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "CI", "DEBUG", "NODE_ENV", "*_TOKEN", "*_PASSWORD", "*_USERNAME", "*_USER", "PGUSER", "PGDATABASE", "_"}

// settings are files that tell programs where to send things.
var settings = [...]string{".curlrc", ".wgetrc", ".netrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".gitconfig", ".pgpass", ".pg_service.conf", ".my.cnf", "config", "config.json", "hosts", "resolv.conf", "credentials", "credentials.toml", "config.toml"}

// unsettles reports whether a use changes where later parts of the same command
// send things.
func unsettles(u *program.Use) bool {
	switch u.Name {
	case "git":
		return len(u.Sub) > 0 && (u.Sub[0] == "config" || u.Sub[0] == "remote")
	case "npm", "pnpm", "yarn":
		return slices.Contains(u.Argv, "config") || slices.Contains(u.Argv, "set")
	}
	return slices.ContainsFunc(u.Accesses, func(a program.Access) bool {
		base := a.Path[strings.LastIndexByte(a.Path, '/')+1:]
		return a.Action == program.Write && slices.ContainsFunc(settings[:], func(s string) bool { return shell.Matches(base, s) })
	})
}

// redirects reports whether a variable that the command sets may send what it
// writes to another host than the one it shows.
func redirects(name string) bool {
	return !slices.ContainsFunc(staying[:], func(p string) bool { return nameMatches(p, name) })
}
