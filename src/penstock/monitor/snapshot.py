"""The Snapshot: what strategies read of a running topology. Rates, utilisation, backlog, traffic and placement over one
window, as plain values under the names of penstock.monitor.metric.

None means not measured. Why, and whether a strategy may decide all the same, is in `gaps`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.clock import shown
from penstock.cluster.model import Cluster, ComingMachines, Placement
from penstock.cluster.readings import MachineUse
from penstock.monitor.latency import Latency
from penstock.monitor.sample import StateSize, Way
from penstock.topology.definition import TopologyDefinition

#: The driver's end of a link.
DRIVER = "driver"


@dataclass(frozen=True)
class Gap:
    """Something that is not known."""

    #: An operator, stream or slot; "window" for all of them.
    subject: str
    #: The metric that is missing; empty for everything about the subject.
    metric: str
    reason: str
    #: Whether rates cannot be trusted: no strategy should decide then.
    grave: bool


@dataclass(frozen=True)
class Backlog:
    """What waits in front of an operator, or in one stream."""

    rows: int | None = None
    bytes: int | None = None
    age: float | None = None
    #: Rows a second.
    growth: float | None = None


@dataclass(frozen=True)
class OperatorOnSlot:
    instances: int
    rate: float | None = None
    capacity: float | None = None
    utilisation: float | None = None
    cpu_utilisation: float | None = None
    #: Shares of an instance's time; None where bundles do not stand.
    waiting_input: float | None = None
    waiting_room: float | None = None
    worker_memory: int | None = None


@dataclass(frozen=True)
class OperatorSnapshot:
    name: str
    kind: str
    #: As placed now.
    instances: int
    batches: int | None = None
    rate: float | None = None
    emit_rate: float | None = None
    #: By output.
    emit_rates: Mapping[str, float] = field(default_factory=dict)
    #: None for a source that has no arrival rate of its own.
    input_rate: float | None = None
    bad_rate: float | None = None
    #: Of one instance; no instance did more than `utilisation` of that time.
    capacity: float | None = None
    utilisation: float | None = None
    cpu_utilisation: float | None = None
    #: Shares of an instance's time; None where bundles do not stand.
    waiting_input: float | None = None
    waiting_room: float | None = None
    batch_duration: float | None = None
    #: Of that, the time in which a bundle had its share, the most of any of them.
    share_duration: float | None = None
    #: Of that, what is not spent on rows; None where Spark SQL does the work.
    batch_overhead: float | None = None
    #: Seconds a batch, by part.
    overhead: Mapping[str, float] = field(default_factory=dict)
    backlog: Backlog = Backlog()
    unmet_rows: int | None = None
    throttled: bool | None = None
    #: Whether it was throttled at times: in more than one look out of ten.
    held_back: bool | None = None
    #: Of sinks.
    latency: Latency | None = None
    #: Bytes a second that it reads from other operators, wherever they were written; None if that is not measured.
    traffic: float | None = None
    #: Of keyed operators, by task.
    state: Mapping[int, StateSize] = field(default_factory=dict)
    #: By slot.
    slots: Mapping[str, OperatorOnSlot] = field(default_factory=dict)

    def state_sizes(self, tasks: int) -> tuple[int, ...] | None:
        """The bytes of each of so many tasks; None if the size of one of them is not known, or if there were more of
        them when they were measured: a repartition has made other tasks of them since."""
        if len(self.state) > tasks:
            return None
        sizes = [one.bytes for task in range(tasks) if (one := self.state.get(task)) and one.bytes is not None]
        return tuple(sizes) if len(sizes) == tasks else None


@dataclass(frozen=True)
class StreamSnapshot:
    name: str
    producer: str
    output: str
    consumer: str
    #: Rows a second that the producer emits on it, and that the consumer reads from it.
    emit_rate: float | None = None
    rate: float | None = None
    backlog: Backlog = Backlog()


@dataclass(frozen=True)
class SlotSnapshot:
    """A slot, or a machine as the sum of its slots."""

    name: str
    machine: str
    cores: int
    instances: int
    #: Of the instances on it, on average.
    utilisation: float | None = None
    #: Of its cores.
    cpu_utilisation: float | None = None
    worker_memory: int | None = None
    executor_memory: int | None = None


@dataclass(frozen=True)
class Snapshot:
    definition: TopologyDefinition
    cluster: Cluster
    placement: Placement
    #: The window is [since, at), in seconds since the epoch, and covers so many sampling intervals.
    since: float
    at: float
    samples: int
    operators: Mapping[str, OperatorSnapshot]
    streams: Mapping[str, StreamSnapshot]
    slots: Mapping[str, SlotSnapshot]
    machines: Mapping[str, SlotSnapshot]
    #: Bytes a second from the slot that wrote them to the slot that read them. What is read by an operator with a gap
    #: in `traffic` is not in it.
    traffic: Mapping[Way, float]
    gaps: tuple[Gap, ...] = ()
    #: Operators that run as one: what one of them hands to the next never waits.
    chains: tuple[tuple[str, ...], ...] = ()
    #: What each machine uses of what it has, by its own counters; only where machines are really apart (a lab).
    machine_uses: Mapping[str, MachineUse] = field(default_factory=dict)
    #: The machines that could come, and why no more than these.
    coming: ComingMachines = field(default_factory=ComingMachines)
    #: Seconds that a micro-batch takes under full load; None where it is not known.
    longest_batch: float | None = None
    #: Bytes a second that came over links, from the machine (or the driver) that sent them to the one that received
    #: them: rows and messages, as far as they are measured. Spark's shuffle is in `shuffled`.
    links: Mapping[Way, float] = field(default_factory=dict)
    #: By machine: bytes a second that Spark's shuffle brought there. From which machines, Spark does not say. Empty
    #: where nobody has asked Spark.
    shuffled: Mapping[str, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every operator was heard of, lately and for long enough, so that a strategy may decide."""
        return not any(gap.grave for gap in self.gaps)

    def gaps_in(self, *metrics: str) -> tuple[Gap, ...]:
        """What a strategy that needs these metrics has to do without."""
        return tuple(gap for gap in self.gaps if not gap.metric or gap.metric in metrics)

    def chain_of(self, operator: str) -> tuple[str, ...]:
        """The operators that run as one with this one, itself among them."""
        return next((chain for chain in self.chains if operator in chain), (operator,))

    @property
    def sinks(self) -> Mapping[str, OperatorSnapshot]:
        """Their rate is the throughput."""
        return {sink.name: self.operators[sink.name] for sink in self.definition.sinks}

    @property
    def machine_traffic(self) -> Mapping[Way, float]:
        """Bytes a second from machine to machine."""
        total: dict[Way, float] = {}
        for (producer, consumer), rate in self.traffic.items():
            way = (machine_of(producer), machine_of(consumer))
            total[way] = total.get(way, 0.0) + rate
        return total

    def as_json(self) -> dict[str, Any]:
        placement = self.placement
        return {
            "topology": self.definition.name,
            "since": shown(self.since),
            "at": shown(self.at),
            "samples": self.samples,
            "complete": self.complete,
            "gaps": [dataclasses.asdict(gap) for gap in self.gaps],
            "operators": [_operator_json(one, placement) for one in self.operators.values()],
            "streams": [dataclasses.asdict(one) for one in self.streams.values()],
            "machines": [
                {
                    **dataclasses.asdict(one),
                    "shuffled": self.shuffled.get(machine.name),
                    "slots": [slot.name for slot in machine.slots],
                    "used": use.as_json() if (use := self.machine_uses.get(machine.name)) is not None else None,
                }
                for machine in self.cluster.machines
                if (one := self.machines.get(machine.name)) is not None
            ],
            "slots": [dataclasses.asdict(one) for one in self.slots.values()],
            "traffic": _traffic_json(self.traffic),
            "machine_traffic": _traffic_json(self.machine_traffic),
            "links": _traffic_json(self.links),
            "tasks": {name: [slot.name for slot in slots] for name, slots in placement.tasks.items()},
        }


def machine_of(slot: str) -> str:
    """A slot's name begins with that of its machine."""
    return slot.rpartition("/")[0]


def _operator_json(one: OperatorSnapshot, placement: Placement) -> dict[str, Any]:
    placed = placement.instances.get(one.name, {})
    return {
        **dataclasses.asdict(one),
        "state": {str(task): dataclasses.asdict(size) for task, size in one.state.items()},
        "placement": {slot.name: count for slot, count in sorted(placed.items())},
    }


def _traffic_json(traffic: Mapping[Way, float]) -> list[dict[str, Any]]:
    return [
        {"from": producer, "to": consumer, "bytes_per_second": rate}
        for (producer, consumer), rate in sorted(traffic.items())
    ]
