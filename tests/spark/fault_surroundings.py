"""What the faults of a campaign happen to: a PostgreSQL server, a small disk and a clock of the campaign's own.

Each is there from `start` to `stop`, and says with `lacking()` what this machine has not that it needs.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import psycopg
from postgresql_binaries import as_user, find_binaries, server_user

HOUR = 3600


class OwnPostgresql:
    """A server that can be killed and started again. The only way in is its folder. No `-F`: what was committed must
    be there after a kill, as for any user."""

    def __init__(self) -> None:
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def lacking() -> str:
        return "" if find_binaries() else "no PostgreSQL server is installed (initdb is not found)"

    @property
    def url(self) -> str:
        return f"postgresql://penstock@/postgres?host={self.folder}"

    def start(self) -> None:
        # Not below the campaign's folder: the server's user may not enter that.
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-faults-pg-"))
        if user := server_user():
            shutil.chown(self.folder, user)
        create = [self._binaries / "initdb", "-D", self.folder / "data", "-U", "penstock", "-A", "trust", "-E", "UTF8"]
        subprocess.run(create, check=True, capture_output=True, cwd=self.folder, **as_user(user))
        self.launch()

    @property
    def _binaries(self) -> Path:
        binaries = find_binaries()
        assert binaries is not None, self.lacking()
        return binaries

    def launch(self) -> None:
        """Begin, or begin again after a kill, and wait until it answers."""
        deadline = time.monotonic() + 60
        while True:
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [self._binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, "-h", ""],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    start_new_session=True,
                    **as_user(server_user()),
                )
            # It refuses to begin while a process of the one before it is still about to end.
            while self._process.poll() is None and time.monotonic() < deadline:
                if self._answers():
                    return
                time.sleep(0.05)
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]

    def _answers(self) -> bool:
        try:
            with self._connect():
                return True
        except psycopg.OperationalError:
            return False

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(host=str(self.folder), user="penstock", dbname="postgres", autocommit=True)

    def kill(self) -> None:
        """The server and the processes of its sessions, all at once, as when its machine loses power."""
        assert self._process is not None
        with contextlib.suppress(psutil.Error):
            server = psutil.Process(self._process.pid)
            for process in [server, *server.children()]:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end_sessions(self) -> int:
        """End every session that a Penstock has, the one with its lock too; how many there were."""
        with self._connect() as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock'"
            )
            return len(ended.fetchall())

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class SmallDisk:
    """A file system in memory, mounted on a folder, that can be filled."""

    SIZE_MB = 400

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"
        self._mounted = False

    @staticmethod
    def lacking() -> str:
        """Tried out: containers often have root and may not mount."""
        with tempfile.TemporaryDirectory(prefix="penstock-faults-disk-") as folder:
            tried = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False)
            if tried.returncode == 0:
                subprocess.run(["umount", folder], check=True)
                return ""
            return "this user may not mount a small disk"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        options = f"size={self.SIZE_MB}m,mode=700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder], check=True)
        self._mounted = True

    def fill(self) -> int:
        """Leave no byte; how many it took."""
        taken = 0
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                taken += file.write(bytes(1 << 20))
        return taken

    def keep_full(self, seconds: float) -> None:
        """What is deleted meanwhile makes no room."""
        end = time.monotonic() + seconds
        with self._filler.open("ab", buffering=0) as file:
            while time.monotonic() < end:
                for size in (1 << 20, 4096):
                    with contextlib.suppress(OSError):
                        while file.write(bytes(size)) == size:
                            pass
                time.sleep(0.05)

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)

    def stop(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "--lazy", self.folder], check=True)
            self._mounted = False


class OwnClock:
    """The time of day of the processes that have its `environment`, set forward and back while they run (set_clock.c).
    Clocks that only go forward, and with them all waiting, go on as they are."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "set_clock.so"
        self.offset = 0

    @staticmethod
    def lacking() -> str:
        return "" if shutil.which("cc") else "there is no C compiler to make the clock with (apt-get install gcc)"

    def start(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self.set(0)
        source = Path(__file__).with_name("set_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", self._library, source, "-ldl"], check=True)

    def set(self, offset: int) -> None:
        """Seconds beside the true time."""
        self.offset = offset
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", offset))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "SET_CLOCK_FILE": str(self._file)}

    def stop(self) -> None:
        """Nothing: the processes that had it are gone."""
