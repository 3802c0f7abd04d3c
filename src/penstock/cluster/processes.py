"""Child processes that cannot outlive this process: each runs below a guard process that notices our end."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.cluster import guard
from penstock.logs import LOGGER, delete_folder

#: How many seconds the guard may take beyond the grace period before it is killed.
GUARD_SECONDS = guard.KILL_SECONDS + 5.0
TAIL_BYTES = 64 * 1024


class GuardedProcess:
    """A command that runs in a session of its own below a guard (see guard.py), its output in a log file.

    Its session keeps a Ctrl-C in the terminal away from it, so that we stop it in order. The guard lives exactly as
    long as the command and everything that came from it.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, grace: float = 5.0
    ) -> None:
        self.log = log
        given = dict(os.environ if environment is None else environment)
        base = guard.folder_of_folders(given.get("TMPDIR") or tempfile.gettempdir())
        #: What a guard that was killed could not remove.
        self._folder = Path(base, f"penstock-{secrets.token_hex(4)}")
        # -I and -S: the guard needs neither site-packages nor the user's Python settings, and starts faster without.
        guarded = [sys.executable, "-I", "-S", guard.__file__, str(grace), *command]
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                guarded,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=given | {guard.FOLDER_VARIABLE: self._folder.name},
                start_new_session=True,
                bufsize=0,
            )

    @property
    def alive(self) -> bool:
        return self._guard.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The command's exit code modulo 256, so that a signal n shows as 256 - n; None while it is alive."""
        return self._guard.poll()

    def ask_to_end(self, grace: float = 5.0) -> None:
        """Begin the end without waiting for it, so that several processes can end side by side."""
        line = self._guard.stdin
        if line is not None and not line.closed:
            with contextlib.suppress(BrokenPipeError):  # the guard has ended already, and so has the command
                line.write(f"{grace}\n".encode())
            line.close()

    def terminate(self, grace: float = 5.0) -> None:
        """End the command and all that came from it, and wait until they have ended."""
        self.ask_to_end(grace)
        try:
            self._guard.wait(grace + GUARD_SECONDS)
        except subprocess.TimeoutExpired:
            LOGGER.warning("the guard of the process that writes %s did not end in time: Penstock kills it", self.log)
            self._guard.kill()
            self._guard.wait()
        if self._folder.exists():
            delete_folder(self._folder)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines the command wrote."""
        return tail(self.log, lines)


class GuardedFolder:
    """A temporary folder that does not outlive us, however we end; `path` is None where none could be made."""

    def __init__(self) -> None:
        guarded = [sys.executable, "-I", "-S", guard.__file__, "0"]
        self._guard = subprocess.Popen(
            guarded, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        assert self._guard.stdout is not None
        name = self._guard.stdout.readline().decode().strip()
        self.path = Path(name) if name else None
        if self.path is None:
            LOGGER.warning("no temporary folder could be made that ends with this process")

    def close(self) -> None:
        for line in (self._guard.stdin, self._guard.stdout):
            if line is not None:
                line.close()
        self._guard.wait()


def tail(file: Path, lines: int) -> str:
    """The last lines of a text file; empty if there is no such file."""
    try:
        with file.open("rb") as content:
            content.seek(max(0, file.stat().st_size - TAIL_BYTES))
            return "\n".join(content.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
