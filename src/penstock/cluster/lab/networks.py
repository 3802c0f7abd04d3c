"""Network namespaces: each machine of a lab is in one, and so is the driver. None of them has a way to the outside.

A namespace has no name: it lives as long as somebody holds it open or a process runs in it, and goes with the last of
them, whichever way they end. So nothing of it can be left behind, and nobody else's can be met.

A namespace is entered by a thread. Threads and processes that this thread starts are in it, too.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"


class Network:
    """A network namespace of its own, with nothing in it but its loopback."""

    def __init__(self) -> None:
        before = _current()
        try:
            _check(_libc().unshare(_CLONE_NEWNET))
            self._handle = _current()
        finally:
            _enter(before)
            os.close(before)

    @property
    def path(self) -> str:
        """Under which other processes find it, as long as we hold it."""
        return f"/proc/{os.getpid()}/fd/{self._handle}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is in it, and what the thread starts, until the block is left."""
        with _within(self._handle):
            yield

    def run(self, program: str, lines: Sequence[str]) -> None:
        """Have `ip` or `tc` do these lines in it. Raises OSError with their words."""
        with self.entered():
            done = subprocess.run(
                [program, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise OSError(f"{program}: {' '.join((done.stderr or done.stdout).split())}")

    def counters(self) -> dict[str, tuple[int, int]]:
        """Bytes received and sent, by interface."""
        with self.entered():
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
        found = {}
        for line in lines:
            name, _, figures = line.partition(":")
            fields = figures.split()
            found[name.strip()] = int(fields[0]), int(fields[8])
        return found

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class _Home:
    """The namespace that the threads of this process come from, while some of them are in a lab."""

    handle: int | None = None
    thread: int | None = None


def move_in(network: Network) -> None:
    """This thread goes into a network for good, until `move_out`; `outside` still leads back for a moment."""
    if _Home.handle is None:
        _Home.handle, _Home.thread = _current(), threading.get_native_id()
    _enter(network._handle)


def move_out() -> None:
    """Back to where the process comes from. Only the thread that moved in can be brought back: others end with the
    lab."""
    if _Home.handle is not None:
        if threading.get_native_id() == _Home.thread:
            _enter(_Home.handle)
        os.close(_Home.handle)
        _Home.handle = _Home.thread = None


@contextmanager
def outside() -> Iterator[None]:
    """Sockets that are opened in this block are open to this computer, even where the driver is in a lab."""
    if _Home.handle is None:
        yield
        return
    with _within(_Home.handle):
        yield


@contextmanager
def _within(handle: int) -> Iterator[None]:
    before = _current()
    try:
        _enter(handle)
        yield
    finally:
        _enter(before)
        os.close(before)


def _current() -> int:
    return os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)


def _enter(handle: int) -> None:
    _check(_libc().setns(handle, _CLONE_NEWNET))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
