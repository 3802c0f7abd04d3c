"""Storm's round robin: every instance and every task is placed, evenly, across machines before within them."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock import Topology, sinks, sources
from penstock.cluster.model import Cluster
from penstock.strategies.mapping.round_robin import round_robin
from penstock.strategies.mapping.tasks import deal_tasks


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def count(frame):  # pragma: no cover - never run here
    return frame


@given(st.integers(1, 5), st.integers(1, 4), st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(12, 40))
def test_round_robin_places_everything_evenly(machines: int, slots: int, instances: list[int], tasks: int) -> None:
    topology = Topology("t")
    last = topology.source("s", sources.rate(1, sources.numbers()))
    for index, number in enumerate(instances):
        last = topology.map(f"m{index}", same, inputs=[last], schema="id long, value double", instances=number)
    schema = "id long, value double"
    keyed = topology.keyed("k", count, inputs=[last], key="id", schema=schema, tasks=tasks, instances=min(tasks, 5))
    topology.sink("out", sinks.noop(), inputs=[keyed])
    definition = topology.definition()
    cluster = Cluster.of([f"m{index}" for index in range(machines)], slots)
    placement = round_robin(definition, cluster)
    for operator in definition.operators:
        placed = placement.of(operator.name)
        assert placement.total(operator.name) == operator.instances
        assert max(placed.values()) - min(placed.values()) <= 1
        used = len({slot.machine for slot in placed})
        assert used == min(machines, operator.instances)
    load = Counter(slot for slots_ in placement.instances.values() for slot, n in slots_.items() for _ in range(n))
    assert max(load.values()) - min(load.get(slot, 0) for slot in cluster.slots) <= 1
    assert len(placement.tasks["k"]) == tasks
    assert set(placement.tasks["k"]) == set(placement.of("k"))


@given(
    st.integers(1, 64),
    st.dictionaries(st.sampled_from(Cluster.of(["a", "b", "c"], 2).slots), st.integers(1, 5), min_size=1),
)
def test_tasks_follow_the_instances(tasks: int, slots: dict) -> None:
    dealt = Counter(deal_tasks(tasks, slots))
    assert sum(dealt.values()) == tasks
    for slot, instances in slots.items():
        share = tasks * instances / sum(slots.values())
        assert abs(dealt[slot] - share) <= instances
