"""The effect of a scaling operation on the throughput, measured some time after its end and told as an event."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from penstock.autoscaler.throughput_change import ThroughputChange, throughput_change
from penstock.autoscaler.timeline import Timeline
from penstock.clock import Alarm, later, run_time, shown
from penstock.monitor.events import EventKind
from penstock.running.topology import Events, Identity, Measurements

#: The actions whose effect is measured.
MEASURED = ("scale-out", "scale-in", "set-instances")
#: Of an operation that takes longer, less is known of the time before it.
LONGEST_OPERATION = 300.0


@dataclass(frozen=True)
class EndedOperation:
    """What the measurement needs to know of an operation that is done."""

    id: int
    action: str
    #: The id of the event that tells of the request.
    cause: str
    began_at: float
    ended_at: float | None


class MeasuredTopology(Identity, Measurements, Events, Protocol):
    """What the measurement needs of a running topology."""


class Effects:
    """Measures the operations of one topology. If the topology stops soon after an operation, the effect is measured
    with the batches that there are."""

    def __init__(self, run: MeasuredTopology) -> None:
        self._run = run
        weights = {sink.name: sink.weight for sink in run.definition.sinks}
        # Asked for are the seconds before an operation, the operation, and the seconds after it.
        self._timeline = Timeline(weights, LONGEST_OPERATION + 2 * run.settings.measure_seconds)
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[Alarm, EndedOperation]] = {}
        run.listen(lambda report: self._timeline.add(report.operator, report.finished, report.rows_in))

    def ended(self, operation: EndedOperation) -> None:
        if operation.action not in MEASURED:
            return
        with self._lock:
            seconds = self._run.settings.measure_seconds
            alarm = later(seconds, lambda: self._tell(operation), "penstock-effect")
            self._pending[operation.id] = alarm, operation

    def close(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        for alarm, operation in pending.values():
            alarm.cancel()
            self._tell(operation)

    def _tell(self, operation: EndedOperation) -> None:
        with self._lock:
            self._pending.pop(operation.id, None)
        began, window = operation.began_at, self._run.settings.measure_seconds
        points = self._timeline.points(max(began - window, self._run.started_at), run_time())
        found = throughput_change(points, began, window)
        fields: dict[str, Any] = asdict(found) | {
            "operation": operation.id,
            "began_at": shown(began),
            "ended_at": None if operation.ended_at is None else shown(operation.ended_at),
            "timeline": [[round(shown(one.at), 3), round(one.throughput, 3)] for one in points],
        }
        self._run.happened(EventKind.NOTICE, in_words(found), operation.action, operation.cause, fields)


def in_words(found: ThroughputChange) -> str:
    converged = "not converged yet" if found.convergence is None else f"converged after {found.convergence:.0f} s"
    return (
        f"throughput from {found.before:,.0f} to {found.after:,.0f} rows/s; {converged}; "
        f"{found.time_at_zero:.0f} s at zero, {found.time_below:.0f} s below 90%"
    )
