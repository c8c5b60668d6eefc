# Flattens the subset of YAML that cloud-init drives are written in to lines
# "path=value": block mappings and sequences, one-line scalars (plain, single-
# and double-quoted), one-line flow sequences of scalars, comments. Everything
# else (tabs, anchors, tags, block scalars, flow mappings, bad indentation) is
# refused with exit 1: half-understood configuration is worse than none.
function fail(why) {
	printf "line %d: %s\n", NR, why > "/dev/stderr"
	bad = 1
	exit 1
}
function trim(s) {
	sub(/^ +/, "", s)
	sub(/ +$/, "", s)
	return s
}
# scalar(s) returns the value of a one-line scalar without its comment.
function scalar(s,   c, i, out, ch) {
	s = trim(s)
	c = substr(s, 1, 1)
	if (c == "'") {
		out = ""
		for (i = 2; i <= length(s); i++) {
			ch = substr(s, i, 1)
			if (ch == "'") {
				if (substr(s, i + 1, 1) != "'") {
					rest = trim(substr(s, i + 1))
					if (rest != "" && rest !~ /^#/) fail("text after a quoted value")
					return out
				}
				i++
			}
			out = out ch
		}
		fail("quote without end")
	}
	if (c == "\"") {
		out = ""
		for (i = 2; i <= length(s); i++) {
			ch = substr(s, i, 1)
			if (ch == "\"") {
				rest = trim(substr(s, i + 1))
				if (rest != "" && rest !~ /^#/) fail("text after a quoted value")
				return out
			}
			if (ch == "\\") {
				i++
				ch = substr(s, i, 1)
				if (ch != "\\" && ch != "\"" && ch != "/") fail("escape that is not supported")
			}
			out = out ch
		}
		fail("quote without end")
	}
	if (s ~ /^[&*!|>%@`{}\[\],?]/) fail("value that is not supported: " s)
	sub(/ +#.*$/, "", s)
	if (s ~ /^#/) return ""
	return s
}
function emit(path, v) { print path "=" v }
# value(path, s) handles what stands after "key:" or "- ".
function value(path, s,   n, i, parts) {
	if (s ~ /^\[.*\] *(#.*)?$/) {
		sub(/\] *(#.*)?$/, "", s)
		s = trim(substr(s, 2))
		if (s == "") return
		if (s ~ /["'].*,.*["']/ && s ~ /["'][^"',]*,[^"',]*["'] *(,|$)/) fail("comma inside a quoted element")
		n = split(s, parts, /,/)
		for (i = 1; i <= n; i++) emit(path "." (i - 1), scalar(parts[i]))
		return
	}
	emit(path, scalar(s))
}
# key_end(s) is where the ":" of "key: value" is, or 0.
function key_end(s,   m) {
	if (match(s, /^[A-Za-z0-9_.\/-]+:( |$)/)) {
		m = index(s, ":")
		return m
	}
	if (match(s, /^'[A-Za-z0-9_.:\/-]+':( |$)/) || match(s, /^"[A-Za-z0-9_.:\/-]+":( |$)/)) return RLENGTH - (substr(s, RLENGTH, 1) == " ")
	return 0
}
function key_name(s, e,   k) {
	k = substr(s, 1, e - 1)
	if (k ~ /^['"]/) k = substr(k, 2, length(k) - 2)
	if (k ~ /[.=]/) gsub(/[.=]/, "_", k)
	return k
}
# place(ind) closes the blocks deeper than ind and returns the path above.
function place(ind) {
	while (depth > 0 && indent[depth] > ind) depth--
	if (depth == 0 || indent[depth] < ind) {
		if (depth > 0 && !open[depth]) fail("indentation")
		depth++
		indent[depth] = ind
		base[depth] = (depth == 1) ? "" : here[depth - 1]
		kind[depth] = ""
		count[depth] = 0
		if (depth > 1) open[depth - 1] = 0
	}
	return base[depth]
}
function join(a, b) { return a == "" ? b : a "." b }
function item(ind, s,   e, k, v, p, gap) {
	if (s == "-" || s ~ /^- /) {
		# "- " at the indentation of its key's mapping belongs to that key.
		if (depth > 0 && kind[depth] == "map" && indent[depth] == ind && open[depth]) {
			depth++
			indent[depth] = ind
			base[depth] = here[depth - 1]
			kind[depth] = "seq"
			count[depth] = 0
			open[depth - 1] = 0
		} else {
			p = place(ind)
			if (kind[depth] == "") kind[depth] = "seq"
			if (kind[depth] != "seq") fail("list item among keys")
		}
		here[depth] = join(base[depth], count[depth]++)
		s = substr(s, 2)
		v = trim(s)
		if (v == "" || v ~ /^#/) { open[depth] = 1; return }
		match(s, /^ +/)
		gap = RLENGTH
		if (key_end(v) || v == "-" || v ~ /^- /) {
			open[depth] = 1
			item(ind + 1 + gap, v)
			return
		}
		open[depth] = 0
		value(here[depth], v)
		return
	}
	# A key at this indentation ends the list that hung at the same one.
	while (depth > 0 && indent[depth] > ind) depth--
	while (depth > 0 && kind[depth] == "seq" && indent[depth] == ind && depth > 1 && indent[depth - 1] == ind) depth--
	place(ind)
	if (kind[depth] == "") kind[depth] = "map"
	if (kind[depth] != "map") fail("key among list items")
	e = key_end(s)
	if (!e) fail("neither a key nor a list item")
	k = key_name(s, e)
	v = trim(substr(s, e + 1))
	here[depth] = join(base[depth], k)
	if (seen[here[depth]]++) fail("key given twice: " here[depth])
	if (v == "" || v ~ /^#/) { open[depth] = 1; return }
	open[depth] = 0
	value(here[depth], v)
}
BEGIN { depth = 0 }
{
	sub(/\r$/, "")
	if ($0 ~ /^ *(#|$)/) next
	if ($0 ~ /^(---|\.\.\.) *$/) { if (depth == 0) next; fail("a second document") }
	if ($0 ~ /[\001-\037\177]/) fail("control character")
	match($0, /^ */)
	item(RLENGTH, trim($0))
}
