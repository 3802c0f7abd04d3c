"""A fault campaign: a topology under load that is changed all the time, while its processes are killed by chance.

The kills are SIGKILL, of one process that the campaign's own driver started: an executor, a worker, the master or the
driver itself, which is then started again on the same state. In the end nothing may be lost, doubled or out of order.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from steered import check_everything

MARK = "PENSTOCK_TEST_MARK"
PROCESSES = {
    "executor": "CoarseGrainedExecutorBackend",
    "worker": "org.apache.spark.deploy.worker.Worker",
    "master": "org.apache.spark.deploy.master.Master",
}
KINDS = (*PROCESSES, "driver")
#: Throughput is compared over windows of so many seconds.
WINDOW = 5.0
WAIT = 180.0


@dataclass
class Kill:
    kind: str
    at: float
    during: str
    #: Seconds until the sink's throughput was at 90% of that before; None if the next kill came first.
    back_after: float | None = None


@dataclass
class Campaign:
    """`run` does it all; `folder` keeps the output, the state and the logs."""

    folder: Path
    seed: int
    rate: float
    kinds: Sequence[str]
    pauses: tuple[float, float] = (4.0, 12.0)
    tell: Callable[[str], None] = lambda text: None
    kills: list[Kill] = field(default_factory=list)
    published: list[tuple[float, int]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    emitted: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.mark = uuid.uuid4().hex
        self.starts = 0
        self.driver: Driver | None = None

    def run(self) -> None:
        try:
            self._start()
            for kind in self.kinds:
                self._kill(kind)
            self._await_output(time.time() + 5)
            (self.folder / "stop").touch()
            assert self.driver is not None
            finished = self.driver.await_word("finished", WAIT)
            assert self.driver.process.wait(60) == 0, self.driver.tail()
            assert finished["drained"], "it did not drain"
            self.emitted = finished["emitted"]
        finally:
            self._end()
        self._measure()
        check_everything(self.folder, self.emitted)

    def _start(self) -> None:
        self.starts += 1
        self.driver = Driver(self, self.starts)
        self.driver.await_word("running", WAIT)
        self._await_output(time.time())

    def _kill(self, kind: str) -> None:
        driver = self.driver
        assert driver is not None
        # Half of the kills in the middle of a change, the others whenever.
        self._pause(self.random.uniform(*self.pauses))
        if self.random.random() < 0.5:
            deadline = time.time() + 10
            while not driver.changing and time.time() < deadline:
                self._pause(0.05)
            self._pause(self.random.uniform(0, 1))
        process = driver.process.pid if kind == "driver" else self._find(kind)
        if process is None:
            self.tell(f"no {kind} to kill")
            return
        kill = Kill(kind, time.time(), driver.changing)
        self.kills.append(kill)
        os.kill(process, signal.SIGKILL)
        self.tell(f"{len(self.kills)}/{len(self.kinds)} killed {kind} during {kill.during or 'plain load'}")
        if kind == "driver":
            driver.process.wait()
            self._require_nobody()
            self._start()
        else:
            self._await_output(kill.at + 1)

    def _pause(self, seconds: float) -> None:
        assert self.driver is not None
        self.driver.check()
        time.sleep(seconds)

    def _find(self, kind: str) -> int | None:
        found = [one.pid for one in self._mine() if PROCESSES[kind] in " ".join(_command(one)[:60])]
        # A worker's command line has no executor in it, but the guard's has the worker's: the guard is Python.
        java = [
            pid for pid in found if _command(psutil.Process(pid))[:1] and "java" in _command(psutil.Process(pid))[0]
        ]
        return self.random.choice(sorted(java)) if java else None

    def _mine(self) -> list[psutil.Process]:
        mine = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    mine.append(process)
        return mine

    def _await_output(self, after: float) -> None:
        """Wait until a sink has published something since then."""
        deadline = time.time() + WAIT
        while not self.published or self.published[-1][0] <= after:
            assert time.time() < deadline, f"no output for {WAIT:g} s\n{self.driver and self.driver.tail()}"
            self._pause(0.1)

    def _end(self) -> None:
        if self.driver is not None:
            self.driver.process.kill()
            self.driver.process.wait()
        self._require_nobody()

    def _require_nobody(self) -> None:
        deadline = time.time() + 40
        while left := self._mine():
            assert time.time() < deadline, f"left behind: {[' '.join(_command(one)[:4]) for one in left]}"
            time.sleep(0.2)

    def _measure(self) -> None:
        for kill, after in zip(self.kills, [*(one.at for one in self.kills[1:]), time.time()], strict=True):
            kill.back_after = back_at_90(self.published, kill.at, after)


class Driver:
    """One life of the driver process, and what it says."""

    def __init__(self, campaign: Campaign, number: int) -> None:
        self.campaign = campaign
        self.log = campaign.folder / f"driver-{number}.log"
        script = Path(__file__).parent / "faulty_driver.py"
        seed = campaign.seed * 1000 + number
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(campaign.folder), str(seed), str(campaign.rate)],
                env=os.environ | {MARK: campaign.mark},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.words: dict[str, dict[str, Any]] = {}
        self.lines: deque[str] = deque(maxlen=60)
        #: The change that is under way, in words.
        self.changing = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            try:
                said = json.loads(line)
            except ValueError:
                continue  # it was killed in the middle of a line
            what = said.pop("what")
            self.words[what] = said
            if what == "published" and said["sink"] == "rows":
                self.campaign.published.append((said["at"], said["rows"]))
            elif what == "change":
                self.changing = "; ".join(said["plan"])
            elif what in ("changed", "refused"):
                self.changing = ""
                self.campaign.outcomes[said.get("status") or said["error"]] += 1
        self.process.stdout.close()

    def check(self) -> None:
        assert self.process.poll() is None, f"the driver ended with {self.process.returncode}\n{self.tail()}"

    def await_word(self, word: str, seconds: float) -> dict[str, Any]:
        deadline = time.time() + seconds
        while word not in self.words:
            if word != "finished":
                self.check()
            assert time.time() < deadline, f'it never said "{word}"\n{self.tail()}'
            assert self.process.poll() in (None, 0), f"it ended with {self.process.returncode}\n{self.tail()}"
            time.sleep(0.05)
        return self.words[word]

    def tail(self) -> str:
        return "\n".join([*self.lines, self.log.read_text()[-4000:]])


def back_at_90(published: Sequence[tuple[float, int]], at: float, until: float) -> float | None:
    """Seconds from `at` until a window's throughput is at 90% of that of the window before; None if not before `until`.

    A stream that catches up is above it: what counts is that it is not below."""

    def rate(start: float) -> float:
        return sum(rows for when, rows in published if start < when <= start + WINDOW) / WINDOW

    before = rate(at - WINDOW)
    ends = [when for when, _ in published if at < when <= until]
    for end in ends:
        if end >= at + WINDOW and rate(end - WINDOW) >= 0.9 * before:
            return end - WINDOW - at
    return None


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def by_kind(kills: Sequence[Kill]) -> list[str]:
    """A line of a table for each kind of fault."""
    lines = []
    for kind in KINDS:
        mine = [kill for kill in kills if kill.kind == kind]
        times = sorted(kill.back_after for kill in mine if kill.back_after is not None)
        if not mine:
            continue
        spread = f"{statistics.median(times):.1f} | {times[0]:.1f} to {times[-1]:.1f}" if times else "- | -"
        changing = sum(bool(kill.during) for kill in mine)
        lines.append(f"| {kind} | {len(mine)} | {changing} | {len(times)} | {spread} |")
    return lines
