# savepoint's helper in the guest; examine.pl and workspace.pl go on with it. The orchestrator sends this text over a root
# SSH session and talks to it in frames (see package wire). It needs nothing but
# perl-base and bash, which every Debian system has, and writes no program to
# the guest's disk, so nothing in the guest can replace it.
#
# It runs one command at a time, each in a control group of its own that only
# root can leave, and never reports an end before every process is gone.
use strict;
use Config;

# System calls perl has no word for. The second list is the generic table that
# every newer architecture shares.
my %nr = $Config{archname} =~ /^x86_64/
  ? (fsync => 74, prctl => 157, setgroups => 116, setresgid => 119, setresuid => 117,
     setsid => 112, close => 3, gettime => 228, settime => 227, sync => 162, pidfd => 434, closefrom => 436,
     memfd => 319, dup3 => 292, statfs => 137, statx => 332, getdents => 217, lgetxattr => 192,
     llistxattr => 195, unshare => 272, setns => 308, mount => 165, mountattr => 442,
     umount => 166, fallocate => 285, renameat2 => 316, accept4 => 288)
  : $Config{archname} =~ /^(aarch64|riscv64|loongarch64)/
  ? (fsync => 82, prctl => 167, setgroups => 159, setresgid => 149, setresuid => 147,
     setsid => 157, close => 57, gettime => 113, settime => 112, sync => 81, pidfd => 434, closefrom => 436,
     memfd => 279, dup3 => 24, statfs => 43, statx => 291, getdents => 61, lgetxattr => 9,
     llistxattr => 12, unshare => 97, setns => 268, mount => 40, mountattr => 442,
     umount => 39, fallocate => 47, renameat2 => 276, accept4 => 242)
  : die "helper: architecture $Config{archname} is not supported\n";

# How files are opened, where architectures differ (01 | 0100, to write what may be
# new, is the same everywhere): Fcntl would be code from the guest's disk, and
# takes longer to load than a list of files to make.
my %flag = $Config{archname} =~ /^aarch64/ ? (directory => 040000, nofollow => 0100000) : (directory => 0200000, nofollow => 0400000);

my $state = '/var/lib/savepoint';
my $volume = '';       # where the sandbox's workspace volume has to be mounted
my ($ibuf, $obuf) = ('', '');
my ($run, $spare, $serial, $quit) = (undef, undef, 0, 0);
my ($walk, $tap);      # the manifest being made; the text of session capture
my $boot = '';         # the guest's boot, which we do not outlive
my $syncing;           # the child that inspect waits for
my ($base, $mode) = ('', 'tree');
my $beat = 30;         # seconds of silence before a sign of life
my $backlog = 262144;  # bytes waiting for the network before a command is throttled

sub call { my $n = shift; syscall($nr{$n}, @_) }
sub clock { my $b = pack('q2', 0, 0); call('gettime', $_[0], $b); unpack 'q2', $b }
sub mono { my ($s, $n) = clock(1); $s + $n / 1e9 }
sub nap { select undef, undef, undef, $_[0] }
sub frame { my $type = shift; my $p = join '', map { pack 'N/a*', $_ } @_; $obuf .= $type . pack('N/a*', $p) }
sub raw { $obuf .= $_[0] . pack('N/a*', $_[1]) }
sub slurp { open my $f, '<', $_[0] or return; local $/; my $t = <$f>; $t }
sub put { open my $f, '>', $_[0] or return 0; my $n = syswrite $f, $_[1]; defined $n && $n == length $_[1] }
sub nonblocking { my $f = fcntl $_[0], 3, 0; fcntl $_[0], 4, $f | 04000 }

# --- Control groups -----------------------------------------------------------

# find_base decides how commands are held together: "cgroup" kills through
# cgroup.kill, "freeze" by freezing first (kernels before 5.14), "tree" by
# walking the processes that descend from the helper (no cgroup v2 at all).
sub find_base {
  my $top = mounted();
  if ($top eq '') {
    mkdir '/sys/fs/cgroup';
    system {'/bin/mount'} 'mount', '-t', 'cgroup2', 'cgroup2', '/sys/fs/cgroup' if -x '/bin/mount';
    $top = mounted();
  }
  if ($top ne '') {
    $base = "$top/savepoint";
    mkdir $base, 0755;
    # A command that forks without end must leave room for us and for sshd.
    put("$top/cgroup.subtree_control", '+pids');
    my ($most) = sort { $a <=> $b } map { slurp("/proc/sys/kernel/$_") || 32768 } 'pid_max', 'threads-max';
    put("$base/pids.max", int($most * 0.8));
    my $probe = "$base/probe-$$";
    if (mkdir $probe, 0755) {
      $mode = -e "$probe/cgroup.kill" ? 'cgroup' : -e "$probe/cgroup.freeze" ? 'freeze' : 'tree';
      rmdir $probe;
    }
  }
  if ($mode eq 'tree') {
    $base = '';
    call('prctl', 36, 1, 0, 0, 0); # orphans become ours instead of init's
    return;
  }
  # What a helper that was killed left behind is ended here.
  opendir my $d, $base or return;
  for my $e (readdir $d) {
    next unless $e =~ /^(\d+)-\d+$/ && !-e "/proc/$1";
    end_leaf("$base/$e", 1) and remove_leaf("$base/$e");
  }
}

sub mounted {
  for (split /\n/, slurp('/proc/self/mounts') // '') {
    my (undef, $dir, $type) = split / /;
    return $dir if $type eq 'cgroup2' && -e "$dir/cgroup.procs"; # not hidden by another mount
  }
  '';
}

sub populated { (slurp("$_[0]/cgroup.events") // '') =~ /^populated 1/m }

sub inner { my $d = shift; opendir my $h, $d or return; grep { -d } map { "$d/$_" } grep { !/^\./ } readdir $h }

# end_leaf kills everything in a control group and says whether all is gone.
sub end_leaf {
  my ($leaf, $seconds) = @_;
  my ($until, $pause) = (mono() + $seconds, 0.001);
  while (1) {
    kill_leaf($leaf);
    nap($pause);
    return 1 unless populated($leaf);
    return 0 if mono() > $until;
    $pause *= 2 if $pause < 0.05;
  }
}

sub kill_leaf {
  my $leaf = shift;
  return put("$leaf/cgroup.kill", '1') if $mode eq 'cgroup';
  put("$leaf/cgroup.freeze", '1');
  for my $d ($leaf, inner($leaf)) { kill 'KILL', split ' ', slurp("$d/cgroup.procs") // '' }
  put("$leaf/cgroup.freeze", '0');
}

sub remove_leaf { my $leaf = shift; remove_leaf($_) for inner($leaf); rmdir $leaf }

# end_tree is end_leaf without control groups: kill every descendant of the
# helper until none is left, twice in a row, because a fork may slip past a scan.
sub end_tree {
  my $until = mono() + $_[0];
  my $clean = 0;
  while ($clean < 2) {
    reap();
    my @left = descendants();
    $clean = @left ? 0 : $clean + 1;
    kill 'STOP', @left;
    kill 'KILL', @left;
    return 0 if mono() > $until;
    nap(0.005) if @left;
  }
  1;
}

sub descendants {
  my (%child, @todo, @found);
  opendir my $d, '/proc' or return;
  for my $p (grep { /^\d+$/ } readdir $d) {
    my $stat = slurp("/proc/$p/stat") // next;
    push @{ $child{$2} }, $p if $stat =~ /\) (\S) (\d+) [^)]*$/ && $1 ne 'Z';
  }
  @todo = @{ $child{$$} // [] };
  while (defined(my $p = shift @todo)) { push @found, $p; push @todo, @{ $child{$p} // [] } }
  grep { !$spare || $_ != $spare->{pid} } @found;
}

sub reap {
  while ((my $p = waitpid -1, 1) > 0) {
    @$run{'status', 'exited'} = ($?, 1) if $run && $p == $run->{pid};
  }
}

# --- Running ------------------------------------------------------------------

# login is the environment that every command begins with.
sub login {
  my ($user, $home, $shell) = @_;
  (HOME => $home, USER => $user, LOGNAME => $user, SHELL => $shell, LANG => 'C.UTF-8',
    PATH => $user eq 'root' ? '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
                            : '/usr/local/bin:/usr/bin:/bin');
}

# fork_ahead makes the process that will become the next command: forked, alone
# in its control group, waiting for its order. It is made while nobody waits,
# because joining a control group may take the kernel tens of milliseconds.
sub fork_ahead {
  my %p = (leaf => '');
  pipe my $order, $p{order} or return;
  pipe my $in, $p{in} or return;
  pipe $p{out}, my $out or return;
  pipe $p{err}, my $err or return;
  pipe $p{news}, my $news or return;
  $p{pad} = pad();
  if ($base ne '') {
    $p{leaf} = "$base/$$-" . ++$serial;
    mkdir $p{leaf}, 0755 or return;
  }
  $p{pid} = fork // do { my $e = $!; rmdir $p{leaf}; $! = $e; return };
  if ($p{pid} == 0) {
    close $p{$_} for qw(order in out err news);
    my $why = eval { become($p{leaf}, $order, $in, $out, $err, $p{pad}); 0 } // cause($@);
    syswrite $news, $why;
    exit 97;
  }
  nonblocking($p{in});
  \%p;
}

# become turns the forked process into the command. It returns only by dying,
# with "class\0text"; a successful exec closes the news pipe without a word.
sub become {
  my ($leaf, $order, $in, $out, $err, $pad) = @_;
  $SIG{$_} = 'DEFAULT' for qw(PIPE TERM HUP INT);
  call('setsid');
  $leaf eq '' or put("$leaf/cgroup.procs", '0') or die "unavailable\0join control group: $!";
  put('/proc/self/oom_score_adj', '200');
  my $text = '';
  while (1) { my $n = sysread $order, $text, 65536, length $text; last unless $n }
  exit 0 if $text eq '';
  my ($user, $dir, undef, $stdin, $how, $command, @env) = unpack '(N/a*)*', $text;
  $stdin ? open(STDIN, '<&', $in) : open(STDIN, '<', '/dev/null') or die "unavailable\0open stdin: $!";
  open STDOUT, '>&', $out or die "unavailable\0open stdout: $!";
  open STDERR, '>&', $err or die "unavailable\0open stderr: $!";
  confine() if $volume ne '' && $user ne 'root';
  my ($home, $shell) = drop($user);
  umask 022;
  %ENV = login($user, $home, $shell);
  for (@env) { my ($k, $v) = split /=/, $_, 2; $ENV{$k} = $v }
  $dir = -d $home ? $home : '/' if $dir eq '';
  chdir $dir or die(($!{ENOENT} || $!{ENOTDIR} ? 'missing' : 'denied') . "\0working directory $dir: $!");
  my @shell = -x '/bin/bash' ? ('/bin/bash', 'bash', '--norc') : ('/bin/sh', 'sh');
  tapped($pad) if $how =~ /c/ && @shell > 2;
  exec { shift @shell } @shell, '-c', $command;
  die(($!{E2BIG} ? 'denied' : 'unavailable') . "\0exec: $!");
}

# account reads one line of the local accounts. It is one search through the text,
# for perl takes ten times as long to look at every line.
sub account {
  my $user = shift;
  (slurp('/etc/passwd') // '') =~ /^\Q$user\E:([^\n]*)/m or return;
  (split /:/, $1, -1)[1, 2, 4, 5];
}

# drop gives up root for the account, for good: all four ids change, setuid
# programs lose their power, and what could not be dropped stops the command.
sub drop {
  my $user = shift;
  my ($uid, $gid, $home, $shell) = account($user) or die "missing\0account $user: no such user";
  return ($home, $shell) if $user eq 'root';
  die "denied\0account $user has the rights of root" if $uid == 0;
  my %groups = ($gid => 1);
  my $list = slurp('/etc/group') // '';
  while ($list =~ /^[^:\n]*:[^:\n]*:([^:\n]*):(?:[^:\n]*,)?\Q$user\E(?:,.*)?$/mg) { $groups{$1} = 1 }
  my @ids = map { $_ + 0 } sort keys %groups;
  ($uid, $gid) = ($uid + 0, $gid + 0);
  my $set = pack 'L*', @ids;
  call('setgroups', scalar @ids, $set) == 0 && call('setresgid', $gid, $gid, $gid) == 0
    && call('setresuid', $uid, $uid, $uid) == 0 && call('prctl', 38, 1, 0, 0, 0) == 0
    && $< == $uid && $> == $uid or die "denied\0give up root for $user: $!";
  ($home, $shell);
}

sub order {
  my ($p, $text) = @_;
  for (my $at = 0; $at < length $text;) {
    my $n = syswrite $p->{order}, $text, 65536, $at;
    return 0 unless defined $n;
    $at += $n;
  }
  close delete $p->{order};
}

sub discard {
  my $p = shift;
  close delete $p->{order} if $p->{order};
  waitpid $p->{pid}, 0;
  remove_leaf($p->{leaf}) if $p->{leaf} ne '';
}

sub start {
  my $text = shift;
  my ($user, undef, $millis, $stdin, $how) = unpack '(N/a*)*', $text;
  my $p = $spare;
  $spare = undef;
  unless ($p && order($p, $text)) { # none, or somebody ended it while it waited
    discard($p) if $p;
    $p = fork_ahead();
    return frame('!', 'unavailable', "fork: $!") unless $p && order($p, $text);
  }
  my $news = '';
  while (1) { my $n = sysread $p->{news}, $news, 4096, length $news; last unless $n }
  close delete $p->{news};
  if ($news ne '') {
    discard($p);
    return frame('!', split /\0/, $news, 2);
  }
  close delete $p->{in} unless $stdin;
  $p->{capture} = $user if $how =~ /c/;
  $p->{sync} = $how =~ /s/;
  $p->{tell} = $how =~ /h/;
  my $fd = call('pidfd', $p->{pid}, 0);
  if ($fd >= 0) { open $p->{pidfd}, '<&=', $fd }
  $p->{until} = mono() + $millis / 1000 if $millis;
  ($p->{input}, $p->{end}, $p->{reason}) = ('', 0, '');
  $run = $p;
  frame('S', $p->{pid});
}

# collect notices the end of the command itself, then ends what it left.
sub collect {
  unless ($run->{exited}) {
    return if waitpid($run->{pid}, 1) != $run->{pid};
    @$run{'status', 'exited'} = ($?, 1);
  }
  $run->{gone} = 1;
  $run->{left} = 0;
  if ($run->{leaf} eq '') {
    $run->{left} = descendants() ? 1 : 0;
    $run->{gone} = end_tree(5);
  } elsif (!rmdir $run->{leaf}) {
    $run->{left} = 1;
    $run->{gone} = end_leaf($run->{leaf}, 5);
    remove_leaf($run->{leaf});
  }
  close delete $run->{pidfd} if $run->{pidfd};
  drain();
  $run->{over} = mono();
  # What the command wrote has to outlive the machine's next power cut before
  # anybody may call it done.
  $run->{syncer} = written() if $run->{sync};
  # Meanwhile is the time to say how the guest is. One that cannot say it is
  # asked, and refuses.
  eval { facts(health()) } if $run->{tell} && $run->{gone} && $run->{reason} eq '';
}

# drain takes what the command left in its pipes: it ends in time though nobody
# reads, and what it wrote counts all the same. No more than a pipe holds, for
# somebody who is not the command's may have it open too.
sub drain {
  for my $s ([out => 'O'], [err => 'E']) {
    my $fh = $run->{ $s->[0] } // next;
    nonblocking($fh);
    for (my $most = fcntl($fh, 1032, 0) || 65536; $most > 0;) {
      my $n = sysread($fh, my $data, $most < 65536 ? $most : 65536) or last;
      raw($s->[1], $data);
      $most -= $n;
    }
  }
}

# written has everything written that is still in memory. That may take long, so
# it returns the child that waits for it, unless there was next to nothing to write.
sub written {
  my ($dirty) = (slurp('/proc/meminfo') // '') =~ /^Dirty: +(\d+) kB/m;
  my $pid = defined $dirty && $dirty < 256 ? undef : fork;
  if (defined $pid && $pid == 0) { apart(); call('sync'); exit 0 }
  call('sync') unless $pid;
  $pid;
}

# synced says that nothing of the command is still on its way to the disk.
sub synced {
  return 1 unless $run->{syncer};
  return 0 if waitpid($run->{syncer}, 1) == 0;
  delete $run->{syncer};
  1;
}

sub stop {
  my $why = shift;
  return if !$run || $run->{over};
  $run->{reason} ||= $why;
  $run->{leaf} eq '' ? end_tree(5) : kill_leaf($run->{leaf});
}

sub finish {
  my $s = $run->{status};
  report($run->{pad}, $run->{capture}) if $run->{capture} && $run->{gone} && !($s & 127);
  frame('X', $s & 127, $s >> 8, $run->{gone}, $run->{reason}, $run->{left});
  close $_ for grep { defined } @$run{qw(in out err)};
  $run = undef;
}

sub feed {
  my $n = syswrite $run->{in}, $run->{input};
  if (defined $n) {
    substr $run->{input}, 0, $n, '';
    raw('A', pack 'N', $n);
  } elsif (!$!{EAGAIN}) { # the command closed it: swallow the rest
    raw('A', pack 'N', length $run->{input});
    ($run->{input}, $run->{end}) = ('', 1);
  }
  close delete $run->{in} if $run->{end} && $run->{input} eq '';
}

# --- Questions ----------------------------------------------------------------

sub facts {
  chomp($boot = slurp('/proc/sys/kernel/random/boot_id') // '') if $boot eq '';
  frame('G', $boot, generation(), clock(0), $mode, @_);
}

# inspect answers when everything that was written is on the disks: only then do
# two equal counts say that nothing was written between them.
sub inspect { $syncing = written() or inspected() }

sub inspected { $syncing = undef; attempt(sub { facts('writes', writes()) }) }

# writes is how many sectors of each disk were written and discarded since the
# boot. To read it writes nothing. A disk that does not count tells nothing.
sub writes {
  opendir my $d, '/sys/block' or return '';
  my @all;
  for my $disk (sort grep { !/^(?:\.|loop|ram|zram|sr|fd)/ } readdir $d) {
    return '' unless (slurp("/sys/block/$disk/queue/iostats") // '') =~ /^1/;
    my @n = split ' ', slurp("/sys/block/$disk/stat") // return '';
    push @all, join ':', $disk, $n[6], $n[13] // 0;
  }
  join ' ', @all;
}

# told answers an order that is not a question.
sub told { frame('G', '', '', clock(0), $mode, @_) }

# generation is the marker: on the workspace volume of a sandbox that has one,
# where every boundary brings it back.
sub generation { $volume eq '' ? slurp("$state/generation") // '' : stamped() }

sub mark { my $text = shift; $volume eq '' ? durable("$state/generation", $text) : stamp($text) }

# durable writes a small file so that it is whole or absent after a power cut.
sub durable {
  my ($path, $text) = @_;
  my ($dir) = $path =~ m{^(.*)/};
  mkdir $dir, 0755;
  open my $f, '>', "$path.new" or die "open $path.new: $!";
  syswrite($f, $text) // die "write $path.new: $!";
  call('fsync', fileno $f) == 0 or die "sync $path.new: $!";
  rename "$path.new", $path or die "rename $path: $!";
  open my $d, '<', $dir or die "open $dir: $!";
  call('fsync', fileno $d) == 0 or die "sync $dir: $!";
}

# cause is a message without where in this program it was raised.
sub cause { my $e = shift; $e =~ s/ at (?:\S+|\(eval \d+\)) line \d+.*//s; $e }

# attempt answers with a refusal when something dies, of the class before a zero
# byte in its message, if there is one.
sub attempt {
  my $do = shift;
  eval { $do->(); 1 } and return;
  my $why = cause($@);
  frame('!', $why =~ /\0/ ? split(/\0/, $why, 2) : ('unavailable', $why));
}

sub prepare {
  my @keys = @_;
  unless (account('agent')) {
    my $tool = (grep { -x } '/usr/sbin/useradd', '/sbin/useradd')[0] or die "useradd is not installed";
    system { $tool } 'useradd', '--create-home', '--user-group', '--shell', '/bin/bash', '--password', '*', 'agent';
    die "useradd agent: exit status " . ($? >> 8) if $?;
  }
  my ($uid, $gid, $home) = account('agent');
  die "account agent has the rights of root" if $uid == 0;
  for (split /\n/, slurp('/etc/group') // '') {
    my @f = split /:/, $_, -1;
    die "account agent is in group $f[0], which can become root" if $f[0] =~ /^(root|sudo|wheel|admin|disk|docker|lxd|incus|kvm|shadow)$/
      && ($f[2] == $gid || grep { $_ eq 'agent' } split /,/, $f[3]);
  }
  mkdir $state, 0755;
  mkdir '/workspace', 0755;
  chown $uid, $gid, '/workspace' or die "chown /workspace: $!";
  # Jobs of cron and at would run outside the control group of their command.
  for ('/etc/cron.allow', '/etc/at.allow') { put($_, "root\n") unless -e }
  if (@keys) { # as the agent: its home may hold links that lead elsewhere
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
      eval {
        drop('agent');
        mkdir "$home/.ssh", 0700;
        umask 077;
        put("$home/.ssh/authorized_keys", join '', map { "$_\n" } @keys) or die "authorized_keys: $!";
        exec '/bin/true';
      };
      kill 'KILL', $$;
    }
    waitpid $pid, 0;
    die "write authorized_keys of agent" if $?;
  }
  call('sync');
}

sub answer {
  my ($type, $p) = @_;
  if ($type eq 'R') { $run || $walk ? frame('!', 'unavailable', 'a command is running') : start($p) }
  elsif ($type eq 'I') { if ($run && $run->{in}) { $run->{input} .= $p } elsif ($run) { raw('A', pack 'N', length $p) } }
  elsif ($type eq 'Z') { if ($run && $run->{in}) { $run->{end} = 1; feed() if $run->{input} eq '' } }
  elsif ($type eq 'K') { stop('kill'); cut_walk() }
  elsif ($type eq 'F') { inspect() }
  elsif ($type eq 'M') { attempt(sub { mark($p); facts() }) }
  elsif ($type eq 'W') { $volume = '/srv/savepoint' }
  elsif ($type eq 'Y') { attempt(sub { told(tend(unpack '(N/a*)*', $p)) }) }
  elsif ($type eq 'C') {
    attempt(sub {
      my $b = pack 'q2', split ' ', $p;
      call('settime', 0, $b) == 0 or die "set clock: $!";
      told();
    });
  }
  elsif ($type eq 'V') { attempt(sub { facts(health()) }) }
  elsif ($type eq 'L') { $run || $walk ? frame('!', 'unavailable', 'a command is running') : attempt(sub { walk($p) }) }
  elsif ($type eq 'P') { attempt(sub { prepare(unpack '(N/a*)*', $p); told() }) }
}

# --- The loop -----------------------------------------------------------------

use Errno;
$SIG{PIPE} = 'IGNORE';
$SIG{TERM} = $SIG{HUP} = $SIG{INT} = sub { $quit = 1 };
chdir '/';
umask 022;
# Nobody left us more than three handles; the capture counts on it.
call('closefrom', 3, 0x7fffffff, 0) == 0 or do { call('close', $_) for 3 .. 255 };
# The network moves to handles of its own, so that no tool started here can
# write into the frames; closing on exec, so that no command can either.
open my $from, '<&', \*STDIN or die "stdin: $!";
open my $net, '>&', \*STDOUT or die "stdout: $!";
open STDIN, '<', '/dev/null';
open STDOUT, '>&', \*STDERR;
put('/proc/self/oom_score_adj', '-900');
find_base();
$tap = tap();
nonblocking($net);
$obuf = "\0savepoint-1\0";
frame('H', $mode);

until ($quit) {
  while (length $ibuf >= 5) {
    my ($type, $len) = unpack 'a1N', $ibuf;
    last if length $ibuf < 5 + $len;
    my $payload = substr $ibuf, 5, $len;
    substr $ibuf, 0, 5 + $len, '';
    answer($type, $payload);
  }
  if ($run && $run->{over} && synced() && (!grep({ defined } @$run{qw(out err)}) || mono() > $run->{over} + 1)) { finish() }
  if (length $obuf) {
    my $n = syswrite $net, $obuf, 131072;
    if (defined $n) { substr $obuf, 0, $n, '' } elsif (!$!{EAGAIN}) { last }
  }
  inspected() if $syncing && waitpid($syncing, 1) != 0;
  # Only an idle helper has time to fork ahead.
  $spare = fork_fenced() if !$run && !$walk && !$syncing && !$spare && !length $obuf && !length $ibuf && $serial;

  my ($r, $w) = ('', '');
  my $wait = $beat;
  vec($r, fileno $from, 1) = 1;
  vec($w, fileno $net, 1) = 1 if length $obuf;
  if ($run) {
    if (length $obuf < $backlog) { vec($r, fileno $_, 1) = 1 for grep { defined } @$run{qw(out err)} }
    if ($run->{in} && length $run->{input}) { vec($w, fileno $run->{in}, 1) = 1 }
    if ($run->{over}) { $wait = $run->{syncer} ? 0.003 : 0.05 }
    elsif ($run->{pidfd}) { vec($r, fileno $run->{pidfd}, 1) = 1 }
    else { $wait = 0.02 }
    if ($run->{until} && !$run->{over}) {
      my $rest = $run->{until} - mono();
      if ($rest <= 0) { stop('deadline'); $run->{until} = 0 } elsif ($rest < $wait) { $wait = $rest }
    }
  }
  $wait = 0.001 if $syncing;
  vec($r, fileno $walk->{out}, 1) = 1 if $walk && length $obuf < $backlog;
  my $n = select $r, $w, undef, $wait;
  if ($n == 0) {
    raw('H', '') if $wait == $beat;
  }
  ($r, $w) = ('', '') if $n < 1;
  if (vec $r, fileno $from, 1) {
    my $got = sysread $from, $ibuf, 65536, length $ibuf;
    last if defined $got ? $got == 0 : !$!{EAGAIN} && !$!{EINTR};
  }
  relay() if $walk && vec $r, fileno $walk->{out}, 1;
  next unless $run;
  feed() if $run->{in} && length $run->{input} && vec $w, fileno $run->{in}, 1;
  for my $s ([out => 'O'], [err => 'E']) {
    my $fh = $run->{ $s->[0] } // next;
    next unless vec $r, fileno $fh, 1;
    my $got = sysread $fh, my $data, 65536;
    if ($got) { raw($s->[1], $data) } elsif (defined $got) { close $fh; $run->{ $s->[0] } = undef }
  }
  collect() if !$run->{over} && (!$run->{pidfd} || vec $r, fileno $run->{pidfd}, 1);
}

# The orchestrator is gone: nothing of its command may stay.
if ($run && !$run->{over}) { stop('lost'); waitpid $run->{pid}, 0; @$run{'status', 'exited'} = (0, 1); collect() }
if ($walk) { cut_walk(); waitpid $walk->{pid}, 0 }
discard($spare) if $spare;
exit 0;
