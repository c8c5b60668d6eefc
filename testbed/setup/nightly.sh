#!/usr/bin/env bash
# nightly.sh SAVEPOINT LIMIT [FLAG...]: makes the experiments with these flags of
# bench run, adds the run to the history beside it (history.jsonl), and compares it
# with the run before it that has the same plan, when there is one. What is reported
# and compared lies in the run's directory, also of a run whose experiments failed.
# Exit code 1 when a figure is worse or an experiment failed. A signal goes on to what
# runs; a run that is interrupted takes its sandbox back and keeps what it measured,
# and ends the night with exit code 130.
set -uo pipefail
# shellcheck source=testbed/setup/pass.sh
source "${BASH_SOURCE[0]%/*}/pass.sh"
savepoint=$1
limit=$2
shift 2
said=$(mktemp)
trap 'rm -f "$said"' EXIT
code=0
pass "$savepoint" bench run "$@" >"$said" || code=$?
cat "$said"
if [ "$code" -ge 128 ]; then
  echo "nightly: interrupted; savepoint bench run --resume, or --dir again, goes on" >&2
  exit "$code"
fi
run=$(sed -n 's/: [0-9]* experiments.*; see .*//p' "$said")
if [ -z "$run" ]; then
  echo "nightly: bench run made no run (exit code $code)" >&2
  exit $((code ? code : 1))
fi
pass "$savepoint" bench report --history "$(dirname "$run")/history.jsonl" "$run" || code=$?
pass "$savepoint" bench compare --limit "$limit" "$run" >"$run/compare.md" || code=$?
cat "$run/compare.md"
exit "$code"
