// Package schema describes and checks the parameters of API calls.
//
// # Overview
//
// A Param says what one parameter may be; a Set is all parameters of a call.
// Set.Check returns one text per bad parameter, all at once, in the words that
// API clients know. Property strings ("virtio,bridge=vmbr0") are described by
// Props, whose keys are Params themselves.
//
// # Invariants
//
//   - Checking changes nothing except to bring values into their one form:
//     scalars become strings, a scalar for an array becomes a list of one.
//   - The first complaint about a parameter is the one that is reported.
//   - What is not described is refused.
//
// # Limits
//
// Only what the lab's calls need: scalars, arrays of strings, property strings
// and named formats. Formats are checked where their text is known to matter;
// an unknown format name accepts every string.
package schema
