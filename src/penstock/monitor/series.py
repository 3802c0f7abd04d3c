"""An interval as rows of the statistics store: figures of every operator, of its slots, and of its streams."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.cluster.model import Placement
from penstock.cluster.readings import MachineUse
from penstock.monitor.intervals import Interval
from penstock.monitor.metric import OVERHEAD_PARTS, READ_FROM
from penstock.monitor.sample import UNKNOWN_SLOT, Waiting, Way
from penstock.monitor.snapshot import machine_of
from penstock.monitor.totals import OperatorTotals, SlotTotals
from penstock.monitor.unknown import known_sum, total
from penstock.topology.definition import Stream, TopologyDefinition

By = Literal["operator", "slot", "stream", "machine"]
_TRAFFIC = ("traffic_same_slot", "traffic_same_machine", "traffic_other_machine")
#: By metric; one that is not there was not measured.
Figures = dict[str, int | float | str | None]


@dataclass(frozen=True, order=True)
class SeriesKey:
    """Who figures are about: an operator, an operator on a slot, a stream by its reader, or a machine, which has no
    operator and stands where a slot does."""

    operator: str
    slot: str = ""
    stream: str = ""

    @property
    def by(self) -> By:
        if self.stream:
            return "stream"
        if not self.operator:
            return "machine"
        return "slot" if self.slot else "operator"

    @staticmethod
    def of_machine(name: str) -> SeriesKey:
        return SeriesKey("", slot=name)


def figures_of(interval: Interval, definition: TopologyDefinition, placement: Placement) -> dict[SeriesKey, Figures]:
    """Only operators that were heard of: what is not there was not observed."""
    figures: dict[SeriesKey, Figures] = {}
    for name, totals in interval.operators.items():
        placed = {slot.name: count for slot, count in placement.instances.get(name, {}).items()}
        traffic = _traffic(totals.traffic)
        links = _by_slot(totals.links)
        figures[SeriesKey(name)] = _operator(totals, traffic, sum(placed.values()), interval.seconds) | {
            "bytes_over_link": None if links is None else sum(links.values()),
            "bytes_shuffled": None if totals.shuffled is None else sum(totals.shuffled.values()),
        }
        for slot in {*placed, *totals.slots} - {UNKNOWN_SLOT}:
            work = totals.slots.get(slot)
            # Nothing heard from a slot means that nothing ran there, unless something ran nobody knows where.
            if work is not None or UNKNOWN_SLOT not in totals.slots:
                own = work or SlotTotals.silent()
                instances = placed.get(slot, own.instances)
                came = traffic.get(slot, dict.fromkeys(_TRAFFIC, 0)) if totals.traffic is not None else {}
                carried: Figures = {
                    "bytes_over_link": _part(links, slot),
                    "bytes_shuffled": _part(totals.shuffled, slot),
                }
                figures[SeriesKey(name, slot=slot)] = _slot(own, instances, interval.seconds) | came | carried
    for stream in definition.streams:
        found = _stream(stream, interval)
        if found is not None:
            figures[SeriesKey(stream.consumer, stream=stream.name)] = found
    return figures


def _operator(
    totals: OperatorTotals, traffic: Mapping[str, Mapping[str, int]], instances: int, seconds: float
) -> Figures:
    slots = totals.slots.values()
    last = totals.levels[-1] if totals.levels else None
    # The parts are looked at once an interval: what one batch spent stands for all of them.
    share = totals.batches / totals.overhead_batches if totals.overhead_batches else 0.0
    parts = {part: seconds * share for part, seconds in totals.overhead_parts.items()}
    state = (totals.state or {}).values()
    return {
        "seconds": seconds,
        "instances": instances,
        "instance_seconds": instances * seconds,
        "batches": totals.batches,
        "rows": totals.rows,
        "rows_out": sum(totals.rows_out.values()),
        "bad_rows": totals.bad_rows,
        "late_rows": totals.late_rows,
        "bytes_in": total([slot.bytes_in for slot in slots]),
        "bytes_out": total([slot.bytes_out for slot in slots]),
        "busy_seconds": total([slot.busy for slot in slots]),
        "cpu_seconds": total([slot.cpu for slot in slots]),
        "waiting_input_seconds": total([slot.waiting_input for slot in slots]) if slots else None,
        "waiting_room_seconds": total([slot.waiting_room for slot in slots]) if slots else None,
        "batch_seconds": totals.seconds,
        "waiting_seconds": totals.waiting,
        "overhead_seconds": totals.overhead,
        **{f"overhead_{part}": parts.get(part) for part in OVERHEAD_PARTS},
        **_read_from(slots),
        "bytes_from_driver": total([slot.from_driver for slot in slots]),
        "bytes_to_driver": total([slot.to_driver for slot in slots]),
        **{
            name: sum(came[name] for came in traffic.values()) if totals.traffic is not None else None
            for name in _TRAFFIC
        },
        **_waiting(last.backlog if last is not None else {}),
        "unmet_rows": last.unmet_rows if last is not None else None,
        "worker_memory": known_sum(slot.memory for slot in slots),
        "executor_memory": known_sum(slot.executor_memory for slot in slots),
        "state_rows": known_sum(task.rows for task in state),
        "state_bytes": known_sum(task.bytes for task in state),
        "latency": totals.latency.as_text() if totals.latency is not None else None,
    }


def _slot(work: SlotTotals, instances: int, seconds: float) -> Figures:
    return {
        "seconds": seconds,
        "instances": instances,
        "instance_seconds": instances * seconds,
        "batches": work.batches,
        "rows": work.rows,
        "rows_out": work.rows_out,
        "bytes_in": work.bytes_in,
        "bytes_out": work.bytes_out,
        "busy_seconds": work.busy,
        "cpu_seconds": work.cpu,
        "waiting_input_seconds": work.waiting_input,
        "waiting_room_seconds": work.waiting_room,
        **_read_from([work]),
        "bytes_from_driver": work.from_driver,
        "bytes_to_driver": work.to_driver,
        "worker_memory": work.memory,
        "executor_memory": work.executor_memory,
    }


def _read_from(slots: Collection[SlotTotals]) -> Figures:
    figures: Figures = {}
    for where in READ_FROM:
        figures[f"rows_from_{where}"] = total([_part(slot.rows_from, where) for slot in slots])
        figures[f"bytes_from_{where}"] = total([_part(slot.bytes_from, where) for slot in slots])
    return figures


def _part(counts: Mapping[str, int] | None, where: str) -> int | None:
    return None if counts is None else counts.get(where, 0)


def figures_of_machine(use: MachineUse) -> Figures:
    """What a machine used between two readings of its counters."""
    return {
        "seconds": use.seconds,
        "machine_cpu_seconds": use.cpu_cores * use.seconds,
        "machine_core_seconds": use.cores * use.seconds,
        "machine_throttled_seconds": use.throttled * use.seconds,
        "machine_received": round(use.received_per_second * use.seconds),
        "machine_sent": round(use.sent_per_second * use.seconds),
        "machine_link_bytes": round(use.link_bytes_per_second * use.seconds),
        "machine_memory_bytes": use.memory_bytes,
        "machine_memory_limit": use.memory_limit,
    }


def _stream(stream: Stream, interval: Interval) -> Figures | None:
    producer, consumer = interval.operators.get(stream.producer), interval.operators.get(stream.consumer)
    if producer is None and consumer is None:
        return None
    last = consumer.levels[-1] if consumer is not None and consumer.levels else None
    waiting = last.backlog.get(stream.name) if last is not None else None
    read = consumer.rows_in if consumer is not None else None
    return {
        "seconds": interval.seconds,
        "rows": None if read is None else read.get(stream.name, 0),
        "rows_out": None if producer is None else producer.rows_out.get(stream.output, 0),
        **_waiting({stream.name: waiting} if waiting is not None else {}),
    }


def _waiting(backlog: Mapping[str, Waiting]) -> Figures:
    if not backlog:
        return {}
    ages = [one.age for one in backlog.values() if one.age is not None]
    return {
        "backlog_rows": sum(one.rows for one in backlog.values()),
        "backlog_bytes": sum(one.bytes for one in backlog.values()),
        "backlog_age": max(ages, default=0.0),
    }


def _by_slot(links: Mapping[Way, int] | None) -> dict[str, int] | None:
    """What links carried, by the slot that received it."""
    if links is None:
        return None
    by_slot: dict[str, int] = {}
    for (_, slot), size in links.items():
        by_slot[slot] = by_slot.get(slot, 0) + size
    return by_slot


def _traffic(traffic: Mapping[Way, int] | None) -> dict[str, dict[str, int]]:
    """How far the bytes came that each slot read."""
    by_slot: dict[str, dict[str, int]] = {}
    for (producer, consumer), size in (traffic or {}).items():
        if producer == consumer:
            name = "traffic_same_slot"
        else:
            same = machine_of(producer) == machine_of(consumer)
            name = "traffic_same_machine" if same else "traffic_other_machine"
        by_slot.setdefault(consumer, dict.fromkeys(_TRAFFIC, 0))[name] += size
    return by_slot
