"""The guard: runs one command and sees to it that nothing of it survives whoever asked for it.

    python -I -S guard.py GRACE_SECONDS [COMMAND...]

Standard input is the line to the owner. When it closes, for whatever reason (an orderly stop, an exception, SIGKILL),
the guard ends the command and everything that came from it: SIGTERM, and SIGKILL after the grace period. A number of
seconds written to the line replaces the grace period. The guard ends last, so its end means that nothing is left.

Killing the command's process group would not be enough: PySpark's daemon, below a Spark executor, moves to a group of
its own. So the guard looks for every process in the command's session and for all its own descendants; on Linux it also
adopts orphans, so that a process cannot slip away by losing its parent. Standard library only, run by its path.

The command and all below it have a temporary folder of their own, which goes with them: a JVM that is killed leaves
libraries that it has unpacked, and sockets. Without a command the guard keeps only the folder, and says its name. The
owner may choose the folder's name (FOLDER_VARIABLE), and then removes it should the guard itself have been killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

POLL_SECONDS = 0.02
#: How long to go on with SIGKILL: only a process stuck in the kernel takes longer, and waiting would not help it.
KILL_SECONDS = 10.0
#: Of a socket's name, 104 characters are certain; Spark's own part has 42, our folder's 18.
LONGEST_TEMPORARY = 104 - 42 - 18 - 2
#: How long to go on with removing the temporary folder.
REMOVE_SECONDS = 60.0
#: The name of the temporary folder, where the owner chooses it. What the guard starts does not see it.
FOLDER_VARIABLE = "PENSTOCK_GUARD_FOLDER"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(grace: float, command: list[str]) -> int:
    owner = os.getppid()
    woken = _wake_on_signals()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    temporary = _own_temporary_folder(complain=bool(command))
    child = _launch(command) if command else None
    if child is None:
        with contextlib.suppress(BrokenPipeError):  # the owner may be gone already
            sys.stdout.write(f"{temporary or ''}\n")
            sys.stdout.flush()
    status = None
    lines = select.poll()
    lines.register(0, select.POLLIN)
    lines.register(woken, select.POLLIN)
    while status is None:
        ready = {line for line, _ in lines.poll(1000)}
        if 0 in ready:
            grace = _asked_grace(grace)
            break
        if woken in ready and signal.SIGTERM in os.read(woken, 1024):
            break
        # A fork of the owner may hold the line open after the owner's death; then only the parent's id tells.
        if os.getppid() != owner:
            break
        status = _reap().get(child) if child is not None else None
    if child is not None:
        status = _end_everything(child, grace).get(child, status)
    if temporary is not None:
        _remove(temporary)
    return os.waitstatus_to_exitcode(status) & 0xFF if status is not None else 1


def _own_temporary_folder(*, complain: bool) -> str | None:
    """Make a temporary folder for the processes that are started from now on, Java's and Python's; None if that
    fails. With a command, standard error is the command's log; without one it may be a terminal, and the owner finds
    that it gets no folder."""
    base, name = folder_of_folders(tempfile.gettempdir()), os.environ.pop(FOLDER_VARIABLE, "")
    try:
        if name:
            folder = str(Path(base, name))
            Path(folder).mkdir(mode=0o700)
        else:
            folder = tempfile.mkdtemp(prefix="penstock-", dir=base)
    except OSError as problem:
        if complain:
            sys.stderr.write(f"no temporary folder can be made in {base}: {problem}\n")
            sys.stderr.flush()
        return None
    os.environ["TMPDIR"] = folder
    options = os.environ.get("JDK_JAVA_OPTIONS", "")
    os.environ["JDK_JAVA_OPTIONS"] = f"{options} -Djava.io.tmpdir={folder}".strip()
    return folder


def folder_of_folders(temporary: str) -> str:
    """Where the folder goes: Spark puts Unix sockets in it, whose names must be short."""
    return temporary if len(temporary) <= LONGEST_TEMPORARY else "/tmp"  # noqa: S108 - a folder of our own is made in it


def _remove(folder: str) -> None:
    """Delete a folder again and again until it is gone: where the guard keeps only the folder, a JVM that uses it may
    still be ending, and files that the JVM makes meanwhile stand in the way."""
    give_up = time.monotonic() + REMOVE_SECONDS
    while os.path.exists(folder) and time.monotonic() < give_up:  # noqa: PTH110 - no Path for a folder that goes
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(POLL_SECONDS)


def _wake_on_signals() -> int:
    """Have signals written to a pipe, so that one poll waits for the owner, the child and SIGTERM alike."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # A Ctrl-C or a closed terminal is for the owner to handle.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return reader


def _launch(command: list[str]) -> int:
    """Start the command in a session of its own, without the guard's line to the owner."""
    # The guard's own handlers must not swallow a SIGTERM that is meant for the command before it is the command.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return child
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)  # what is ignored stays ignored after exec
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if sys.platform == "linux":  # should the guard itself be killed with SIGKILL
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        os.execvp(command[0], command)  # noqa: S606
    except OSError as problem:
        sys.stderr.write(f"cannot run {command[0]}: {problem}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def _asked_grace(default: float) -> float:
    """The grace period the owner wrote before it closed the line, if it did."""
    try:
        return float(os.read(0, 64))
    except ValueError:
        return default


def _reap() -> dict[int, int]:
    """Collect the children that have ended, adopted ones too: process id -> status."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):  # there is no child any more
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            ended[process] = status
    return ended


def _end_everything(session: int, grace: float) -> dict[int, int]:
    """SIGTERM to all, also those that appear meanwhile; SIGKILL to whatever is left after the grace period."""
    ended: dict[int, int] = {}
    told: set[int] = set()
    kill_from = time.monotonic() + grace
    while time.monotonic() < kill_from + KILL_SECONDS:
        ended |= _reap()
        family = _family(session)
        if not family:
            break
        late = time.monotonic() >= kill_from
        for process in family if late else family - told:
            # It has ended already, or has become somebody else's (setuid), whom we may not end.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
        told |= family
        time.sleep(POLL_SECONDS)
    return ended


def _family(session: int) -> set[int]:
    """Every running process that is in the session or descends from the guard."""
    parents = _parents()
    guard = os.getpid()
    return {
        process
        for process in parents
        if process != guard and (_session_of(process) == session or _descends(process, guard, parents))
    }


def _descends(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    seen: set[int] = set()  # process ids may be reused while we look, so there may be a cycle
    while process in parents and process not in seen:
        seen.add(process)
        process = parents[process]
        if process == ancestor:
            return True
    return False


def _session_of(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:  # the process has ended meanwhile
        return None


def _parents() -> dict[int, int]:
    """Process id -> parent's id of every process that runs; the dead that nobody has collected are left out."""
    found: dict[int, int] = {}
    for process, parent, state in _processes_of_proc() if Path("/proc/self/stat").exists() else _processes_of_ps():
        if state[0] not in "ZX":
            found[process] = parent
    return found


def _processes_of_proc() -> list[tuple[int, int, str]]:
    found = []
    for folder in os.listdir("/proc"):  # noqa: PTH208  (a Path for each process would double the time)
        if folder.isdigit():
            # A process that ends while we look is gone.
            with contextlib.suppress(OSError), open(f"/proc/{folder}/stat", encoding="latin-1") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(")")[2].split()[:2]
                found.append((int(folder), int(parent), state))
    return found


def _processes_of_ps() -> list[tuple[int, int, str]]:
    """The same where there is no /proc (macOS)."""
    import subprocess

    lines = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    return [(int(process), int(parent), state) for process, parent, state in map(str.split, lines.splitlines())]


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
