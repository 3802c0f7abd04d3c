"""The model of cores that are shared, which says beforehand what bench-stela should measure on lab machines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import stela_cores
from stela_topologies import LAB_TOPOLOGIES, Built, built, experiment_built

from penstock.cluster.model import Cluster, Placement, Slot

A, B, C = Cluster.of(["a", "b", "c"], 1).slots


def linear(exclaim2: dict[Slot, int]) -> tuple[Built, Placement]:
    found = built("linear", stela_cores.CALIBRATION).paced(1000)
    placed = {"word": {A: 6}, "exclaim1": {A: 6}, "exclaim2": exclaim2, "exclaim_output_3": {C: 6}}
    return found, Placement(placed)


def test_a_machine_does_what_its_cores_allow() -> None:
    """A millisecond of a core for a row at every operator."""
    found, placed = linear({B: 6})
    seen = stela_cores.flow(found, placed, 0.2, seconds=20)
    assert seen.rates == pytest.approx(
        {"word": 1000, "exclaim1": 200, "exclaim2": 200, "exclaim_output_3": 200}, rel=0.02
    )
    assert seen.throughput == pytest.approx(200, rel=0.02)


def test_operators_on_one_machine_share_it() -> None:
    found, placed = linear({A: 6})
    seen = stela_cores.flow(found, placed, 0.2, seconds=20)
    assert seen.rates["exclaim1"] == pytest.approx(100, rel=0.02)
    assert seen.rates["exclaim2"] == pytest.approx(100, rel=0.02)


def test_an_operator_on_two_machines_has_what_others_leave_there() -> None:
    found, placed = linear({A: 3, B: 3})
    seen = stela_cores.flow(found, placed, 0.2, seconds=20)
    # On b it is twice as fast as on a, which it shares: two thirds of its rows go there.
    assert seen.throughput == pytest.approx(150, rel=0.05)


def test_strategies_are_told_the_rates_of_the_model() -> None:
    experiment = LAB_TOPOLOGIES["lab_star"]
    found = experiment_built(experiment, stela_cores.CALIBRATION)
    assert found.seconds["center"] == 0.001
    placed = Placement({one.name: {A: one.instances} for one in found.definition.operators})
    seen = stela_cores.flow(found, placed, 0.3, seconds=20)
    load = stela_cores.load_of(found, seen)
    by_name = {one.name: one for one in load.operators}
    assert by_name["spout_0"].external == pytest.approx(by_name["spout_0"].processing)
    assert by_name["center"].processing == pytest.approx(100, rel=0.02)
    assert {(one.producer, one.consumer) for one in load.streams} == {
        ("spout_0", "center"),
        ("spout_1", "center"),
        ("center", "bolt_output_0"),
        ("center", "bolt_output_1"),
    }


def test_one_bottleneck_alone_gains_what_the_cores_of_its_machines_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = stela_cores.scaled_out(LAB_TOPOLOGIES["lab_star_single"])
    assert found["stela"] / found["before"] == pytest.approx(1.5, rel=0.05), "two machines held it, and now three"
    assert found["storm"] > found["before"], "Storm's default spreads what there is over the new cores"


@pytest.mark.parametrize("waiting", [(26.0, 15.0, 15.0), (26.0, 0.0, 15.0), (26.0, 4.0, 15.0), (1e-9, 40.0, 0.1)])
def test_nobody_works_more_than_the_machine_has(waiting: tuple[float, ...]) -> None:
    names = ("a", "b", "c")
    seconds, machines = dict.fromkeys(names, 0.001), {name: {"m"} for name in names}
    worked = stela_cores._worked(dict(zip(names, waiting, strict=True)), seconds, machines, 0.015)
    assert sum(worked.values()) == pytest.approx(15)
    assert all(0 <= worked[name] <= rows for name, rows in zip(names, waiting, strict=True))
