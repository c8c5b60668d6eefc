#!/usr/bin/env bash
# Makes sure that the tests find an OpenSSH server: this machine's, or else one that
# is unpacked below DIR from Debian's packages.
#
#   openssh.sh DIR
#
# It is not installed, because an installed one listens to the network from the next
# boot on, on a machine whose owner only wanted to run tests.
# Exit codes: 0 it is there, 1 it could not be had, 2 wrong usage.
set -euo pipefail

[ $# = 1 ] || { echo "usage: openssh.sh DIR" >&2; exit 2; }
[ ! -x /usr/sbin/sshd ] || exit 0
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ ! -x "$dir/sshd" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "openssh.sh: this is not Debian: install an OpenSSH server, without a service that starts it." >&2
  exit 1
fi
echo "Unpacking an OpenSSH server for the tests ..." >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# libwrap0 is the one library of sshd that no other package of every Debian needs.
if ! apt-get -qq download openssh-server libwrap0 >&2; then
  echo "openssh.sh: apt-get could not download openssh-server and libwrap0 (above); try apt-get update as root." >&2
  exit 1
fi
for package in ./*.deb; do dpkg-deb --extract "$package" root; done
cp -p root/usr/lib/*/libwrap.so.0 "$dir/"
if lacks=$(LD_LIBRARY_PATH=$dir ldd root/usr/sbin/sshd | grep 'not found'); then
  echo "openssh.sh: libraries are missing: $lacks" >&2
  exit 1
fi
# Since 9.8 the server has programs of its own for sessions.
for part in root/usr/lib/openssh/sshd-session root/usr/lib/openssh/sshd-auth; do
  [ ! -e "$part" ] || cp -p "$part" "$dir/"
done
cp -p root/usr/sbin/sshd "$dir/sshd.new"
mv "$dir/sshd.new" "$dir/sshd" # last, for it says that all is there
