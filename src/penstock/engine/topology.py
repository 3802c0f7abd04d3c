"""The engine's `RunningTopology`: a run on Spark, together with what changes it."""

from __future__ import annotations

from collections.abc import Collection

from penstock.cluster.model import Placement
from penstock.engine.change.changes import RunChanges
from penstock.engine.run.run import Run
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition


class SparkTopology(Run):
    """Implements `penstock.running.RunningTopology`. A run knows nothing of its changes, which change it from outside:
    both meet here."""

    def __init__(
        self,
        definition: TopologyDefinition,
        host: SparkHost,
        state: StateFolder,
        settings: Settings,
        placement: Placement | None = None,
        *,
        forget: Collection[str] = (),
    ) -> None:
        super().__init__(definition, host, state, settings, placement, forget=forget)
        self.changes = RunChanges(self)
