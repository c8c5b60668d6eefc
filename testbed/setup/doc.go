// Package setup knows the Debian packages that the demo and the tests use.
//
// # Overview
//
// packages.txt is the one list; packages.sh installs what is missing before
// make demo and make test, and Packages gives the list to programs. step.sh
// runs one step of a build and prints its time; beside.sh runs two at once;
// nightly.sh is make nightly. openssh.sh unpacks the OpenSSH server of the tests. pass.sh is how scripts hand signals on.
//
// # Invariants
//
//   - Nothing is installed without being announced, with the reason.
//   - Without root nothing is changed: the script says what to install and
//     exits with 3.
//   - When everything is there, the script prints nothing and is quick.
//   - Recommended packages are not installed; what is needed stands in the list.
//
// # Limits
//
//   - Debian 12 with apt. Elsewhere the script names the packages and stops.
//   - A package counts as present when its probe is; versions are not compared.
package setup
