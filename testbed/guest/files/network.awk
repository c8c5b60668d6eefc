# Turns a flattened network-config, version 1 or 2, into lines
#   address MAC A/N | link MAC | gateway MAC A | dns A | search D | dhcp MAC
# in the order to apply them: a card is brought up with its addresses on it.
function fail(why) { print why > "/dev/stderr"; bad = 1; exit 1 }
function bits(mask,   p, i, b, n, zero) {
	if (mask ~ /^[0-9]+$/) return mask
	if (split(mask, p, /\./) != 4) fail("netmask " mask)
	n = 0
	zero = 0
	for (i = 1; i <= 4; i++) {
		if (p[i] !~ /^[0-9]+$/ || p[i] > 255) fail("netmask " mask)
		for (b = 128; b >= 1; b = b / 2) {
			if (p[i] >= b) { if (zero) fail("netmask " mask); n++; p[i] -= b } else zero = 1
		}
	}
	return n
}
function ip(a) { if (a !~ /^[0-9a-fA-F.:]+$/) fail("address " a); return a }
function mac(m) {
	m = tolower(m)
	if (m !~ /^[0-9a-f][0-9a-f](:[0-9a-f][0-9a-f])+$/ || length(m) != 17) fail("mac address " m)
	return m
}
function name(d) { if (d !~ /^[A-Za-z0-9.-]+$/) fail("domain " d); return d }
{
	e = index($0, "=")
	path = substr($0, 1, e - 1)
	v[path] = substr($0, e + 1)
	order[++n] = path
}
function version1(   i, j, k, p, q, m, a, t, half, later) {
	for (i = 0; ("config." i ".type") in v; i++) {
		p = "config." i
		t = v[p ".type"]
		if (t == "nameserver") {
			if ((p ".address") in v) print "dns", ip(v[p ".address"])
			for (j = 0; (p ".address." j) in v; j++) print "dns", ip(v[p ".address." j])
			if ((p ".search") in v && v[p ".search"] != "") print "search", name(v[p ".search"])
			for (j = 0; (p ".search." j) in v; j++) print "search", name(v[p ".search." j])
			continue
		}
		if (t != "physical") continue
		m = mac(v[p ".mac_address"])
		later = "link " m "\n"
		for (j = 0; (p ".subnets." j ".type") in v; j++) {
			q = p ".subnets." j
			t = v[q ".type"]
			if (t == "dhcp" || t == "dhcp4") { later = later "dhcp " m "\n"; continue }
			if (t != "static" && t != "static6") continue
			a = v[q ".address"]
			if (a !~ /\//) {
				if (!((q ".netmask") in v)) fail("address " a " without netmask")
				a = a "/" bits(v[q ".netmask"])
			}
			split(a, half, "/")
			if (half[2] !~ /^[0-9]+$/) a = half[1] "/" bits(half[2])
			ip(half[1])
			print "address", m, a
			if ((q ".gateway") in v) later = later "gateway " m " " ip(v[q ".gateway"]) "\n"
			for (k = 0; (q ".dns_nameservers." k) in v; k++) print "dns", ip(v[q ".dns_nameservers." k])
		}
		printf "%s", later
	}
}
function version2(   i, p, parts, dev, m, half) {
	for (i = 1; i <= n; i++) {
		if (order[i] !~ /^ethernets\.[^.]+\./) continue
		split(order[i], parts, ".")
		dev = parts[2]
		if (dev in done) continue
		done[dev] = 1
		p = "ethernets." dev
		if (!((p ".match.macaddress") in v)) fail("card " dev " without match.macaddress")
		m = mac(v[p ".match.macaddress"])
		for (j = 0; (p ".addresses." j) in v; j++) {
			if (split(v[p ".addresses." j], half, "/") != 2 || half[2] !~ /^[0-9]+$/) fail("address " v[p ".addresses." j])
			print "address", m, ip(half[1]) "/" half[2]
		}
		print "link", m
		if (tolower(v[p ".dhcp4"]) ~ /^(true|yes|on)$/) print "dhcp", m
		if ((p ".gateway4") in v) print "gateway", m, ip(v[p ".gateway4"])
		for (j = 0; (p ".routes." j ".via") in v; j++)
			if (v[p ".routes." j ".to"] ~ /^(default|0\.0\.0\.0\/0)$/) print "gateway", m, ip(v[p ".routes." j ".via"])
		for (j = 0; (p ".nameservers.addresses." j) in v; j++) print "dns", ip(v[p ".nameservers.addresses." j])
		for (j = 0; (p ".nameservers.search." j) in v; j++) print "search", name(v[p ".nameservers.search." j])
	}
}
END {
	if (bad) exit 1
	if ("network.version" in v) fail("configuration below the key network")
	if (v["version"] == 1) version1()
	else if (v["version"] == 2) version2()
	else fail("version " v["version"])
}
