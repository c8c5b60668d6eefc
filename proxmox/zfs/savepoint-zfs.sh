#!/bin/sh
# savepoint-zfs: the forced command of savepoint's SSH key on a node.
#
#   savepoint-zfs [-z ZFS] PREFIX...
#
# It reads one request from its input, does it, and answers. It works on
# datasets below a PREFIX and on nothing else, and what is asked for in any
# other way (the command that the client named, its environment) is not looked at.
#
#   request  savepoint-zfs 1          answer  savepoint-zfs 1
#            do create                        = name TAB property TAB value TAB source
#            dataset pool/vm-104-disk-1       ! text of zfs, or of this program
#            name sp-01jx                     end ok|full|denied|busy|refused|failed
#            owner lab/01jx
#            text words for people
#            reserve 67108864
#            go
#
# An answer without "end" is cut off. Every request holds a lock until its zfs
# command has ended, so whoever is answered knows that no earlier one still works.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
umask 077

zfs=zfs
if [ "${1:-}" = -z ]; then
	zfs=$2
	shift 2
fi
tab=$(printf '\t')
properties=type,creation,createtxg,available,savepoint:owner,savepoint:text

finish() {
	printf 'end %s\n' "$1"
	exit 0
}

# words marks every line of $2 with $1, so that none can be taken for an end.
words() { printf '%s\n' "$2" | head -n 20000 | sed "s/^/$1 /"; }

refuse() {
	words '!' "$1"
	finish refused
}

failed() {
	words '!' "$1"
	finish failed
}

# run is zfs with a deadline and without our input.
run() { timeout -k 5 60 "$zfs" "$@" </dev/null 2>&1; }

act() { said=$(run "$@") || failed "$said"; }

# has answers with the owner that $1 carries itself: what it inherits from
# above it is no proof of anything.
has() {
	said=$(run get -H -o value,source savepoint:owner "$1") || return 1
	case $said in
	*"$tab"local) said=${said%"$tab"local} ;;
	*) said= ;;
	esac
}

must_own() {
	has "$1" || failed "$said"
	if [ "$said" != "$owner" ]; then
		words '!' "$1 has the owner '$said', not '$owner'"
		finish denied
	fi
}

list() {
	said=$(run get -H -p -r -d 1 -o name,property,value,source "$properties" "$dataset") || failed "$said"
	words = "$said"
}

check_dataset() {
	case /$dataset/ in
	*[!A-Za-z0-9_.:/-]* | *//* | */./* | */../* | /-*) refuse 'not the name of a dataset' ;;
	esac
	for prefix; do
		case $dataset in
		"$prefix"/?*) return ;;
		esac
	done
	refuse 'the dataset is not below one that this key is for'
}

check_name() {
	case $name in
	[A-Za-z]*) ;;
	*) refuse 'not the name of a snapshot' ;;
	esac
	case $name in
	*[!A-Za-z0-9_-]*) refuse 'not the name of a snapshot' ;;
	esac
	[ "${#name}" -ge 2 ] && [ "${#name}" -le 40 ] || refuse 'not the name of a snapshot'
}

check_rest() {
	case $owner in
	*[!a-z0-9/-]* | '' | -*) refuse 'not an owner' ;;
	esac
	case $text in
	*[!\ -~]*) refuse 'the text has other than printable characters' ;;
	esac
	case $reserve in
	*[!0-9]* | '' | ???????????????????*) refuse 'not a number of bytes' ;;
	esac
	[ "${#owner}" -le 128 ] && [ "${#text}" -le 256 ] || refuse 'too long'
}

printf 'savepoint-zfs 1\n'
[ "$#" -gt 0 ] || refuse 'no dataset is set for this key'

# The last word of a whole request is "go"; what is cut off does nothing.
request=$(head -c 4096)
order= dataset= name= owner= text= reserve=0 state=start
while IFS= read -r line; do
	case $state:$line in
	start:'savepoint-zfs 1') state=open ;;
	open:go) state=whole ;;
	open:'do '*) order=${line#do } ;;
	open:'dataset '*) dataset=${line#dataset } ;;
	open:'name '*) name=${line#name } ;;
	open:'owner '*) owner=${line#owner } ;;
	open:'text '*) text=${line#text } ;;
	open:'reserve '*) reserve=${line#reserve } ;;
	*) refuse 'the request is not understood: is savepoint of another version?' ;;
	esac
done <<END
$request
END
[ "$state" = whole ] || refuse 'the request is cut off'

case $order in
hello)
	for prefix; do words = "$prefix${tab}prefix${tab}-${tab}-"; done
	finish ok
	;;
list) check_dataset "$@" ;;
claim)
	check_dataset "$@"
	check_rest
	;;
create | rollback | delete)
	check_dataset "$@"
	check_name
	check_rest
	;;
*) refuse 'there is no such order' ;;
esac

# Who waits is in no queue: a rollback whose asker has gone would come after one
# that was asked for later, so it does not wait at all.
patience=30
[ "$order" != rollback ] || patience=0
exec 9<"$0"
if ! flock -w "$patience" 9; then
	words '!' 'another request still works on this node'
	finish busy
fi

case $order in
claim)
	has "$dataset" || failed "$said"
	if [ -n "$said" ]; then
		must_own "$dataset"
	else
		act set "savepoint:owner=$owner" "$dataset"
	fi
	;;
create)
	must_own "$dataset"
	free=$(run get -H -p -o value available "$dataset") || failed "$free"
	if [ "$free" -lt "$reserve" ]; then
		words '!' "$free bytes are free, fewer than $reserve"
		finish full
	fi
	if [ -n "$text" ]; then
		act snapshot -o "savepoint:owner=$owner" -o "savepoint:text=$text" "$dataset@$name"
	else
		act snapshot -o "savepoint:owner=$owner" "$dataset@$name"
	fi
	;;
rollback)
	must_own "$dataset"
	must_own "$dataset@$name"
	act rollback "$dataset@$name"
	;;
delete)
	must_own "$dataset"
	if has "$dataset@$name"; then
		must_own "$dataset@$name"
		act destroy "$dataset@$name"
	else
		case $said in
		*'does not exist'*) ;;
		*) failed "$said" ;;
		esac
	fi
	;;
esac
list
finish ok
