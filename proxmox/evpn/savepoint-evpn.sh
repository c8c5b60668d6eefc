#!/bin/sh
# savepoint-evpn: the forced command of savepoint's SSH key on a node whose API
# does not show the routes of EVPN zones. It only reads.
#
#   savepoint-evpn [-v VTYSH] [-d DIRECTORY OF FRR'S SOCKETS]
#
#   request  savepoint-evpn 1     answer  savepoint-evpn 1
#            zone ID                      4 a line of the IPv4 table, in JSON
#            go                           6 a line of the IPv6 table
#                                         ! words of FRR, or of this program
#                                         end ok|refused|failed
#
# What is asked for in any other way (the command that the client named, its
# environment) is not looked at.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
umask 077

vtysh=vtysh sockets=
while [ $# -ge 2 ]; do
	case $1 in
	-v) vtysh=$2 ;;
	-d) sockets=$2 ;;
	esac
	shift 2
done

finish() {
	if [ -n "${2:-}" ]; then
		printf '%s\n' "$2" | head -n 100 | sed 's/^/! /'
	fi
	printf 'end %s\n' "$1"
	exit 0
}

ask() { timeout -k 5 20 "$vtysh" ${sockets:+--vty_socket "$sockets"} -d zebra -c "$1" </dev/null 2>&1; }

printf 'savepoint-evpn 1\n'
zone=
read -r line
[ "$line" = 'savepoint-evpn 1' ] || finish refused 'the request is of another version'
while read -r key value; do
	case $key in
	zone) zone=$value ;;
	go) break ;;
	*) finish refused 'the request has something unknown in it' ;;
	esac
	key=
done
[ "${key:-}" = go ] || finish refused 'the request was cut off'
case $zone in
'' | *[!a-zA-Z0-9]*) finish refused 'that is no id of a zone' ;;
esac

for family in 4 6; do
	word=ip
	if [ $family = 6 ]; then
		word=ipv6
	fi
	table=$(ask "show $word route vrf vrf_$zone json") || finish failed "$table"
	printf '%s\n' "$table" | sed "s/^/$family /"
done
finish ok
