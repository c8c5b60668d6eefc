# --- The cases of a volume that is btrfs; the helper's own text is before this ---
# The volume is a directory. What the kernel does with subvolumes is done with
# plain ones; it has room for a subvolume as long as "full" is not there or the
# ballast is away.
our (@nested, @did, $dies);
$volume = "$tmp/v";
$fs = 'btrfs';
mkdir $_ for $volume, map { "$volume/$_" } qw(live snap note);
put("$volume/live/generation", 'first');
{
  no warnings 'redefine';
  my $call = \&call;
  *places = sub { @{ $_[0] ? [] : ['/workspace'] } };
  *thaw = sub { push @did, 'thaw' };
  *end_agent = sub { push @did, 'end' };
  *forget_memory = sub { push @did, 'forget' };
  *loosen = sub { push @did, 'loosen'; die $dies if $dies };
  *bind_parts = sub { push @did, 'bind' };
  *settle = sub { push @did, 'settle' };
  *within = sub { @nested };
  *raze = sub { -d "$_[0]/$_[1]" or die "no $_[1]"; system 'rm', '-r', "$_[0]/$_[1]" };
  *ballasted = sub { -e "$tmp/full" || put("$volume/ballast", 'x'); -e "$volume/ballast" || -e "$tmp/tight" ? 1 : 0 };
  *subvolume = sub {
    my ($of, $in, $name) = @_;
    if (-e "$in/$name") { $! = 17; return }
    if (-e "$tmp/full" && -e "$volume/ballast") { $! = 28; return }
    system('cp', '-r', $of, "$in/$name") == 0;
  };
  *call = sub { # the swap
    return $call->(@_) unless $_[0] eq 'renameat2';
    push @did, 'swap';
    rename "$volume/live", "$volume/x" and rename "$volume/new", "$volume/live" and rename "$volume/x", "$volume/new" or return -1;
    0;
  };
}

sub is { my ($what, $got, $want) = @_; print "$what: got $got, want $want\n" if $got ne $want }
sub says { my ($verb, $name, $owner) = @_; eval { snapshots($verb, $owner // 'lab/one', $name, "text of $name", 'script'); 1 } ? 'done' : cause($@) =~ s/\0/: /r }
sub names { join ' ', map { "$_->{name}/$_->{owner}" } taken() }
sub live { slurp("$volume/live/generation") }

my %case = (
  story => sub {
    is('create', says('take', 'sp-one'), 'done');
    put("$volume/live/generation", 'second');
    is('create', says('take', 'sp-two'), 'done');
    put("$volume/live/generation", 'third');
    is('list', names(), 'sp-one/lab/one sp-two/lab/one');
    is('same name', says('take', 'sp-two'), 'exists: there is a snapshot of that name');
    is('older', says('restore', 'sp-one'), 'newer: sp-two');
    is('unchanged', live() . "@did", 'third');
    is('restore', says('restore', 'sp-two'), 'done');
    is('restored', live(), 'second');
    is('in this order', "@did", 'thaw end forget loosen swap bind settle');
    is('nothing is left', -e "$volume/new" ? 1 : 0, 0);
    is('missing', says('restore', 'sp-none'), 'missing: there is no such snapshot');
    is('delete', says('delete', 'sp-two'), 'done');
    is('delete again', says('delete', 'sp-two'), 'done');
    is('restore', says('restore', 'sp-one'), 'done');
    is('restored', live(), 'first');
    my @all = taken();
    is('text', $all[0]{text}, 'text of sp-one');
    is('when', $all[0]{when} > time - 60 ? 1 : 0, 1);
    is('bad name', says('take', '../x'), "denied: not a snapshot's name");
    is('a line more', says('take', "sp-x\n"), "denied: not a snapshot's name");
  },
  owners => sub { # nothing of anybody else's is touched
    is('create', says('take', 'sp-one'), 'done');
    mkdir "$volume/snap/nobodys";
    mkdir "$volume/snap/others";
    symlink 'lab/two 1 1700000000 words', "$volume/note/others";
    is('list', names(), 'nobodys/ others/lab/two sp-one/lab/one');
    for my $verb ('delete', 'restore') {
      is("$verb nobody's", says($verb, 'nobodys'), 'denied: the snapshot has the owner , not lab/one');
      is("$verb another's", says($verb, 'others'), 'denied: the snapshot has the owner lab/two, not lab/one');
    }
    is("another's volume", says($_, 'sp-one', 'lab/two'), 'denied: the volume has the owner lab/one, not lab/two') for qw(take restore delete);
    is('list', names(), 'nobodys/ others/lab/two sp-one/lab/one');
    is('did', "@did", '');
  },
  nested => sub { # what is in them would be in no snapshot
    @nested = ('workspace/a', 'tmp/b');
    is('create', says('take', 'sp-one') =~ m{^denied: .*: workspace/a tmp/b; delete} ? 1 : 0, 1);
    is('list', names() . join('', glob "$volume/note/*"), '');
  },
  leftovers => sub { # of an order that was cut
    is('create', says('take', 'sp-one'), 'done');
    symlink 'lab/one 9 1700000000 ', "$volume/note/sp-two";
    system 'cp', '-r', "$volume/live", "$volume/new";
    is('create', says('take', 'sp-two'), 'done');
    is('list', names(), 'sp-one/lab/one sp-two/lab/one');
    is('new', -e "$volume/new" ? 1 : 0, 0);
  },
  held => sub { # by root: the workspace stays as it is
    is('create', says('take', 'sp-one'), 'done');
    put("$volume/live/generation", 'second');
    $dies = "busy\0it is held";
    is('restore', says('restore', 'sp-one'), 'busy: it is held');
    is('did', "@did", 'thaw end forget loosen bind');
    is('unchanged', live() . (-e "$volume/new" ? 'new' : ''), 'second');
  },
  full => sub { # the ballast is for a rollback and the marker
    is('create', says('take', 'sp-one'), 'done');
    put("$tmp/full", '');
    is('ballast', -e "$volume/ballast" ? 1 : 0, 1);
    stamp('second');
    is('restore', says('restore', 'sp-one'), 'done');
    is('restored', live(), 'first');
    unlink "$volume/ballast";
    is('create without a ballast', says('take', 'sp-two') =~ /^full: / ? 1 : 0, 1);
    put("$tmp/tight", '');
    is('create with little', says('take', 'sp-three'), 'done');
    unlink "$tmp/tight", "$tmp/full";
    is('create', says('take', 'sp-four'), 'done');
    put("$tmp/full", ''); # as soon as it takes the ballast, there is none for a rollback
    is('create on a full one', says('take', 'sp-five') =~ /^full: / ? 1 : 0, 1);
    is('list', names() . (-l "$volume/note/sp-five" ? ' noted' : ''), 'sp-one/lab/one sp-three/lab/one sp-four/lab/one');
  },
  filter => sub { # needs neither root nor btrfs: the kernel's own answer is another
    open my $d, '<', $tmp or die;
    my $try = sub { my $page = "\0" x 4096; CORE::ioctl($d, $_[0], $page); $! + 0 };
    my @orders = (0x50009401, 0x5000940e, 0x50009417, 0x50009418);
    my @before = map { $try->($_) } @orders;
    is("before $_", $_ == 1 ? 1 : 0, 0) for @before;
    call('prctl', 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
    unsplit();
    is('afterwards', join(' ', map { $try->($_) } @orders), '1 1 1 1');
    is('another order', $try->(0x5000940f) == 1 ? 1 : 0, 0);
    is('in a child', `perl -e 'open my \$d, "<", "/"; my \$p = "\\0" x 4096; ioctl \$d, 0x5000940e, \$p; print \$!+0'`, 1);
    is('what else it does', slurp("$volume/live/generation"), 'first');
  },
);
$case{ $ARGV[1] }->();
