"""The load that strategies decide on, made from a snapshot. If rates are missing, a named error says which."""

from __future__ import annotations

from dataclasses import replace

from penstock.autoscaler.back_pressure import without_back_pressure
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Gap, OperatorSnapshot, Snapshot
from penstock.strategies.load import Load, OperatorLoad, SlotLoad, StreamLoad
from penstock.topology.definition import Keyed, Operator, Sink, Source

#: The subject of the gap in a snapshot whose window is too young.
_WINDOW = "window"


def measured_load(snapshot: Snapshot, on_demand: bool = False) -> Load:
    """All rates as measured, except of operators that wait for those behind them (`back_pressure`).

    INCOMPLETE_SNAPSHOT is raised if nothing was measured of an operator, or if the window is too young. With
    `on_demand`, because a person asked for a decision now, a young window is enough, and `youth` says how young."""
    missing = [gap for gap in snapshot.gaps if gap.grave and not (on_demand and gap.subject == _WINDOW)]
    rateless = [name for name, one in snapshot.operators.items() if one.rate is None]
    if missing or rateless:
        why = _reasons(missing) if missing else f"{', '.join(rateless)}: nothing measured yet"
        since = f"in the {snapshot.at - snapshot.since:.0f} s since the topology was started, resumed or last changed"
        raise PenstockError(
            "INCOMPLETE_SNAPSHOT",
            f"what was measured {since} is not enough for a decision ({why}).",
            "Ask again in a few seconds, or choose a strategy that needs no rates: storm.",
        )
    streams = tuple(
        StreamLoad(stream.producer, stream.consumer, stream.emit_rate or 0.0) for stream in snapshot.streams.values()
    )
    held_back = {name for name, one in snapshot.operators.items() if one.held_back}
    held_back |= {name for chain in snapshot.chains for name in chain}  # operators of a chain have one pace
    measured = Load(_operators(snapshot), streams, _slots(snapshot))
    freed = without_back_pressure(measured, held_back)
    # What an operator would do without back-pressure is no measurement, and nothing may be learned from it.
    operators = tuple(
        one if one.processing == was.processing else replace(one, executed=was.processing)
        for one, was in zip(freed.operators, measured.operators, strict=True)
    )
    return measured.at(operators, freed.streams)


def bare_load(snapshot: Snapshot) -> Load:
    """The graph without rates, for strategies that need no rates."""
    operators = tuple(
        OperatorLoad(
            one.name,
            0.0,
            most_instances=_most(one),
            least_instances=one.min_instances,
            state=_state(snapshot, one.name),
        )
        for one in snapshot.definition.operators
    )
    return Load(operators, tuple(StreamLoad(one.producer, one.consumer, 0.0) for one in snapshot.streams.values()))


def youth(snapshot: Snapshot) -> str:
    """A note that the window of a snapshot is young; empty if it is long enough."""
    young = [gap.reason for gap in snapshot.gaps if gap.grave and gap.subject == _WINDOW]
    return f"decided on {snapshot.at - snapshot.since:.0f} s of measurements: {young[0]}" if young else ""


def _operators(snapshot: Snapshot) -> tuple[OperatorLoad, ...]:
    loads = []
    for operator in snapshot.definition.operators:
        one = snapshot.operators[operator.name]
        loads.append(
            OperatorLoad(
                name=operator.name,
                processing=one.rate or 0.0,
                external=one.input_rate if isinstance(operator, Source) else None,
                weight=operator.weight if isinstance(operator, Sink) else 1.0,
                most_instances=_most(operator),
                least_instances=operator.min_instances,
                capacity=_capacity(one, snapshot.longest_batch),
                backlog_growth=one.backlog.growth,
                holds_others=_holds_others(snapshot, operator.name),
                cpu=None if one.cpu_utilisation is None else one.cpu_utilisation * one.instances,
                state=_state(snapshot, operator.name),
            )
        )
    return tuple(loads)


def _holds_others(snapshot: Snapshot, name: str) -> bool:
    """Whether an operator that waits for nobody has one before it that waits for it: of those that read the same
    producer, it has the longest backlog, or nearly so."""
    if snapshot.operators[name].held_back:
        return False
    waiting = {one.producer for one in snapshot.streams.values() if one.consumer == name}
    waiting = {producer for producer in waiting if snapshot.operators[producer].held_back}
    readers = {one.consumer for one in snapshot.streams.values() if one.producer in waiting}
    backlogs = {one: snapshot.operators[one].backlog.rows or 0 for one in readers}
    return bool(backlogs) and (readers == {name} or 2 * backlogs[name] >= max(1, *backlogs.values()))


def _slots(snapshot: Snapshot) -> tuple[SlotLoad, ...]:
    return tuple(
        SlotLoad(one.name, one.cores, one.cpu_utilisation * one.cores)
        for one in snapshot.slots.values()
        if one.cpu_utilisation is not None
    )


def _capacity(one: OperatorSnapshot, longest_batch: float | None) -> float | None:
    """How many rows a second all instances could execute under full load: their rate while busy, less the overhead of
    micro-batches."""
    if one.capacity is None:
        return None
    busy = one.capacity * max(one.instances, 1)
    return max(busy * _share_for_rows(one, longest_batch), one.rate or 0.0)


def _share_for_rows(one: OperatorSnapshot, longest_batch: float | None) -> float:
    """Of the longest batches that an operator runs, the share that is spent on rows."""
    # Where bundles stand, a batch also lasts while it waits to be published: in that time nobody works on its rows.
    fixed, duration = one.batch_overhead, one.batch_duration if one.share_duration is None else one.share_duration
    if longest_batch is None or fixed is None or duration is None:
        return 1.0
    # A batch gets at least half of the time for rows (see engine/query/pacing.py), and may be longer already.
    for_rows = max(longest_batch - fixed, longest_batch / 2, duration - fixed)
    return for_rows / (for_rows + fixed)


def _state(snapshot: Snapshot, name: str) -> tuple[int, ...] | None:
    tasks = snapshot.placement.tasks.get(name)
    return snapshot.operators[name].state_sizes(len(tasks)) if tasks else None


def _most(operator: Operator) -> int | None:
    return operator.tasks if isinstance(operator, Keyed) else None


def _reasons(gaps: list[Gap]) -> str:
    return "; ".join(f"{gap.subject}: {gap.reason}" for gap in gaps[:3])
