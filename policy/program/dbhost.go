package program

import (
	"regexp"
	"strings"

	"savepoint/policy/shell"
)

// databaseVariables are variables in which clients look for the place of the
// database, when no argument names one.
var databaseVariables = map[string][]string{
	"postgres": {"PGHOST", "PGHOSTADDR", "PGSERVICE", "DATABASE_URL"},
	"mysql":    {"MYSQL_HOST", "MYSQL_PWD_HOST"},
	"redis":    {"REDISCLI_HOST", "REDIS_URL", "REDIS_HOST"},
	"mongo":    {"MONGODB_URI", "MONGO_URL"},
}

// databaseFamily is the kind of server that a client speaks to.
func databaseFamily(name string) string {
	switch name {
	case "psql", "pgcli", "vacuumdb", "reindexdb", "pgbench", "createdb", "dropdb", "createuser", "dropuser", "pg_restore", "clusterdb":
		return "postgres"
	case "mysql", "mariadb", "mycli", "mysqladmin", "mysqlimport", "mysqlsh":
		return "mysql"
	case "redis-cli", "valkey-cli", "iredis", "keydb-cli":
		return "redis"
	case "mongosh", "mongo", "mongorestore", "mongoimport":
		return "mongo"
	}
	return ""
}

// nearHost reports whether a host of a database is this machine or a neighbour
// in a container network, by the names such neighbours usually have.
func nearHost(host string) bool {
	switch host {
	case "", "localhost", "::1", "0.0.0.0", "db", "database", "postgres", "postgresql", "mysql", "redis", "mariadb", "mongo", "mongodb":
		return true
	}
	return strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "/")
}

// implicitHost is the remote host that variables of the line give to a client
// which names none itself.
func implicitHost(sc *shell.Scope, c shell.Call, name string) string {
	family := databaseFamily(name)
	if family == "" || namesHost(c.Argv[1:]) {
		return ""
	}
	for _, v := range databaseVariables[family] {
		values, _ := sc.Settings(c, v)
		for i, value := range values {
			if value == "" || i > 0 && value == string(shell.HoleMaybe) {
				continue
			}
			if v == "PGSERVICE" {
				return "service:" + value // a service file says where; hardly ever this machine
			}
			if host := hostIn(value); !nearHost(host) {
				return host
			}
		}
	}
	return ""
}

// hostIn is the host that a setting names: by itself, or in an address.
func hostIn(value string) string {
	if strings.Contains(value, "://") {
		return hostOf(value)
	}
	return value
}

// namesHost reports whether an argument says where the database is.
func namesHost(args []string) bool {
	for _, a := range args {
		if strings.HasPrefix(a, "-h") || strings.HasPrefix(a, "--host") || strings.Contains(a, "://") || strings.Contains(a, "host=") {
			return true
		}
	}
	return false
}

// resets are words with which tools of frameworks change or empty a database.
var resets = regexp.MustCompile(`(?i)(?:^|[\s:_-])(?:flush|reset|drop|truncate|wipe|purge|rollback|refresh|fresh|migrate|push|seed|load|restore|destroy|downgrade|upgrade)(?:[\s:_-]|$)`)

// frameworkDatabase is the remote database that a variable in front of a
// command of a framework names, when the command changes it.
func frameworkDatabase(sc *shell.Scope, c shell.Call) string {
	if len(c.Argv) < 2 {
		return ""
	}
	for _, v := range [...]string{"DATABASE_URL", "DB_URL", "MONGODB_URI", "DB_HOST"} {
		values, _ := sc.Settings(c, v)
		for _, value := range values {
			if !shell.Known(value) || !strings.Contains(value, "://") && v != "DB_HOST" {
				continue
			}
			if host := hostIn(value); !nearHost(host) && strings.Contains(host, ".") && resets.MatchString(strings.Join(c.Argv[1:], " ")) {
				return host
			}
		}
	}
	return ""
}
