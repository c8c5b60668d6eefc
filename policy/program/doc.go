// Package program knows programs: which arguments are files that are read,
// written or deleted, which are code, which are other programs.
//
// # Overview
//
// Tables in tables/*.yaml describe programs (see Spec); what a table cannot
// say is in one function per program. A Judge is the shell.Host that looks up
// every program a line would run, follows launchers and code in arguments back
// into the shell walker, and hands a Use to its Sink: the program with what it
// does to which targets.
//
// # Invariants
//
// A Use is ReadOnly only when the program is in a table, comes from a system
// directory or the search path, every option is in the table, and every
// argument is known to be input. A launcher whose options are not all known is
// judged for every place its command could start at.
//
// # Limits
//
// What a script, a binary or a build system does is not seen: such programs
// are local changes that nothing here bounds.
package program
