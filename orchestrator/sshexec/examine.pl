
# --- Session capture ----------------------------------------------------------
# Sent after helper.pl, as one text with it. Only subs: the loop above has
# ended the program before anything else here could run.

# memory makes a file without a name. 1 = closed on exec, 2 = can be sealed.
sub memory {
  my ($name, $flags) = ("savepoint\0", $_[0]);
  my $fd = call('memfd', $name, $flags);
  $fd >= 0 or return;
  open my $f, '+<&=', $fd or return;
  binmode $f;
  $f;
}

# pad makes what a command's shell writes its session on: a file that never
# blocks, has no name that anybody could put another file at, and cannot grow,
# so that nothing a command does with it costs more than its size. A kernel
# without such files has no session capture.
sub pad {
  my $f = memory(3) or return;
  truncate $f, 66000 or return;
  fcntl $f, 1033, 1 | 2 | 4 or return; # sealed: no more seals, no shrinking, no growing
  $f;
}

# tapped makes the shell that is about to be executed report its session. It
# reads a sealed text from descriptor 232 before the command and writes on 231
# at its end.
#
# The text forgets BASH_ENV, then moves 231 to 233, closed on exec: a shell
# saves a descriptor that a group of commands redirects, under the lowest free
# number from 10, closed on exec; a copy of such a descriptor is closed on exec
# too. So no program that the command starts holds it. The trap works in the
# shell itself, without a fork, on names found by their first letter, and hides
# what set -x and a DEBUG trap would make of it. "end" is written only if
# everything before it was.
sub tapped {
  my $pad = shift or return;
  $tap or return;
  call('dup3', fileno $pad, 231, 0) == 231 && call('dup3', fileno $tap, 232, 0) == 232 or return;
  $ENV{BASH_ENV} = '/proc/self/fd/232';
}

sub tap {
  my $names = join ' ', map { "\"\${!$_\@}\"" } '_', 'A' .. 'Z', 'a' .. 'z';
  my $text = <<'END';
unset BASH_ENV
exec 232<&-
{ exec 233>&10; } 231>&-
exec 231>&-
trap '{ builtin trap - DEBUG ERR; builtin trap "" XFSZ; builtin set +aeux; _savepoint_=
builtin printf "\0savepoint\0" || _savepoint_=1
builtin pwd -P
builtin printf "\0" || _savepoint_=1
for _savepoint_name in NAMES; do
if [[ ${!_savepoint_name@a} == *x* && -v $_savepoint_name ]]; then
builtin printf "%s=%s\0" "$_savepoint_name" "${!_savepoint_name}" || _savepoint_=1
fi
done
[[ $_savepoint_ ]] || builtin printf "end\0"; } 2>&- >&233 || :' EXIT
: "$0"
END
  $text =~ s/NAMES/$names/;
  my $f = memory(3) or return;
  syswrite($f, $text) == length $text && fcntl $f, 1033, 1 | 2 | 4 | 8 or return; # no writing either
  $f;
}

# report sends what the shell wrote at its end. The file is read through the
# helper's own handle, and after every process of the command is gone.
sub report {
  my ($pad, $user) = @_;
  $pad or return;
  my $text = '';
  sysseek $pad, 0, 0;
  while (1) { my $n = sysread $pad, $text, 66000, length $text; last unless $n }
  my $at = rindex $text, "\0savepoint\0";
  return if $at < 0;
  my ($dir, @vars) = split /\0/, substr($text, $at + 11), -1;
  chomp $dir;
  my %known = login($user, (account($user))[2, 3]);
  my @changed;
  for (@vars) {
    if ($_ eq 'end') { return @changed > 256 ? 0 : frame('N', $dir, @changed) }
    my ($k, $v) = split /=/, $_, 2;
    push @changed, $_ unless defined $known{$k} && $known{$k} eq $v;
  }
}

# --- Health -------------------------------------------------------------------

# A guest has few guest agents and many processes: who was it the last time is
# asked first.
our $served;

# serves says whether a process is a guest agent of root's that runs.
sub serves {
  my $p = shift;
  return 0 unless (readlink("/proc/$p/exe") // '') =~ m{^/usr/(?:local/)?s?bin/qemu-ga(?: \(deleted\))?$};
  my $s = slurp("/proc/$p/status") // return 0;
  $s =~ /^Uid:\s+0\s/m && $s =~ /^State:\s+[^ZTtXx]/m ? 1 : 0;
}

# health returns fields: five for each file system, two for each service.
sub health {
  my @out;
  my %own = map { (split ' ')[1] => 1 } split /\n/, slurp('/proc/self/mounts') // '';
  for my $dir ('/', '/workspace') {
    next if $dir ne '/' && !$own{$dir};
    my ($path, $b) = ("$dir\0", "\0" x 256);
    call('statfs', $path, $b) == 0 or die "statfs $dir: $!";
    my (undef, $size, $blocks, undef, $free, $files, $ffree, undef, undef, $frag) = unpack 'q2Q5Qq2', $b;
    $size = $frag if $frag;
    push @out, 'space', $dir, $free * $size, $blocks * $size, $ffree, $files;
  }
  # sshd lives if root listens where this session came in; the sshd of the
  # session itself would outlive the one that takes the next.
  my $port = sprintf ':%04X', (split ' ', $ENV{SSH_CONNECTION} // '')[3] || 22;
  my ($sshd, $agent) = (0, 0);
  for my $family ('tcp', 'tcp6') {
    last if $sshd;
    for (split /\n/, slurp("/proc/net/$family") // '') {
      my @f = split ' ';
      $sshd = 1 if @f > 7 && $f[1] =~ /\Q$port\E$/ && $f[3] eq '0A' && $f[7] eq '0';
    }
  }
  $agent = serves($served) if $served;
  if (!$agent) {
    opendir my $d, '/proc' or die "open /proc: $!";
    for my $p (grep { /^\d+$/ } readdir $d) {
      ($agent, $served) = (1, $p) if serves($p);
    }
  }
  (@out, 'service', 'sshd', $sshd, 'service', 'qemu-guest-agent', $agent);
}

# --- Manifest -----------------------------------------------------------------

# walk starts a process that lists trees: outside every command's group, and gone
# with the helper. Somebody waits for it, so it has the priority of others.
sub walk {
  my ($limit, $hash, @roots) = unpack '(N/a*)*', $_[0];
  my %w = (buf => '');
  pipe $w{out}, my $to or die "pipe: $!";
  $w{pid} = fork // die "fork: $!";
  if ($w{pid} == 0) {
    apart();
    call('prctl', 1, 9, 0, 0, 0);
    close $w{out};
    put('/proc/self/oom_score_adj', '0');
    eval {
      my $list = { to => $to, limit => $limit, hash => $hash, count => 0, wait => [], copies => [], copied => 0, room => 0, roots => { map { $_ => 1 } @roots } };
      $list->{kernel} = kernel() if $hash;
      !$hash || $list->{kernel} || -x '/usr/bin/sha256sum' or die "/usr/bin/sha256sum is not in the guest";
      $walk = { to => $to }; # in this process, for sha
      root($list, $_) for @roots;
      flush($list);
      emit($to, 'D', pack 'N/a*', $list->{count});
      1;
    } or emit($to, '!', pack '(N/a*)*', $@ =~ /^limit\0(\d+)/ ? ('limit', $1) : ('unavailable', cause($@)));
    exec '/bin/true'; # without perl's own end, which would end our parent's handles too
    kill 'KILL', $$;
  }
  close $to;
  $walk = \%w;
}

# cut_walk ends the walk with the sha256sum that it may have started.
sub cut_walk { kill 'KILL', -$walk->{pid}, $walk->{pid} if $walk }

sub emit {
  my ($to, $kind, $p) = @_;
  $p = $kind . pack('N/a*', $p);
  for (my $at = 0; $at < length $p;) { $at += syswrite($to, $p, 65536, $at) // kill 'KILL', $$ }
}

# relay hands on whole frames of entries. The last frame waits until the
# process is gone: after it the next order may come.
sub relay {
  my $n = sysread $walk->{out}, $walk->{buf}, 262144, length $walk->{buf};
  return if !defined $n && ($!{EINTR} || $!{EAGAIN});
  while (length $walk->{buf} >= 5) {
    my ($kind, $len) = unpack 'a1N', $walk->{buf};
    last if length $walk->{buf} < 5 + $len;
    my $whole = substr $walk->{buf}, 0, 5 + $len, '';
    $kind eq 'T' ? $obuf .= $whole : $walk->{last} //= $whole;
  }
  return if $n;
  my ($pid, $last, $until) = (@$walk{qw(pid last)}, mono() + 5);
  waitpid $pid, 0;
  $walk = undef;
  if ($mode eq 'tree') { # its orphans come to us, and may be ending still
    while (reap(), kill(0, -$pid) && mono() < $until) { nap(0.001) }
  }
  defined $last ? $obuf .= $last : frame('!', 'unavailable', 'the walk was ended');
}

# look is lstat with nanoseconds, of a name in the working directory or, with
# an empty name, of an open handle.
sub look {
  my ($fd, $name) = @_;
  my ($n, $b) = ("$name\0", "\0" x 256);
  call('statx', $fd, $n, $name eq '' ? 0x1900 : 0x900, 0x7ff, $b) == 0 or return;
  my @f = unpack 'L2 Q L3 S S Q4 (q l l)4 L4', $b;
  { flags => $f[2] & 0x30, uid => $f[4], gid => $f[5], mode => $f[6], ino => $f[8], size => $f[9],
    ctime => $f[18], cnano => $f[19], mtime => $f[21], mnano => $f[22], rdev => "$f[24]:$f[25]", dev => "$f[26]:$f[27]" };
}

# xattrs returns names and values, sorted: ACLs and capabilities are there.
sub xattrs {
  my $name = shift;
  my ($n, $b) = ("$name\0", "\0" x 512);
  my $got = call('llistxattr', $n, $b, length $b);
  if ($got < 0 && $!{ERANGE}) {
    $b = "\0" x 65536; # as long as Linux lets it be
    $got = call('llistxattr', $n, $b, length $b);
  }
  die "extended attributes of $name: $!" if $got < 0 && !$!{ENOTSUP} && !$!{ENOENT} && !$!{ENOSYS};
  return '' if $got <= 0;
  my $out = '';
  for my $k (sort split /\0/, substr $b, 0, $got) {
    my ($kn, $v) = ("$k\0", "\0" x 65536);
    my $len = call('lgetxattr', $n, $kn, $v, length $v);
    $out .= pack '(N/a*)2', $k, substr $v, 0, $len if $len >= 0;
  }
  die "extended attributes of $name: more than 400 kB" if length $out > 400_000;
  $out;
}

sub root {
  my ($list, $root) = @_;
  my ($dir, $name) = $root =~ m{^(.*)/([^/]*)$};
  unless (chdir($dir eq '' ? '/' : $dir)) {
    return add($list, $root, undef, 'absent') if $!{ENOENT} || $!{ENOTDIR};
    die "open $dir: $!";
  }
  visit($list, $root, $name eq '' ? '.' : $name, undef, 0);
}

# visit notes one name of the working directory, and what is below it. It goes
# down by handles, never by paths: whatever is renamed or replaced meanwhile,
# only what it opened itself is read, and no symbolic link is followed.
sub visit {
  my ($list, $path, $name, $dev, $depth) = @_;
  return if $depth && $list->{roots}{$path}; # is listed as a root of its own
  my $s = look(-100, $name) or do {
    die "stat $path: $!" unless $!{ENOENT} || $!{ENOTDIR};
    return add($list, $path, undef, $depth ? 'vanished' : 'absent');
  };
  my $kind = $s->{mode} & 0170000;
  $s->{xattrs} = xattrs($name);
  $s->{mount} = defined $dev && $s->{dev} ne $dev ? 1 : 0;
  if ($kind == 0120000) { $s->{target} = readlink $name; return add($list, $path, defined $s->{target} ? ($s, '') : (undef, 'vanished')) }
  return digest($list, $path, $name, $s) if $kind == 0100000 && $list->{hash};
  my $e = add($list, $path, $s, '');
  return if $kind != 0040000 || $s->{mount};
  die "$path: more than 400 directories deep" if $depth > 400;
  my $fh = entry($name, $flag{directory}, $s) or return $e->[4] = 'vanished';
  my @names = names($fh) or return;
  for my $n (@names) {
    chdir $fh or die "enter $path: $!";
    visit($list, ($path eq '/' ? '' : $path) . "/$n", $n, $s->{dev}, $depth + 1);
  }
}

# entry opens what was looked at, and only that. Reading changes no access time.
sub entry {
  my ($name, $more, $s) = @_;
  my $flags = $flag{nofollow} | 04000 | $more; # not blocking
  my $ok = sysopen my $fh, $name, $flags | 01000000; # no access time
  $ok = sysopen $fh, $name, $flags if !$ok && $!{EPERM};
  $ok or return;
  my $now = look(fileno $fh, '') or return;
  return $fh if $now->{dev} eq $s->{dev} && $now->{ino} == $s->{ino};
  $! = 2; # ENOENT: another has its name
  return;
}

sub names {
  my $fh = shift;
  my @out;
  while (1) {
    my $b = "\0" x 65536;
    my $got = call('getdents', fileno $fh, $b, length $b);
    return @out if $got < 0 && $!{ENOENT}; # removed since it was opened
    die "read directory: $!" if $got < 0;
    last if $got == 0;
    for (my $at = 0; $at < $got;) {
      my $len = unpack 'S', substr $b, $at + 16, 2;
      my $n = unpack 'x19 Z*', substr $b, $at, $len;
      push @out, $n unless $n eq '.' || $n eq '..';
      $at += $len;
    }
  }
  sort @out;
}

# add notes an entry. What waits for a digest keeps its place.
sub add {
  my ($list, $path, $s, $note) = @_;
  die "limit\0$list->{limit}" if ++$list->{count} > $list->{limit};
  flush($list) if $list->{room} > 60000;
  my $meta = $s ? join ' ', @$s{qw(mode uid gid size mtime mnano ino ctime cnano flags rdev mount)} : '';
  my $e = [$path, $meta, $s ? $s->{target} // '' : '', '', $note, $s ? $s->{xattrs} : ''];
  push @{ $list->{wait} }, $e;
  $list->{room} += 200 + length($path) + length($e->[2]) + length($e->[5]);
  $e;
}

sub flush {
  my $list = shift;
  sums($list);
  return unless @{ $list->{wait} };
  emit($list->{to}, 'T', join '', map { pack '(N/a*)6', @$_ } @{ $list->{wait} });
  @$list{qw(wait room)} = ([], 0);
}

# digest reads a file. perl-base has no Digest::SHA on Debian 12 (it is in
# perl), and a digest in plain perl reads less than a megabyte a second, so the
# kernel does it, or where it does not, coreutils' sha256sum, which is essential
# there. A start of that costs more than a file of some megabytes does: they go to
# it by the dozen, as copies in memory, because a file that it opened itself would
# change its access time.
sub digest {
  my ($list, $path, $name, $s) = @_;
  my $fh = entry($name, 0, $s);
  return add($list, $path, undef, $!{ENOENT} || $!{ELOOP} ? 'vanished' : "unreadable: $!") unless $fh;
  if ($list->{kernel}) {
    my $e = add($list, $path, $s, '');
    $e->[3] = kernel_sum($list->{kernel}, $fh) // do { $e->[4] = "unreadable: $!"; '' };
    return;
  }
  my $most = 4 << 20;
  if ($s->{size} > $most) {
    sums($list);
    my $e = add($list, $path, $s, '');
    my @sum = sha($fh) or do { $e->[4] = 'unreadable'; return };
    $e->[3] = $sum[0];
    return;
  }
  my $e = add($list, $path, $s, '');
  my $copy = memory(0) or die "memory for digests: $!";
  my ($had, $n, $text) = (0);
  while ($n = sysread $fh, $text, 262144) {
    for (my $at = 0; $at < $n;) { $at += syswrite($copy, $text, $n - $at, $at) // die "memory for digests: $!" }
    last if ($had += $n) > $most; # it grows
  }
  return $e->[4] = "unreadable: $!" unless defined $n;
  push @{ $list->{copies} }, [$e, $copy];
  sums($list) if ($list->{copied} += $had) > $most || @{ $list->{copies} } >= 64;
}

# kernel returns a socket that is bound to the kernel's SHA-256 (AF_ALG, see the
# kernel's Documentation/crypto/userspace-if.rst), or nothing where there is none.
sub kernel {
  socket my $alg, 38, 5, 0 or return;
  bind $alg, pack 'S a14 L L a64', 38, 'hash', 0, 0, 'sha256' or return;
  $alg;
}

# kernel_sum is the kernel's digest of a file, or nothing when it could not be read. Perl's
# accept asks for an address, which there is none of.
sub kernel_sum {
  my ($alg, $fh) = @_;
  my $fd = call('accept4', fileno $alg, 0, 0, 02000000); # closed on exec
  $fd >= 0 or die "digest: $!";
  open my $op, '+<&=', $fd or die "digest: $!";
  my ($n, $text);
  while ($n = sysread $fh, $text, 262144) {
    for (my $at = 0; $at < $n;) { $at += send($op, substr($text, $at), 0x8000) // die "digest: $!" } # more follows
  }
  defined $n or return;
  (sysread($op, my $sum, 32) // 0) == 32 or die "digest: $!";
  unpack 'H64', $sum;
}

sub sums {
  my $list = shift;
  my @copies = @{ $list->{copies} } or return;
  @$list{qw(copies copied)} = ([], 0);
  fcntl $_->[1], 2, 0 for @copies; # open in sha256sum too
  my @sums = sha(undef, map { '/proc/self/fd/' . fileno $_->[1] } @copies);
  @sums == @copies or die "sha256sum: exit status " . ($? >> 8);
  $copies[$_][0][3] = $sums[$_] for 0 .. $#copies;
}

# sha runs sha256sum on a handle or on names of ours.
sub sha {
  my ($in, @names) = @_;
  pipe my $r, my $w or die "pipe: $!";
  my $pid = fork // die "fork: $!";
  if ($pid == 0) {
    call('prctl', 1, 9, 0, 0, 0);
    fcntl $walk->{to}, 2, 0; # relay sees the walk's end after this process's
    %ENV = (LC_ALL => 'C');
    open STDIN, '<&', $in if $in;
    open STDOUT, '>&', $w;
    exec { '/usr/bin/sha256sum' } 'sha256sum', @names;
    kill 'KILL', $$;
  }
  close $w;
  my $text = do { local $/; <$r> };
  waitpid $pid, 0;
  $? ? () : map { /^\\?([0-9a-f]{64}) / ? $1 : die 'sha256sum: not readable' } split /\n/, $text;
}
