// Package official reads the API schema that Proxmox VE publishes with its API
// viewer, and tells what is wrong with a request by it.
//
// # Overview
//
// The schema is no part of the repository. SAVEPOINT_PVE_APIDATA names its
// files, one per release, joined by ':': JSON, or the script apidata.js that
// every node has. Releases reads them once; what the environment does not name
// is not there, and tests that need it skip.
//
// The lab's own table of calls is compared with the schema (the tests of
// testbed/pve), and so are the requests that savepoint sends: a Recorder is
// told every request of a lab's server and checks it.
//
// # Invariants
//
//   - A request is good when the release has the call, with these parameters:
//     all that are required, no other, each of its type, format, pattern,
//     length, range and enumeration, property strings key by key.
//   - Nothing of the schema is kept in the repository.
//
// # Limits
//
//   - Formats are checked where package schema knows them by name; a pattern
//     that Go cannot read is not.
//   - What the schema does not say (which parameters go together, states) is
//     not checked: the lab's server does that.
package official
