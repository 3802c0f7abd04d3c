"""What holds for every mapping that Penstock brings: everything is placed, and what can stay stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_fakes import DEFINITION

from penstock import plugins
from penstock.cluster.model import Cluster, Placement
from penstock.strategies.mapping import Wanted, place

CLUSTER = Cluster.of(["a", "b", "c"], 2)
OPERATORS = ("rows", "work", "out")
#: One mapping after the other gets the same questions.
every_mapping = pytest.mark.parametrize("name", plugins.BUILT_IN[plugins.MAPPINGS])
#: Storm's own frees slots that do not have their even share.
keeping_mapping = pytest.mark.parametrize(
    "name", [name for name in plugins.BUILT_IN[plugins.MAPPINGS] if name != "storm_default"]
)
clusters = st.sets(st.sampled_from(CLUSTER.machines), min_size=1).map(
    lambda machines: Cluster(tuple(sorted(machines, key=lambda machine: machine.name)))
)
numbers = st.fixed_dictionaries({name: st.integers(1, 6) for name in OPERATORS})


def answered(name: str, wanted: Wanted) -> Placement:
    answer = place(name, wanted)
    assert isinstance(answer, Placement)
    return answer


@every_mapping
@given(clusters, numbers, st.integers(1, 9), st.booleans())
def test_everything_has_a_place_and_the_same_one_every_time(
    name: str, cluster: Cluster, instances: dict[str, int], tasks: int, chains: bool
) -> None:
    wanted = Wanted(DEFINITION, cluster, instances, {"work": tasks}, chains=chains)
    placement = answered(name, wanted)  # which is checked: see mapping.place
    assert answered(name, wanted) == placement
    assert set(placement.tasks["work"]) <= set(placement.of("work"))


@keeping_mapping
@given(numbers, st.sampled_from(OPERATORS), st.integers(1, 9))
def test_who_is_not_resized_stays(name: str, instances: dict[str, int], operator: str, count: int) -> None:
    before = answered(name, Wanted(DEFINITION, CLUSTER, instances, {"work": 9}))
    wanted = Wanted.as_now(DEFINITION, CLUSTER, before)
    assert answered(name, wanted) == before
    after = answered(name, replace(wanted, instances={**wanted.instances, operator: count}))
    for other in OPERATORS:
        if other != operator:
            assert after.of(other) == before.of(other)
    grown = count >= instances[operator]
    for slot in before.of(operator).keys() | after.of(operator).keys():
        had, has = before.of(operator).get(slot, 0), after.of(operator).get(slot, 0)
        assert has >= had if grown else has <= had


@keeping_mapping
@given(numbers, clusters)
def test_what_was_elsewhere_comes_to_the_slots_there_are(
    name: str, instances: dict[str, int], smaller: Cluster
) -> None:
    before = answered(name, Wanted(DEFINITION, CLUSTER, instances, {"work": 5}))
    after = answered(name, Wanted.as_now(DEFINITION, smaller, before))
    assert after.slots <= set(smaller.slots)
    for operator in OPERATORS:
        for slot in smaller.slots:
            assert after.of(operator).get(slot, 0) >= before.of(operator).get(slot, 0)
