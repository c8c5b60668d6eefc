
# --- A volume that is btrfs -----------------------------------------------------
# Sent after workspace.pl. The volume's own top is mounted at $volume, for root
# alone, and holds:
#
#   live       the subvolume with the parts and the marker
#   snap/NAME  its snapshots, which cannot be written
#   note/NAME  of each: whose it is, its place in the order, when, and a text
#   owner      whose the volume is; like the notes a link, which is whole or not there
#   new        what a rollback swaps with live; of no use to anybody afterwards
#   ballast    room that is given up when there is none
#
# Each order is one exchange and starts no program. What a crash leaves is taken
# away by the next order: a note without a snapshot, and new.

# ioctl numbers are those of every architecture in helper.pl. A name follows an
# open directory in a structure of one page.
my %btrfs;
BEGIN { # what is set when the program comes here would be set too late
  %btrfs = (snapshot => 0x50009417, destroy => 0x5000940f, sync => 0x9408, flags => 0x4008941a, children => 0xd000943d, where => 0xd000943e);
}

# control gives one such order about a directory; the answer is in its argument.
sub control {
  my ($what, $dir) = @_;
  open my $d, '<', $dir or return;
  ioctl $d, $btrfs{$what}, $_[2];
}

# subvolume makes a snapshot: of one subvolume, in a directory, under a name. The
# kernel writes out what is in its memory of the subvolume, and returns after it is
# on the disk: nothing has to be synced or held before.
sub subvolume {
  my ($of, $in, $name, $readonly) = @_;
  open my $from, '<', $of or return;
  my $order = pack 'q<Q<Q<x32a4040', fileno $from, 0, $readonly ? 2 : 0, $name;
  control('snapshot', $in, $order);
}

# within lists the subvolumes below one, which are in no snapshot of it.
sub within {
  my $top = shift;
  my $list = pack 'x4096';
  control('children', $top, $list) or $!{EOVERFLOW} or die "list subvolumes of $top: $!";
  my $n = unpack 'x4088C', $list;
  map {
    my ($id, $dir) = unpack 'x' . (8 + 16 * $_) . 'Q<Q<', $list;
    my $where = pack 'Q<Q<x4080', $dir, $id;
    control('where', $top, $where) or die "find a subvolume of $top: $!";
    my ($name, $path) = unpack 'x16Z256Z*', $where;
    "$path$name";
  } 0 .. $n - 1;
}

# raze deletes a subvolume with those that root made below it.
sub raze {
  my ($in, $name) = @_;
  while (my @inner = within("$in/$name")) {
    my $writable = pack 'Q<', 0;
    control('flags', "$in/$name", $writable);
    for (@inner) { my ($dir, $base) = "$in/$name/$_" =~ m{^(.*)/([^/]+)$}; raze($dir, $base) }
  }
  my $order = pack 'q<a4088', 0, $name;
  control('destroy', $in, $order) or die "delete subvolume $name: $!";
}

# settle has everything on the disk, and the kernel begin to free what was deleted.
sub settle { my $none = 0; control('sync', $volume, $none) or die "sync $volume: $!" }

# roomy does something again without the ballast when there was no room for it.
# What it does returns false and $! then.
sub roomy {
  my ($what, $do) = @_;
  return if $do->();
  my $why = $!;
  if ($!{ENOSPC} && unlink "$volume/ballast") {
    settle();
    return if $do->();
    $why = $!;
  }
  die $!{ENOSPC} ? "full\0$what: $why" : "$what: $why";
}

# ballasted takes back as much room as there is, and says whether that is enough
# for a rollback. It only ever adds: what is given up is not free at once.
sub ballasted {
  my ($v, $stat) = ("$volume\0", pack 'x128');
  call('statfs', $v, $stat) == 0 or die "statfs $volume: $!";
  my (undef, $block, $blocks) = unpack 'q3', $stat;
  my $want = $block * $blocks >> 23 << 20; # an eighth, in MiB
  $want = 16 << 20 if $want > 16 << 20;
  my $have = (stat "$volume/ballast")[7] // 0;
  for (my $more = $want - $have; $more > 0; $more = $more > 1 << 20 ? 1 << 20 : $want - $have) {
    sysopen my $f, "$volume/ballast", 01 | 0100, 0600 or last;
    if (call('fallocate', fileno $f, 0, $have, $more) == 0) { $have += $more } elsif ($more <= 1 << 20) { last }
  }
  $have >= $want / 4;
}

# taken reads the notes: the volume's snapshots, oldest first. One that has no
# note is somebody else's, and comes before all.
sub taken {
  opendir my $d, "$volume/snap" or die "list snapshots: $!";
  my @all = map {
    my ($owner, $serial, $when, $text) = split / /, readlink("$volume/note/$_") // '', 4;
    +{ name => $_, owner => $owner // '', serial => $serial // 0, when => $when // (stat "$volume/snap/$_")[10], text => $text // '' };
  } grep { !/^\./ } readdir $d;
  sort { $a->{serial} <=> $b->{serial} || $a->{name} cmp $b->{name} } @all;
}

sub volume_owner { readlink("$volume/owner") // '' }

# told_taken is the answer to each of these orders: the volume as it is.
sub told_taken { ('volume', volume_owner(), map { ('taken', @$_{qw(name owner serial when text)}) } taken()) }

# tidy takes away what a crash left.
sub tidy {
  eval { raze($volume, 'new') } if -d "$volume/new";
  opendir my $d, "$volume/note" or die "list notes: $!";
  unlink "$volume/note/$_" for grep { !/^\./ && !-d "$volume/snap/$_" } readdir $d;
}

# snapshots does one order about them, for an owner. Any other's are not touched.
sub snapshots {
  my ($verb, $owner, $name, $text, $script) = @_;
  places($verb ne 'take');
  $fs eq 'btrfs' or die "denied\0the workspace volume is not btrfs";
  return told_taken() if $verb eq 'list';
  my $its = volume_owner();
  die "denied\0the volume has the owner $its, not $owner" if $its ne '' && $its ne $owner;
  die "denied\0not a snapshot's name" unless $name =~ /^[A-Za-z][\w-]{1,39}\z/a;
  tidy();
  my @all = taken();
  my ($at) = grep { $all[$_]{name} eq $name } 0 .. $#all;
  if ($verb eq 'take') {
    die "exists\0there is a snapshot of that name" if defined $at;
    take($owner, $name, $text, @all ? $all[-1]{serial} + 1 : 1);
  } else {
    if (!defined $at) {
      die "missing\0there is no such snapshot" if $verb eq 'restore';
      return told_taken();
    }
    die "denied\0the snapshot has the owner $all[$at]{owner}, not $owner" if $all[$at]{owner} ne $owner;
    if ($verb eq 'restore') {
      my @newer = map { $_->{name} } @all[$at + 1 .. $#all];
      die "newer\0@newer" if @newer;
      restore($name, $script);
    } else {
      raze("$volume/snap", $name);
      unlink "$volume/note/$name";
      settle();
    }
  }
  ballasted();
  told_taken();
}

# take writes the note first: both are on the disk with the same commit.
sub take {
  my ($owner, $name, $text, $serial) = @_;
  if (my @inner = within("$volume/live")) {
    die "denied\0there are subvolumes of their own in the workspace, which no snapshot would hold: @inner[0 .. ($#inner < 4 ? $#inner : 4)]; delete them as root";
  }
  ballasted() or die "full\0too little for a rollback";
  eval {
    roomy("note the snapshot", sub {
      (volume_owner() ne '' || symlink $owner, "$volume/owner") && symlink "$owner $serial " . time . ' ' . substr($text, 0, 1000), "$volume/note/$name";
    });
    roomy("snapshot", sub { subvolume("$volume/live", "$volume/snap", $name, 1) });
    ballasted() or do { raze("$volume/snap", $name); die "full\0too little for a rollback" };
    1;
  } or do { my $e = $@; unlink "$volume/note/$name"; die $e };
}

# restore swaps live for a writable snapshot of the snapshot, in one step: there is
# a whole live at every moment.
sub restore {
  my ($name, $script) = @_;
  thaw();
  let_go();
  end_agent();
  forget_memory();
  roomy("make it anew", sub { subvolume("$volume/snap/$name", $volume, 'new', 0) });
  eval { loosen($script); 1 } or do {
    my $e = $@;
    eval { bind_parts() };
    raze($volume, 'new');
    die $e;
  };
  my ($new, $live) = ("$volume/new\0", "$volume/live\0");
  eval { roomy("swap", sub { call('renameat2', -100, $new, -100, $live, 2) == 0 }); 1 } or do { my $e = $@; bind_parts(); die $e };
  bind_parts();
  eval { raze($volume, 'new') }; # or the next order does
  settle();
}

# The volume's parts, and where they are found.
sub parts { ([home => (account('agent'))[2] // '/home/agent'], map { [$_->[0], $_->[1]] } ['workspace', '/workspace'], ['tmp', '/tmp'], ['var-tmp', '/var/tmp'], ['shm', '/dev/shm']) }

sub bind_parts {
  my %at = map { $_ => 1 } eval { places(1) };
  for (parts()) {
    my ($part, $place) = @$_;
    next if $at{$place};
    my ($from, $to, $none) = ("$volume/live/$part\0", "$place\0", "none\0");
    call('mount', $from, $to, $none, 0x1000, 0) == 0 or die "unknown\0mount $place: $!";
  }
}

# loosen unmounts the parts. What was killed may still be letting go.
sub loosen {
  my $script = shift;
  elsewhere();
  my $tries = 0;
  while (my @left = places(1)) {
    for my $place (@left) {
      my $p = "$place\0";
      call('umount', $p, 0) == 0 || $!{EBUSY} || $!{EINVAL} or die "unmount $place: $!";
    }
    @left = places(1) or last;
    shell($script, 'holders') if ++$tries > 12;
    nap(0.05);
  }
}

# elsewhere unmounts them where other processes have mounts of their own.
sub elsewhere {
  my %seen = (readlink("/proc/$$/ns/mnt") => 1);
  opendir my $d, '/proc' or die "list processes: $!";
  for my $pid (grep { /^\d+$/ } readdir $d) {
    my $ns = readlink "/proc/$pid/ns/mnt" // next;
    next if $seen{$ns}++;
    my @there = map { my @f = split / /; $f[2] eq $device && $f[3] =~ m{^/live/} ? $f[4] : () } split /\n/, slurp("/proc/$pid/mountinfo") // '';
    system { 'nsenter' } 'nsenter', '-t', $pid, '-m', 'umount', reverse @there if @there;
  }
}

# forget_memory removes what outlives the agent's processes: System V's shared
# memory, semaphores and queues.
sub forget_memory {
  my ($uid) = account('agent') or return;
  my %how = (shm => [7, 9, sub { shmctl $_[0], 0, 0 }], sem => [4, 6, sub { semctl $_[0], 0, 0, 0 }], msg => [7, 9, sub { msgctl $_[0], 0, 0 }]);
  for my $kind (keys %how) {
    my ($user, $maker, $remove) = @{ $how{$kind} };
    for (split /\n/, slurp("/proc/sysvipc/$kind") // '') {
      my @f = split;
      $remove->($f[1]) if $f[0] ne 'key' && ($f[$user] == $uid || $f[$maker] == $uid);
    }
  }
}

# unsplit denies this process and all that it starts to make subvolumes: what is in
# them is in no snapshot of the subvolume around them, and every user may make them.
sub unsplit {
  my @calls = $Config{archname} =~ /^x86_64/ ? ([0xc000003e, 16], [0xc000003e, 0x40000202], [0x40000003, 54])
    : $Config{archname} =~ /^aarch64/ ? ([0xc00000b7, 29], [0x40000028, 54])
    : $Config{archname} =~ /^riscv64/ ? ([0xc00000f3, 29], [0x400000f3, 29]) : ([0xc0000102, 29]);
  my ($load, $equal, $end) = (0x20, 0x15, 0x06);
  my @orders = (0x50009401, 0x5000940e, 0x50009417, 0x50009418);
  my @filter;
  for (@calls) { # anything else is allowed; the second argument is what ioctl is to do
    my ($machine, $number) = @$_;
    push @filter, [$load, 0, 0, 4], [$equal, 0, 5 + @orders, $machine], [$load, 0, 0, 0], [$equal, 0, 3 + @orders, $number], [$load, 0, 0, 24];
    push @filter, map { [$equal, 1 + @orders - $_, 0, $orders[$_ - 1]] } 1 .. @orders;
    push @filter, [$end, 0, 0, 0x7fff0000], [$end, 0, 0, 0x50001];
  }
  push @filter, [$end, 0, 0, 0x7fff0000];
  my $program = join '', map { pack 'SCCL', @$_ } @filter;
  my $order = pack 'Sx6P', scalar @filter, $program;
  call('prctl', 22, 2, $order) == 0 or die "unavailable\0keep the agent from making subvolumes: $!";
}
