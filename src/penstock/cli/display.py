"""What the command line shows of a running topology at one moment: plain values, drawn as a table or as a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OperatorDisplay:
    name: str
    kind: str
    #: Slot -> instances.
    places: dict[str, int]
    #: Rows a second; None where there is no such side: a source reads no stream, a sink writes none.
    rows_in: float | None
    rows_out: float | None
    backlog: int
    batch_seconds: float | None
    bad_rows: int
    throttled: bool
    #: Dropped by a watermark.
    late_rows: int = 0
    #: Sinks only, in seconds, end to end; None if no row came.
    latency_p50: float | None = None
    latency_p99: float | None = None

    @property
    def instances(self) -> int:
        return sum(self.places.values())


@dataclass(frozen=True)
class Display:
    topology: str
    cluster: str
    elapsed: float
    #: For how many seconds the topology is to run; None means until it ends or is stopped.
    seconds: float | None
    operators: tuple[OperatorDisplay, ...]
    unplaced_because: str
    #: What the stop of the topology waits for; empty while it runs.
    stopping: str = ""

    @property
    def throttled(self) -> list[str]:
        return [one.name for one in self.operators if one.throttled and one.kind == "source"]


def display_from(status: Mapping[str, Any]) -> Display:
    """The display of a topology that runs in another process, from its status."""
    sinks = {sink["name"]: sink for sink in status["sinks"]}
    return Display(
        topology=status["topology"],
        cluster=status["cluster"],
        elapsed=status["seconds"],
        seconds=None,
        operators=tuple(
            OperatorDisplay(
                name=one["name"],
                kind=one["kind"],
                places=one["placement"],
                rows_in=one["rows_in_per_second"],
                rows_out=one["rows_out_per_second"],
                backlog=one["backlog"],
                batch_seconds=one["batch_seconds"],
                bad_rows=one["bad_rows"],
                late_rows=one["late_rows"] or 0,
                throttled=one["throttled"],
                latency_p50=sinks.get(one["name"], {}).get("latency_p50"),
                latency_p99=sinks.get(one["name"], {}).get("latency_p99"),
            )
            for one in status["operators"]
        ),
        unplaced_because=status["unplaced"] or "",
        stopping="" if status["state"] == "running" else status["state"],
    )
