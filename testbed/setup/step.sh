#!/usr/bin/env bash
# step.sh NAME COMMAND...: runs one step and says how long it took. A signal goes on
# to the command, whose end is waited for.
set -uo pipefail
name=$1
shift
printf '== %s\n' "$name"
begin=$(date +%s%N)
# shellcheck source=testbed/setup/pass.sh
source "${BASH_SOURCE[0]%/*}/pass.sh"
pass "$@"
code=$?
tenths=$((($(date +%s%N) - begin) / 100000000))
if [ "$code" -eq 0 ]; then word=ok; else word="failed with exit code $code"; fi
printf '== %s: %s in %d.%d s\n' "$name" "$word" $((tenths / 10)) $((tenths % 10))
exit "$code"
