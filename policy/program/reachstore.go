package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// emulates proves for the tools of cloud providers that they talk to an
// emulator on this machine.
func (r *reacher) emulates() bool {
	if len(r.args) == 0 || slices.ContainsFunc(r.args, carries) {
		return false
	}
	a := r.args
	switch r.name {
	case "awslocal":
		return !slices.ContainsFunc(a, func(s string) bool { return strings.HasPrefix(s, "--endpoint") || strings.HasPrefix(s, "--profile") })
	case "aws":
		return r.endpoint()
	case "supabase":
		if slices.ContainsFunc(a, func(s string) bool {
			return strings.HasPrefix(s, "--linked") || strings.HasPrefix(s, "--db-url") || strings.HasPrefix(s, "--project-ref") || s == "--remote" || strings.HasPrefix(s, "--profile") || strings.HasPrefix(s, "-p")
		}) {
			return false
		}
		two := a[0]
		if len(a) > 1 {
			two += " " + a[1]
		}
		switch {
		case slices.Contains([]string{"start", "stop", "status", "init", "services", "test"}, a[0]):
			return true
		case slices.Contains([]string{"db reset", "db start", "db diff", "db lint", "migration up", "migration new", "functions serve", "functions new", "seed buckets"}, two):
			return true
		}
		return slices.Contains(a, "--local") && (a[0] == "db" || a[0] == "migration" || a[0] == "gen" || a[0] == "storage" || a[0] == "inspect")
	case "firebase":
		return a[0] == "emulators:start" || a[0] == "emulators:export" || a[0] == "setup:emulators:firestore" || a[0] == "emulators:exec" || a[0] == "serve"
	case "gcloud":
		if a[0] == "beta" || a[0] == "alpha" {
			a = a[1:]
		}
		return len(a) > 2 && a[0] == "emulators" && (a[2] == "start" || a[2] == "env-init")
	case "wrangler":
		return slices.Contains(a, "--local") && !slices.Contains(a, "--remote") && (a[0] == "d1" || a[0] == "kv" || a[0] == "r2" || a[0] == "dev" || strings.HasPrefix(a[0], "kv:"))
	}
	return false
}

// endpoint reports whether aws is told, once, to go to this machine.
func (r *reacher) endpoint() bool {
	var all []string
	for i, s := range r.args {
		name, value, has := strings.Cut(s, "=")
		switch {
		case name == "--endpoint-url" && has:
			all = append(all, value)
		case name == "--endpoint-url" && i+1 < len(r.args):
			all = append(all, r.args[i+1])
		case strings.HasPrefix(name, "--endp"):
			return false
		}
	}
	if len(all) == 0 {
		all, _ = r.sc.Settings(r.call, "AWS_ENDPOINT_URL")
	}
	return len(all) > 0 && !slices.ContainsFunc(all, func(v string) bool { return !localAddress(v) }) &&
		!slices.ContainsFunc(r.args, func(s string) bool { return strings.HasPrefix(s, "--cli-input") && strings.Contains(s, "http") })
}

// localStore is an address of a database that lies on this machine.
var localStore = regexp.MustCompile(`^(?:(?:jdbc:)?(?:postgres(?:ql)?|mysql|mariadb|mongodb|redis|sqlserver|cockroachdb)(?:\+[a-z0-9]+)?:(?://)?(?:[^@/?#\\\s]*@)?(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]+)?(?:[/;?][^\s@]*)?|(?:jdbc:)?(?:h2:mem|h2:file|h2|hsqldb|sqlite[0-9]?|derby|duckdb):\S*|file:[^/\s]\S*|file:/[^/\s]\S*)$`)

func storedHere(values []string) bool {
	return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool {
		return !shell.Known(v) || !localStore.MatchString(v) || strings.Contains(v, "h2:tcp") || strings.Contains(v, "h2:ssl") || strings.Contains(v, "host=")
	})
}

// stores proves for database tools that the database they change is here.
func (r *reacher) stores() bool {
	switch r.name {
	case "prisma":
		values, ok := r.sc.Settings(r.call, "DATABASE_URL")
		direct, two := r.sc.Settings(r.call, "DIRECT_URL")
		p, plain := r.strictly("-f --force --force-reset --accept-data-loss --skip-generate --skip-seed --schema=text --name=text -n=text --create-only --file=text --stdin --preview-feature --url=text")
		if o, has := p.given("--url"); has {
			values, ok = []string{o.Value}, true
		}
		return ok && plain && storedHere(values) && (!two || storedHere(direct))
	case "liquibase", "flyway":
		var values []string
		for i, a := range r.args {
			switch name, value, has := strings.Cut(a, "="); {
			case strings.TrimLeft(name, "-") == "url" && has:
				values = append(values, value)
			case a == "--url" && i+1 < len(r.args):
				values = append(values, r.args[i+1])
			case strings.Contains(a, "://") && !strings.HasPrefix(a, "--url"):
				if i == 0 || r.args[i-1] != "--url" {
					return false
				}
			}
		}
		return storedHere(values)
	case "redis-cli", "valkey-cli", "keydb-cli":
		// Behind the command no word is an option any more; without -h and -u
		// the server is the one of this machine.
		p, ok := taken(&Spec{Stop: true, Options: cliOptions}, r.args)
		return ok && !slices.ContainsFunc(p.options, func(o Option) bool {
			return o.Name == "-h" && !localAddress(o.Value) || o.Name == "-u" && !localAddress(o.Value)
		}) && len(p.operands) > 0 && shell.Known(p.operands[0]) && !movesAway(p.operands)
	}
	return false
}

// cliOptions are the options of redis-cli.
const cliOptions = "-cx23 -h=text -p=text -n=text -u=text -a=text -r=text -i=text -d=text --raw --no-raw --csv --json --scan --pattern=text --no-auth-warning --user=text --pass=text -e"

// movesAway reports whether a command of the server reaches other servers,
// files or code.
func movesAway(command []string) bool {
	return slices.Contains([]string{"migrate", "slaveof", "replicaof", "config", "module", "debug", "cluster", "eval", "evalsha", "script", "function", "fcall", "restore", "acl", "sync", "psync", "failover", "sentinel", "shutdown"}, strings.ToLower(command[0]))
}
