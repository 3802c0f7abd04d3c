"""Handing an old state over to a declaration: read what there is, refuse what does not fit, then do what was decided.

A crash at any point leaves it to be done again: first the checkpoints of operators that begin anew or are gone are
deleted, then the catalog changes in one transaction, then files go that nobody names any more. An operator whose
checkpoint is gone while the catalog still knows its batches is never taken for one that can go on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from penstock.channels.catalog import Catalog
from penstock.channels.layout import Channel
from penstock.channels.records import CatalogState
from penstock.channels.segments import SegmentStore
from penstock.engine.query.context import by_of, mark_of
from penstock.engine.state import kept_record
from penstock.engine.state import tasks as task_numbers
from penstock.engine.state.checkpoints import Checkpoints
from penstock.engine.state.ownership import Owner
from penstock.engine.state.shape import Shape, channels_read
from penstock.engine.state.succession import OldState, Succession, decide
from penstock.errors import PenstockError
from penstock.topology.definition import Operator, TopologyDefinition

_SHAPE = "shape"
_BEFORE = "batches_before"
#: Batch numbers that an operator may have used: those it published, and one that it may have begun.
_BEGUN = 2


def read_old_state(catalog: Catalog, checkpoints: Checkpoints) -> OldState:
    shape = json.loads(catalog.get_meta(_SHAPE) or "{}")
    known = catalog.load()
    keyed = [name for name, facts in shape.items() if facts["kind"] == "keyed" and name in known.last_batches]
    return OldState(
        shape=shape,
        unread=_unread(shape, known),
        begun=tuple(known.last_batches),
        tasks=task_numbers.recorded_tasks(catalog),
        unfinished=tuple(name for name in keyed if checkpoints.unfinished(name)),
    )


def _unread(shape: Shape, known: CatalogState) -> dict[tuple[str, str], int]:
    first_kept = {
        channel: next(segments).first_row for channel, segments in groupby(known.segments, lambda one: one.channel)
    }
    unread = {}
    for reader in shape:
        for channel in channels_read(shape, reader):
            end, position = known.ends.get(channel, 0), known.positions.get((reader, channel))
            read = max(first_kept.get(channel, end), position.read_rows if position else 0)
            if read < end:
                unread[reader, channel] = end - read
    return unread


# What is refused, before anything is touched


def settle(definition: TopologyDefinition, old: OldState, declared: Shape, forget: Collection[str] = ()) -> Succession:
    """Decide what becomes of every operator. If anything stands against that, the error names all of it."""
    for name in forget:
        known = {*old.shape, *old.begun, *declared}
        if name not in known:
            raise PenstockError(
                "UNKNOWN_OPERATOR",
                f'there is no operator "{name}" whose state could be forgotten.',
                f"There are: {', '.join(sorted(known))}.",
                definition.where,
            )
    succession = decide(old, declared, forget)
    if not succession.refusals:
        return succession
    refused = [one.operator for one in succession.refusals]
    ways = " ".join(dict.fromkeys(one.way_out for one in succession.refusals))
    give_up = " ".join(f"--forget {name}" for name in [*forget, *refused])
    raise PenstockError(
        "STATE_DOES_NOT_FIT",
        " ".join(_sentence(one.problem) for one in succession.refusals),
        f"{ways} Or give up the state of these operators: penstock run ... {give_up}.",
        definition.operator(refused[0]).where if refused[0] in declared else definition.where,
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def check_checkpoints(old: OldState, carried: Sequence[Operator], checkpoints: Checkpoints) -> None:
    """Refuse a state whose checkpoints are missing: Spark would count an operator's batches from 0 again, and the
    catalog would take them for replays of batches that it has."""
    for operator in carried:
        name = operator.name
        if name in old.begun and not checkpoints.has(name):
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f'the catalog knows batches of "{name}", but {checkpoints.location} has no checkpoint of it.',
                f"Restore it, give it up with --forget {name}, or start with a new state folder (or, on PostgreSQL, "
                f"another topology name). {_MOVED.format('checkpoints')}",
                operator.where,
            )


def check_segments(
    definition: TopologyDefinition, old: OldState, succession: Succession, catalog: Catalog, store: SegmentStore
) -> None:
    """Refuse a state that lacks segments which somebody is to read. Segments that were read may be gone: a copy of the
    catalog that was restored still names them."""
    known = catalog.load()
    for channel, segments in groupby(known.segments, lambda one: one.channel):
        waiting = {name: rows for name in succession.carried if (rows := old.unread.get((name, channel), 0))}
        next_row = known.ends[channel] - max(waiting.values(), default=0)
        needed = next((segment for segment in segments if segment.stop_row > next_row), None)
        if needed is not None and not store.has(needed.path):
            give_up = " ".join(f"--forget {name}" for name in waiting)
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f'rows of the channel "{channel}" wait to be read, but {store.root} does not have {needed.path}.',
                f"Restore it, give up what waits there with {give_up}, or start with a new state folder. "
                f"{_MOVED.format('segments')}",
                definition.where,
            )


_MOVED = (
    "If the setting {0} was changed, move what is there. An older Penstock had it directly in that location: move it "
    "to the folder that is named here."
)


def check_empty(definition: TopologyDefinition, checkpoints: Checkpoints) -> None:
    """Refuse a new state that has checkpoints already: they belong to a catalog that is gone."""
    for operator in definition.operators:
        if checkpoints.has(operator.name):
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f'{checkpoints.location} has a checkpoint of "{operator.name}", of which the catalog knows nothing.',
                "Restore the catalog that was used with it, or give a new folder with --state.",
                operator.where,
            )


def check_sinks(
    definition: TopologyDefinition,
    old: OldState,
    owner: Owner,
    declared: Shape,
    succession: Succession,
    catalog: Catalog,
) -> None:
    """Refuse a sink's folder that has rows of others, unless the sink has been writing to it or is to add rows. Refuse
    also a folder to which a newer copy of this state has written: rows would be there twice."""
    before, last = batches_before(catalog), catalog.load().last_batches
    for sink in definition.sinks:
        was = old.shape.get(sink.name, {})
        goes_on = was and was.get("folder", declared[sink.name].get("folder")) == declared[sink.name].get("folder")
        sink.spec.check(sink.name, owner.identity, bool(goes_on), sink.where)
        # A sink that has only ever been written to by chains has published nothing of its own, and keeps its mark also
        # if it begins anew.
        if goes_on and (sink.name in succession.carried or sink.name not in last):
            batches = {by_of(sink.name, first, before): last.get(first, -1) for first in succession.carried}
            mark = mark_of(owner.identity, sink.name, before.get(sink.name, 0))
            sink.spec.check_not_ahead(sink.name, mark, batches, sink.where)


def check_sources(definition: TopologyDefinition) -> None:
    """Refuse a source that cannot be read: each kind of source says itself whether what it reads is there."""
    for source in definition.sources:
        source.spec.check(source.where)


# What is done


def batches_before(catalog: Catalog) -> dict[str, int]:
    """How many batches operators may have had before they last began anew."""
    return dict(json.loads(catalog.get_meta(_BEFORE) or "{}"))


def hand_over(
    catalog: Catalog,
    old: OldState,
    succession: Succession,
    declared: Shape,
    layout: Mapping[str, Channel],
    checkpoints: Checkpoints,
    store: SegmentStore,
) -> tuple[str, ...]:
    """Carry out what was decided. Returns what users are to know of it, one sentence for each operator."""
    known = catalog.load()
    carried = set(succession.carried)
    left = {*old.begun, *(operator for operator, _ in known.positions), *succession.gone, *checkpoints.operators()}
    dropped = {*left, *succession.anew} - carried
    for operator in sorted(dropped):
        checkpoints.drop(operator)
    channels = {*known.ends, *(segment.channel for segment in known.segments)} - layout.keys()
    # A reader that begins anew gets the rows that are published from now on. Earlier rows were for others.
    begin = {
        (reader, channel): known.ends[channel]
        for channel, facts in layout.items()
        for reader in facts.readers
        if reader in succession.anew and channel in known.ends
    }
    catalog.give_up(dropped, channels, begin, _meta(catalog, known, dropped, declared))
    for channel in store.channels():
        if channel not in layout:
            store.drop(channel)
    told = [
        f'"{name}" begins anew: Penstock has deleted what it held of an earlier run'
        for name in succession.anew
        if name in left
    ]
    told += [
        f'"{name}" is no longer declared: Penstock has deleted what it held'
        for name in sorted(dropped - declared.keys())
    ]
    return tuple(told)


def _meta(catalog: Catalog, known: CatalogState, dropped: Collection[str], declared: Shape) -> dict[str, str]:
    before = batches_before(catalog)
    before |= {
        name: before.get(name, 0) + last + _BEGUN for name, last in known.last_batches.items() if name in dropped
    }
    return {
        _SHAPE: json.dumps(declared),
        _BEFORE: json.dumps(before),
        **task_numbers.forgotten(catalog, dropped),
        **kept_record.forgotten(catalog, dropped),
    }
