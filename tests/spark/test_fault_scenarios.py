"""What a seed of the fault campaign stands for. Without Spark."""

from __future__ import annotations

from collections import Counter

from fault_kinds import KINDS, Fault, back_at_90, by_kind
from fault_scenarios import scenario_of
from fault_surroundings import OwnPostgresql
from fault_topologies import SHAPES

OF_POSTGRESQL = {kind for kind, it in KINDS.items() if it.needs is OwnPostgresql}


def test_a_seed_repeats() -> None:
    assert scenario_of(7, 34) == scenario_of(7, 34)
    assert scenario_of(7, 34).kinds != scenario_of(13, 34).kinds


def test_three_seeds_in_a_row_have_all_topologies_both_databases_and_all_kinds_of_fault() -> None:
    scenarios = [scenario_of(seed, 34) for seed in (90, 91, 92)]
    assert {one.shape for one in scenarios} == set(SHAPES)
    assert {one.catalog for one in scenarios} == {"sqlite", "postgresql"}
    assert {kind for one in scenarios for kind in one.kinds} == set(KINDS)
    assert [len(one.kinds) for one in scenarios] == [34, 34, 34]


def test_faults_of_postgresql_come_only_where_it_has_the_catalog() -> None:
    for seed in range(20):
        scenario = scenario_of(seed, 34)
        assert (scenario.catalog == "postgresql") == bool(OF_POSTGRESQL & set(scenario.kinds))


def test_what_the_machine_cannot_have_does_not_come() -> None:
    for seed in range(20):
        scenario = scenario_of(seed, 34, without=["disk full for 10 s", *OF_POSTGRESQL])
        assert scenario.catalog == "sqlite"
        assert not {"disk full for 10 s", *OF_POSTGRESQL} & set(scenario.kinds)
        assert len(scenario.kinds) == 34


def test_few_faults_are_by_chance_of_any_kind() -> None:
    seen = Counter(kind for seed in range(200) for kind in scenario_of(seed, 2).kinds)
    assert set(seen) == set(KINDS)


def test_a_stream_is_back_when_a_window_has_as_much_as_the_one_before_the_fault() -> None:
    # Ten rows a second, nothing from 20 to 31, then ten a second again.
    published = [(float(at), 10) for at in (*range(10, 20), *range(31, 50))]
    fault = Fault("disk full for 10 s", began=19.5, during="", over=30.0)
    fault.measure(published, until=50.0)
    assert fault.back_after == 0.0
    assert back_at_90(published, 19.5, 19.5, 50.0) == 10.5
    assert back_at_90(published, 19.5, 19.5, 33.0) is None
    [line] = by_kind([fault])
    assert line.startswith("| disk full for 10 s | 1 | 0 | 1 |")
