"""How many idle Python workers an executor keeps: enough for its micro-batches, and not one for every turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.choice import ClusterChoice
from penstock.engine import launching
from penstock.engine.launching import idle_workers
from penstock.engine.spark.idle_workers import MOST_IDLE
from penstock.engine.spark.slots import WARM_WORKERS
from penstock.state import Processor
from penstock.topology.definition import TopologyDefinition

STANDALONE = ClusterChoice("standalone", machines=2)
ATTACHED = ClusterChoice("attached", master="spark://somewhere:7077")
SCHEMA = "id long, value double"


def same(rows):
    return rows


class Echo(Processor):
    def rows(self, key, rows):
        yield from rows


def topology(keyed: int = 0, stateful: int = 0, frames: bool = False) -> TopologyDefinition:
    made = Topology("made")
    numbers = made.source("numbers", sources.rate(1, sources.numbers()))
    if stateful:
        numbers = made.stateful("stateful", Echo, inputs=numbers, key="id", schema=SCHEMA, tasks=stateful)
    if keyed:
        numbers = made.keyed("keyed", same, inputs=numbers, key="id", schema=SCHEMA, tasks=keyed)
    if frames:
        numbers = made.map_dataframe("frames", same, inputs=numbers, schema=SCHEMA)
    made.sink("out", sinks.noop(), inputs=numbers)
    return made.definition()


def test_bundles_that_stand_need_no_idle_workers() -> None:
    assert idle_workers(topology(), STANDALONE, Settings()) == WARM_WORKERS
    assert idle_workers(topology(), ClusterChoice("local", slots=3), Settings()) == 3 * WARM_WORKERS


def test_each_task_of_a_micro_batch_has_its_workers() -> None:
    assert idle_workers(topology(keyed=4), STANDALONE, Settings()) == 4, "a task writes"
    assert idle_workers(topology(keyed=4), STANDALONE, Settings(shuffle="none")) == 8, "it reads in the same task"
    assert idle_workers(topology(stateful=4), STANDALONE, Settings()) == 8, "and a processor is Python, too"
    assert idle_workers(topology(keyed=5, stateful=4), STANDALONE, Settings()) == 13, "queries run side by side"
    assert idle_workers(topology(frames=True), STANDALONE, Settings(slot_cores=2)) == 4, "two bundles read and write"


def test_on_a_local_cluster_all_tasks_share_the_executor() -> None:
    assert idle_workers(topology(keyed=4), ClusterChoice("local"), Settings()) == 8


def test_bundles_that_may_not_stand_count_too() -> None:
    assert idle_workers(topology(keyed=4), ATTACHED, Settings()) == 6


@pytest.mark.parametrize(("own", "given"), [({}, "4"), ({MOST_IDLE: "99"}, "99")])
def test_the_session_gets_it_unless_the_user_says_another(
    own: dict[str, str], given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Started(Exception):
        pass

    def host(*words: Any, **more: Any) -> None:
        raise Started(words[5])

    monkeypatch.setattr(launching, "SparkHost", host)
    launch = launching.launch(topology(keyed=4), STANDALONE, Settings(), str(tmp_path / "state"), spark_conf=own)
    with pytest.raises(Started) as caught, launch:
        pass
    assert caught.value.args[0] == {MOST_IDLE: given}
