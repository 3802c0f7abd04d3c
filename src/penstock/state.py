"""State of one's own: what the processor of a stateful operator is written with.

    class Visits(state.Processor):
        seen = state.value("n long")

        def rows(self, key, rows):
            n = self.seen.get(0) + sum(1 for _ in rows)
            self.seen.set(n)
            yield {**key, "n": n}

    topology.stateful("visits", Visits, inputs=clicks, key="user", schema="user string, n long")

docs/state.md is the guide. The same processor runs on Spark's transformWithState and in `penstock.testing`.
"""

from penstock.topology.state.declared import Declared, list, map, value
from penstock.topology.state.held import HeldList, HeldMap, HeldValue, Timers
from penstock.topology.state.processor import Processor

__all__ = ["Declared", "HeldList", "HeldMap", "HeldValue", "Processor", "Timers", "list", "map", "value"]
