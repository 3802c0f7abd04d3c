"""What a run opens before its first query: the catalog, the state of an earlier run if it fits, channels, segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.channels.catalog import Catalog
from penstock.channels.layout import channels_of
from penstock.channels.log import Bound, Channels
from penstock.channels.segments import SegmentStore, absolute
from penstock.clock import run_time
from penstock.engine.query.context import BatchListener, RunContext, mark_of
from penstock.engine.query.splitting import hashed_keys, splittings
from penstock.engine.query.staged_files import finish_files
from penstock.engine.query.standing_room import StandingRoom, room_on
from penstock.engine.run.handover import (
    batches_before,
    check_checkpoints,
    check_empty,
    check_segments,
    check_sinks,
    check_sources,
    hand_over,
    read_old_state,
    settle,
)
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.warming import clear_warming
from penstock.engine.state.agreement import check_agreement, check_standing, check_stood
from penstock.engine.state.checkpoints import Checkpoints
from penstock.engine.state.folder import StateFolder
from penstock.engine.state.ownership import Owner, check_copy, check_owner, claim, owner_of
from penstock.engine.state.published_record import PublishedRecord
from penstock.engine.state.shape import Shape, shape_of
from penstock.engine.state.succession import OldState
from penstock.errors import PenstockError
from penstock.logs import traced
from penstock.monitor.monitor import Monitor
from penstock.monitor.report import BatchReport
from penstock.monitor.store import StatisticsStore
from penstock.privacy import for_owner_only
from penstock.settings import Settings
from penstock.sinks.parquet_sink import ParquetWriter
from penstock.topology.definition import Operator, TopologyDefinition


def open_catalog(definition: TopologyDefinition, state: StateFolder, settings: Settings) -> Catalog:
    """The catalog of a state folder, or of the database that the settings name."""
    url = settings.catalog or f"sqlite:///{state.path / 'catalog.sqlite'}"
    catalog = Catalog.open(url, definition.name, synchronous="FULL" if settings.durable else "NORMAL")
    try:
        catalog.hold()
    except BaseException:
        catalog.close()
        raise
    return catalog


def open_monitor(definition: TopologyDefinition, state: StateFolder, settings: Settings) -> Monitor:
    """The monitor of a run. Its statistics store is in the state folder, or in the database that the settings name; it
    has none if nothing is to be measured."""
    store = None
    if settings.monitoring == "on":
        url = settings.statistics or f"sqlite:///{state.path / 'statistics.sqlite'}"
        store = StatisticsStore.open(url, definition.name, settings)
    return Monitor(definition, settings, run_time(), store)


@dataclass(frozen=True)
class Opened:
    """What the queries of a run share, and what became of an old state, in words."""

    context: RunContext
    told: tuple[str, ...]


def open_context(
    definition: TopologyDefinition,
    host: SparkHost,
    state: StateFolder,
    settings: Settings,
    catalog: Catalog,
    published: BatchListener,
    plans: Mapping[str, Any],
    forget: Collection[str] = (),
) -> Opened:
    """Open everything that the queries of a run share. First Penstock finds out whose the state is and whether it fits:
    nothing is written, swept or deleted before that is settled. `plans` say what keyed operators keep as state.
    `forget` names operators: Penstock gives up what they hold."""
    owner, is_new = owner_of(catalog, definition.name)
    check_owner(state.path, catalog, owner, in_folder=not settings.catalog, where=definition.where)
    outside = [owner.within(absolute(one)) for one in (settings.checkpoints, settings.segments) if one]
    check_copy(state.path, outside, definition.where)
    checkpoints = Checkpoints(host.spark, _place(settings.checkpoints, owner, state, "checkpoints"))
    compression = None if settings.segment_compression == "none" else settings.segment_compression
    root = _place(settings.segments, owner, state, "segments")
    store = SegmentStore(root, compression, sync=settings.durable, origins=host.origins)
    declared = shape_of(definition, plans)
    old = read_old_state(catalog, checkpoints)
    succession = settle(definition, old, declared, forget)
    if is_new:
        check_empty(definition, checkpoints)
    room = room_on(host, definition.operators)
    carried = [definition.operator(name) for name in succession.carried]
    check_progress(carried, old, room, catalog, checkpoints)
    record = PublishedRecord(state.path)
    record.check(carried, catalog.load().last_batches)
    check_segments(definition, old, succession, catalog, store)
    check_sinks(definition, old, owner, declared, succession, catalog)
    check_sources(definition)

    claim(state.path, catalog, owner, outside if not settings.catalog else ())
    for name, location in (("checkpoints", settings.checkpoints), ("segments", settings.segments)):
        if not location:
            state.sub(name)
    finish_sinks(old.begun, catalog, durable=settings.durable)
    clear_left_sinks(old.shape, declared, owner)
    splits = splittings(definition, settings, host.spark, host.streams.internals)
    layout = channels_of(definition, hashed_keys(splits))
    # An operator that begins anew counts its batches anew. The record may lag, so it gives the operator up first.
    before = catalog.load().last_batches
    record.write({name: number for name, number in before.items() if name in succession.carried})
    told = hand_over(catalog, old, succession, declared, layout, checkpoints, store)
    clear_warming(checkpoints.location)
    readers = {name: channel.readers for name, channel in layout.items()}
    writers = {name: channel.producer for name, channel in layout.items()}
    channels = Channels(catalog, store, readers, writers, Bound(settings.backlog_rows, settings.backlog_bytes))
    channels.sweep(startup=True)
    record.write(channels.last_batches)
    context = RunContext(
        definition=definition,
        spark=host.spark,
        streams=host.streams,
        channels=channels,
        layout=layout,
        store=store,
        settings=settings,
        checkpoints=checkpoints.location,
        published=published,
        identity=owner.identity,
        batches_before=batches_before(catalog),
        splits=splits,
        room=room,
    )
    for sink in definition.sinks:
        if (writer := context.file_writer(sink)) is not None:
            writer.clear()
    for location in (context.checkpoints, store.root):
        for_owner_only(location)
    return Opened(context, told)


def check_progress(
    carried: Sequence[Operator], old: OldState, room: StandingRoom, catalog: Catalog, checkpoints: Checkpoints
) -> None:
    """Refuse a state from which the operators that are carried on could not go on where they were. Of operators that
    stand, the catalog alone knows how far they are; of all others, their checkpoints must agree with it."""
    location, spark = checkpoints.location, checkpoints.spark
    check_standing([one for one in carried if room.stands(one)], catalog, location, spark)
    in_batches = [one for one in carried if not room.stands(one)]
    check_stood([one for one in in_batches if room.cannot_stand(one)], room.lacking, catalog, location, spark)
    check_checkpoints(old, in_batches, checkpoints)
    check_agreement(in_batches, catalog, location, spark)


def _place(location: str, owner: Owner, state: StateFolder, name: str) -> str:
    """Where segments or checkpoints are: in the state folder, which belongs to the owner, or in a location that the
    settings name, which others may use as well."""
    return owner.within(location) if location else str(state.path / name)


def finish_sinks(operators: Iterable[str], catalog: Catalog, *, durable: bool = False) -> None:
    """Move the staged files of the last batches to their final names. A driver that died after it published a batch may
    not have moved the files of that batch. The batch may be that of a chain, whose first operator is no sink, or of an
    operator that is no longer declared."""
    for operator in operators:
        last = catalog.last_batch(operator)
        for batch in catalog.manifests(operator, (last or 0) - 2):
            finish_files(BatchReport.parse(batch.manifest), catalog, durable=durable)


def clear_left_sinks(old: Shape, declared: Shape, owner: Owner) -> None:
    """Delete what was staged and never published in folders that no sink of the same name writes to any more. A folder
    that cannot be opened may be gone for good, and is nothing to fail for."""
    for sink, facts in old.items():
        folder = facts.get("folder")
        if folder and folder != declared.get(sink, {}).get("folder"):
            with traced(f'what the sink "{sink}" has staged in {folder} could not be deleted', OSError, PenstockError):
                ParquetWriter(folder, mark_of(owner.identity, sink, 0)).clear()
