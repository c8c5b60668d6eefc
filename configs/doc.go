// Package configs loads, validates and writes savepoint's configuration. It is
// the only package that imports viper.
//
// # Overview
//
// [Load] merges four layers, the strongest first: overrides from the command
// line, SAVEPOINT_* environment variables, one YAML file, defaults. The key
// "cluster.token_id" is SAVEPOINT_CLUSTER_TOKEN_ID in the environment. The
// result is a plain [Config]; cmd maps it onto the Config of each package, so
// that nothing else knows where a value came from.
//
// When no file is named, the first that exists is used: ./savepoint.yaml,
// $XDG_CONFIG_HOME/savepoint/savepoint.yaml, and the file that a running lab
// left in the state directory.
//
// lab.example.yaml and cluster.example.yaml beside this file are complete,
// commented configurations; a test loads both.
//
// # Invariants
//
//   - A key that is not in [Config] is an error, wherever it stands.
//   - Every problem is reported in one [Error]: key, value, cause, what to do.
//   - A relative path in a file is relative to that file; in the environment
//     and on the command line it is relative to the working directory. Paths in
//     the result are absolute.
//   - A [Secret] prints as "redacted" through every formatting and marshalling
//     interface. Only [MarshalWithSecrets] and [WriteWithSecrets] write it.
//   - A secret in a file that others can read is refused.
//   - No package state: two calls of Load know nothing of each other.
//
// # Limits
//
//   - One file, no includes, no YAML merge keys or aliases, 1 MiB at most.
//   - Policy rules are only named here; package policy reads them.
//   - Unknown SAVEPOINT_* variables are not found: Load is given a lookup, not
//     the whole environment. An empty variable counts as not set.
package configs
