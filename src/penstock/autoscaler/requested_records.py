"""Records of decisions that a person asked for: a strategy decided, so its prediction is checked too. The controller
keeps the records of its own decisions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from penstock.autoscaler.policy import Fate, View
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.records import Figures, Record, Verdict, kept
from penstock.autoscaler.verdicts import judged
from penstock.clock import later, run_time
from penstock.monitor.events import EventKind
from penstock.running import RunningTopology


class RequestedRecords:
    """Looks again and again until every record has a verdict. Any thread may call it."""

    def __init__(self, run: RunningTopology, view: Callable[[], View]) -> None:
        self._run = run
        self._view = view
        self._lock = threading.Lock()
        self._pending: dict[int, Record] = {}
        #: When the operations were over that have no verdict yet, in run time.
        self._over: dict[int, float] = {}
        self._closed = False

    def begin(self, operation: int, proposal: Proposal) -> None:
        """A plan that a strategy decided on for a person is about to be carried out."""
        before = Figures.of(self._run.snapshot())
        record = kept(self._run.decisions, Record(run_time(), proposal, before, operation))
        with self._lock:
            self._pending[operation] = record

    def ended(self, operation: int, fate: Fate, why: str) -> None:
        if fate is Fate.DONE:
            with self._lock:
                if operation in self._pending:
                    self._over[operation] = run_time()
            self._again(operation)
            return
        with self._lock:
            record = self._pending.pop(operation, None)
        if record is not None:
            kept(self._run.decisions, replace(record, verdict=Verdict.NOT_APPLIED, why=f"{fate}: {why}"))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._pending.clear()
            self._over.clear()

    def _again(self, operation: int) -> None:
        with self._lock:
            if not self._closed and operation in self._pending:
                later(self._run.settings.sample_seconds, lambda: self._look(operation), "penstock-record")

    def _look(self, operation: int) -> None:
        with self._lock:
            record, over = self._pending.get(operation), self._over.get(operation)
        if record is None:
            return
        now = judged(record, Fate.DONE, "", replace(self._view(), now=run_time(), paused=self._run.paused), over)
        if now.verdict is Verdict.PENDING:
            self._again(operation)
            return
        with self._lock:
            self._over.pop(operation, None)
            if self._pending.pop(operation, None) is None:
                return
        kept(self._run.decisions, now)
        self._run.happened(EventKind.NOTICE, f"{now.verdict}: {now.why}", f"operation {operation}")
