#!/usr/bin/env bash
# Makes sure that the Debian packages of packages.txt are there.
#
#   packages.sh demo|test            install what is missing, as root
#   packages.sh demo|test --check    only say what is missing
#
# Exit codes: 0 all there, 1 the installation did not work, 2 wrong usage,
# 3 something is missing and this process may not install it.
# SAVEPOINT_SETUP_LIST names another list; the tests use it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=${SAVEPOINT_SETUP_LIST:-$here/packages.txt}
tier=${1:-} mode=${2:-install}
case "$tier:$mode" in
  demo:install | test:install | demo:--check | test:--check) ;;
  *) echo "usage: packages.sh demo|test [--check]" >&2; exit 2 ;;
esac

# present PROBE: administrators' programs are not on every user's PATH.
present() {
  case "$1" in
    /*) [ -e "$1" ] ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null ;;
  esac
}

# missing prints "PACKAGE WHY" for each package whose probe is not there.
missing() {
  local package probe for_tier why
  while read -r package probe for_tier why; do
    case "$package" in '' | '#'*) continue ;; esac
    case "$for_tier" in
      demo) ;;
      test) [ "$tier" = test ] || continue ;;
      user) [ "$(id -u)" -ne 0 ] || continue ;;
      *) echo "$list: $package has the unknown tier \"$for_tier\"" >&2; return 1 ;;
    esac
    present "$probe" || printf '%s %s\n' "$package" "$why"
  done <"$list"
}

lacking=$(missing)
[ -n "$lacking" ] || exit 0
names=$(printf '%s\n' "$lacking" | cut -d' ' -f1 | tr '\n' ' ')

echo "These Debian packages are missing:" >&2
printf '%s\n' "$lacking" | while read -r package why; do printf '  %-18s %s\n' "$package" "$why"; done >&2

if [ "$mode" = --check ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  if command -v apt-get >/dev/null; then
    echo "Install them as root, then try again:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${names% }" >&2
  else
    echo "This is not Debian: install what corresponds to them, then try again." >&2
  fi
  exit 3
fi

apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" >&2
}

# lists_fresh: apt knows packages, and learned about them within a day.
lists_fresh() {
  [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -1 -print -quit 2>/dev/null)" ]
}

# The lab starts what it needs by itself, in its own namespaces: a package's
# service (frr) would begin to route on this machine. A policy of the machine's
# own stands.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101 # no service starts while savepoint installs packages\n' >"$policy"
  chmod 755 "$policy"
fi

echo "Installing them with apt-get ..." >&2
updated=no
if ! lists_fresh; then
  # One source of many that is down is no reason to give up.
  apt update || echo "apt-get update reported problems (above); trying with what is known." >&2
  updated=yes
fi
# shellcheck disable=SC2086 # one word for each package
if ! apt install -y --no-install-recommends $names; then
  # A package may have moved on since the lists were fetched.
  [ "$updated" = no ] || { echo "apt-get could not install them; its messages are above." >&2; exit 1; }
  apt update || true
  apt install -y --no-install-recommends $names ||
    { echo "apt-get could not install them; its messages are above." >&2; exit 1; }
fi

lacking=$(missing)
if [ -n "$lacking" ]; then
  echo "Installed, but not found afterwards:" >&2
  printf '  %s\n' "$lacking" >&2
  exit 1
fi
echo "Done." >&2
