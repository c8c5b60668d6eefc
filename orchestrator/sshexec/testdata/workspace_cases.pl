# --- The cases; the helper's own text is before this ---
{
  no warnings 'redefine';
  *watch_file = sub { "$tmp/note" };
  *places = sub { };
}
$volume = '/proc'; # something that is mounted
$mode = 'cgroup';
my $eio = 5;

sub is { my ($what, $got, $want) = @_; print "$what: got $got, want $want\n" if $got ne $want }
sub answers { my ($what, $errno) = @_; defined $errno ? put("$tmp/$what", $errno) : unlink "$tmp/$what" }
sub says { my $do = shift; eval { $do->(); 1 } ? 'done' : cause($@) }
sub frozen { -e "$tmp/frozen" ? 1 : 0 }
sub watched { (watchdog())[0] ? 1 : 0 }
sub soon { my $do = shift; for (1 .. 1000) { return 1 if $do->(); nap(0.01) } 0 }
# lost is what a helper does before its connection is lost.
sub lost { my $do = shift; my $pid = fork // die; if (!$pid) { $do->(); kill 'KILL', $$ } waitpid $pid, 0 }

my %case = (
  thaw => sub {
    freeze(60);
    is('frozen and watched', frozen() . watched(), '11');
    thaw();
    is('thawed and not watched', frozen() . watched(), '00');
    is('no note', -e "$tmp/note" ? 1 : 0, 0);
    is('again', says(sub { thaw() }), 'done');
  },
  thaw_fails => sub { # nobody but the watchdog would thaw it then
    freeze(60);
    answers('thaw', $eio);
    is('error', says(sub { thaw() }) =~ /^thaw \/proc: Input/ ? 1 : 0, 1);
    is('frozen and watched', frozen() . watched(), '11');
    answers('thaw');
    thaw();
    is('thawed and not watched', frozen() . watched(), '00');
  },
  thawed_by_another => sub { # of the guest
    freeze(60);
    unlink "$tmp/frozen";
    thaw();
    is('watched', watched(), 0);
  },
  watchdog_fails => sub { # it goes on after its time, and without its helper
    answers('thaw', $eio);
    lost(sub { freeze(0.5) });
    is('it tries again', soon(sub { (-s "$tmp/failed" // 0) > 2 }), 1);
    is('frozen and watched', frozen() . watched(), '11');
    answers('thaw');
    is('thawed', soon(sub { !frozen() && !watched() }), 1);
  },
  watchdog_alone => sub {
    lost(sub { freeze(0.5) });
    is('thawed', soon(sub { !frozen() && !watched() }), 1);
  },
  on_its_way => sub { # the freeze of another helper, which comes after our thaw
    put("$tmp/note", "$$ " . started($$) . ' ' . getppid());
    is('thaw', says(sub { thaw() }), 'done');
    is('watched', watched(), 1);
    unlink "$tmp/note";
  },
  freeze_again_fails => sub { # what was frozen before is not left without a watchdog
    freeze(60);
    answers('freeze', $eio);
    answers('thaw', $eio);
    is('error', says(sub { freeze(60) }) =~ /^freeze \/proc: Input/ ? 1 : 0, 1);
    is('frozen and watched', frozen() . watched(), '11');
    answers('thaw');
    is('error', says(sub { freeze(60) }) =~ /^freeze \/proc: Input/ ? 1 : 0, 1);
    is('thawed and not watched', frozen() . watched(), '00');
  },
  unfence => sub { # waits for nobody who happens to have what the holder has
    pipe my $r, my $w;
    $holder = fork;
    if ($holder == 0) { close $w; sysread $r, my $end, 1; exit 0 }
    my $pid = fork;
    if ($pid == 0) { sleep 60; exit 0 } # has the pipe's end too
    local $SIG{ALRM} = sub { kill 'KILL', $pid; die "unfence hangs" };
    alarm 20;
    is('unfence', says(sub { unfence(); unfence() }), 'done');
    alarm 0;
    is('holder', defined $holder ? 1 : 0, 0);
    kill 'KILL', $pid;
    waitpid $pid, 0;
  },
  not_mounted => sub {
    $volume = "$tmp/nothing";
    is('thaw of nothing', says(sub { thaw() }), 'done');
    mkdir $volume;
    is('thaw of a directory', says(sub { thaw() }), 'done');
    is('freeze of a directory', says(sub { freeze(60) }) =~ /^freeze .*: No such device/ ? 1 : 0, 1);
    is('frozen and watched', frozen() . watched(), '00');
  },
  unmount => sub { # in this order, and no further than what works
    my @did;
    no warnings 'redefine';
    local *end_agent = sub { push @did, 'end' };
    local *shell = sub { push @did, $_[1] };
    freeze(60);
    answers('thaw', $eio);
    is('error', says(sub { tend('unmount', 0, 'script') }) =~ /^thaw/ ? 1 : 0, 1);
    is('did', "@did", '');
    answers('thaw');
    is('unmount', says(sub { tend('unmount', 0, 'script') }), 'done');
    is('did', "@did", 'end unmount');
    local *end_agent = sub { die "processes of agent do not end" };
    is('error', says(sub { tend('unmount', 0, 'script') }) =~ /^processes/ ? 1 : 0, 1);
    is('did', "@did", 'end unmount');
  },
  belongs => sub {
    my $s = "Name:\tx\nState:\tS (sleeping)\nUid:\t1000\t1001\t1002\t1003\nGid:\t7\t7\t7\t7\nThreads:\t1\n";
    is("id $_", belongs($s, $_) ? 1 : 0, 1) for 1000 .. 1003;
    is("id $_", belongs($s, $_) ? 1 : 0, 0) for 7, 100, 10000, 0;
    (my $ended = $s) =~ s/S \(sleeping\)/Z (zombie)/;
    is('one that ended', belongs($ended, 1000) ? 1 : 0, 0);
    $ended =~ s/Threads:\t1/Threads:\t2/;
    is('one of which a thread goes on', belongs($ended, 1000) ? 1 : 0, 1);
    is('one that is gone', belongs('', 1000) ? 1 : 0, 0);
    is('this one', scalar(grep { $_ == $$ } processes_of($<)), 1);
  },
  groups => sub { # that only the account has; processes 1 and 2 are its own, 3 is root's
    my %uid = (1 => 4242, 2 => 4242, 3 => 0);
    my $real = \&slurp;
    no warnings 'redefine';
    local *slurp = sub { $_[0] =~ m{^/proc/(\d+)/status$} ? exists $uid{$1} ? "State:\tS\nUid:\t$uid{$1}\t$uid{$1}\n" : undef : $real->($_[0]) };
    $base = "$tmp/savepoint";
    mkdir $_ for $base, "$tmp/user.slice", "$tmp/user.slice/user-4242.slice", "$tmp/user.slice/user-42.slice";
    my %in = (agent => "1\n2\n", gone => "99\n", 'agent-gone' => "99\n1\n", root => "3\n", both => "1\n3\n", empty => '', inner => '');
    for (keys %in) { mkdir "$base/$_"; put("$base/$_/cgroup.procs", $in{$_}) }
    mkdir "$base/inner/x";
    put("$base/inner/x/cgroup.procs", "2\n");
    end_groups(4242);
    my @killed = sort grep { -e "$base/$_/cgroup.kill" } keys %in;
    is('killed', "@killed", 'agent agent-gone inner');
    is('its logins', join('', map { -e "$tmp/user.slice/user-$_.slice/cgroup.kill" ? 1 : 0 } 4242, 42), '10');
  },
  end_agent => sub {
    my ($strikes, @left);
    $base = "$tmp/none";
    no warnings 'redefine';
    local *account = sub { (4242, 4242, '/', '/bin/sh') };
    local *strike = sub { $strikes++ };
    local *processes_of = sub { @left };
    end_agent();
    is('strikes where nothing was seen', $strikes, 1);
    @left = (17);
    local *strike = sub { @left = () if ++$strikes == 4 };
    end_agent();
    is('strikes', $strikes, 4);
    my $now = 0;
    local *mono = sub { $now };
    local *nap = sub { $now += $_[0] };
    @left = (17);
    local *strike = sub { };
    is('error', says(sub { end_agent() }), 'processes of agent do not end: 17');
    local *account = sub { (0, 0, '/root', '/bin/sh') };
    is('root', says(sub { end_agent() }), 'account agent has the rights of root');
  },
  # As root, and with ids that nobody has: one that kills all it may, and some of
  # which each lives only until it has forked the next.
  strike => sub {
    my $uid = 0xffffff00;
    $base = "$tmp/none"; # without control groups
    pipe(my $all, my $none) or die "pipe: $!";
    for my $kind ('killer', 'runner', 'runner', 'runner') {
      next if fork // die;
      call('setsid');
      call('setresuid', $uid, $uid, $uid) == 0 or die "setresuid: $!";
      close $none;
      if ($kind eq 'killer') { put("$tmp/x", ''); while (1) { kill 'KILL', -1 } }
      while (1) { my $p = fork; kill 'KILL', $$ if $p }
    }
    close $none;
    readline $all; # ends when none is root's any more: such a one would not be struck
    soon(sub { processes_of($uid) >= 1 });
    no warnings 'redefine';
    local *account = sub { ($uid, $uid, '/', '/bin/sh') };
    is('the end', says(sub { end_agent() }), 'done');
    is('left', scalar(processes_of($uid)), 0);
  },
);
$case{ $ARGV[1] }->();
