# Listens on the guest's loopback and carries the connections that come there as
# frames over standard input and output: kind, length (uint32, big endian), and in
# it the connection's number (uint32) and bytes. See forward.go for the kinds.
# The first line says how many connections there may be at once, and how many
# bytes of each may be under way unacknowledged.
use strict;
use Errno qw(EAGAIN EINTR EWOULDBLOCK);
use Fcntl qw(F_GETFL F_SETFL O_NONBLOCK);
use Socket qw(PF_INET SOCK_STREAM INADDR_LOOPBACK sockaddr_in);

chdir '/'; # it keeps no volume busy
$SIG{PIPE} = 'IGNORE';
my $line = '';
while ($line !~ /\n/) { sysread STDIN, $line, 1, length $line or exit 97 }
my ($most, $window) = split ' ', $line;
sub quick { fcntl($_[0], F_SETFL, fcntl($_[0], F_GETFL, 0) | O_NONBLOCK) }
my $listener;
socket($listener, PF_INET, SOCK_STREAM, 0) && bind($listener, sockaddr_in(0, INADDR_LOOPBACK)) && listen($listener, $most)
  or do { print STDERR "listen on loopback: $!\n"; exit 96 };
quick($listener);
quick(\*STDOUT);
my ($port) = sockaddr_in(getsockname $listener);
my ($in, $out, $next, %open) = ('', "\0savepoint-forward-1\0\n", 0);

sub put { my ($kind, $id, $bytes) = @_; $out .= pack('aNN', $kind, 4 + length $bytes, $id) . $bytes }
sub drop { my ($id) = @_; close $open{$id}{socket}; delete $open{$id} }
sub fail { put('X', $_[0], ''); drop($_[0]) }
# over: nothing comes from it and nothing goes to it any more.
sub over { my $c = $open{$_[0]}; drop($_[0]) if $c->{read} && $c->{wrote} }
sub again { $! == EAGAIN || $! == EWOULDBLOCK || $! == EINTR }

# given: a frame from the other side. One for a connection that is gone is late.
sub given {
  my ($kind, $id, $bytes) = @_;
  my $c = $open{$id} or return;
  if ($kind eq 'D') { $c->{out} .= $bytes }
  elsif ($kind eq 'A') { $c->{credit} += unpack 'N', $bytes }
  elsif ($kind eq 'Z') { $c->{last} = 1; flush($id) }
  elsif ($kind eq 'X') { drop($id) }
}

# flush writes what the connection takes, and acknowledges it.
sub flush {
  my ($id) = @_;
  my $c = $open{$id};
  if (length $c->{out}) {
    my $n = syswrite $c->{socket}, $c->{out};
    return again() ? () : fail($id) unless defined $n;
    substr $c->{out}, 0, $n, '';
    put('A', $id, pack 'N', $n);
  }
  if ($c->{last} && !$c->{wrote} && !length $c->{out}) { shutdown $c->{socket}, 1; $c->{wrote} = 1; over($id) }
}

sub taken {
  my ($id) = @_;
  my $c = $open{$id};
  my $n = sysread $c->{socket}, my $bytes, $c->{credit} < 32768 ? $c->{credit} : 32768;
  return again() ? () : fail($id) unless defined $n;
  if ($n) { $c->{credit} -= $n; put('D', $id, $bytes) }
  else { $c->{read} = 1; put('Z', $id, ''); over($id) }
}

put('L', 0, pack 'N', $port);
while (1) {
  my ($r, $w) = ('', '');
  vec($r, 0, 1) = 1;
  vec($r, fileno $listener, 1) = 1 if keys %open < $most;
  vec($w, 1, 1) = 1 if length $out;
  for my $c (values %open) {
    vec($r, fileno $c->{socket}, 1) = 1 if !$c->{read} && $c->{credit} > 0;
    vec($w, fileno $c->{socket}, 1) = 1 if length $c->{out};
  }
  my $ready = select $r, $w, undef, 10;
  next if $ready < 0;
  # A sign of life: the kernel notices by it that the other side is gone.
  put('H', 0, '') if !$ready && !length $out;
  if (vec($w, 1, 1)) {
    my $n = syswrite STDOUT, $out;
    defined $n ? substr($out, 0, $n, '') : again() || exit 0;
  }
  if (vec($r, 0, 1)) {
    my $n = sysread STDIN, $in, 65536, length $in;
    exit 0 if defined $n ? !$n : !again();
    while (length $in >= 9) {
      my ($kind, $length, $id) = unpack 'aNN', $in;
      last if length $in < 5 + $length;
      given($kind, $id, substr $in, 9, $length - 4);
      substr $in, 0, 5 + $length, '';
    }
  }
  for my $id (keys %open) {
    my $socket = $open{$id}{socket};
    my $fd = fileno $socket;
    flush($id) if vec($w, $fd, 1);
    taken($id) if $open{$id} && vec($r, $fd, 1);
  }
  if (vec($r, fileno $listener, 1) && accept my $socket, $listener) {
    quick($socket);
    $open{++$next} = {socket => $socket, out => '', credit => $window};
    put('O', $next, '');
  }
}
