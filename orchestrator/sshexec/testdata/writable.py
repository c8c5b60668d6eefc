"""Tries to write everywhere in a guest but on the workspace volume, and prints
what can be written. Run as the user agent. The arguments are the places of the
volume's parts; TOPS in the environment may name fewer places to try."""

import ctypes
import errno
import os
import socket
import stat
import sys

parts = sys.argv[1:]
found = 0
seen = {"directories": 0, "files": 0, "devices": 0, "sockets": 0, "pipes": 0}

# Devices that keep nothing, or nothing beyond the process that has them open.
HARMLESS = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/ptmx"}


def can(what, path):
    global found
    found += 1
    print(f"{what} {path}")


def inside(path):
    return any(path == p or path.startswith(p + "/") for p in parts)


def opened(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
        return True
    except OSError:
        return False


def directory(path):
    seen["directories"] += 1
    name = os.path.join(path, ".savepoint-written")
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        can("a file in", path)
        os.unlink(name)
    except OSError:
        pass
    try:
        os.mkdir(name)
        can("a directory in", path)
        os.rmdir(name)
    except OSError:
        pass
    change(path)


def change(path):
    """Metadata counts too: of what is the agent's, elsewhere."""
    try:
        os.utime(path, None, follow_symlinks=False)
        can("the times of", path)
    except OSError:
        pass
    try:
        os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode))
        can("the mode of", path)
    except OSError:
        pass


def other(path, mode):
    if stat.S_ISREG(mode):
        seen["files"] += 1
        if opened(path):
            can("file", path)
        change(path)
    elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        seen["devices"] += 1
        if path not in HARMLESS and opened(path):
            can("device", path)
    elif stat.S_ISFIFO(mode):
        seen["pipes"] += 1
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
            can("pipe", path)
        except OSError:
            pass
    elif stat.S_ISSOCK(mode):
        seen["sockets"] += 1
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET:
            s = socket.socket(socket.AF_UNIX, kind)
            s.settimeout(2)
            try:
                s.connect(path)
                can("socket", path)
            except OSError:
                pass
            s.close()


def walk(top):
    try:
        entries = list(os.scandir(top))
    except OSError:
        entries = []
    for e in entries:
        if inside(e.path) or e.path == "/proc" or e.path.startswith("/dev/pts/"):
            continue
        try:
            mode = e.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            directory(e.path)
            walk(e.path)
        elif not stat.S_ISLNK(mode):
            other(e.path, mode)


def kernel(top):
    """What the kernel shows below /proc but for processes. What can be opened is
    tried with a word that none of it takes."""
    for e in os.scandir(top):
        if top == "/proc" and (e.name.isdigit() or e.name in ("self", "thread-self")) or e.is_symlink():
            continue
        if e.is_dir(follow_symlinks=False):
            try:
                kernel(e.path)
            except OSError:
                pass
            continue
        seen["files"] += 1
        try:
            fd = os.open(e.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            os.write(fd, b"some 150000 1000000" if "pressure" in e.path else b"1\n")
            can("setting", e.path)
        except OSError:
            pass
        os.close(fd)


def processes():
    """Other processes' files, and through them the guest without its mounts."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if os.stat(f"/proc/{pid}").st_uid == os.getuid():
            continue
        for name in "mem", "oom_score_adj", "comm", "uid_map", "root/etc/hostname", "cwd/x", "ns/mnt", "fd/1":
            if opened(f"/proc/{pid}/{name}"):
                can("process", f"/proc/{pid}/{name}")
        try:
            os.kill(int(pid), 0)
            can("signal to", f"/proc/{pid}")
        except OSError:
            pass


def queues():
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    q = libc.mq_open(b"/savepoint-written", os.O_CREAT | os.O_RDWR, 0o600, None)
    if q >= 0:
        can("message queue", "/savepoint-written")
        libc.mq_unlink(b"/savepoint-written")
    elif ctypes.get_errno() not in (errno.ENOSPC, errno.EACCES, errno.ENOSYS):
        can(f"message queue (error {ctypes.get_errno()})", "/savepoint-written")


assert os.getuid() != 0
for part in parts:  # it finds what can be written
    name = os.path.join(part, ".savepoint-written")
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(name)
for top in os.environ.get("TOPS", "/").split():
    directory(top)
    walk(top)
kernel("/proc")
processes()
queues()
print("tried", " ".join(f"{n} {k}" for k, n in seen.items()), file=sys.stderr)
sys.exit(1 if found else 0)
