"""What strategies remember of decisions on request."""

from __future__ import annotations

from made_up import cluster, decided, placed, seen

from penstock.autoscaler.memories import Memories
from penstock.autoscaler.proposals import Proposal
from penstock.plans.plan import SetInstances
from penstock.strategies.memory import EMPTY, Added, Memory

ONE = cluster(1)
FEW, MANY = placed(ONE, rows=1, work=2, out=1), placed(ONE, rows=1, work=4, out=1)
SPEEDS = {"rows": 1e4, "work": 100.0, "out": 1e4}
ADDED = Added("m2", {"work": 2})


def more(**rates: float) -> Proposal:
    before = seen(FEW, ONE, SPEEDS, 390.0)
    memory = Memory(rates, (ADDED,))
    return decided(1, before, SetInstances("work", MANY.of("work")), memory=memory, strategy="gain").proposal


def test_it_is_known_until_anybody_changes_instances() -> None:
    memories = Memories()
    assert memories.of("gain", MANY) == EMPTY
    memories.carried_out(more(work=100.0), on_request=True)
    assert memories.of("gain", MANY) == Memory({"work": 100.0}, (ADDED,))
    assert memories.of("gain", FEW) == Memory({"work": 100.0})
    assert memories.of("stela", MANY) == EMPTY


def test_of_a_controller_s_decision_only_the_rates_are_kept() -> None:
    memories = Memories()
    memories.carried_out(more(work=100.0), on_request=False)
    assert memories.of("gain", MANY) == Memory({"work": 100.0})
    memories.carried_out(more(work=100.0), on_request=True)
    memories.carried_out(more(work=80.0, out=500.0), on_request=False)
    assert memories.of("gain", MANY) == Memory({"work": 80.0, "out": 500.0}, (ADDED,))
