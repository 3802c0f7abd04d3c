"""A topology that is opened again and again on its state folder, without Spark: the host is a double, and the
checkpoints are as Spark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from no_standing_room import no_standing_room

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.channels import tables
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore, segment_name
from penstock.cluster.model import Slot
from penstock.engine.query.context import RunContext
from penstock.engine.run.opening import open_catalog, open_context
from penstock.engine.state.folder import StateFolder
from penstock.topology.definition import TopologyDefinition

TABLES = tables.tables.sorted_tables
Rows = dict[sa.Table, list[dict[str, Any]]]
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
CHANNEL = "rows.out"
HOST: Any = SimpleNamespace(
    spark=None,
    slots=SimpleNamespace(executors=lambda: [SimpleNamespace(cores=8)]),
    cluster=SimpleNamespace(slots=[Slot("a", 0)]),
    streams=SimpleNamespace(internals=None),
    origins=None,
)


def declared(name: str) -> TopologyDefinition:
    topology = Topology(name)
    rows = topology.source("rows", sources.rate(10, sources.numbers()))
    topology.sink("out", sinks.noop(), inputs=rows)
    return topology.definition()


class OpenedState:
    """A topology of two operators, whose batches have ten rows each, and its state folder."""

    def __init__(self, folder: Path, name: str = "changing", settings: Settings | None = None) -> None:
        self.state = StateFolder.hold(str(folder / "state"))
        self.settings = settings or Settings()
        self.definition = declared(name)
        self.open_catalog()
        self.segments, self.checkpoints = (str(self.state.path / one) for one in ("segments", "checkpoints"))

    def open_catalog(self) -> None:
        self.catalog = open_catalog(self.definition, self.state, self.settings)

    def close(self) -> None:
        self.catalog.close()
        self.state.release()

    def start(self) -> RunContext:
        """What a run opens before its first query."""
        opened = open_context(self.definition, HOST, self.state, self.settings, self.catalog, lambda *_: None, {})
        self.segments, self.checkpoints = opened.context.store.root, opened.context.checkpoints
        return opened.context

    def start_without_room(self) -> RunContext:
        with no_standing_room():
            return self.start()

    # What runs leave

    def stood(self, *batches: int) -> None:
        for batch in batches:
            self._publish(batch)

    def ran_in_micro_batches(self, *batches: int) -> None:
        for batch in batches:
            self.planned(batch)
            self._publish(batch)
            for operator in ("rows", "out"):
                self._write(operator, "commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')

    def planned(self, batch: int, rows: int = 10) -> None:
        """Spark has begun a batch."""
        end = batch * 10 + rows
        for operator, ends in (("rows", end), ("out", {CHANNEL: end})):
            self._write(operator, "offsets", batch, f"v1\n{{}}\n{json.dumps(ends)}")

    def _publish(self, batch: int) -> None:
        end = batch * 10 + 10
        self.catalog.publish("rows", batch, [self.segment(batch)], json.dumps({**REPORT, "ends": {"0": end}}), {})
        self.catalog.publish("out", batch, [], json.dumps({**REPORT, "ends": {CHANNEL: end}}), {CHANNEL: end})

    def segment(self, batch: int) -> NewSegment:
        rows = pa.record_batch([list(range(batch * 10, batch * 10 + 10)), [0.0] * 10], schema=SCHEMA)
        store = SegmentStore(self.segments)
        written = store.write(CHANNEL, segment_name(batch, 0), [rows], SCHEMA)
        return NewSegment(CHANNEL, written.path, written.rows, written.bytes, "a/0", 0.0, 1.0)

    def _write(self, operator: str, log: str, batch: int, text: str) -> None:
        folder = Path(self.checkpoints, operator, log)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(batch)).write_text(text)

    # What a start finds

    def refused(self, room: bool) -> PenstockError:
        """The error of a start that changes nothing, not even what a sweep would delete."""
        self.segment(99)
        before = self.everything()
        with pytest.raises(PenstockError) as caught:
            self.start() if room else self.start_without_room()
        assert self.everything() == before
        assert caught.value.where is not None
        return caught.value

    def everything(self) -> tuple[object, set[Path]]:
        return self.catalog.load(), self.files()

    def files(self) -> set[Path]:
        return {path for folder in (self.segments, self.checkpoints) for path in Path(folder).rglob("*")}

    # A catalog that goes back

    def copy_of_catalog(self) -> Rows:
        return self.catalog._database.run(
            lambda connection: {
                table: [dict(row) for row in connection.execute(sa.select(table)).mappings()] for table in TABLES
            }
        )

    def put_back(self, copy: Rows) -> None:
        """As if a copy was restored, or a replica that lagged took over."""

        def work(connection: sa.Connection) -> None:
            for table in TABLES:
                connection.execute(sa.delete(table))
                if copy[table]:
                    connection.execute(sa.insert(table), copy[table])

        self.catalog._database.run(work)


REPORT = {"operator": "", "batch": 0, "started": 0.0, "finished": 0.0, "rows_in": 10, "rows_out": {}, "bundles": []}
