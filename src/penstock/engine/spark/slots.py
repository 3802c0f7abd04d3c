"""Which executor is behind which slot, kept up to date while executors are lost, come back and are added.

A slot is *usable* once its executor is warm: it has Python workers with everything loaded. Until then nothing is
placed there, unless there is no other slot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from penstock.cluster.model import Slot
from penstock.cluster.provider import Executor, Provider
from penstock.engine.executor import bundle
from penstock.engine.spark.internals import SparkInternals
from penstock.logs import LOGGER, traced

#: Seconds between two looks at the executors: the work of a lost one waits about so long before it is placed elsewhere.
WATCH_SECONDS = 0.2
#: Python workers that an executor starts before it gets work.
WARM_WORKERS = 2
#: How often an executor is warmed if Spark runs the warming elsewhere.
WARM_ATTEMPTS = 3
#: Seconds until an executor that could not be warmed is tried again: at first, then twice as many each time, and at
#: most. What is in the way may stay for hours, as a full disk does.
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
#: How many executors are remembered after they are gone.
REMEMBERED_EXECUTORS = 100

Happened = Callable[[str, str], object]


def to_nobody(kind: str, text: str) -> None:
    """Tell nobody: for slots whose faults and recoveries nobody wants to hear of."""


@dataclass(frozen=True)
class _Cold:
    """An executor that could not be warmed: how often, and when it is tried again."""

    failures: int
    again_at: float


class Slots:
    """The slots of a host. Without Spark's internals, or on a local cluster, a slot is only a name, always usable."""

    def __init__(
        self,
        provider: Provider,
        internals: SparkInternals | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._internals = internals
        self._clock = clock
        self._lock = threading.Lock()
        self._bound: dict[Slot, Executor | None] = {}
        self._warm: set[str] = set()
        self._warming: dict[str, threading.Thread] = {}
        #: The executors that are there and could not be warmed.
        self._cold: dict[str, _Cold] = {}
        #: The executors that there are and the last ones that are gone: a batch that has just ended may have run there.
        self._ever: dict[str, Slot] = {}
        #: The same by the slots' names. It is replaced, never changed: every batch reads it.
        self._names: dict[str, str] = {}
        self._seen: frozenset[str] = frozenset()
        #: Slots of machines that are being removed.
        self._leaving: set[Slot] = set()
        self._listeners: list[Callable[[], None]] = []
        #: Hears of faults and recoveries: ("fault", "executor 3 of 127.0.0.2/0 is gone").
        self.happened: Happened = to_nobody
        self._ending = threading.Event()
        self._watcher: threading.Thread | None = None

    def bind(self, deadline: float) -> None:
        """Wait until every slot has an executor, warm them all, and watch them from then on."""
        if self._internals is None:
            self._bound = dict.fromkeys(self._provider.cluster.slots)  # without placement a slot is only a name
            return
        self._take(self._provider.bind(self._internals.executors, deadline))
        self.warm(self.executors())
        if not self._warm:  # a local cluster: whichever process gets it
            self._internals.run_on([None] * WARM_WORKERS * len(self._bound), bundle.warm)
        else:
            self._seen = self._internals.executor_ids()
            self._watcher = threading.Thread(target=self._watch, name="penstock-slots", daemon=True)
            self._watcher.start()

    def executor(self, slot: Slot) -> Executor | None:
        with self._lock:
            return self._bound.get(slot)

    def bindings(self) -> dict[Slot, Executor | None]:
        with self._lock:
            return dict(self._bound)

    def executors(self) -> list[Executor]:
        return [one for one in self.bindings().values() if one is not None]

    def slot_of(self, executor: str) -> Slot | None:
        """The slot that an executor stands, or stood, behind."""
        with self._lock:
            return self._ever.get(executor)

    def by_executor(self) -> dict[str, str]:
        """The slot's name of every executor there is, or was until lately; empty where slots are only names."""
        return self._names

    def usable(self) -> frozenset[Slot]:
        """The slots on which bundles can be placed now."""
        with self._lock:
            if not self._bound:
                return frozenset()
            warm = frozenset(slot for slot, one in self._bound.items() if one is None or one.id in self._warm)
            return warm or frozenset(self._bound)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have this called whenever another set of slots is usable, or other executors stand behind them."""
        with self._lock:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):  # it was forgotten already
            self._listeners.remove(listener)

    def close(self) -> None:
        self._ending.set()
        if self._watcher is not None:
            self._watcher.join()

    # Watching

    def _watch(self) -> None:
        while not self._ending.wait(WATCH_SECONDS):
            # These fail while a JVM is about to end, or while a daemon cannot be started: the next round looks again.
            with traced("the cluster could not be tended", Exception):
                for text in self._provider.tend():
                    self.happened("fault", text)
            with traced("the executors could not be looked at", Exception):
                self.look()

    def look(self) -> bool:
        """Notice executors that came or went; True if there were any."""
        if self._internals is None or self._watcher is None:
            return False
        ids, before = self._internals.executor_ids(), self.bindings()
        if ids != self._seen:
            listed = self._internals.executors()
            self._take(self._provider.bound(lambda: listed))
            # Spark's list, which has the hosts, is written a moment after its scheduler knows of an executor.
            self._seen = ids if {one.id for one in listed} == ids else frozenset()
        self._warm_new()
        now = self.bindings()
        for slot, executor in sorted(before.items()):
            if executor is not None and now.get(slot) != executor:
                self.happened("fault", f"executor {executor.id} of {slot} is gone")
        if before != now:
            self._tell()
        return before != now

    def _take(self, bound: dict[Slot, Executor | None]) -> None:
        with self._lock:
            self._bound = {slot: one for slot, one in bound.items() if slot not in self._leaving}
            here = {one.id: slot for slot, one in bound.items() if one is not None}
            gone = [(executor, slot) for executor, slot in self._ever.items() if executor not in here]
            self._ever = dict(gone[-REMEMBERED_EXECUTORS:]) | here
            self._names = {executor: slot.name for executor, slot in self._ever.items()}
            self._warm &= self._ever.keys()
            self._cold = {executor: cold for executor, cold in self._cold.items() if executor in here}

    @contextmanager
    def without(self, slots: Collection[Slot]) -> Iterator[None]:
        """Leave out the slots of a machine while it is being removed: that its executors go is no fault."""
        with self._lock:
            self._leaving |= set(slots)
            self._bound = {slot: one for slot, one in self._bound.items() if slot not in self._leaving}
        self._tell()
        try:
            yield
        finally:
            with self._lock:
                self._leaving -= set(slots)
                self._seen = frozenset()  # the next look reads all executors: the machine may have stayed

    def _warm_new(self) -> None:
        """Warm each executor that is cold in a thread of its own: warming takes seconds, and watching must go on."""
        for slot, executor in self.bindings().items():
            if executor is not None and self._is_to_be_warmed(executor.id):
                thread = threading.Thread(
                    target=self._warm_one, args=(slot, executor), name=f"penstock-warm-{executor.id}", daemon=True
                )
                self._warming[executor.id] = thread
                thread.start()

    def _is_to_be_warmed(self, executor: str) -> bool:
        if executor in self._warm or executor in self._warming:
            return False
        cold = self._cold.get(executor)
        return cold is None or self._clock() >= cold.again_at

    def _warm_one(self, slot: Slot, executor: Executor) -> None:
        warmed = False
        try:
            # An executor that is gone again needs no warming; any other is warmed in a later round.
            with traced(f"executor {executor.id} of {slot} could not be warmed", Exception):
                self.warm([executor])
                warmed = True
            if not warmed:
                self._note_cold(slot, executor)  # before the next round may try it again
        finally:
            self._warming.pop(executor.id, None)
        if warmed and self.executor(slot) == executor:
            self.happened("recovery", f"executor {executor.id} is ready behind {slot}")
            self._tell()

    def _note_cold(self, slot: Slot, executor: Executor) -> None:
        with self._lock:
            if self._ending.is_set() or self._bound.get(slot) != executor:
                return
            before = self._cold.get(executor.id)
            failures = before.failures if before is not None else 0
            # From its tenth failure on the wait is the longest one anyway.
            wait = min(FIRST_WAIT * 2 ** min(failures, 10), LONGEST_WAIT)
            self._cold[executor.id] = _Cold(failures + 1, self._clock() + wait)
        if not failures:
            self.happened(
                "fault",
                f"executor {executor.id} of {slot} could not be warmed: it gets no work yet, unless there is no other. "
                f"Penstock tries again, every {LONGEST_WAIT:g} s at last; the log has the cause",
            )

    def warm(self, executors: Sequence[Executor]) -> None:
        """Have executors start their Python workers and load what a job needs, before rows wait for it."""
        if self._internals is None or not executors:
            return
        # Spark's scheduler may not know an executor yet that has only just come: the warming then ran elsewhere.
        for _ in range(WARM_ATTEMPTS):
            ran = self._internals.run_on([one for one in executors for _ in range(WARM_WORKERS)], bundle.warm)
            if {one.id for one in executors} <= {executor.decode() for executor in ran} or not any(ran):
                break
        else:
            LOGGER.info("Spark ran the warming of %s elsewhere", ", ".join(f"executor {one.id}" for one in executors))
        with self._lock:
            self._warm |= {one.id for one in executors}
            for one in executors:
                self._cold.pop(one.id, None)

    def _tell(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
