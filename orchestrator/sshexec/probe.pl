# savepoint's measurements from inside a guest. The orchestrator sends this text over a root SSH session, like
# helper.pl, and it needs nothing but perl-base. It tries what it is told, tells what came back and what arrived
# meanwhile, and ends by itself. Nothing is written to the guest's disk.
#
#   order   own ADDRESS                 answer  facts MAC LINK-LOCAL
#           nonce 12 letters                    ready
#           wait MILLISECONDS                   result ID accepted|answered|silent|no-route|failed TEXT
#           listen 1                            heard ID
#           ssh PORT                            broken TEXT
#           gateway ADDRESS                     end
#           neighbour ADDRESS
#           jump ADDRESS
#           probe ID KIND ADDRESS PORT SIZE MAC
#           end
#           go                          after "ready"
use strict;
use Socket qw(:DEFAULT inet_pton inet_ntop pack_sockaddr_in6 unpack_sockaddr_in6);

my ($in, %one, @probes) = ('');
my %many = (gateway => [], neighbour => [], jump => []);
my ($if, $mac, $ll, $ifn) = ('', '', '');  # the interface: name, addresses, number
my ($ping4, $ping6, $whole4, $whole6, $wire, $out);
my $control = '9223372036854775808';       # id of a frame that shows that frames are seen
my (%by_fd, %by_port, %by_hand, %heard, %known, %jump, %link);

sub say_ { my $t = join(' ', @_) . "\n"; for (my $at = 0; $at < length $t;) { $at += syswrite(STDOUT, $t, 65536, $at) // exit 96 } }
sub now { my $b = pack 'q2', 0, 0; syscall($nr::gettime, 1, $b); my ($s, $n) = unpack 'q2', $b; $s + $n / 1e9 }
sub bytes { my $t = shift; $t =~ /:/ ? inet_pton(AF_INET6, $t) : inet_aton($t) }
sub text { length $_[0] == 4 ? inet_ntoa($_[0]) : inet_ntop(AF_INET6, $_[0]) }
sub hard { join ':', map { sprintf '%02x', $_ } unpack 'C6', $_[0] }
sub soft { pack 'C6', map { hex } split /:/, $_[0] }
sub nonblocking { my $f = fcntl $_[0], 3, 0; fcntl $_[0], 4, $f | 04000; $_[0] }
sub token { $one{nonce} . pack 'Q>', $_[0]{id} }

sub line {
  my $at;
  while (($at = index $in, "\n") < 0) { sysread STDIN, $in, 65536, length $in or exit 0 }
  my $l = substr $in, 0, $at + 1, '';
  chop $l;
  $l;
}

# --- The interface ------------------------------------------------------------

# find looks for the interface that has the guest's address.
sub find {
  my $own = bytes($one{own});
  socket my $s, AF_INET, SOCK_DGRAM, 0 or die "socket: $!";
  my $ask = sub { my ($n, $name) = @_; my $r = pack 'a16 x24', $name; ioctl($s, $n, $r) ? substr $r, 16 : '' };
  open my $dev, '<', '/proc/net/dev' or die "open /proc/net/dev: $!";
  my @names = map { /^\s*([^:\s]+):/ ? $1 : () } <$dev>;
  my @six;
  if (open my $f, '<', '/proc/net/if_inet6') { @six = map { [split] } <$f> }
  for my $n (@names) {
    my $four = substr $ask->(0x8915, $n), 4, 4;
    next unless $four eq $own || grep { $_->[5] eq $n && pack('H32', $_->[0]) eq $own } @six;
    $if = $n;
    $ifn = unpack 'l', $ask->(0x8933, $n);
    $mac = substr $ask->(0x8927, $n), 2, 6;
    ($ll) = map { pack 'H32', $_->[0] } grep { $_->[5] eq $n && $_->[3] eq '20' } @six;
    $ll //= '';
  }
  $if ne '' or die "no interface has the address $one{own}";
}

# --- Neighbours ---------------------------------------------------------------

# neighbours is the kernel's table: "number address" to the MAC and the state.
sub neighbours {
  my %out;
  socket my $s, 16, SOCK_RAW, 0 or die "netlink: $!";
  send $s, pack('L S S L L C x11', 28, 30, 0x301, 1, 0, 0), 0 or die "netlink: $!";
  while (1) {
    defined recv $s, my $b, 65536, 0 or die "netlink: $!";
    for (my $at = 0; $at + 16 <= length $b;) {
      my ($len, $type) = unpack 'L S', substr $b, $at, 6;
      return \%out if $type == 3 || $type == 2 || $len < 16;
      my ($family, $n, $state) = unpack 'C x3 l S', substr $b, $at + 16, 12;
      my %a;
      for (my $o = $at + 28; $o + 4 <= $at + $len;) {
        my ($l, $t) = unpack 'S S', substr $b, $o, 4;
        last if $l < 4;
        $a{$t} = substr $b, $o + 4, $l - 4;
        $o += $l + 3 & ~3;
      }
      $out{"$n " . text($a{1})} = [$family, $n, $a{1}, $a{2} // '', $state] if defined $a{1} && $family =~ /^(2|10)$/;
      $at += $len + 3 & ~3;
    }
  }
}

# forget takes back what the measurement did to the table: what is new there or
# has another MAC address. What the guest needs it finds again.
sub forget {
  my $before = shift;
  my $after = neighbours();
  socket my $s, 16, SOCK_RAW, 0 or die "netlink: $!";
  for (keys %$after) {
    my ($family, $n, $addr, $lladdr, $state) = @{ $after->{$_} };
    next if $state & 0xc0 || $before->{$_} && ($before->{$_}[3] eq $lladdr || $before->{$_}[3] eq '');
    my $body = pack('C x3 l S C C', $family, $n, 0, 0, 0) . pack('S S a*', 4 + length $addr, 1, $addr);
    send $s, pack('L S S L L', 16 + length $body, 29, 1, 2, 0) . $body, 0;
  }
}

# --- Frames -------------------------------------------------------------------

sub sum {
  my $t = shift;
  $t .= "\0" if length($t) % 2;
  my $s = unpack '%32n*', $t;
  $s = ($s & 0xffff) + ($s >> 16) while $s >> 16;
  ~$s & 0xffff;
}

# pad makes a frame as long as Ethernet wants it.
sub pad { my $f = shift; $f . "\0" x (60 - length $f) }

# arp is a frame of address resolution: operation, Ethernet sender, sender's and
# target's IP address, and what may follow it.
sub arp {
  my ($op, $from, $spa, $tpa, $tail) = @_;
  pad("\xff" x 6 . $from . pack('n n n C C n', 0x806, 1, 0x800, 6, 4, $op) . $from . $spa . "\0" x 6 . $tpa . $tail);
}

# six is a frame of ICMPv6 to all neighbours.
sub six {
  my ($from, $src, $type, $body) = @_;
  my $dst = inet_pton(AF_INET6, 'ff02::1');
  my $m = pack('C C n', $type, 0, 0) . $body;
  substr $m, 2, 2, pack 'n', sum($src . $dst . pack('N N', length $m, 58) . $m);
  "\x33\x33\0\0\0\1" . $from . pack('n N n C C', 0x86dd, 0x60000000, length $m, 58, 255) . $src . $dst . $m;
}

# frames are what a probe puts on the wire by itself.
sub frames {
  my $p = shift;
  my $a = $p->{to};
  if ($p->{kind} eq 'claim' && length $a == 4) {
    return map { arp($_, $mac, $a, $a, token($p)) } 1, 2;
  } elsif ($p->{kind} eq 'claim') {
    # Unsolicited, to replace what is known; the token is in an option for experiments.
    return six($mac, $a, 136, pack('N', 0x20000000) . $a . "\2\1$mac" . "\xfd\3" . token($p) . "\0" x 2);
  }
  # A request that names no sender changes nothing in the tables of those who see it.
  my @out = length $a == 4 ? arp(1, $p->{mac}, "\0" x 4, $a, token($p)) : ();
  push @out, six($p->{mac}, $ll, 128, pack('n n', $$ & 0xffff, 0) . token($p)) if $ll ne '';
  @out;
}

# seen reads one frame of the interface.
sub seen {
  my ($from, $f) = @_;
  return if length $f < 14;
  my $mine = unpack('x10 C', $from) == 4;
  for (my $at = index $f, $one{nonce}; $at >= 0; $at = index $f, $one{nonce}, $at + 1) {
    my $id = unpack 'Q>', substr $f, $at + length $one{nonce}, 8;
    defined $id or last;
    $mine ? ($link{sent}{$id} = 1) : ($heard{$id} = 1);
  }
  # Who floods this guest must not make it say less.
  die "too much arrives" if keys %heard > 4096;
  return if $mine;
  my ($dst, $src, $type) = unpack 'a6 a6 n', $f;
  $link{near}{$src} = 1 if keys %{ $link{near} } < 16 && !(ord($src) & 1);
  answered_by_hand($f, $type);
  if ($type == 0x806 && length $f >= 42) {
    my ($sha, $spa) = unpack 'x22 a6 a4', $f;
    claimed($spa, $sha);
  } elsif ($type == 0x86dd && length $f >= 54) {
    my ($next, $source, $kind) = unpack 'x20 C x a16 x16 C', $f;
    return if $next != 58 || length $f < 62;
    if ($kind == 136 && length $f >= 78) {
      my $tail = substr $f, 78;
      claimed(substr($f, 62, 16), $tail =~ /^\x02\x01(.{6})/s ? $1 : $src);
    }
    $link{found}{$source} = $src if $kind == 129 && index($f, $one{nonce}) >= 0 && $source =~ /^\xfe[\x80-\xbf]/;
  }
}

# claimed is a word about who has an address.
sub claimed {
  my ($addr, $of) = @_;
  my $t = text($addr);
  $jump{$of} = 1 if grep { $_ eq $t } @{ $many{jump} };
  $known{$of} = 1 if grep { $_ eq $t } @{ $many{neighbour} };
  # The router's link-local address follows from its MAC address.
  if (grep { $_ eq $t } @{ $many{gateway} }) {
    my @m = unpack 'C6', $of;
    $link{found}{ pack 'C16', 0xfe, 0x80, 0, 0, 0, 0, 0, 0, $m[0] ^ 2, @m[1, 2], 0xff, 0xfe, @m[3, 4, 5] } = $of;
    $link{router}{$of} = 1;
  }
}

# --- Probes -------------------------------------------------------------------

sub decide {
  my ($p, $answer, $why) = @_;
  return if $p->{answer} && ($p->{answer} !~ /^(silent|no-route)$/ || $answer eq 'silent');
  @$p{'answer', 'why'} = ($answer, $why);
}

sub where { my ($p, $port) = @_; length $p->{to} == 4 ? pack_sockaddr_in($port, $p->{to}) : pack_sockaddr_in6($port, $p->{to}, $p->{to} =~ /^\xfe[\x80-\xbf]/ ? $ifn : 0) }

# hopeless is an error that says by itself that nothing gets there.
sub hopeless { $!{ENETUNREACH} || $!{EHOSTUNREACH} || $!{EADDRNOTAVAIL} || $!{EAFNOSUPPORT} || $!{ENETDOWN} || $!{ETIMEDOUT} || $!{ENONET} || $!{ECONNRESET} || $!{EHOSTDOWN} }

# nowhere is an error of the guest's own kernel before anything was sent: it says
# nothing about the network.
sub nowhere { $!{ENETUNREACH} || $!{EHOSTUNREACH} || $!{EADDRNOTAVAIL} || $!{EAFNOSUPPORT} || $!{ENETDOWN} }

# trouble is an error of a call; at once: of one that reports no earlier packet's.
sub trouble {
  my ($p, $what, $at_once) = @_;
  my $e = "$!";
  my $none = $at_once && nowhere() && $p->{kind} =~ /^(tcp|udp|echo)$/;
  decide($p, $none ? 'no-route' : hopeless() ? 'silent' : 'failed', "$what: $e");
}

# connect_to begins a TCP connection.
sub connect_to {
  my ($p, $addr, $of) = @_;
  my $c = { p => $p, of => $of };
  my $at = { %$p, to => $addr };
  socket $c->{s}, length $addr == 4 ? AF_INET : AF_INET6, SOCK_STREAM, 6 or return trouble($p, 'socket', 1);
  nonblocking($c->{s});
  setsockopt $c->{s}, SOL_SOCKET, SO_LINGER, pack 'i2', 1, 0; # it leaves nothing behind
  if (connect $c->{s}, where($at, $p->{port})) { $c->{at_once} = 1 }
  elsif ($!{ECONNREFUSED}) { return decide($p, 'answered', 'refused') }
  elsif (!$!{EINPROGRESS}) { return trouble($p, 'connect', 1) }
  $by_fd{ fileno $c->{s} } = $c;
}

sub connected {
  my $c = shift;
  delete $by_fd{ fileno $c->{s} };
  $! = unpack 'i', getsockopt($c->{s}, SOL_SOCKET, SO_ERROR) // pack 'i', 0;
  if (exempt($c->{p}, $c->{of})) { } # it was not known yet
  elsif ($! == 0) { decide($c->{p}, 'accepted', 'a connection was accepted') }
  elsif ($!{ECONNREFUSED}) { decide($c->{p}, 'answered', 'refused') }
  else { trouble($c->{p}, 'connect') }
  close $c->{s};
}

# datagram is what a server at the port would answer.
sub datagram {
  my $p = shift;
  my $t = token($p);
  return pack('n6', $p->{id} & 0xffff, 0x100, 1, 0, 0, 0) . pack('C/a*', $t) . "\x09savepoint\x07invalid\0" . pack 'n n', 1, 1 if $p->{port} == 53;
  return "\x23" . "\0" x 23 . $t . "\0" x 8 if $p->{port} == 123;
  $t;
}

sub send_datagram {
  my $p = shift;
  unless ($p->{s}) {
    socket $p->{s}, length $p->{to} == 4 ? AF_INET : AF_INET6, SOCK_DGRAM, 17 or return trouble($p, 'socket', 1);
    nonblocking($p->{s});
    connect $p->{s}, where($p, $p->{port}) or do { my $e = $!; delete $p->{s}; $! = $e; return trouble($p, 'connect', 1) };
    my $name = getsockname $p->{s};
    $by_port{ (length $p->{to} == 4 ? unpack_sockaddr_in($name) : unpack_sockaddr_in6($name))[0] } = $p;
    $by_fd{ fileno $p->{s} } = { p => $p, s => $p->{s}, udp => 1 };
  }
  # An error of an earlier one is told here: who sent it is read elsewhere.
  defined send $p->{s}, datagram($p), 0 or $!{ECONNREFUSED} or trouble($p, 'send');
}

sub datagram_came {
  my $c = shift;
  if (defined recv $c->{s}, my $b, 2048, 0) { decide($c->{p}, 'answered', 'an answer') }
}

sub ping {
  my $p = shift;
  my $six = length $p->{to} == 16;
  my $s = $p->{size} ? ($six ? $whole6 : $whole4) : $six ? $ping6 : $ping4;
  return decide($p, 'no-route', 'this guest has no IPv6') unless $s;
  my $body = pack('n n', $$ & 0xffff, $p->{seq}) . token($p);
  my $room = $p->{size} - ($six ? 40 : 20) - 4;
  $body .= '.' x ($room - length $body) if $room > length $body;
  my $m = pack('C C n', $six ? 128 : 8, 0, 0) . $body;
  substr $m, 2, 2, pack 'n', sum($m) unless $six; # the kernel does it for IPv6
  $p->{expect} = length $m;
  defined send $s, $m, 0, where($p, 0) or $!{EMSGSIZE} ? decide($p, 'silent', 'larger than the interface carries') : trouble($p, 'send', 1);
}

# echoed reads what came to a socket of ICMP: an answer to a ping, or an error
# of the one that a probe was for. Errors of routers on the way are none.
sub echoed {
  my ($s, $six) = @_;
  while (defined(my $from = recv $s, my $m, 65536, 0)) {
    my $source = $six ? (unpack_sockaddr_in6($from))[1] : (unpack_sockaddr_in($from))[1];
    $m = substr $m, (ord($m) & 15) * 4 unless $six;
    next if length $m < 8;
    my ($type, undef, undef, $id, $seq) = unpack 'C C n n n', $m;
    if ($type == ($six ? 129 : 0)) {
      my ($p) = grep { $_->{seq} == $seq && $_->{kind} eq 'echo' } @probes;
      next unless $p && $id == ($$ & 0xffff) && index($m, token($p)) >= 0;
      length $m == $p->{expect} ? decide($p, 'answered', 'an answer') : decide($p, 'silent', 'an answer that is not whole');
    } elsif ($six ? $type < 5 : $type =~ /^(3|4|11|12)$/) {
      my $inner = substr $m, 8;
      my ($proto, $dst, $rest) = $six ? (unpack('x6 C', $inner), substr($inner, 24, 16), substr $inner, 40)
        : (unpack('x9 C', $inner), substr($inner, 16, 4), substr $inner, (ord($inner) & 15) * 4);
      next if length $rest < 8 || $dst ne $source;
      my ($a, $b) = unpack 'n n', $rest;
      my $p = $proto == 17 ? $by_port{$a} // $by_hand{$a} : $proto == 6 ? $by_hand{$a} : undef;
      ($p) = grep { $_->{kind} eq 'echo' && $_->{seq} == unpack 'x6 n', $rest } @probes if $proto == ($six ? 58 : 1);
      decide($p, 'answered', "ICMP error $type of the target") if $p && $p->{to} eq $dst && !$p->{size} && ($proto !~ /^(6|17)$/ || $p->{port} == $b);
    }
  }
}

# look_around asks who is on the link: routers, and guests that are known.
sub look_around {
  my $p = shift;
  my $mute = $ll eq '' || !$ping6;
  decide($p, 'silent', 'this guest has no link-local address') if $mute && $p->{kind} eq 'link';
  return if $link{asked}++ > 3;
  my $m = pack('C C n n n', 128, 0, 0, $$ & 0xffff, $p->{seq}) . token($p);
  for my $group ($mute ? () : ('ff02::1', 'ff02::2')) {
    defined send $ping6, $m, 0, pack_sockaddr_in6(0, inet_pton(AF_INET6, $group), $ifn) or trouble($p, 'send');
  }
  for my $a (map { bytes($_) } @{ $many{neighbour} }, @{ $many{gateway} }, @{ $many{jump} }) {
    if (length $a == 4) {
      send $out, arp(1, $mac, length bytes($one{own}) == 4 ? bytes($one{own}) : "\0" x 4, $a, ''), 0;
    } elsif (!$mute) {
      send $out, six($mac, $ll, 135, pack('N', 0) . $a . "\1\1$mac"), 0;
    }
  }
}

# exempt is the SSH server of a jump host.
sub exempt { my ($p, $of) = @_; $p->{kind} eq 'link' && $jump{ $of // '' } && $p->{port} == $one{ssh} }

# knock tries the neighbours that are no known guests.
sub knock {
  my $p = shift;
  for my $a (keys %{ $link{found} }) {
    my $of = $link{found}{$a};
    next if $p->{knocked}{$a} || $a eq $ll || $known{$of} && !$link{router}{$of} || exempt($p, $of);
    $p->{knocked}{$a} = 1;
    connect_to($p, $a, $of);
  }
}

# --- Without a route ----------------------------------------------------------

# packet is a probe as the kernel would send it.
sub packet {
  my $p = shift;
  my $six = length $p->{to} == 16;
  my $own = bytes($one{own});
  my $src = length $own == length $p->{to} ? $own : $six ? $ll : '';
  return '' if $src eq '';
  my $from = 20000 + $p->{seq};
  $by_hand{$from} = $p;
  my ($proto, $m, $at);
  if ($p->{kind} eq 'echo') { ($proto, $m, $at) = ($six ? 58 : 1, pack('C C n n n', $six ? 128 : 8, 0, 0, $$ & 0xffff, $p->{seq}) . token($p), 2) }
  elsif ($p->{kind} eq 'udp') { my $d = datagram($p); ($proto, $m, $at) = (17, pack('n n n n', $from, $p->{port}, 8 + length $d, 0) . $d, 6) }
  else { ($proto, $m, $at) = (6, pack('n n N N C C n n n', $from, $p->{port}, $p->{id} & 0xffffffff, 0, 0x50, 2, 64240, 0, 0) . token($p), 16) }
  my $pseudo = $proto == 1 ? '' : $src . $p->{to} . ($six ? pack('N N', length $m, $proto) : pack('x C n', $proto, length $m));
  substr $m, $at, 2, pack 'n', sum($pseudo . $m) || 0xffff;
  return pack('N n C C', 0x60000000, length $m, $proto, 64) . $src . $p->{to} . $m if $six;
  my $head = pack('C C n n n C C n', 0x45, 0, 20 + length $m, 0, 0, 64, $proto, 0) . $src . $p->{to};
  substr $head, 10, 2, pack 'n', sum($head);
  $head . $m;
}

# by_hand puts on the link what the kernel has no route for: for everybody who was
# seen there, one of whom may lead on, and for all. The guest's configuration is
# not touched, so nothing has to be undone, whatever becomes of this program. Jump
# hosts get it also where there is a route: they must not lead on either.
sub by_hand {
  my $p = shift;
  return unless $wire && $p->{kind} =~ /^(tcp|udp|echo)$/ && !$p->{size};
  my $none = ($p->{answer} // '') eq 'no-route';
  my @to = $none ? ("\xff" x 6, keys %{ { map { $_ => 1 } keys %jump, keys %{ $link{router} }, values %{ $link{found} }, keys %{ $link{near} } } }) : keys %jump;
  return unless @to;
  $p->{expect} //= 28;
  my $m = packet($p);
  return $p->{bare} = 1 if $m eq '';
  for my $to (@to) {
    my $f = pad($to . $mac . pack('n', length $p->{to} == 16 ? 0x86dd : 0x800) . $m);
    defined send $out, $f, 0 or trouble($p, 'send');
  }
}

# answered_by_hand reads answers of TCP and UDP to such packets: no socket does.
sub answered_by_hand {
  my ($f, $type) = @_;
  my ($proto, $src, $l4);
  if ($type == 0x800 && length $f >= 34) {
    ($proto, $src, $l4) = (ord substr($f, 23, 1), substr($f, 26, 4), substr $f, 14 + (ord(substr $f, 14, 1) & 15) * 4);
  } elsif ($type == 0x86dd && length $f >= 54) {
    ($proto, $src, $l4) = (ord substr($f, 20, 1), substr($f, 22, 16), substr $f, 54);
  }
  return unless defined $l4 && length $l4 >= 8 && ($proto == 6 || $proto == 17);
  my ($from, $to) = unpack 'n n', $l4;
  my $p = $by_hand{$to};
  return unless $p && $p->{to} eq $src && $p->{port} == $from && ($p->{kind} eq 'tcp') == ($proto == 6);
  return decide($p, 'answered', 'an answer') if $proto == 17;
  # Of its own connection, and of no other: the number is a secret.
  return if length $l4 < 14 || unpack('x8 N', $l4) != (($p->{id} + 1 & 0xffffffff)) && unpack('x8 N', $l4) != (($p->{id} + 1 + length token($p)) & 0xffffffff);
  my $flags = ord substr $l4, 13, 1;
  decide($p, $flags & 4 ? 'answered' : 'accepted', $flags & 4 ? 'refused' : 'a connection was accepted');
}

# try_ makes one attempt.
sub try_ {
  my ($p, $turn) = @_;
  # Its answers are nobody's but the link's.
  look_around({ id => $control, seq => 0xfffe, kind => '' }) if $one{listen} && $p->{seq} == 0 && $turn % 2 == 0;
  by_hand($p) if ($turn == 1 || $turn == 3) && (!$p->{answer} || $p->{answer} =~ /^(silent|no-route)$/);
  return if $p->{answer} && $p->{kind} !~ /^(claim|forge)$/;
  my $k = $p->{kind};
  if ($k eq 'tcp') { connect_to($p, $p->{to}) if $turn == 0 }
  elsif ($k eq 'udp') { send_datagram($p) }
  elsif ($k eq 'echo') { ping($p) }
  elsif ($k eq 'link') { look_around($p) }
  else {
    for (frames($p)) { defined send $out, $_, 0 or trouble($p, 'send') }
  }
}

# --- The run ------------------------------------------------------------------

sub open_sockets {
  socket $ping4, AF_INET, SOCK_RAW, 1 or die "raw socket: $!";
  socket $whole4, AF_INET, SOCK_RAW, 1 or die "raw socket: $!";
  setsockopt $whole4, 0, 10, pack 'i', 3 or die "forbid fragments: $!";
  if (socket $ping6, AF_INET6, SOCK_RAW, 58) {
    socket $whole6, AF_INET6, SOCK_RAW, 58 or die "raw socket: $!";
    setsockopt $whole6, 41, 23, pack 'i', 3 or die "forbid fragments: $!";
    setsockopt $whole6, 41, 62, pack 'i', 1 or die "forbid fragments: $!";
    setsockopt $ping6, 41, 18, pack 'i', 255;
  } else { undef $ping6 }
  nonblocking($_) for grep { $_ } $ping4, $ping6;
  return unless $one{listen} || grep { $_->{kind} =~ /^(claim|forge|link)$/ } @probes;
  socket $wire, 17, SOCK_RAW, 0x0300 or die "packet socket: $!";
  setsockopt $wire, SOL_SOCKET, 33, pack 'i', 4 << 20;
  bind $wire, pack 'S n l S C C a8', 17, 3, $ifn, 0, 0, 0, '' or die "packet socket: $!";
  # Frames for others too, until the socket is closed.
  setsockopt $wire, 263, 1, pack 'l S S a8', $ifn, 1, 0, '' or die "packet socket: $!";
  nonblocking($wire);
  # A socket does not see what it sends itself.
  socket $out, 17, SOCK_RAW, 0 or die "packet socket: $!";
  bind $out, pack 'S n l S C C a8', 17, 3, $ifn, 0, 0, 0, '' or die "packet socket: $!";
}

# pass waits for what comes, at most so long.
sub pass {
  my ($seconds, $stdin) = @_;
  my ($r, $w) = ('', '');
  vec($r, fileno $_, 1) = 1 for grep { $_ } $ping4, $ping6, $wire;
  vec($r, 0, 1) = 1 if $stdin;
  for (keys %by_fd) { $by_fd{$_}{udp} ? vec($r, $_, 1) = 1 : (vec($w, $_, 1) = 1) }
  return if select($r, $w, undef, $seconds > 0 ? $seconds : 0) < 1;
  if ($wire && vec $r, fileno $wire, 1) {
    for (1 .. 200) { defined(my $from = recv $wire, my $f, 4096, 0) or last; seen($from, $f) }
  }
  echoed($ping4, 0) if vec $r, fileno $ping4, 1;
  echoed($ping6, 1) if $ping6 && vec $r, fileno $ping6, 1;
  for (keys %by_fd) {
    my $c = $by_fd{$_} or next;
    if ($c->{udp}) { datagram_came($c) if vec $r, $_, 1 } elsif (vec($w, $_, 1) || $c->{at_once}) { connected($c) }
  }
  vec $r, 0, 1;
}

sub measure {
  my $begin = now();
  my $wait = $one{wait} / 1000;
  my $turn = 0;
  # Who may have this guest's own address: harmless, and seen to leave.
  if ($one{listen}) { send $out, arp(1, $mac, "\0" x 4, length bytes($one{own}) == 4 ? bytes($one{own}) : "\0" x 4, token({ id => $control })), 0 }
  my $until = $begin + $wait + ($one{listen} ? 0.25 : 0); # others may have begun later
  while ((my $t = now()) < $until) {
    if ($turn < 4 && $t >= $begin + $turn * $wait / 4) {
      try_($_, $turn) for @probes;
      $turn++;
    }
    if ($turn > 1) { knock($_) for grep { $_->{kind} eq 'link' } @probes }
    last if !$one{listen} && !grep { !$_->{answer} } @probes;
    my $next = $turn < 4 ? $begin + $turn * $wait / 4 : $until;
    pass(($next < $until ? $next : $until) - now());
  }
}

sub report {
  die "the packet socket hears nothing" if $one{listen} && !$link{sent}{$control};
  delete $heard{$control};
  for my $p (@probes) {
    # What should have been sent and was not seen to leave proves nothing.
    decide($p, 'failed', 'its frames were not seen to leave') if !$p->{answer} && $p->{kind} =~ /^(claim|forge)$/ && !$link{sent}{ $p->{id} };
    if ($one{listen} && ($p->{answer} // '') eq 'no-route') {
      if ($p->{bare}) { $p->{why} .= ', and it has no address to try it with' }
      elsif (!$link{sent}{ $p->{id} }) { @$p{'answer', 'why'} = ('failed', 'no route, and its frames were not seen to leave') }
      else { $p->{why} .= ', and nobody on the link led there' }
    }
    my $why = $p->{why} // 'no answer';
    $why =~ s/[^ -~]/?/g;
    say_('result', $p->{id}, $p->{answer} // 'silent', $why);
  }
  say_('heard', $_) for sort { $a <=> $b } keys %heard;
}

# announce says where the guest really is, for those who may have believed
# another: switches too.
sub announce {
  my $own = bytes($one{own});
  send $out, length $own == 4 ? arp(1, $mac, $own, $own, '') : six($mac, $own, 136, pack('N', 0x20000000) . $own . "\2\1$mac"), 0;
}

sub main {
  until ((my $l = line()) eq 'end') {
    my ($key, @f) = split / /, $l;
    if ($key eq 'probe') {
      my ($id, $kind, $to, $port, $size, $of) = @f;
      push @probes, { id => $id, kind => $kind, to => $to eq '-' ? '' : bytes($to), port => $port, size => $size, mac => $of eq '-' ? '' : soft($of), seq => scalar @probes };
    } elsif ($key =~ /^(gateway|neighbour|jump)$/) { push @{ $many{$key} }, $f[0] }
    else { $one{$key} = $f[0] }
  }
  alarm 60 + $one{wait} / 1000; # whatever becomes of the other end
  find();
  open_sockets();
  my $before = neighbours();
  say_('facts', hard($mac), $ll eq '' ? '-' : text($ll));
  say_('ready');
  until ($in =~ s/^go\n//) {
    if (pass(30, 1)) { sysread STDIN, $in, 4096, length $in or exit 0 }
  }
  measure();
  report();
  forget($before);
  announce() if $one{listen};
  say_('end');
}

use Errno;
use Config;
$nr::gettime = $Config{archname} =~ /^x86_64/ ? 228 : 113; # the second is the generic table
$SIG{PIPE} = 'DEFAULT';
syswrite STDOUT, "\0savepoint-probe-1\0\n";
eval { main(); 1 } or do { my $e = $@; $e =~ s/ at (?:\S+|\(eval \d+\)) line \d+.*//s; $e =~ s/[^ -~]/?/g; say_('broken', $e) };
exit 0;
