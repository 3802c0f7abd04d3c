"""What goes on beside the queries: a thread deletes old segments, and starts queries again that ended over lost
executors, a full disk, or something else that may pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.logs import LOGGER

#: How often queries are looked after.
KEEP_SECONDS = 0.2
#: Housekeeping may fail this often in a row, and for so many seconds, before it ends the topology: without it the disk
#: fills up.
PATIENT_ROUNDS, PATIENT_SECONDS = 15, 60.0
#: Errors that no further round can mend: another driver has the catalog, or the catalog lacks what was published.
FINAL = ("STATE_TAKEN_OVER", "CATALOG_WENT_BACK")
#: The window in which restarts of a query are counted.
RESTART_WINDOW = 600.0
#: Seconds after which a query is started again that ended over a full disk, or over something unknown for the second
#: time: the first time, and at most.
FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
#: Seconds that a disk may be full before the topology ends over it. After a minute with room, the count begins anew.
FULL_SECONDS, ROOM_SECONDS = 300.0, 60.0


class Keeper:
    """A thread with two chores: `sweep`, every `sweep_seconds`, and `mend`, several times a second."""

    def __init__(self, sweep: Callable[[], None], sweep_seconds: float, mend: Callable[[], None]) -> None:
        self._sweep = sweep
        self._sweep_seconds = sweep_seconds
        self._mend = mend
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="penstock-keeper", daemon=True)
        #: How many sweeps have failed one after the other, since when, and why the last of them failed.
        self._failed_sweeps = 0
        self._failing_since = 0.0
        self._problem = ""
        self._end: PenstockError | None = None
        #: Why mending failed the last time; empty if it did not fail.
        self._mend_problem = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise if sweeping has failed again and again, or for good."""
        if self._end is not None:
            raise self._end
        patient = time.monotonic() < self._failing_since + PATIENT_SECONDS
        if self._failed_sweeps >= PATIENT_ROUNDS and not patient:
            raise PenstockError(
                "HOUSEKEEPING_FAILED",
                f"Penstock tried {self._failed_sweeps} times to delete the segments that all operators have read, and "
                f"failed: {self._problem}.",
                "Look whether the disk is full, and whether the catalog's database can be reached. With --state, the "
                "topology then goes on where it was.",
            )

    def _keep(self) -> None:
        next_sweep = time.monotonic() + self._sweep_seconds
        while not self._ending.wait(min(KEEP_SECONDS, self._sweep_seconds)):
            self._mend_or_log()
            if time.monotonic() < next_sweep:
                continue
            next_sweep = time.monotonic() + self._sweep_seconds
            try:
                self._sweep()
                self._failed_sweeps = 0
            except Exception as error:
                # The next round tries again what this one could not do. `check` raises when that does not help.
                if not self._failed_sweeps:
                    self._failing_since = time.monotonic()
                self._failed_sweeps += 1
                self._problem = f"{type(error).__name__}: {error}"
                LOGGER.warning("segments that all have read could not be deleted", exc_info=True)
                if isinstance(error, PenstockError) and error.name in FINAL:
                    self._end = error

    def _mend_or_log(self) -> None:
        """A JVM that is about to end cannot be asked: whoever asks the run how it is will hear of that."""
        try:
            self._mend()
            self._mend_problem = ""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if problem != self._mend_problem:  # the same problem comes several times a second
                LOGGER.warning("the queries could not be looked after", exc_info=True)
            self._mend_problem = problem


class Restarts:
    """How often the query of each operator was started again lately, after executors were lost, or after something else
    that may pass."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    def allowed(self, operator: str) -> bool:
        return len(self._recent(operator)) < self._most

    def due(self, operator: str) -> bool:
        """Whether it may be started again now: at once the first time, then less and less often."""
        recent = self._recent(operator)
        pause: float = min(FIRST_WAIT * 2 ** (len(recent) - 1), LONGEST_WAIT) if recent else 0.0
        return not recent or self._clock() >= recent[-1] + pause

    def count(self, operator: str) -> None:
        self._times[operator] = [*self._recent(operator), self._clock()]

    def _recent(self, operator: str) -> list[float]:
        return [at for at in self._times.get(operator, ()) if at > self._clock() - RESTART_WINDOW]


@dataclass(frozen=True)
class _Wait:
    began: float
    last: float
    times: int


class Waits:
    """When a query whose disk was full is started again: soon at first, then less often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[str, _Wait] = {}

    def allowed(self, operator: str) -> bool:
        """Whether the disk of this operator's query may still be waited for."""
        wait = self._current(operator)
        return wait is None or self._clock() < wait.began + FULL_SECONDS

    def due(self, operator: str) -> bool:
        wait = self._current(operator)
        if wait is None:
            return True
        pause: float = min(FIRST_WAIT * 2 ** (wait.times - 1), LONGEST_WAIT)
        return self._clock() >= wait.last + pause

    def count(self, operator: str) -> None:
        """Note that the operator's query was started again now."""
        now, wait = self._clock(), self._current(operator)
        self._waits[operator] = _Wait(now, now, 1) if wait is None else _Wait(wait.began, now, wait.times + 1)

    def _current(self, operator: str) -> _Wait | None:
        wait = self._waits.get(operator)
        return wait if wait is not None and self._clock() < wait.last + ROOM_SECONDS else None
