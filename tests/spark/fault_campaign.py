"""A fault campaign: a topology under load that is changed all the time, while faults come by chance (fault_kinds.py).

Everything is the campaign's own: disk, database, clock, temporary folder, processes. In the end nothing may be lost,
doubled or out of order (fault_topologies.py), and no process and no file may be left; of a lab (fault_lab.py) also no
network namespace, no control group and no mount.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa
from fault_driver_process import DriverProcess
from fault_kinds import KINDS_ON, LAB, STANDALONE, Fault
from fault_lab import OwnLab
from fault_surroundings import OwnClock, OwnPostgresql, SmallDisk
from fault_topologies import check

from penstock.channels import tables
from penstock.channels.database import Database

MARK = "PENSTOCK_TEST_MARK"
WAIT = 180.0


@dataclass(frozen=True)
class Scenario:
    """What is to happen, all of it given by a seed (fault_scenarios.py)."""

    shape: str
    catalog: str
    kinds: Sequence[str]
    #: The kind of the cluster: "standalone" or "lab".
    cluster: str = STANDALONE


@dataclass
class Campaign:
    """`run` does it all; `folder` keeps the output, the state and the logs."""

    folder: Path
    seed: int
    rate: float
    scenario: Scenario
    pauses: tuple[float, float] = (4.0, 12.0)
    tell: Callable[[str], None] = lambda text: None
    faults: list[Fault] = field(default_factory=list)
    #: (when, rows) of every batch of the sink "rows".
    published: list[tuple[float, int]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    emitted: Mapping[str, int] = field(default_factory=dict)
    #: Files of ours that were still there when everything had ended; None if nobody has looked.
    left: list[str] | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.mark = uuid.uuid4().hex
        self.starts = self.visits = 0
        self.driver: DriverProcess | None = None
        self.kinds = KINDS_ON[self.scenario.cluster]
        #: All that there were.
        self.driver_processes: set[int] = set()
        needs = {self.kinds[kind].needs for kind in self.scenario.kinds}
        self.disk = SmallDisk(self.folder / "disk") if SmallDisk in needs else None
        self.clock = OwnClock(self.folder) if OwnClock in needs else None
        self.lab = OwnLab() if self.scenario.cluster == LAB else None
        self.database = OwnPostgresql() if self.scenario.catalog == "postgresql" else None
        #: Short: sockets are made in it, and their names may not be long.
        self.temporary = Path(tempfile.mkdtemp(prefix="penstock-faults-tmp-"))

    @property
    def place(self) -> Path:
        """Where state, segments, checkpoints, scratch files and output are: the disk that may be full."""
        return self.folder / "disk"

    def run(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as around:
            around.callback(shutil.rmtree, self.temporary, ignore_errors=True)
            for one in filter(None, (self.disk, self.clock, self.database, self.lab)):
                around.callback(one.stop)
                one.start()
            self._run()

    def _run(self) -> None:
        try:
            self.start_driver()
            for kind in self.scenario.kinds:
                self._strike(kind)
            self.await_output(time.monotonic() + 5)
            assert self.driver is not None
            if self.lab is not None:
                self.lab.notice(self.mine())
            self.emitted = self.driver.end(WAIT)
        finally:
            self._end()
        self._measure()
        self.left = sorted(self._leftovers())
        self.left += self.lab.left(self.driver_processes) if self.lab else []
        check(self.scenario.shape, self.place / "out", self.emitted)

    # What faults do it with

    def start_driver(self) -> None:
        self.starts += 1
        config = self.config("faulty", self.scenario.shape, self.scenario.cluster)
        self.driver = DriverProcess(self, f"driver-{self.starts}", config)
        self.driver_processes.add(self.driver.process.pid)
        self.driver.await_word("running", WAIT)
        self.await_output(time.monotonic())

    def config(self, name: str, shape: str, cluster: str) -> dict[str, Any]:
        """For `faulty_driver.py`. All drivers share a location of segments and one of checkpoints, and the database."""
        shared = self.place / "shared"
        settings = {"segments": str(shared / "segments"), "checkpoints": str(shared / "checkpoints")}
        return {
            "name": name,
            "shape": shape,
            "cluster": cluster,
            "folder": str(self.place if name == "faulty" else self.place / name),
            "stop": str(self.folder / f"stop-{name}"),
            "seed": self.seed * 1000 + self.starts,
            "rate": self.rate,
            "settings": settings | ({"catalog": self.database.url} if self.database else {}),
        }

    def environment(self) -> dict[str, str]:
        """Of every process of the campaign."""
        java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={self.temporary}".strip()
        own = {MARK: self.mark, "TMPDIR": str(self.temporary), "JDK_JAVA_OPTIONS": java}
        return os.environ | own | (self.clock.environment() if self.clock else {})

    def pause(self, seconds: float) -> None:
        """Wait, as long as the driver lives."""
        deadline = time.monotonic() + seconds
        while True:
            assert self.driver is not None
            self.driver.check()
            if (left := deadline - time.monotonic()) <= 0:
                return
            time.sleep(min(left, 0.2))

    def mine(self) -> list[psutil.Process]:
        mine = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    mine.append(process)
        return mine

    def require_nobody(self) -> None:
        deadline = time.monotonic() + 40
        while left := self.mine():
            assert time.monotonic() < deadline, f"left behind: {[' '.join(one.cmdline()[:4]) for one in left]}"
            time.sleep(0.2)

    def end_everybody(self) -> None:
        """After something went wrong: what is left of this campaign may not disturb the next."""
        for process in self.mine():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def await_output(self, after: float) -> None:
        """Wait until a sink has published something since then."""
        deadline = time.monotonic() + WAIT
        while not self.published or self.published[-1][0] <= after:
            assert time.monotonic() < deadline, f"no output for {WAIT:g} s\n{self.driver and self.driver.tail()}"
            self.pause(0.1)

    # Parts of the run

    def _strike(self, kind: str) -> None:
        driver = self.driver
        assert driver is not None
        # Half of the faults in the middle of a change, the others whenever.
        self.pause(self.random.uniform(*self.pauses))
        if self.random.random() < 0.5:
            deadline = time.monotonic() + 10
            while not driver.changing and time.monotonic() < deadline:
                self.pause(0.05)
            self.pause(self.random.uniform(0, 1))
        fault = Fault(kind, time.monotonic(), driver.changing)
        self.faults.append(fault)
        self.tell(f"{len(self.faults)}/{len(self.scenario.kinds)} {kind} during {fault.during or 'plain load'}")
        if self.lab is not None:
            self.lab.notice(self.mine())
        self.kinds[kind].strike(self)
        fault.over = fault.began if kind == "driver killed" else time.monotonic()
        self.await_output(time.monotonic() + 1)

    def _end(self) -> None:
        if self.driver is not None:
            self.driver.kill()
        self.require_nobody()

    def _measure(self) -> None:
        for fault, after in zip(self.faults, [*(one.began for one in self.faults[1:]), time.monotonic()], strict=True):
            fault.measure(self.published, after)

    def _leftovers(self) -> list[str]:
        """What nobody needs any more: temporary files, staged files of sinks, segments that no catalog names."""
        staged = [path for path in self.place.rglob("_staging/*") if path.is_file()]
        segments = (self.place / "shared" / "segments").rglob("*.arrow")
        named = self._named_segments()
        unnamed = [path for path in segments if path.name not in named]
        return [str(path) for path in (*self.temporary.iterdir(), *staged, *unnamed)]

    def _named_segments(self) -> set[str]:
        """The names of all segments that the drivers' catalogs know; no two segments have the same."""
        states = [self.place / "state", *([self.place / "neighbour" / "state"] if self.visits else [])]
        urls = [self.database.url] if self.database else [f"sqlite:///{state}/catalog.sqlite" for state in states]
        named = set()
        for url in urls:
            database = Database.open(url)
            try:
                paths = database.run(lambda it: it.execute(sa.select(tables.segments.c.path)).scalars().all())
            finally:
                database.close()
            named |= {path.rpartition("/")[2] for path in paths}
        return named
