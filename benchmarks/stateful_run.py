"""One `penstock run` of bench-stateful, on lab machines: started, watched and ended from outside, as a user would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from stateful_instances import first_seats, seats_of, write_seats
from stateful_schedule import CORES, MACHINES
from stateful_seen import DETECTOR, Migration, Seen, migrations_of, seen, state_size
from stateful_topology import MACHINE_CORES, VARIABLE, Given

from penstock.api.client import Client
from penstock.api.discovery import FOLDER_VARIABLE, Phase, find
from penstock.errors import PenstockError

HERE = Path(__file__).parent
ROOT = HERE.parent
NAME = "frequent_patterns"
LAB = ["--cluster", "lab", "--machines", str(MACHINES), "--cores", str(CORES), "--machine-memory", "2g"]
LAB += ["--machine-cores", str(MACHINE_CORES)]
#: Seconds between two looks, and that a lab may take to start, and a run to end.
LOOK, START, END = 1.0, 400.0, 180.0
#: Seconds after which it is told again how far a run is.
TELL = 15.0
#: Errors of a driver that is about to end, or that has just lost what it asks.
NO_ANSWER = ("UNREACHABLE", "INTERNAL")
Json = dict[str, Any]


class PatternsRun:
    """As a context manager: whatever happens, its processes end."""

    def __init__(self, folder: Path, given: Given, settings: Mapping[str, object], say: Callable[[str], None]) -> None:
        self.folder = folder
        self.given = given
        self.samples: list[Seen] = []
        self._settings = settings
        self._say = say
        self._seats: list[str] = []
        self._operations: dict[int, Json] = {}
        self._state_size = 0
        self._sizes: dict[int, int] = {}
        self._client: Client | None = None
        self._process: subprocess.Popen[bytes] | None = None
        for part in (folder, folder / "tmp", Path(given.seats)):
            part.mkdir(parents=True, exist_ok=True)
        os.environ[FOLDER_VARIABLE] = str(folder / "running")  # of this process too: it looks for the topology there

    def __enter__(self) -> PatternsRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # the folder will be gone
            self._say(f"its log ends with:\n{self.log()}")
        self.end()

    # Its life

    def start(self, given: Given | None = None) -> None:
        """Start it, or start it again on the state that it has, and wait until it can be steered."""
        self.given = given or self.given
        self._seats = first_seats(self.given.tasks, self.given.instances)
        write_seats(Path(self.given.seats), self._seats)
        command = [sys.executable, "-m", "penstock", "run", str(HERE / "stateful_topology.py"), *LAB]
        command += ["--state", str(self.folder / "state"), "--json"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log, (self.folder / "summary.json").open("wb") as out:
            self._process = subprocess.Popen(command, env=self._environment(), stdout=out, stderr=log)
        began = told = time.monotonic()
        while not self._found():
            self._check("it did not start")
            now = time.monotonic()
            if now > began + START:
                raise RuntimeError(f"it did not start in {START:.0f} s\n{self.log()}")
            if now >= told + TELL:
                told = now
                self._say(f"starting for {now - began:.0f} s: {self._last_line()}")
            time.sleep(LOOK)
        self._say(f"started in {time.monotonic() - began:.0f} s")

    def stop(self, *how: str) -> None:
        """`penstock stop`, and wait until the process is gone. `--at-once` leaves what is on its way in the state."""
        command = [sys.executable, "-m", "penstock", "stop", "--json", *how]
        with (self.folder / "log").open("ab") as log:
            subprocess.run(command, env=self._environment(), stdout=log, stderr=log, timeout=END, check=True)
        self.end()

    def kill(self) -> None:
        """End the driver at once. Its guards end what it has started."""
        assert self._process is not None
        below = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()
        psutil.wait_procs(below, timeout=60)
        self._process = None
        self._forget()

    def end(self) -> None:
        self._forget()
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @property
    def ended(self) -> bool:
        """Whether it came to its own end: all tweets have reached the reporter."""
        if self._process is None or self._process.poll() is None:
            return False
        self._check("it failed")
        return True

    @property
    def driver(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def log(self) -> str:
        """With --json a named error is the answer on standard output."""
        files = [file for name in ("log", "summary.json") if (file := self.folder / name).exists()]
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files)

    def _last_line(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return lines[-1][:200] if lines else "it has said nothing"

    # What is seen of it

    def ask(self, path: str, body: Json | None = None) -> Json | None:
        """An answer of the control interface; None while it gives none: the driver starts, ends, or was killed."""
        if not self._found():
            return None
        assert self._client is not None
        try:
            return self._client.get(path) if body is None else self._client.post(path, body)
        except PenstockError as error:
            if error.name not in NO_ANSWER:
                raise
            self._forget()
            return None

    def look(self) -> Json | None:
        """The status as it is now. It is noted; and if the detector has other places, its tasks get their seats."""
        status = self.ask("status")
        if status is None:
            return None
        self.samples.append(seen(status, time.time()))
        seats = seats_of(status, DETECTOR)
        if seats and seats != self._seats:
            write_seats(Path(self.given.seats), seats)
            self._seats = seats
        if status["operation"] is None and len(self.samples) % 5 == 0:
            snapshot = self.ask("snapshot")
            self._state_size = (snapshot and state_size(snapshot)) or self._state_size
        answer = self.ask("operations") or {"operations": []}
        for one in answer["operations"]:
            self._sizes.setdefault(one["id"], self._state_size)
            before = self._operations.get(one["id"])
            if one["ended_at"] is not None and (before is None or before["ended_at"] is None):
                took = one["ended_at"] - (one["began_at"] or one["ended_at"])
                self._say(f"operation {one['id']} {one['state']} in {took:.1f} s: {one['reason'][:200]}")
            self._operations[one["id"]] = one
        return status

    def watch(self, seconds: float, over: Callable[[], bool] = lambda: False, expected: float | None = None) -> bool:
        """Look again and again until it has ended, `over` says so, or the time is up: then False. `expected` is how
        long that will take if all goes well."""
        told = began = time.monotonic()
        deadline = began + seconds
        while time.monotonic() < deadline:
            if self.ended or over():
                return True
            status = self.look()
            if status is not None and time.monotonic() >= told:
                told = time.monotonic() + TELL
                left = max(began + (seconds if expected is None else expected) - time.monotonic(), 0.0)
                self._say(f"{in_words(self.samples[-1])}; about {left:.0f} s left")
            time.sleep(LOOK)
        return False

    def migrations(self) -> list[Migration]:
        """What the changes so far moved."""
        operations = [self._operations[number] for number in sorted(self._operations)]
        return migrations_of(operations, self._sizes, self.given.tasks)

    def _found(self) -> bool:
        """Whether there is a connection to the topology."""
        if self._client is None:
            with suppress(PenstockError):
                running = find(NAME)
                if running.phase is Phase.RUNNING and running.url:
                    self._client = Client(running)
        return self._client is not None

    def _forget(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _check(self, what: str) -> None:
        """Raise if it has ended, and not well."""
        assert self._process is not None
        if self._process.poll() not in (None, 0):
            raise RuntimeError(f"{what} ({self._process.returncode})\n{self.log()}")

    def _environment(self) -> dict[str, str]:
        paths = [ROOT / "src", HERE, ROOT / "examples"]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TMPDIR": str(self.folder / "tmp"),
            VARIABLE: self.given.as_text(),
        }


def in_words(one: Seen) -> str:
    latency = "unknown" if one.latency is None else f"{one.latency:.1f} s"
    busy = "unknown" if one.busy is None else f"{one.busy:.2f}"
    batch = "unknown" if one.batch is None else f"{one.batch:.1f} s"
    return (
        f"{one.tweets:,} tweets, {one.detectors} detectors busy {busy} in batches of {batch}, latency {latency}, "
        f"{one.waiting:,} rows wait"
    )
