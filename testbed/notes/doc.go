// Package notes keeps what the lab has made in files that survive a crash, and
// finds the processes among it again without mistaking another one for them.
//
// # Overview
//
// Write and WriteJSON replace a file as a whole. A Process is noted by its id,
// its start time and one of its arguments; Proc finds it again. Open holds a
// process by a pidfd, through which it is signalled and waited for. Mounts reads a
// mount table.
//
// # Invariants
//
//   - After Write returned, the file has the new content, whatever stops; before,
//     it has the old one.
//   - A process is ours when id, start time and argument agree. An id that was
//     not noted any more is found by the argument, which has to be random.
//   - Nothing is signalled but what was looked at again after its pidfd was open:
//     from then on the id cannot become another process's.
//
// # Limits
//
//   - Linux, for processes.
//   - One writer at a time per file.
package notes
