"""The kinds of fault, each with what it does to a campaign and what it needs of the machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from fault_driver_process import DriverProcess
from fault_lab import OwnLab
from fault_surroundings import HOUR, OwnClock, OwnPostgresql, SmallDisk
from fault_topologies import check

if TYPE_CHECKING:
    from fault_campaign import Campaign

PROCESSES = {
    "executor": "CoarseGrainedExecutorBackend",
    "worker": "org.apache.spark.deploy.worker.Worker",
    "master": "org.apache.spark.deploy.master.Master",
}
#: Throughput is compared over windows of so many seconds.
WINDOW = 5.0
STOPPED_SECONDS = 20.0
CUT_SECONDS = 20.0
FULL_SECONDS = 10.0
#: A server that is started again at once, and one that takes a while.
AWAY_SECONDS = (0.5, 8.0)
NEIGHBOUR_BATCHES = 6
NEIGHBOUR_SECONDS = 240.0


@dataclass
class Fault:
    """One that happened."""

    kind: str
    began: float
    #: The change that was under way, in words.
    during: str
    over: float = 0.0
    #: Seconds from its end until the sink's throughput was at 90% of that before it; None if the next came first.
    back_after: float | None = None

    def measure(self, published: Sequence[tuple[float, int]], until: float) -> None:
        self.back_after = back_at_90(published, self.began, self.over, until)


@dataclass(frozen=True)
class Kind:
    strike: Callable[[Campaign], None]
    #: How often it comes, beside the others.
    weight: int
    needs: type[OwnPostgresql] | type[SmallDisk] | type[OwnClock] | type[OwnLab] | None = None


def _killer(process: str) -> Callable[[Campaign], None]:
    def kill(campaign: Campaign) -> None:
        _strike_one(campaign, process, lambda one: one.kill())

    return kill


def _kill_driver(campaign: Campaign) -> None:
    assert campaign.driver is not None
    campaign.driver.kill()
    campaign.require_nobody()
    campaign.start_driver()


def _stop_executor(campaign: Campaign) -> None:
    """The executor and its Python workers, as when a machine stands still."""
    executor = _strike_one(campaign, "executor", lambda one: one.suspend())
    stopped = [executor]
    try:
        with suppress(psutil.Error):
            stopped += executor.children(recursive=True)
        for process in stopped[1:]:
            with suppress(psutil.Error):
                process.suspend()
        campaign.pause(STOPPED_SECONDS)
    finally:
        for process in reversed(stopped):
            with suppress(psutil.Error):
                process.resume()


def _kill_database(campaign: Campaign) -> None:
    assert campaign.database is not None
    campaign.database.kill()
    campaign.pause(campaign.random.uniform(*AWAY_SECONDS))
    campaign.database.launch()


def _end_sessions(campaign: Campaign) -> None:
    assert campaign.database is not None
    assert campaign.database.end_sessions(), "the driver had no session"


def _fill_disk(campaign: Campaign) -> None:
    assert campaign.disk is not None
    try:
        assert campaign.disk.fill() > 0
        campaign.disk.keep_full(FULL_SECONDS)
    finally:
        campaign.disk.make_room()


def _set_clock(by: int) -> Callable[[Campaign], None]:
    def set_clock(campaign: Campaign) -> None:
        assert campaign.clock is not None
        campaign.clock.set(campaign.clock.offset + by)
        campaign.pause(2)  # until all processes have noticed

    return set_clock


def _neighbour(campaign: Campaign) -> None:
    """Another topology, with operators of the same names and with state of its own, comes and goes on the same
    segments and checkpoints; nothing of its may be lost either."""
    campaign.visits += 1
    config = campaign.config("neighbour", "counted", cluster="local")
    (campaign.place / "neighbour").mkdir(exist_ok=True)
    neighbour = DriverProcess(campaign, f"neighbour-{campaign.visits}", config)
    try:
        neighbour.await_word("running", NEIGHBOUR_SECONDS)
        deadline = time.monotonic() + NEIGHBOUR_SECONDS
        while neighbour.batches < NEIGHBOUR_BATCHES:
            neighbour.check()
            assert time.monotonic() < deadline, f"the neighbour does not publish\n{neighbour.tail()}"
            campaign.pause(0.1)
        emitted = neighbour.end(NEIGHBOUR_SECONDS)
    finally:
        neighbour.kill()
    check("counted", campaign.place / "neighbour" / "out", emitted)


def _kill_machine(campaign: Campaign) -> None:
    """The worker of a machine, its guard, its executors, their Python workers and the segment server."""
    lab, driver = campaign.lab, campaign.driver
    assert lab is not None
    assert driver is not None
    # A thread of the driver may be in the machine for a moment, to start something there.
    _strike_one(campaign, "worker", lambda worker: lab.kill_machine(worker, [driver.process.pid]))


def _cut_link(campaign: Campaign) -> None:
    lab = campaign.lab
    assert lab is not None
    master = _find(campaign, "master")
    _strike_one(campaign, "worker", lambda worker: lab.cut(worker, master, lambda: campaign.pause(CUT_SECONDS)))


KINDS = {
    "executor killed": Kind(_killer("executor"), 5),
    "worker killed": Kind(_killer("worker"), 4),
    "master killed": Kind(_killer("master"), 3),
    "driver killed": Kind(_kill_driver, 4),
    "executor stopped for 20 s": Kind(_stop_executor, 3),
    "PostgreSQL killed": Kind(_kill_database, 3, OwnPostgresql),
    "PostgreSQL sessions ended": Kind(_end_sessions, 3, OwnPostgresql),
    "disk full for 10 s": Kind(_fill_disk, 3, SmallDisk),
    "clock an hour back": Kind(_set_clock(-HOUR), 2, OwnClock),
    "clock an hour forward": Kind(_set_clock(HOUR), 2, OwnClock),
    "a neighbour on the same segments": Kind(_neighbour, 2),
}

#: Of a campaign on lab machines: all that is asked of one is that processes, machines and links may fail.
LAB_KINDS = {
    "executor killed": Kind(_killer("executor"), 3),
    "worker killed": Kind(_killer("worker"), 3),
    "master killed": Kind(_killer("master"), 2),
    "driver killed": Kind(_kill_driver, 2),
    "machine killed": Kind(_kill_machine, 6, OwnLab),
    "link down for 20 s": Kind(_cut_link, 4, OwnLab),
}
STANDALONE, LAB = "standalone", "lab"
KINDS_ON = {STANDALONE: KINDS, LAB: LAB_KINDS}


def _strike_one(campaign: Campaign, kind: str, strike: Callable[[psutil.Process], None]) -> psutil.Process:
    """Which one was struck. A process that is gone before, because a change has ended it, is nobody's failure: another
    one is chosen."""
    while True:
        process = _find(campaign, kind)
        with suppress(psutil.NoSuchProcess):
            strike(process)
            return process


def _find(campaign: Campaign, kind: str) -> psutil.Process:
    """A process of a kind, by chance; one that was just killed is awaited."""
    deadline = time.monotonic() + 60
    while True:
        found = [one for one in campaign.mine() if _is(one, kind)]
        if found:
            return campaign.random.choice(sorted(found, key=lambda one: one.pid))
        assert time.monotonic() < deadline, f"there is no {kind}"
        campaign.pause(0.2)


def _is(process: psutil.Process, kind: str) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    # The guard's command line, which is Python, has the worker's in it.
    return bool(command) and "java" in command[0] and PROCESSES[kind] in " ".join(command[:60])


def back_at_90(published: Sequence[tuple[float, int]], began: float, over: float, until: float) -> float | None:
    """Seconds from the end of a fault until a window's throughput is at 90% of that of the window before the fault;
    None if not before `until`.

    A stream that catches up is above it: what counts is that it is not below."""

    def rate(start: float) -> float:
        return sum(rows for when, rows in published if start < when <= start + WINDOW) / WINDOW

    before = rate(began - WINDOW)
    ends = [when for when, _ in published if over < when <= until]
    for end in ends:
        if end >= over + WINDOW and rate(end - WINDOW) >= 0.9 * before:
            return end - WINDOW - over
    return None


def by_kind(faults: Sequence[Fault]) -> list[str]:
    """A line of a table for each kind of fault."""
    lines = []
    for kind in KINDS | LAB_KINDS:
        mine = [fault for fault in faults if fault.kind == kind]
        times = sorted(fault.back_after for fault in mine if fault.back_after is not None)
        if not mine:
            continue
        spread = f"{statistics.median(times):.1f} | {times[0]:.1f} to {times[-1]:.1f}" if times else "- | -"
        changing = sum(bool(fault.during) for fault in mine)
        lines.append(f"| {kind} | {len(mine)} | {changing} | {len(times)} | {spread} |")
    return lines


def lacking(kind: str, cluster: str = STANDALONE) -> str:
    """Why this machine cannot have a kind of fault; empty if it can."""
    needs: Any = KINDS_ON[cluster][kind].needs
    return needs.lacking() if needs else ""
