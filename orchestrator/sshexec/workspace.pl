
# --- The workspace volume -------------------------------------------------------
# Sent after examine.pl. The volume is mounted by workspace.sh at $volume, and its
# parts are bound over what the agent may write. Nothing here keeps it open.

my ($fs, $device) = ('', ''); # the volume's kind of file system and its number, as places found them
my ($fence, $cover, $ours, $theirs); # the mounts made ahead for commands, and what tells that others are needed
my $holder;            # the process that has them

# ground is the directory that holds the volume's parts and its marker.
sub ground { $fs eq 'btrfs' ? "$volume/live" : $volume }

# places returns where the volume is mounted besides $volume, or dies: also when a
# part is not mounted, unless those are wanted that there are.
sub places {
  my $some = shift;
  my ($dev, %at, %of);
  for (split /\n/, slurp('/proc/self/mountinfo') // '') {
    my (undef, undef, $number, $part, $point) = split / /;
    ($dev, $fs) = ($number, / - (\S+)/) if $point eq $volume;
    ($at{$point}, $of{$point}) = ($number, $part); # the last one hides those below
  }
  defined $dev or die "unmounted\0the workspace volume is not mounted; restart the sandbox, or roll it back";
  delete $at{$volume};
  $device = $dev;
  my @places = grep { $at{$_} eq $dev } keys %at;
  return @places if $some;
  for my $need ((account('agent'))[2] // '/home/agent', '/workspace', '/tmp', '/var/tmp', '/dev/shm') {
    # What a rollback swapped away is not the workspace any more.
    defined $at{$need} && $at{$need} eq $dev && ($fs ne 'btrfs' || $of{$need} =~ m{^/live/})
      or die "unmounted\0the workspace volume is not mounted at $need; restart the sandbox, or roll it back";
  }
  @places;
}

# confine lets a command write nowhere but on the volume: it gets mounts apart from
# the guest's, all of them read-only but for the volume's parts. That holds for whatever
# permissions the guest's files have. /proc and /dev/pts are the kernel's account
# of processes and terminals, and hold nothing that outlives them. Sockets and
# devices are not files in this sense: their permissions count. Those through
# which the system itself does what it is asked to, or notes it, are hidden.
sub confine {
  fence() unless $fence && $theirs && !moved($theirs) && $cover eq cover() && call('setns', fileno $fence, 0x20000) == 0;
  unsplit() if $fs eq 'btrfs';
}

sub hidden { '/run/dbus', '/run/systemd/journal' }

# cover is what there is to hide.
sub cover { join ' ', map { join ':', (stat)[0, 1] } hidden() }

# fence makes those mounts, for this process.
sub fence {
  my @rw = places();
  my ($none, $root) = ("none\0", "/\0");
  call('unshare', 0x20000) == 0 or die "unavailable\0unshare mounts: $!";
  call('mount', $none, $root, 0, 0x84000, 0) == 0 or die "unavailable\0keep mounts apart: $!"; # slave, recursive
  my $empty = "/run/savepoint/empty\0";
  for my $dir (grep { -d } hidden()) {
    my $over = "$dir\0";
    mkdir '/run/savepoint', 0755;
    mkdir '/run/savepoint/empty', 0555;
    call('mount', $empty, $over, $none, 0x1000, 0) == 0 or die "unavailable\0hide $dir: $!"; # bind
  }
  attribute('/', 0x8000, 1, 0);
  attribute($_, 0, 0, 1) for @rw, grep { -d } '/proc', '/dev/pts';
}

# fence_ahead makes a fence that every command can use, because to make one and to
# take it down again takes longer than many a command. Commands cannot change it,
# and it is not used any more when the guest has mounted or unmounted anything since,
# or has made anew what is hidden. A process holds it, because in a process's mounts
# another helper finds the volume when it wants to unmount it: what that leaves is
# not used either.
sub fence_ahead {
  return if $volume eq '' || $mode eq 'tree'; # there such a process would count as a command's
  # What is told of the next change is opened before the last one is asked for.
  open my $mine, '<', '/proc/self/mountinfo' or return;
  open $theirs, '<', '/proc/self/mountinfo' or return;
  my $same = held() && !moved($ours) && $cover eq cover();
  $ours = $mine;
  return if $same;
  unfence();
  $cover = cover();
  eval { places(); 1 } or return; # it says $fs; what is wrong, the command itself will say
  pipe my $made, my $say or return;
  my $helper = $$;
  $holder = fork // return;
  if ($holder == 0) {
    apart();
    call('prctl', 1, 9, 0, 0, 0); # it is gone with the helper
    eval { fence(); syswrite $say, '.'; close $say; while (getppid() == $helper) { sleep 3600 } };
    kill 'KILL', $$;
  }
  close $say;
  return if sysread($made, my $done, 1) && open $fence, '<', "/proc/$holder/ns/mnt";
  unfence();
}

# held reports whether the process is there, and has the volume as we have it.
sub held {
  return unless $fence;
  waitpid($holder, 1) == 0 or return $holder = undef;
  my ($ours, $its) = map { join ':', (stat)[0, 1] } '/workspace', "/proc/$holder/root/workspace";
  $ours eq $its;
}

# unfence lets go of it. It waits for no more than the end of what it kills.
sub unfence {
  undef $fence;
  kill 'KILL', $holder and waitpid $holder, 0 if $holder;
  undef $holder;
}

# let_go leaves nothing of ours in which the volume is mounted.
sub let_go {
  discard($spare) if $spare;
  $spare = undef;
  unfence();
}

# fork_fenced is fork_ahead for a command that may use it. What says whether it still
# may can be asked once only, so it is that one command's.
sub fork_fenced {
  fence_ahead();
  my $p = fork_ahead();
  undef $theirs;
  $p;
}

# moved reports whether a list of mounts has changed since it was opened, or since
# this was asked. The kernel says it as an exceptional condition of the handle,
# see proc_pid_mounts(5).
sub moved {
  my $e = '';
  vec($e, fileno $_[0], 1) = 1;
  select(undef, undef, $e, 0) != 0;
}

# attribute sets and clears attributes of a mount: 1 = read-only.
sub attribute {
  my ($path, $flags, $set, $clear) = @_;
  my ($p, $attr) = ("$path\0", pack 'Q4', $set, $clear, 0, 0);
  return if call('mountattr', -100, $p, $flags, $attr, 32) == 0;
  die "unavailable\0" . ($!{ENOSYS} ? 'a workspace volume needs Linux 5.12 in the guest' : "mount attributes of $path: $!");
}

# stamp writes the marker in place, in one sector: neither a power cut nor a full
# volume, of blocks or of inodes, can leave anything but the old one or the new.
# btrfs writes nothing in place: there the ballast makes room for it.
sub stamp {
  my $text = shift;
  places();
  my ($dir, $what) = (ground(), 'open');
  my $write = sub {
    $what = 'open';
    sysopen my $f, "$dir/generation", 01 | 0100, 0600 or return 0;
    $what = 'write';
    (syswrite($f, pack 'a512', $text) // 0) == 512 && call('fsync', fileno $f) == 0 or return 0;
    open my $d, '<', $dir or return 0;
    call('fsync', fileno $d) == 0;
  };
  if ($fs eq 'btrfs') {
    roomy('write marker', $write);
    ballasted();
  } else {
    $write->() or die "$what marker: $!";
  }
}

sub stamped {
  places();
  my $text = slurp(ground() . '/generation') // return '';
  $text =~ s/\0+\z//;
  $text;
}

# tend does one order, and returns what is to be answered. Where control groups are missing nothing holds the agent's
# processes together, and the watchdog would be taken for one of a command's.
sub tend {
  my ($verb, $millis, $script, @more) = @_;
  die "control groups (cgroup v2) are missing in the guest" if $mode eq 'tree';
  die "a command is running" if $run || $walk;
  return snapshots(@more, $script) if $verb eq 'snapshots';
  if ($verb eq 'freeze') { freeze($millis / 1000); return }
  if ($verb eq 'thaw') { thaw(); return }
  die "denied\0unknown order $verb" unless $verb eq 'mount' || $verb eq 'unmount';
  if ($verb eq 'unmount') { # what a freeze holds does not end
    thaw();
    let_go();
    end_agent();
  }
  shell($script, $verb, $verb eq 'mount' ? int($millis / 1000) : ());
  return;
}

# shell runs workspace.sh; its words are the error.
sub shell {
  my ($script, @args) = @_;
  pipe my $r, my $w or die "pipe: $!";
  my $pid = fork // die "fork: $!";
  if ($pid == 0) {
    apart();
    open STDOUT, '>&', $w;
    open STDERR, '>&', $w;
    exec { '/bin/sh' } 'sh', '-c', $script, 'savepoint-workspace', @args;
    kill 'KILL', $$;
  }
  close $w;
  my ($text, $until) = ('', mono() + 60);
  while (1) {
    my ($v, $rest) = ('', $until - mono());
    vec($v, fileno $r, 1) = 1;
    if ($rest <= 0 || select($v, undef, undef, $rest) < 1 && !$!{EINTR}) {
      kill 'KILL', -$pid, $pid;
      waitpid $pid, 0;
      die "unknown\0$args[0] of the workspace volume does not end";
    }
    sysread $r, $text, 4096, length $text or last;
  }
  waitpid $pid, 0;
  return unless $?;
  $text =~ s/^savepoint-workspace: //mg;
  $text =~ s/\s+/ /g;
  $text = substr $text, 0, 2000;
  $text =~ s/ \z//;
  die "busy\0$text; end what holds it, then try again" if $? >> 8 == 4;
  die "unavailable\0$text (exit status " . ($? >> 8) . ")";
}

# apart makes a process that was forked one of its own: without the helper's
# handles, signals and session.
sub apart {
  $SIG{$_} = 'DEFAULT' for qw(PIPE TERM HUP INT);
  call('setsid');
  close $_ for grep { defined } $from, $net, $fence, $ours, $theirs, $spare ? @$spare{qw(order in out err news pad)} : ();
}

# --- Its freeze ---

# freezer freezes (1) or thaws (0) the volume: 1 = it did, 0 = it was so already,
# undef and $! = it failed. What is not mounted is not frozen. It never takes the
# file system below for it.
sub freezer {
  my $freeze = shift;
  open my $f, '<', $volume or return $freeze || !$!{ENOENT} ? undef : 0;
  my ($dev, $below) = ((stat $f)[0], (stat "$volume/..")[0]);
  defined $dev && defined $below or return;
  if ($dev == $below) {
    $! = Errno::ENODEV();
    return $freeze ? undef : 0;
  }
  return 1 if ioctl $f, $freeze ? 0xc0045877 : 0xc0045878, 0;
  $!{ $freeze ? 'EBUSY' : 'EINVAL' } ? 0 : undef;
}

my $watcher; # the last watchdog that this helper started

sub watch_file { '/run/savepoint/freeze' }

sub started { (slurp("/proc/$_[0]/stat") // '') =~ /.*\) (.*)/s ? (split ' ', $1)[19] : undef }

# watchdog returns the process that was noted, if it still is that process, and
# the helper whose freeze it watches.
sub watchdog {
  my ($pid, $start, $helper) = split ' ', slurp(watch_file()) // '';
  defined $helper && (started($pid) // '') eq $start ? ($pid, $helper) : (0, 0);
}

sub watched_by { my ($pid) = watchdog(); $pid == $_[0] }

# freeze arms the watchdog first. Writers wait from then on, and the watchdog
# needs nobody.
sub freeze {
  my $seconds = shift;
  places();
  mkdir '/run/savepoint', 0755;
  my ($old) = watchdog();
  my ($until, $helper) = (mono() + $seconds, $$);
  pipe my $r, my $w or die "pipe: $!";
  my $pid = fork // die "fork: $!";
  if ($pid == 0) {
    apart();
    close $r;
    my $note = watch_file();
    put("$note.new", "$$ " . started($$) . " $helper") && rename "$note.new", $note and syswrite $w, 'armed';
    close $w;
    open STDERR, '>', '/dev/null';
    open STDOUT, '>', '/dev/null';
    watch($until, $helper);
    unlink $note if watched_by($$);
    kill 'KILL', $$;
  }
  close $w;
  waitpid $watcher, 1 if $watcher; # one that did its work
  $watcher = $pid;
  sysread $r, my $armed, 16;
  ($armed // '') eq 'armed' or die "the watchdog of the freeze does not run";
  end_watchdog($old) if $old;
  unless (defined freezer(1)) {
    my $why = "freeze $volume: $!";
    eval { thaw() }; # an earlier freeze may hold it
    die $why;
  }
  # Without the watchdog, which another helper may have ended, nobody would thaw.
  return if mono() < $until && watched_by($pid);
  thaw();
  die "the guest took longer to write everything than it may be frozen";
}

# watch thaws when the time is over, and tries until that worked. While its helper
# lives the freeze itself may still be on its way.
sub watch {
  my ($until, $helper) = @_;
  nap($until - mono()) while mono() < $until;
  while (watched_by($$)) {
    my $did = freezer(0);
    return if $did || defined $did && !-e "/proc/$helper";
    nap(0.1);
  }
}

# thaw ends the freeze, and after that its watchdog: as long as the volume may be
# frozen, or become so by a freeze of another helper that is on its way, nobody
# else would thaw it.
sub thaw {
  my $did = freezer(0) // die "thaw $volume: $!; its watchdog goes on trying";
  my ($pid, $helper) = watchdog();
  return if !$did && $pid && $helper != $$ && -e "/proc/$helper";
  end_watchdog($pid) if $pid;
  unlink watch_file();
}

sub end_watchdog {
  kill 'KILL', $_[0];
  waitpid $_[0], 0; # nothing when it is another helper's, or init's
}

# --- The end of the agent ---

# owned says whether a process with this status is the account's by any of its ids.
sub owned { $_[0] =~ /^Uid:.*\s$_[1](?:\s|$)/m }

# belongs is owned without those that have ended, unless other threads of it go on.
sub belongs {
  my ($status, $uid) = @_;
  return 0 unless owned($status, $uid);
  $status !~ /^State:\s*[ZX]/m || $status =~ /^Threads:\s*(\d+)/m && $1 > 1;
}

sub processes_of {
  my $uid = shift;
  opendir my $d, '/proc' or die "list processes: $!";
  grep { belongs(slurp("/proc/$_/status") // '', $uid) } grep { /^\d+$/ } readdir $d;
}

# strike kills everything of the account with one signal to all it may signal: it
# reaches them at once, and none can fork away from it. The process that sends it
# has another real and saved id, which nobody else has: so the account can neither
# kill nor stop it before, and it has no right to signal anybody else.
sub strike {
  my $uid = shift;
  my $apart = 0xfffffff0;
  my $pid = fork // die "fork: $!";
  if ($pid == 0) {
    apart();
    call('setresuid', $apart, $uid + 0, $apart) == 0 or kill 'TERM', $$;
    kill 'KILL', -1;
    kill 'KILL', $$;
  }
  waitpid $pid, 0;
  ($? & 127) == 9 or die "the processes of agent cannot be signalled";
}

# end_groups kills the control groups of the account: that of its logins, and those
# of commands in which nothing else runs. A command of root that has a process of
# the account stays: it is not ended here.
sub end_groups {
  my $uid = shift;
  (my $top = $base) =~ s{/[^/]*\z}{};
  my $logins = "$top/user.slice/user-$uid.slice";
  kill_leaf($logins) if -d $logins;
  for my $leaf (inner($base)) {
    my @all = grep { $_ ne '' } map { slurp("/proc/$_/status") // '' } split ' ', join ' ', map { slurp("$_/cgroup.procs") // '' } $leaf, inner($leaf);
    kill_leaf($leaf) if @all && !grep { !owned($_, $uid) } @all;
  }
}

# end_agent kills everything of agent: its control groups, which ends most without
# a process of ours, then all that has its id, wherever it is. A look counts only after a strike: before
# it, what forks all the time could slip past.
sub end_agent {
  my ($uid) = account('agent') or return;
  die "account agent has the rights of root" if $uid == 0;
  my ($until, $pause) = (mono() + 10, 0.001);
  end_groups($uid);
  while (1) {
    strike($uid);
    my @left = processes_of($uid) or return;
    die "processes of agent do not end: @left[0 .. ($#left < 9 ? $#left : 9)]" if mono() > $until;
    nap($pause);
    $pause *= 2 if $pause < 0.05;
  }
}
