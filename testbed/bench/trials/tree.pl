# Lists a guest's files, for the rollback experiment. Arguments: roots; -PATH is
# left out with what is below it; ~PATH is listed by find, which takes a third of the
# time and knows neither flags, devices, extended attributes nor content: "?" stands
# for those. Needs perl-base, findutils and coreutils. It prints fields that end in a
# zero byte:
#
#   four per path: what stat says, the path, its target, its extended attributes;
#   an empty one; the processes that a damage left; an empty one;
#   "SHA256  PATH" of every file that was read; "end"
#
# What it reads of the big trees leaves the page cache again: the next snapshot
# with memory would be as large as that.
use strict;
use Config;
my %nr = $Config{archname} =~ /^x86_64/
  ? (statx => 332, lgetxattr => 192, llistxattr => 195, fadvise => 221)
  : (statx => 291, lgetxattr => 9, llistxattr => 12, fadvise => 223);
my ($stat, $list, $value) = ("\0" x 256, "\0" x 65536, "\0" x 65536);
my %letter = (0100000 => 'f', 0040000 => 'd', 0120000 => 'l', 0010000 => 'p', 0140000 => 's', 0020000 => 'c', 0060000 => 'b');
my (%skip, %quick, @roots, @read);
for (@ARGV) {
  if (/^-(.*)/s) { $skip{$1} = 1 } elsif (/^~(.*)/s) { $quick{$1} = 1 } else { push @roots, $_ }
}
binmode STDOUT;
my $out = '';
visit($_) for grep { -l $_ || -e _ } @roots;
print $out, "\0", leftovers(), "\0";
$| = 1; # writes what waits
digests();
print "end\0";

sub visit {
  my $path = shift;
  return quickly($path) if $quick{$path};
  my $p = "$path\0";
  syscall($nr{statx}, -100, $p, 0x900, 0x7ff, $stat) == 0 or die "stat $path: $!\n";
  my @f = unpack 'L2 Q L3 S S Q4 (q l l)4 L4', $stat;
  my $kind = $f[6] & 0170000;
  my $target = $kind == 0120000 ? readlink $path // die "read link $path: $!\n" : '';
  my $got = syscall($nr{llistxattr}, $p, $list, 65536);
  die "extended attributes of $path: $!\n" if $got < 0 && !$!{EOPNOTSUPP} && !$!{ENOSYS};
  my $x = $got > 0 ? xattrs($p, substr $list, 0, $got) : '';
  # kind and mode, uid, gid, size, links, inode, flags, device, mtime, ctime
  $out .= sprintf "%s%o %d %d %d %d %d %d %d:%d %d.%09d0 %d.%09d0\0%s\0%s\0%s\0",
    $letter{$kind}, $f[6] & 07777, @f[4, 5, 9, 3, 8], $f[2] & 0x30, @f[24, 25, 21, 22, 18, 19], $path, $target, $x;
  if (length $out > 60000) { print $out; $out = '' }
  push @read, [$path, $f[9]] if $kind == 0100000;
  $kind == 0040000 or return;
  opendir my $d, $path or die "open $path: $!\n";
  my @names = sort grep { $_ ne '.' && $_ ne '..' } readdir $d;
  closedir $d;
  $path = '' if $path eq '/';
  for (@names) { visit("$path/$_") unless $skip{"$path/$_"} }
}

sub quickly {
  my $path = shift;
  return unless -l $path || -e _;
  $| = 1; # writes what waits: find writes to the same place
  print $out;
  ($out, $|) = ('', 0);
  system({'find'} 'find', $path, '-printf', '%y%m %U %G %s %n %i ? ? %T@ %C@\0%p\0%l\0?\0') == 0 or die "find $path: exit status " . ($? >> 8) . "\n";
}

sub xattrs {
  my ($p, $names) = @_;
  my $all = '';
  for (sort split /\0/, $names) {
    my $n = "$_\0";
    my $len = syscall($nr{lgetxattr}, $p, $n, $value, 65536);
    die "extended attribute $_: $!\n" if $len < 0;
    $all .= pack '(N/a*)2', $_, substr $value, 0, $len;
  }
  unpack 'H*', $all;
}

# leftovers are the processes that have the variable every damage is given.
sub leftovers {
  opendir my $d, '/proc' or die "open /proc: $!\n";
  my $all = '';
  for my $p (grep { /^\d+$/ } readdir $d) {
    open my $f, '<', "/proc/$p/environ" or next;
    local $/;
    (<$f> // '') =~ /(?:^|\0)SAVEPOINT_DAMAGE=(\w[\w-]*)/ and $all .= "$p of $1\0";
  }
  $all;
}

# digests reads by the dozen: to start a program costs more than a small file does.
sub digests {
  while (@read) {
    my ($size, @some) = (0);
    while (@read && @some < 800 && $size < 16 << 20) { my $r = shift @read; push @some, $r; $size += $r->[1] }
    system({'sha256sum'} 'sha256sum', '-z', '--', map { $_->[0] } @some) == 0 or die "sha256sum: exit status " . ($? >> 8) . "\n";
    for (grep { $_->[1] > 16384 } @some) {
      open my $f, '<', $_->[0] or die "open $_->[0]: $!\n";
      syscall($nr{fadvise}, fileno $f, 0, 0, 4); # not needed any more
    }
  }
}
