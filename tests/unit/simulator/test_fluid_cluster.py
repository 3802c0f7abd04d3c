"""The fluid cluster by itself: who gets the cores, who waits for whom, and what is skipped while nothing changes."""

from __future__ import annotations

import math

import pytest
from running_topology_contract import declared

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.model import Cluster
from penstock.plans.plan import Plan, SetInstances
from penstock.simulator import Demand, FluidTopology, Truth, VirtualClock
from penstock.simulator.cores import shared
from penstock.simulator.fluid import Water
from penstock.strategies.mapping.round_robin import round_robin
from penstock.topology.definition import TopologyDefinition

FAST = Truth(10_000.0)


def water(bound: float = math.inf, cores: int = 8, **truth: Truth) -> Water:
    definition, cluster = declared(), Cluster.of(["a"], slots=1, cores=cores)
    made = Water(definition, {one.name: truth.get(one.name, FAST) for one in definition.operators}, bound)
    made.place(round_robin(definition, cluster), cluster)
    return made


def flowing(made: Water, offered: float, seconds: int) -> Water:
    made.by_name["numbers"].offered = offered
    for _ in range(seconds):
        made.flow(1.0)
    return made


# Cores


@pytest.mark.parametrize(
    ("cores", "wanted", "instances", "expected"),
    [
        (4.0, [1.0, 2.0], [1, 2], [1.0, 2.0]),
        (2.0, [2.0, 2.0], [1, 1], [1.0, 1.0]),
        (2.0, [3.0, 3.0], [3, 1], [1.5, 0.5]),
        (2.0, [0.1, 9.0, 9.0], [1, 9, 9], [0.1, 0.95, 0.95]),
        (2.0, [0.0, 5.0], [1, 5], [0.0, 2.0]),
    ],
)
def test_cores_are_shared_by_instance_and_nobody_gets_more_than_it_needs(cores, wanted, instances, expected) -> None:
    assert shared(cores, wanted, instances) == pytest.approx(expected)


def test_instances_that_work_share_cores_and_those_that_wait_do_not() -> None:
    slow = Truth(100.0)
    crowded = flowing(water(cores=1, tag=slow, out=slow), 500.0, 60)
    assert crowded.by_name["tag"].speed + crowded.by_name["out"].speed == pytest.approx(100.0, rel=0.1)
    waits = Truth(100.0, works=False)
    free = flowing(water(cores=1, tag=waits, out=waits), 500.0, 60)
    assert free.by_name["tag"].speed == free.by_name["out"].speed == pytest.approx(100.0)


# Rows


def test_a_keyed_operator_is_as_fast_as_its_fullest_instance() -> None:
    """4 tasks on 2 instances are even; the same on 3 instances would be no faster."""
    made = water(count=Truth(100.0))
    flowing(made, 1000.0, 60)
    assert made.by_name["count"].speed == pytest.approx(200.0)
    definition, cluster = declared(), Cluster.of(["a"], slots=1, cores=8)
    placed = round_robin(definition, cluster)
    three = {name: dict(slots) for name, slots in placed.instances.items()} | {"count": {cluster.slots[0]: 3}}
    made.place(type(placed)(three, placed.tasks), cluster)
    flowing(made, 1000.0, 60)
    assert made.by_name["count"].speed == pytest.approx(200.0)


def test_a_full_channel_holds_the_source_back_and_rows_stay_due() -> None:
    made = flowing(water(bound=500.0, tag=Truth(100.0)), 300.0, 100)
    source, level = made.by_name["numbers"], made.levels[0]
    assert source.throttled
    assert not made.by_name["tag"].throttled
    assert source.speed == pytest.approx(100.0)
    assert level == pytest.approx(500.0)
    assert source.unmet + level + 100 * 100.0 == pytest.approx(300.0 * 100, rel=0.01), "no row is lost"


def test_a_backlog_drains_at_full_speed() -> None:
    made = flowing(water(tag=Truth(100.0)), 300.0, 10)
    assert made.levels[0] == pytest.approx(2000.0)
    flowing(made, 0.0, 10)
    assert made.by_name["tag"].speed == pytest.approx(100.0)
    assert made.levels[0] == pytest.approx(1000.0)


def test_the_driver_and_a_service_can_be_the_limit() -> None:
    made = water()
    made.driver = 50.0
    flowing(made, 300.0, 20)
    assert made.by_name["out"].speed == pytest.approx(50.0)
    assert not made.by_name["numbers"].throttled, "it waits for nobody behind it"
    served = flowing(water(out=Truth(1000.0, works=False, most=70.0)), 300.0, 20)
    assert served.by_name["out"].speed == pytest.approx(70.0)


# Demand and time


def test_a_demand_says_when_it_changes() -> None:
    demand = Demand.of((1, 100), (1, 300), repeat=True)
    assert [demand.rate(hours * 3600.0) for hours in (0, 0.99, 1, 2, 3)] == [100, 100, 300, 100, 300]
    assert demand.changes(4) == [3600.0, 7200.0, 10800.0]
    assert demand.until(5000.0) == 7200.0
    assert Demand.constant(5).changes(100) == []


def test_noise_is_the_same_every_time_and_has_its_bounds() -> None:
    demand = Demand.constant(100, noise=0.2)
    factors = [demand.factor(interval) for interval in range(500)]
    assert factors == [demand.factor(interval) for interval in range(500)]
    assert 0.8 <= min(factors) < 0.82
    assert 1.18 < max(factors) <= 1.2


def test_what_falls_due_while_something_sleeps_is_done_meanwhile_in_order() -> None:
    clock, heard = VirtualClock(), []

    def slow() -> None:
        heard.append(("begins", clock.elapsed))
        clock.sleep(10)
        heard.append(("ends", clock.elapsed))

    clock.later(5, slow, "")
    clock.later(7, lambda: heard.append(("meanwhile", clock.elapsed)), "")
    clock.later(6, lambda: heard.append(("never", 0.0)), "").cancel()
    clock.sleep(8)
    assert heard == [("begins", 5.0), ("meanwhile", 7.0), ("ends", 15.0)]
    assert clock.elapsed == 15.0


# While nothing changes


class Plodding(FluidTopology):
    """Skips nothing."""

    def _settle(self, now: float) -> None:
        pass


@pytest.mark.parametrize("offered", [150.0, 700.0], ids=["enough", "too much"])
def test_what_is_skipped_makes_no_difference(offered: float) -> None:
    """500 rows/s are the most that `tag` can do: then rows that are due grow all the time."""
    seen = []
    for kind in (FluidTopology, Plodding):
        clock = VirtualClock()
        with clock.installed():
            truth = {one.name: FAST for one in declared().operators} | {"tag": Truth(500.0)}
            demand = {"numbers": Demand.of((1, offered), (1, 100))}
            settings = Settings(backlog_rows=2000)
            topology = kind(
                declared(), Cluster.of(["a"], slots=2, cores=4), truth, demand, clock=clock, settings=settings
            )
            clock.sleep(3000)
            snapshots = [topology.snapshot()]
            assert topology.steady == (kind is FluidTopology)
            clock.sleep(700)
            snapshots.append(topology.snapshot())
            clock.sleep(2000)
            snapshots.append(topology.snapshot())
            seen.append([_figures(one) for one in snapshots])
    for skipped, plodded in zip(*seen, strict=True):
        assert skipped == pytest.approx(plodded, rel=1e-6, abs=2.0)


def _figures(snapshot) -> dict[str, float]:
    found = {"at": snapshot.at, "since": snapshot.since}
    for name, one in snapshot.operators.items():
        found |= {
            f"{name} rate": one.rate,
            f"{name} input": one.input_rate or 0.0,
            f"{name} utilisation": one.utilisation,
            f"{name} due": float(one.unmet_rows or 0),
            f"{name} backlog": float(one.backlog.rows or 0),
        }
    return found


# Chains


SCHEMA = "id long, value double"
WHOLE = ("numbers", "first", "second", "out")


def same(batch):
    return batch


def line() -> TopologyDefinition:
    topology = Topology("line")
    numbers = topology.source("numbers", sources.rate(1, sources.numbers()))
    first = topology.map("first", same, inputs=[numbers], schema=SCHEMA)
    second = topology.map("second", same, inputs=[first], schema=SCHEMA)
    topology.sink("out", sinks.noop(), inputs=[second])
    return topology.definition()


def chained(cores: int = 8, chains: tuple[tuple[str, ...], ...] = (WHOLE,), **truth: Truth) -> Water:
    definition, cluster = line(), Cluster.of(["a"], slots=1, cores=cores)
    made = Water(definition, {one.name: truth.get(one.name, FAST) for one in definition.operators}, 500.0)
    made.place(round_robin(definition, cluster), cluster, chains)
    return made


def busy(made: Water, name: str) -> float:
    return made.by_name[name].bundles[0].work.busy


def test_a_row_costs_a_chain_the_time_of_all_its_operators() -> None:
    apart = flowing(chained(chains=(), first=Truth(100.0), second=Truth(100.0)), 200.0, 60)
    assert apart.by_name["out"].speed == pytest.approx(100.0)
    made = chained(first=Truth(100.0), second=Truth(100.0), numbers=Truth(1e9), out=Truth(1e9))
    flowing(made, 200.0, 60)
    assert [pool.speed for pool in made.pools] == pytest.approx([50.0] * 4)
    assert not any(made.levels), "no rows wait inside a chain"
    assert not any(pool.throttled for pool in made.pools), "nobody in it waits for another"
    assert made.by_name["numbers"].unmet == pytest.approx(150.0 * 60)
    assert [busy(made, name) for name in ("first", "second")] == pytest.approx([30.0, 30.0], rel=1e-4), (
        "each has its own share of the time"
    )


def test_what_is_behind_a_chain_holds_all_of_it_back() -> None:
    made = flowing(chained(chains=(WHOLE[:3],), out=Truth(70.0)), 200.0, 60)
    assert [pool.throttled for pool in made.pools] == [True, True, True, False]
    assert made.levels == [0.0, 0.0, pytest.approx(500.0)]


def test_operators_of_a_chain_get_as_many_rows_as_those_before_them_emit() -> None:
    few, many = Truth(10_000.0, selectivity=0.5), Truth(10_000.0, selectivity=4.0)
    made = flowing(chained(numbers=Truth(1e9), first=few, second=many, out=Truth(100.0)), 200.0, 60)
    # 1/10,000 + 0.5/10,000 + 2/100 seconds a row
    assert made.by_name["numbers"].speed == pytest.approx(1 / 0.02015, rel=1e-4)
    assert made.by_name["out"].speed == pytest.approx(2 / 0.02015, rel=1e-4)


def test_a_chain_that_waits_and_works_needs_cores_for_its_work_only() -> None:
    """Two chains' worth of instances on one core: each works a quarter of its time."""
    truth = {"first": Truth(100.0), "second": Truth(100.0 / 3, works=False), "out": Truth(1e9), "numbers": Truth(1e9)}
    made = chained(cores=1, **truth)
    definition, cluster = line(), Cluster.of(["a"], slots=1, cores=1)
    placed = round_robin(definition, cluster)
    four = {name: {cluster.slots[0]: 4} for name in placed.instances}
    made.place(type(placed)(four, placed.tasks), cluster, (WHOLE,))
    flowing(made, 200.0, 60)
    assert made.by_name["out"].speed == pytest.approx(100.0, rel=0.01)
    made.place(type(placed)({name: {cluster.slots[0]: 8} for name in four}, placed.tasks), cluster, (WHOLE,))
    flowing(made, 200.0, 60)
    assert made.by_name["out"].speed == pytest.approx(100.0, rel=0.01), "one core does not do more"
    assert busy(made, "first") > busy(made, "second"), "whoever shares a core is busy for longer"


def test_a_chain_is_taken_apart_and_put_together_by_the_placement() -> None:
    clock, cluster = VirtualClock(), Cluster.of(["a"], slots=1, cores=8)
    with clock.installed():
        truth = {name: Truth(1000.0) for name in WHOLE}
        topology = FluidTopology(line(), cluster, truth, {"numbers": Demand.constant(100.0)}, clock=clock)
        clock.sleep(600)
        snapshot, (slot,) = topology.snapshot(), cluster.slots
        assert snapshot.chains == (WHOLE,)
        assert {round(one.utilisation or 0.0, 2) for one in snapshot.operators.values()} == {0.1}
        assert not any(one.backlog.rows for one in snapshot.operators.values())
        topology.changes.carry_out(Plan((SetInstances("second", {slot: 2}),), "apart"))
        assert topology.snapshot().chains == (WHOLE[:2],)
        clock.sleep(600)
        topology.retune({"second": Truth(20.0)})
        clock.sleep(600)
        topology.changes.carry_out(Plan((SetInstances("second", {slot: 1}),), "together"))
        assert topology.snapshot().chains == (WHOLE[:2],), "too many rows wait in between"
        assert any("do not become one chain" in event.reason for event in topology.events.since(0))
        topology.changes.carry_out(Plan((SetInstances("second", {slot: 2}),), "apart"))
        topology.retune({"second": Truth(1000.0)})
        clock.sleep(6000)
        topology.changes.carry_out(Plan((SetInstances("second", {slot: 1}),), "together"))
        assert topology.snapshot().chains == (WHOLE,)
        clock.sleep(600)
        assert topology.water.by_name["out"].speed == pytest.approx(100.0)


def test_without_chaining_there_are_no_chains() -> None:
    clock = VirtualClock()
    with clock.installed():
        truth, settings = {name: Truth(1000.0) for name in WHOLE}, Settings(chaining="off")
        topology = FluidTopology(line(), Cluster.of(["a"], slots=1), truth, clock=clock, settings=settings)
        assert topology.snapshot().chains == ()
