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
// # Invariants
//
// Nothing here reads a file, an environment variable or a clock. A text that
// does not parse, nests too deep or takes too many steps yields a Fact, never
// silence. A branch, a loop and a function body are walked whether or not they
// would run. Text that the shell expands a second time is judged as code when it
// is known, and is a Fact when it is not.
//
// # Limits
//
// Variables that the line does not assign are taken from a plain login
// environment. Loops that go over unknown items are walked once with an
// unknown item, and once more with what the first round assigned. Functions
// have no variables of their own: local assigns like any other declaration. An
// assignment to a name that is not known changes no variable; the line is then
// no longer read-only. Whether a loop ends is told from how it is written.
package shell
