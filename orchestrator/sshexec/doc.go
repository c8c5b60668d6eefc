// Package sshexec runs permitted commands in guests over SSH and keeps
// savepoint's own hold of a guest. It implements orchestrator.Executor, Guest
// and Examiner, what the workspace snapshots need of a guest and of a node, and
// is the only importer of golang.org/x/crypto/ssh on the product's side.
//
// # Overview
//
// One SSH connection per sandbox, as root, through one shared connection to
// the jump host. Over it the client starts a helper in the guest: it sends the text
// of helper.pl, examine.pl, workspace.pl and workspace_btrfs.pl to its perl, and speaks
// frames with it (package wire).
// A helper serves one command at a time and is kept for the next one, so a
// command costs one round trip and no start of sshd's session process, and
// nothing has to be installed in the guest or can be replaced there.
//
// The command text reaches the guest as bytes in a frame and becomes the one
// argument of "bash --norc -c" (of "sh -c" where there is no bash). That is
// what "ssh host command" does, without the start-up files: ~/.profile and
// ~/.bashrc can be written by the agent, and with them a command judged
// read-only would run text nobody judged. The environment holds HOME, USER,
// LOGNAME, SHELL, LANG=C.UTF-8, a fixed PATH, and what the request adds. The
// umask is 022, the working directory the user's home (/ when that is gone)
// unless the request names one.
//
// The helper is root; the command is not. It joins a control group (cgroup v2)
// that only root can leave, then gives up root with all four ids and sets
// no_new_privs, so sudo, su and every other setuid program are without power
// for the agent. A command of root keeps its rights.
//
// # The way into a sealed zone
//
// A zone without exit node has no route in or out. A jump host is inside all the
// same: with a leg in each vnet, or, on a node, with an sshd in the zone's routing
// table (ip vrf exec). What it reaches can reach it. A place of role jump in the
// configuration says so, and the proof of isolation (package network) exempts its
// SSH port at its legs, and at their link-local addresses, and nothing else: not
// other ports, not forwarding, which guests try through it.
//
// # Measurements
//
// Probe has a guest try what it can reach, and listen. It sends another text,
// probe.pl, to the guest's perl over a session of its own, so that a running
// command and a measurement do not wait for one another. The program needs
// nothing but perl-base and ends by itself after a minute. Guests that measure
// together meet before they begin. Where the guest has no route its packets are
// made by hand and put on the link, for everybody who was seen there: no route,
// address or neighbour of the guest is changed for that, so none is left behind
// when the program is killed. What the kernel learned meanwhile is forgotten at the
// end, or by its own time.
//
// Ids of probes are random and known to their sender only. Guests of one vnet can
// still impersonate each other on layer 2, where ports have no filter.
//
// # Sessions
//
// With ExecRequest.Capture the command's shell reports where it is and what it
// exports when it ends. The command's text stays the one argument of bash -c:
// BASH_ENV names an inherited descriptor, whose sealed text forgets BASH_ENV and
// sets an EXIT trap, which writes on another descriptor: a memory file of fixed
// size that the helper made, so that nothing blocks, has a name, or grows. No
// program that the command starts has the variable or the descriptor. The helper
// reads its own handle of it, after every process is gone. The report is what an
// agent wrote and is judged as such: names that a request may not set are
// dropped, and more than 64 KiB or 256 variables are no report. There is none
// either when a signal or the deadline ended the shell, when it became another
// program, when the command sets an EXIT trap of its own, or without bash.
//
// A command can find the trap with "trap -p", its descriptor 233 in
// /proc/$$/fd, and a PIPESTATUS that is set from the beginning. set -v shows the
// trap's text, BASH_XTRACEFD its commands, and a DEBUG trap that is there at the
// end runs once more, its output unseen. Bash executes the last program of a
// command in its own place; with a trap it cannot, so there is one process more,
// and a program that dies of a signal there is exit 128+n with the shell's
// message instead of Signal.
//
// Without Capture nothing of this is done for a command; the memory file is made
// while the helper is idle. With it a shell takes about a sixth more processor
// time (2 ms where it takes 14), and half as much again where it is the one
// program that bash now starts in a process of its own (8 to 14 ms of 16). What
// a transaction waits for beside that is unchanged: no round trip is added.
//
// # What was written
//
// Inspect tells how much was written to the guest's disks since its boot: the
// sectors written and discarded of everything in /sys/block that is a disk, after
// a sync, for which a child of the helper waits. The reading itself writes
// nothing: /proc and /sys are in memory, no file is opened on a disk, and the
// connection is there already. One that has to be dialled anew makes sshd and the
// system's journal write, and the answer is another one then. A guest of which one
// disk does not count (queue/iostats is 0) does not tell.
//
// # Health and manifests
//
// Health looks at /proc and asks for free space; a command whose caller wants it
// has the answer before its end, when everything that it started is gone and what
// it wrote is on its way to the disk. Its sshd is one of root that
// listens where the helper's own connection came in. Manifest is made by a
// process outside every command's control group. It goes
// down by open handles, follows no link, leaves access times alone, and has
// the guest's kernel digest what it reads (AF_ALG, module algif_hash). A kernel
// without that leaves coreutils' sha256sum, because perl-base has no Digest::SHA; an
// emulated guest takes longer to start that than to read the files, so one start
// serves many. It lists some 40,000 paths a second, and digests a thousand small files in one.
//
// # The workspace volume
//
// A sandbox with Workspace set has a second disk with everything that the agent
// may write. WorkspaceScript mounts it at boot, at /srv/savepoint, and binds its
// parts over the directories that the agent knows:
//
//	home       /home/agent        var-tmp    /var/tmp
//	workspace  /workspace         shm        /dev/shm
//	tmp        /tmp               generation the marker, root's
//
// A command of the agent gets mounts apart from the guest's, in which everything
// else is read-only: whatever permissions the guest's files have, what it changes is
// on the volume. The helper makes them ahead, while nobody waits, and a process of
// its own holds them; as soon as the guest mounts or unmounts anything they are made
// anew. Without the volume such a command does not start, and Mark and
// Inspect fail. Freeze, Thaw, Unmount and Mount are the guest's half of a
// snapshot and a rollback; the helper keeps nothing open there. The watchdog of a
// freeze is a process of its own and needs nobody.
//
// Where the volume is a btrfs, Btrfs is the driver of its snapshots, and the guest
// takes them. The volume's own top is what is mounted, for root alone; the parts
// are in its subvolume live, the snapshots beside that, with a note of each: whose
// it is, its place in the order, when, and a text. The notes are symbolic links,
// which are on the disk whole and with the same commit as what they tell of. Every
// order is one round trip and starts no program in the guest: what takes time there
// is starting one. A rollback makes a writable snapshot and swaps it with live in
// one step, so that there is a whole live at every moment; what a crash leaves the
// next order takes away. A begin takes one commit of the file system: 25 ms here
// on the host's kernel, and a rollback 50 ms.
//
// A subvolume inside of live would be in no snapshot of it, and every user may make
// one. A command of the agent on such a volume gets a seccomp filter that denies
// it the four orders for that; while root made one, Create refuses.
//
// A btrfs that is full can neither be marked nor rolled back. The volume therefore
// keeps a file that is nothing but room: a mark or a rollback that finds none takes
// that, and it is filled up again after each order. Without room for it there is no
// snapshot. Data and metadata share their space ("mixed"), so it serves for both.
//
// Nodes carries requests to the forced command on the cluster's nodes.
//
// Forward has a program in the guest, forward.pl, listen on the guest's loopback,
// and carries what connects there to our side, whatever the guest's sshd allows.
// Every process of that guest may use the port, and nothing of another guest's.
//
// # Invariants
//
// A command is over when everything it started is gone: processes put in the
// background, with nohup, setsid, a double fork or trapped signals, are ended
// when the command ends, when its deadline passes, when the context ends, when
// the connection is closed, and when the orchestrator dies. A result is
// returned only after the guest has confirmed that.
//
// A command that may change something is reported as ended only after the
// guest's file systems were synced: what a commit promises survives a power cut.
//
// A command is never sent twice. After its order was written, a loss of the
// connection is ErrUnknownOutcome; before that it is ErrUnavailable.
//
// Host keys are pinned; only the pinned key's algorithms are offered; another
// key is *orchestrator.HostKeyError and is not retried.
//
// With a workspace volume, what a command of the agent wrote is on it, or in the
// kernel's memory and gone with the command, but for what Limits names.
//
// A guest that was frozen thaws by itself in time.
//
// An exchange with a node is never repeated after a part of it was sent.
//
// Btrfs deletes and restores only a snapshot whose note names the sandbox, on a
// volume that does.
//
// # Limits
//
// The snapshots of Btrfs are the guest's: without a guest that answers there is
// neither a list nor a rollback, and root in the guest can destroy them. A snapshot
// of the whole VM brings back the volume with the snapshots that it had. What the
// agent overwrites takes room on the volume for as long as a snapshot has it.
//
// A workspace volume needs Linux 5.12 and cgroup v2 in the guest, and util-linux,
// coreutils, grep, findutils, awk and passwd, which every Debian system has. Not
// on the volume are System V shared memory, semaphores and queues of the agent
// (Unmount removes them), its keyrings, and what a service does that root
// installed and that works for whoever asks, over a socket or loopback: use the
// boundary disk or machine with such a service. The system's own bus and journal
// are hidden from the agent. Programs see a read-only file system where they were
// denied permission before. The account agent cannot log in, and root's
// processes that hold the volume keep it from being unmounted.
//
// The guest needs perl-base, x86-64, arm64, riscv64 or loong64, and for the
// agent's account useradd once. Kernels before 5.14 have no cgroup.kill: there
// the group is frozen and killed. Without cgroup v2 the helper adopts and
// kills every process that descends from it. Client.Hold says which of the
// three it is ("cgroup", "freeze", "tree"). Before Linux 5.3 the end of a
// command is noticed up to 20 ms late.
//
// A command of root can replace perl, bash and sha256sum. What a guest says of
// itself after that is worth nothing; a rollback does not depend on it.
//
// A manifest does not see what is below 400 directories (an error), and takes
// what it reads for one instant, though it is not.
//
// A command of root can move a process out of its group or ask systemd to
// start one. Both survive the command; a machine or disk boundary covers them.
// The agent can do neither, and Prepare keeps it from cron and at. Nor can the
// agent fill the guest's process table: commands get four fifths of it.
//
// A setuid program, and one with file capabilities, runs without its powers
// for the agent. A command text longer than the kernel's limit for one
// argument (128 KiB) is refused; larger data belongs into ExecRequest.Stdin.
// Signals cannot be sent to a running command, and there is no terminal.
//
// ExecRequest.Stdout and Stderr are written to by Run itself: a writer that
// blocks forever blocks Run, though the command is ended in time. A writer
// that fails gets no more data, and the result is not affected. A Stdin whose
// Read blocks after the command ended keeps one goroutine until Read returns.
//
// A machine that returns to saved memory holds the connection and the helper
// of its snapshot. They end within half a minute, when the helper's sign of
// life finds nobody; until then they are idle and in nobody's way.
package sshexec
