"""What goes on beside the queries: a thread deletes old segments, and has queries started again that ended over
something that may pass (restarts.py says how often)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.logs import LOGGER

#: How often queries are looked after.
KEEP_SECONDS = 0.2
#: Housekeeping may fail this often in a row, and for so many seconds, before it ends the topology: without it the disk
#: fills up.
PATIENT_ROUNDS, PATIENT_SECONDS = 15, 60.0
#: Errors that no further round can mend: another driver has the catalog, or the catalog lacks what was published.
FINAL = ("STATE_TAKEN_OVER", "CATALOG_WENT_BACK")


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
