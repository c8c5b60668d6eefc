// Package policy decides what a command may do before it runs.
//
// # Overview
//
// Engine.Decide takes the exact text that a login shell would get and answers
// allow, snapshot or deny, with the rule, the reason and the effects. It
// filters the text, parses it as bash and walks everything that could run
// (package shell), finds out what each program would do to which target
// (package program), and evaluates rules over that. Rules are data: the files
// in rules/ are built in, a deployment adds its own (see RuleFile and README.md).
// The strictest finding wins; a rule that names what it lifts, and a Grant for
// one command, are the only exceptions, and each is on record. A Permit, which
// only this package makes, carries the judged bytes to the executor.
//
// # Invariants
//
// Decide is pure: no file, clock, environment or network. The zero Decision,
// every error and everything that cannot be resolved deny. A command is
// allowed only when every part of it is proved to read only. Nothing here
// executes anything to decide. Decide is safe for concurrent use and bounded
// in time and memory by the size limit and the step limit of package shell.
//
// # Limits
//
// What scripts, binaries and build systems do is not seen; they are local
// changes that need a boundary. The policy is a filter. The boundary, the
// unprivileged account and the sealed zone hold what it cannot see.
package policy
