"""What a run opens before its first query: the catalog and whether it fits, the channels, the segments."""

from __future__ import annotations

import json
from collections.abc import Iterable

from penstock.channels.catalog import Catalog
from penstock.channels.layout import channels_of
from penstock.channels.log import Bound, Channels
from penstock.channels.segments import SegmentStore
from penstock.clock import run_time
from penstock.engine.agreement import check_agreement
from penstock.engine.host import SparkHost
from penstock.engine.manifest import BatchReport, BundleReport
from penstock.engine.operator_frames import Environment, Published
from penstock.engine.sink_writers import file_writer, finish_files
from penstock.engine.state_folder import StateFolder, check_fit
from penstock.engine.warming import clear_warming
from penstock.monitor.monitor import Monitor
from penstock.monitor.store import StatisticsStore
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition


def open_catalog(definition: TopologyDefinition, state: StateFolder, settings: Settings) -> Catalog:
    """The catalog of a state folder, or of the database that the settings name."""
    url = settings.catalog or f"sqlite:///{state.path / 'catalog.sqlite'}"
    catalog = Catalog.open(url, definition.name, synchronous="FULL" if _durable(settings) else "NORMAL")
    try:
        catalog.hold()
    except BaseException:
        catalog.close()
        raise
    return catalog


def open_monitor(definition: TopologyDefinition, state: StateFolder, settings: Settings) -> Monitor:
    """With the statistics store of the state folder, or of the database that the settings name; without one if nothing
    is to be measured."""
    store = None
    if settings.monitoring == "on":
        url = settings.statistics or f"sqlite:///{state.path / 'statistics.sqlite'}"
        store = StatisticsStore.open(url, definition.name, settings)
    return Monitor(definition, settings, run_time(), store)


def open_environment(
    definition: TopologyDefinition,
    host: SparkHost,
    state: StateFolder,
    settings: Settings,
    catalog: Catalog,
    published: Published,
) -> Environment:
    """Everything that the operators share. Refuses state that another topology wrote."""
    check_fit(definition, catalog)
    checkpoints = settings.checkpoints or state.sub("checkpoints")
    check_agreement(definition.operators, catalog, checkpoints, host.spark)
    clear_warming(checkpoints)
    layout = channels_of(definition)
    compression = None if settings.segment_compression == "none" else settings.segment_compression
    store = SegmentStore(settings.segments or state.sub("segments"), compression, sync=_durable(settings))
    readers = {name: channel.readers for name, channel in layout.items()}
    writers = {name: channel.producer for name, channel in layout.items()}
    bound = Bound(settings.backlog_rows, settings.backlog_bytes)
    channels = Channels(catalog, store, readers, writers, bound)
    channels.sweep(startup=True)
    finish_sinks([operator.name for operator in definition.operators], catalog)
    environment = Environment(
        definition=definition,
        spark=host.spark,
        streams=host.streams,
        channels=channels,
        layout=layout,
        store=store,
        settings=settings,
        checkpoints=checkpoints,
        published=published,
    )
    for sink in definition.sinks:
        if (writer := file_writer(sink.spec, environment.mark_of(sink))) is not None:
            writer.clear()
    return environment


def finish_sinks(operators: Iterable[str], catalog: Catalog) -> None:
    """A driver that died after it published a batch may not have moved the files of that batch; those of the batches
    before it were moved. The batch may have been that of a chain, whose first operator is no sink."""
    for operator in operators:
        last = catalog.last_batch(operator)
        for batch in catalog.manifests(operator, (last or 0) - 2):
            fields = json.loads(batch.manifest)
            bundles = tuple(BundleReport.parse(json.dumps(one).encode()) for one in fields["bundles"])
            finish_files(BatchReport(**{**fields, "bundles": bundles}), catalog)


def _durable(settings: Settings) -> bool:
    return settings.catalog_durability == "power"
