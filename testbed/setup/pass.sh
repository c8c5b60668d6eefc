# shellcheck shell=bash
# pass COMMAND...: runs it with our input, hands on the signals that would end us, and
# returns its exit code when it has ended: it may have much to tidy up before. A shell
# that runs a command in the foreground does nothing about a signal until that is over.
pass() {
  local caught='' passed='' code signal
  for signal in HUP INT TERM; do
    # shellcheck disable=SC2064
    trap "hand_on $signal" "$signal"
  done
  # It shares our process group, so that it may ask on the terminal; what a script
  # starts in the background would ignore an interrupt.
  (trap - INT QUIT && exec "$@") <&0 &
  passed=$!
  if [ -n "$caught" ]; then hand_on "$caught"; fi # before it had a number
  # A signal ends a wait early.
  while caught=; wait "$passed"; code=$?; [ -n "$caught" ]; do :; done
  trap - HUP INT TERM
  # bash loses the exit code of what ends in the moment in which a signal comes.
  if [ "$code" -lt 0 ]; then code=130; fi
  return "$code"
}

# hand_on SIGNAL: of pass alone.
hand_on() {
  caught=$1
  if [ -n "$passed" ]; then kill "-$1" "$passed" 2>/dev/null; fi
}
