"""A topology of one's own can be built on the recording double, by what the double's docstring promises."""

from __future__ import annotations

from running_topology_contract import declared

from penstock import Settings
from penstock.cluster.model import Cluster
from penstock.monitor.report import BatchReport
from penstock.monitor.sampling import DriverKnowledge, streams_of
from penstock.plans import requests as plans
from penstock.testing import RecordingEngine, RecordingTopology


class Built(RecordingTopology):
    """Keeps count of other placements."""

    def __init__(self, engine: RecordingEngine) -> None:
        self.times_placed = 0
        super().__init__(engine.definition, engine.cluster, Settings(), engine=engine)

    def placed_anew(self) -> None:
        self.times_placed += 1
        super().placed_anew()


def test_it_has_the_engine_that_was_handed_in_and_hears_of_other_placements() -> None:
    engine = RecordingEngine(declared(), Cluster.of(["a"], slots=2))
    built = Built(engine)
    slot = built.cluster.slots[0]
    built.changes.carry_out(plans.set_instances(built.placements.planned, "tag", {slot: 3}))
    assert built.engine is engine
    assert engine.calls == ["place"]
    assert built.times_placed == 1


def test_what_it_takes_is_counted_and_told() -> None:
    built, heard = Built(RecordingEngine(declared(), Cluster.of(["a"], slots=2))), list[BatchReport]()
    built.listen(heard.append)
    now = built.started_at
    report = BatchReport("tag", 0, now, now + 0.5, 70, {"tag->count": 70}, ())
    built.take(report, DriverKnowledge(streams_of(built.definition, "tag")))
    assert heard == [report]
    assert built.monitor.statistics.batches("tag") == built.statistics.batches("tag") == 1


def test_it_says_how_far_the_end_has_come() -> None:
    built = Built(RecordingEngine(declared(), Cluster.of(["a"], slots=2)))
    assert (built.draining, built.stopped) == (False, None)
    built.begin_drain()
    assert built.draining
    assert built.stop() is True
    assert built.stopped is True
