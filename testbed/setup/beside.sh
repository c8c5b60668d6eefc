#!/usr/bin/env bash
# beside.sh COMMAND COMMAND: runs two shell texts at once. Both run to their end,
# also when the other one fails. An interrupt reaches everything that they started.
set -uo pipefail
set -m # each has a process group of its own
bash -c "$1" </dev/null &
one=$!
bash -c "$2" </dev/null &
two=$!
for signal in INT TERM; do
  # shellcheck disable=SC2064
  trap "kill -$signal -- -$one -$two 2>/dev/null" "$signal"
done
code=0
for pid in "$one" "$two"; do
  # A signal ends a wait early.
  while wait "$pid"; result=$?; kill -0 "$pid" 2>/dev/null; do :; done
  if [ "$result" -ne 0 ]; then code=$result; fi
done
exit "$code"
