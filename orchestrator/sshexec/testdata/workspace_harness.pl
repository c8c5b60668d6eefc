# The parts of the helper below run here against a file system that is only told
# of: its freeze is the file "frozen", and what the kernel is to answer instead is
# in the files "thaw" and "freeze"; "failed" counts. The watchdogs are processes as in a guest.
our $tmp;
BEGIN {
  $tmp = $ARGV[0];
  *CORE::GLOBAL::ioctl = sub (*$$) {
    my $what = $_[1] == 0xc0045877 ? 'freeze' : 'thaw';
    if (open my $f, '<', "$tmp/$what") {
      open my $n, '>>', "$tmp/failed";
      syswrite $n, 'x';
      $! = <$f> + 0;
      return;
    }
    my $frozen = -e "$tmp/frozen";
    if ($what eq 'freeze' ? $frozen : !$frozen) { $! = $what eq 'freeze' ? 16 : 22; return }
    $what eq 'freeze' ? open my $g, '>', "$tmp/frozen" : unlink "$tmp/frozen";
    '0 but true';
  };
}
