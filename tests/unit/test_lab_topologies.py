"""What `make bench-lab` measures with: topologies that are valid, and placements of the same instances."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import lab_topologies as lab

from penstock.cluster.model import Cluster

SLOTS = Cluster.of(["a", "b", "c", "d"], 1).slots


def test_an_operator_that_works_has_rows_of_its_own() -> None:
    topology, names = lab.worked_on(2, [1, 4], 0.002)
    definition = topology.definition()
    assert names == ["work-0", "work-1"]
    assert [definition.operator(name).instances for name in names] == [1, 4]


def test_rows_that_cross_a_link_are_about_a_kilobyte() -> None:
    definition = lab.sent_over(3000).definition()
    assert [one.spec.schedule.rate_at(0.0) for one in definition.sources] == [1000.0] * 3  # type: ignore[attr-defined]
    assert len(definition.operators) == 3 * lab.STREAMS
    assert 1000 <= lab.with_payload(5, 100).nbytes / 100 <= 1024
    assert lab.with_payload(5, 2).column("n").to_pylist() == [5, 6]


@pytest.mark.parametrize("name", lab.LANES)
def test_both_placements_have_the_same_instances_on_the_same_machines(name: str) -> None:
    topology, heavy = lab.lanes(name)
    operators = [one.name for one in topology.definition().operators]
    assert len(operators) == 8
    assert set(heavy) <= set(operators)
    placed = lab.together(operators, SLOTS)
    assert list(placed) == operators
    assert Counter(slot.machine for slots in placed.values() for slot in slots) == {"a": 3, "b": 3, "c": 1, "d": 1}


def test_what_the_lanes_do_makes_rows_few() -> None:
    words = lab.split(pa.record_batch({"sentence": ["a b a", "b"]}))
    assert sorted(map(tuple, (row.values() for row in lab.tally(words).to_pylist()))) == [("a", 2), ("b", 2)]
    scored = lab.score(lab.with_payload(0, 50))
    assert lab.top(scored).num_rows == 10
    assert lab.top(scored).schema.names == ["n", "score"]
