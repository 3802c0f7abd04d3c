"""Where a run starts when nobody has said where: where an earlier run on its state was, or where the mapping says."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.channels.catalog import Catalog
from penstock.cluster.model import Cluster, Placement
from penstock.engine.run import arrangement
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.strategies import mapping
from penstock.topology.definition import TopologyDefinition


@dataclass(frozen=True)
class StartingPlacement:
    """What the first placement of a run follows from."""

    definition: TopologyDefinition
    cluster: Cluster
    settings: Settings

    def dealt(self) -> Placement:
        """The placement by the mapping that the settings name."""
        return self._mapped(self.settings.chaining == "on")

    def recorded(self, catalog: Catalog) -> Placement | None:
        """The placement of an earlier run. None if there is none; or if that run was still where it had started, and
        chains are on now and were off then, or the other way round: then the mapping deals again."""
        again = arrangement.recorded(catalog, self.definition, self.cluster)
        if again is None:
            return None
        try:
            otherwise = self._mapped(self.settings.chaining != "on")
        except PenstockError:
            # No problem: the mapping finds no place there, so the earlier run cannot have started there.
            return again
        return None if again == otherwise else again

    def _mapped(self, chains: bool) -> Placement:
        wanted = mapping.Wanted.at_start(self.definition, self.cluster, self.settings.slot_instances, chains)
        return mapping.start(self.settings.mapping, wanted)
