"""What a fluid topology reports: the batch of an operator since its last one, and what waits in front of it, in the
values in which the engine reports them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.channels.layout import channel_name
from penstock.monitor.report import BatchReport, BundleReport
from penstock.monitor.sample import Levels, Waiting
from penstock.monitor.sampling import DriverKnowledge
from penstock.simulator.fluid import Water
from penstock.simulator.queries import Pool
from penstock.topology.definition import Sink, TopologyDefinition

#: Bytes of a row.
ROW = 100
#: The share of a batch that is not for rows.
OVERHEAD = 0.02


class Reporter:
    """Reads off the water what happened, and begins the next batches."""

    def __init__(self, definition: TopologyDefinition, water: Water) -> None:
        self._water = water
        self._channels = [channel_name(definition, stream) for stream in water.streams]
        self._sinks = {one.name for one in definition.operators if isinstance(one, Sink)}
        self._streams: dict[str, Mapping[str, str]] = {
            pool.name: {self._channels[stream]: water.streams[stream].name for stream in pool.inputs}
            for pool in water.pools
        }
        self._batches = {pool.name: 0 for pool in water.pools}

    def batch(self, pool: Pool, started: float, finished: float) -> tuple[BatchReport, DriverKnowledge]:
        """The batch that a pool has worked on; the next one begins."""
        water, seconds = self._water, finished - started
        rows, out = round(pool.rows), self._rows_out(pool)
        age = self._age(pool, seconds)
        bundles = tuple(
            BundleReport(
                slot=bundle.work.slot,
                instances=bundle.work.instances,
                partition=place,
                executor=bundle.work.slot,
                host=bundle.work.slot,
                pid=1,
                rows_in=round(bundle.work.rows),
                bytes_in=round(bundle.work.rows) * ROW,
                rows_out={name: round(count * bundle.work.rows / pool.rows) for name, count in out.items()},
                busy=bundle.work.busy / bundle.work.instances,
                busy_total=bundle.work.busy,
                cpu=bundle.work.cpu,
                seconds=bundle.work.busy,
                born_from=finished - age,
                born_to=finished - age,
                by_spark_sql=pool.keyed,
            )
            for place, bundle in enumerate(pool.bundles)
            if bundle.work.rows > 0
        )
        busiest = max((one.busy for one in bundles), default=0.0)
        # This one batch stands for all of an interval. Between them the operator had nothing to do, which is no
        # overhead of theirs.
        idle = max(seconds * (1 - OVERHEAD) - busiest, 0.0)
        report = BatchReport(pool.name, self._batches[pool.name], started, finished, rows, out, bundles, idle)
        read = {self._channels[stream]: round(water.read[stream]) for stream in pool.inputs}
        known = DriverKnowledge(
            streams=self._streams[pool.name],
            is_sink=pool.name in self._sinks,
            executors={bundle.work.slot: bundle.work.slot for bundle in pool.bundles},
            rows_by_channel=read if pool.inputs else None,
            traffic={},
            links={},
            previous_finished=started,
            levels=self.levels(pool, finished),
        )
        self._batches[pool.name] += 1
        self._begin(pool)
        return report, known

    def levels(self, pool: Pool, at: float, batch_since: float | None = None) -> Levels:
        water = self._water
        held = {stream: water.levels[stream] for stream in pool.inputs}
        backlog = {
            water.streams[stream].name: Waiting(
                round(rows), round(rows) * ROW, rows / pool.inflow if rows >= 1 and pool.inflow else None
            )
            for stream, rows in held.items()
        }
        unmet = None if pool.inputs else round(pool.unmet)
        return Levels(at, backlog, unmet, pool.throttled, batch_since)

    def _rows_out(self, pool: Pool) -> dict[str, int]:
        """By output: every reader of an output gets all of it."""
        return {self._water.streams[stream].output: round(self._water.written[stream]) for stream in pool.outputs}

    def _age(self, pool: Pool, seconds: float) -> float:
        """How long ago the rows came into the topology that leave it now."""
        if pool.name not in self._sinks or not pool.rows:
            return 0.0
        waiting = sum(self._water.levels) + sum(one.unmet for one in self._water.pools)
        return 0.1 + waiting * seconds / pool.rows

    def _begin(self, pool: Pool) -> None:
        pool.rows = 0.0
        for stream in pool.inputs:
            self._water.read[stream] = 0.0
        for stream in pool.outputs:
            self._water.written[stream] = 0.0
        for bundle in pool.bundles:
            bundle.work.rows = bundle.work.busy = bundle.work.cpu = 0.0
