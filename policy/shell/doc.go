// Package shell says what a line of bash would run, without running it.
//
// # Overview
//
// Filter refuses bytes that make a text look different from what bash does
// with it. A Walker parses the text, walks every node that can execute or
// write, and expands words as far as they can be known: variables, quoting,
// ANSI-C strings, braces, parameter expansion, command substitution of
// printing commands. It tells a Host about every program that would run and
// every Fact it found on the way. The Host knows programs; this package knows
// only the shell and its builtins. A Host that finds code inside an argument
// hands it back to Walker.Source.
//
// Every assignment that a text makes, by whatever construct, goes through
// Walker.give or giveList. That is where a variable that is exported, before or
// after, becomes a Fact. Builtins are a table of functions.
//
// Values are plain strings in which a few control bytes stand for what is not
// known (see Hole). The filter refuses control bytes in the input, so they
// cannot be forged.
//
// Where the shell may go one way or another, each way is walked in a branch of
// the Scope, and the branches are joined: what one of them changed is added to
// what was there and replaces nothing. That holds for variables, functions,
// files, descriptors, options and the working directory. What leaves a loop, a
// function or a subshell early, an error in an expansion included, leaves a copy
// of the state behind that is joined where the shell goes on (see frame). Links,
// aliases and copies of programs are never taken back.
//
// # Invariants
//
// Nothing here reads a file, an environment variable or a clock. A text that
// does not parse, nests too deep or takes too many steps yields a Fact, never
// silence. A branch, a loop and a function body are walked whether or not they
// would run, and so is a function that another one replaces. Text that the shell
// expands a second time is judged as code when it is known, and is a Fact when
// it is not.
//
// # Limits
//
// Variables that the line does not assign are taken from a plain login
// environment. Loops whose items or rounds are not known are walked until no
// variable gets a new value, ten times at most; a variable that still does is
// then unknown. A function is followed three calls deep inside itself. Its local
// variables hold behind it what they held before or what it gave them. Traps are
// walked after each change of the state. What branches copy and compare is
// bounded, as are the places, links and contents that are told apart: beyond,
// the text is denied. An assignment to a name that is not known changes no
// variable; the line is then no longer read-only. Whether a loop ends is told
// from how it is written.
package shell
