"""From the totals of a window to a snapshot: what was counted, divided by the time in which it was counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from penstock.cluster.model import Cluster, Placement
from penstock.monitor.heard_operator import HeardOperator, gaps_of, heard_or_gap
from penstock.monitor.places import links_of, machine_snapshot, shuffled_into, slot_snapshot, traffic_of
from penstock.monitor.sample import UNKNOWN_SLOT, Levels, Waiting
from penstock.monitor.snapshot import (
    Backlog,
    Gap,
    OperatorOnSlot,
    OperatorSnapshot,
    Snapshot,
    StreamSnapshot,
)
from penstock.monitor.totals import SlotTotals
from penstock.monitor.unknown import ratio, total
from penstock.monitor.window import WindowTotals
from penstock.topology.definition import Operator, Source, TopologyDefinition

#: A window that covers fewer is too young to decide on.
LEAST_SAMPLES = 3
#: An operator that was throttled in more looks than this share of them was held back, and not just for a moment.
HELD_BACK = 0.1


def snapshot_of(
    window: WindowTotals,
    definition: TopologyDefinition,
    placement: Placement,
    cluster: Cluster,
    least_samples: int = LEAST_SAMPLES,
) -> Snapshot:
    gaps: list[Gap] = []
    if window.samples < min(least_samples, window.full):
        gaps.append(Gap("window", "", f"it covers {window.samples} of {window.full} samples", grave=True))
    heard: dict[str, HeardOperator] = {}
    for operator in definition.operators:
        found = heard_or_gap(operator, window)
        if isinstance(found, Gap):
            gaps.append(found)
        else:
            heard[operator.name] = found
    operators = {
        operator.name: _operator(operator, heard.get(operator.name), placement) for operator in definition.operators
    }
    streams = {stream.name: stream for stream in _streams(definition, heard)}
    operators = {name: _with_input(one, definition, streams, heard) for name, one in operators.items()}
    slots = {slot.name: slot_snapshot(slot, heard, placement) for slot in cluster.slots}
    for name, one in heard.items():
        gaps += gaps_of(one, operators[name], window)
    return Snapshot(
        definition=definition,
        cluster=cluster,
        placement=placement,
        since=window.since,
        at=window.until,
        samples=window.samples,
        operators=operators,
        streams=streams,
        slots=slots,
        machines={machine.name: machine_snapshot(machine, slots) for machine in cluster.machines},
        traffic=traffic_of(heard.values()),
        links=links_of(heard.values()),
        shuffled=shuffled_into((machine.name for machine in cluster.machines), heard.values()),
        gaps=tuple(gaps),
    )


# Operators


def _operator(operator: Operator, one: HeardOperator | None, placement: Placement) -> OperatorSnapshot:
    placed = placement.instances.get(operator.name, {})
    slots = {slot.name: count for slot, count in sorted(placed.items())}
    shown = OperatorSnapshot(
        operator.name,
        operator.kind,
        sum(slots.values()),
        slots={name: OperatorOnSlot(count) for name, count in slots.items()},
    )
    if one is None:
        return shown
    totals = one.totals
    busy, executed = one.total(lambda slot: slot.busy), one.total(lambda slot: slot.rows)
    last = totals.levels[-1] if totals.levels else None
    emitted = {output: totals.rows_out.get(output, 0) for output in operator.outputs}
    return replace(
        shown,
        batches=totals.batches,
        rate=one.per_second(totals.rows),
        emit_rate=one.per_second(sum(emitted.values())) if operator.outputs else None,
        emit_rates={output: rate for output, rows in emitted.items() if (rate := one.per_second(rows)) is not None},
        bad_rate=one.per_second(totals.bad_rows),
        capacity=_capacity(totals.rows if executed is None else executed, busy),
        utilisation=ratio(one.per_second(busy), shown.instances),
        cpu_utilisation=ratio(one.per_second(one.total(lambda slot: slot.cpu)), shown.instances),
        waiting_input=_share_waited(one, one.total_heard(lambda slot: slot.waiting_input), shown.instances),
        waiting_room=_share_waited(one, one.total_heard(lambda slot: slot.waiting_room), shown.instances),
        batch_duration=totals.seconds / totals.batches if totals.batches else None,
        share_duration=ratio(totals.longest_shares, totals.batches or None),
        batch_overhead=ratio(totals.overhead, totals.batches or None),
        overhead={part: seconds / totals.overhead_batches for part, seconds in totals.overhead_parts.items()},
        backlog=_backlog(totals.levels, lambda levels: levels.backlog.values()) if last and last.backlog else Backlog(),
        unmet_rows=last.unmet_rows if last else None,
        throttled=last.throttled if last else None,
        held_back=_held_back(totals.levels),
        latency=totals.latency.latency if totals.latency is not None else None,
        traffic=None if totals.traffic is None else one.per_second(sum(totals.traffic.values())),
        state=dict(totals.state or {}),
        slots={
            name: _on_slot(count, totals.slots.get(name, SlotTotals.silent()), one)
            for name, count in (dict.fromkeys(set(totals.slots) - {UNKNOWN_SLOT}, 0) | slots).items()
        },
    )


def _held_back(looks: Sequence[Levels]) -> bool | None:
    seen = [levels.throttled for levels in looks if levels.throttled is not None]
    return sum(seen) > HELD_BACK * len(seen) if seen else None


def _on_slot(placed: int, work: SlotTotals, one: HeardOperator) -> OperatorOnSlot:
    """What ran where nothing is placed now had the instances that its bundles had."""
    instances = placed or work.instances
    return OperatorOnSlot(
        instances=placed,
        rate=one.per_second(work.rows),
        capacity=_capacity(work.rows, work.busy),
        utilisation=ratio(one.per_second(work.busy), instances),
        cpu_utilisation=ratio(one.per_second(work.cpu), instances),
        waiting_input=_share_waited(one, work.waiting_input, instances),
        waiting_room=_share_waited(one, work.waiting_room, instances),
        worker_memory=work.memory,
    )


def _share_waited(one: HeardOperator, seconds: float | None, instances: int) -> float | None:
    """The share of its time that an instance has waited. What a bundle waited before its first batch in the window
    counts as a whole, so the sum may be too large by that: the share is never above 1."""
    share = ratio(one.per_second(seconds), instances)
    return None if share is None else min(share, 1.0)


def _with_input(
    shown: OperatorSnapshot,
    definition: TopologyDefinition,
    streams: dict[str, StreamSnapshot],
    heard: dict[str, HeardOperator],
) -> OperatorSnapshot:
    one = heard.get(shown.name)
    if not isinstance(definition.operator(shown.name), Source):
        rates = [streams[stream.name].emit_rate for stream in definition.inputs_of(shown.name)]
        return replace(shown, input_rate=total(rates))
    if one is None or shown.rate is None:
        return shown
    # All that was ever due is what was emitted and what is owed. Emitted rows alone are not what was offered: after a
    # change, a source catches up within a moment on what it owes, before anybody has looked.
    due = [
        (levels.at, levels.unmet_rows + levels.emitted)
        for levels in one.totals.levels
        if levels.unmet_rows is not None and levels.emitted is not None
    ]
    if len(due) > 1 and (offered := slope(due)) is not None:
        return replace(shown, input_rate=max(offered, 0.0))
    # What is due is what was emitted and what was added to what is owed.
    owed = [(levels.at, levels.unmet_rows) for levels in one.totals.levels if levels.unmet_rows is not None]
    growth = slope(owed) if len(owed) > 1 else None
    return replace(shown, input_rate=max(shown.rate + growth, 0.0)) if growth is not None else shown


def _streams(definition: TopologyDefinition, heard: dict[str, HeardOperator]) -> Iterator[StreamSnapshot]:
    for stream in definition.streams:
        producer, consumer = heard.get(stream.producer), heard.get(stream.consumer)
        shown = StreamSnapshot(stream.name, stream.producer, stream.output, stream.consumer)
        if producer is not None:
            emitted = producer.totals.rows_out.get(stream.output, 0)
            shown = replace(shown, emit_rate=producer.per_second(emitted))
        if consumer is not None:
            totals, name = consumer.totals, stream.name
            read = None if totals.rows_in is None else totals.rows_in.get(name, 0)
            looks = [levels for levels in totals.levels if name in levels.backlog]
            backlog = _backlog(looks, lambda levels, name=name: [levels.backlog[name]]) if looks else Backlog()  # type: ignore[misc]
            shown = replace(shown, rate=consumer.per_second(read), backlog=backlog)
        yield shown


def _backlog(looks: Sequence[Levels], waiting: Callable[[Levels], Iterable[Waiting]]) -> Backlog:
    last = list(waiting(looks[-1]))
    ages = [one.age for one in last if one.age is not None]
    points = [(levels.at, sum(one.rows for one in waiting(levels))) for levels in looks]
    return Backlog(
        rows=sum(one.rows for one in last),
        bytes=sum(one.bytes for one in last),
        age=max(ages, default=0.0),
        growth=slope(points) if len(points) > 1 else None,
    )


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """By how much the value grows in a second: the line of least squares. One look more or less at a queue that is
    emptied in batches then hardly matters."""
    count = len(points)
    middle = sum(at for at, _ in points) / count
    spread = sum((at - middle) ** 2 for at, _ in points)
    return ratio(sum((at - middle) * value for at, value in points), spread)


def _capacity(rows: float | None, busy: float | None) -> float | None:
    return ratio(rows, busy) if rows else None
