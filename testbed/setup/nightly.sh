#!/usr/bin/env bash
# nightly.sh SAVEPOINT LIMIT [FLAG...]: makes the experiments with these flags of
# bench run, adds the run to the history beside it (history.jsonl), and compares it
# with the run before it that has the same plan, when there is one. What is reported
# and compared lies in the run's directory, also of a run whose experiments failed.
# Exit code 1 when a figure is worse or an experiment failed.
set -uo pipefail
savepoint=$1
limit=$2
shift 2
code=0
out=$("$savepoint" bench run "$@") || code=$?
printf '%s\n' "$out"
run=$(sed -n 's/: [0-9]* experiments; .*//p' <<<"$out")
if [ -z "$run" ]; then
  echo "nightly: bench run made no run (exit code $code)" >&2
  exit $((code ? code : 1))
fi
"$savepoint" bench report --history "$(dirname "$run")/history.jsonl" "$run" || code=$?
"$savepoint" bench compare --limit "$limit" "$run" | tee "$run/compare.md" || code=$?
exit "$code"
