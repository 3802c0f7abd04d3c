"""Which operators run as one, and why others do not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import Topology, sinks, sources
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.strategies.mapping import Wanted
from penstock.strategies.mapping.chained import chained_round_robin
from penstock.strategies.mapping.chains import as_one, chains_of, why_apart
from penstock.topology.definition import TopologyDefinition

A, B = Slot("m", 0), Slot("m", 1)


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def halves(batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    half = batch.num_rows // 2
    return {"left": batch.slice(0, half), "right": batch.slice(half)}


def in_a_row(**of_second) -> TopologyDefinition:
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1))
    one = topology.map("one", same, inputs=rows, schema="id long, value double")
    two = topology.map("two", same, inputs=one, schema="id long, value double", **of_second)
    topology.sink("out", sinks.noop(), inputs=two)
    return topology.definition()


def all_on(slots: dict[Slot, int], definition: TopologyDefinition) -> Placement:
    return Placement({operator.name: slots for operator in definition.operators}, {})


def test_neighbours_on_the_same_slots_are_one() -> None:
    definition = in_a_row()
    placement = all_on({A: 1, B: 2}, definition)
    assert chains_of(definition, placement) == (("rows", "one", "two", "out"),)
    assert not any(why_apart(definition, placement, chains_of(definition, placement)).values())


@pytest.mark.parametrize(
    ("slots", "reason"), [({B: 1}, "they are placed on different slots"), ({A: 2}, "different numbers of instances")]
)
def test_other_places_and_numbers_stay_apart(slots, reason) -> None:
    definition = in_a_row()
    together = all_on({A: 1}, definition)
    placement = Placement({**together.instances, "two": slots}, {})
    chains = chains_of(definition, placement)
    assert chains == (("rows", "one"),)
    reasons = why_apart(definition, placement, chains)
    assert reasons["rows->one"] == ""
    assert reason in reasons["one->two"]
    assert reason in reasons["two->out"]


def test_the_user_may_keep_an_operator_apart() -> None:
    definition = in_a_row(chained=False)
    placement = all_on({A: 1}, definition)
    assert chains_of(definition, placement) == (("rows", "one"),)
    assert why_apart(definition, placement, (("rows", "one"),))["one->two"] == "two is declared with chained=False"


def test_chaining_that_is_off_is_the_reason() -> None:
    definition = in_a_row()
    assert set(why_apart(definition, all_on({A: 1}, definition), ()).values()) == {"chaining is off"}


def test_what_is_in_the_way() -> None:
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1))
    more = topology.source("more", sources.rate(1))
    read_twice = topology.map("read_twice", same, inputs=rows, schema="id long, value double")
    joined = topology.map("joined", same, inputs=[read_twice, more], schema="id long, value double")
    by_key = topology.map("by_key", same, inputs=joined.by_key("id"), schema="id long, value double")
    everywhere = topology.map("everywhere", same, inputs=by_key.broadcast(), schema="id long, value double")
    keyed = topology.keyed("keyed", same, inputs=everywhere, key="id", schema="id long, value double")
    frames = topology.map_dataframe("frames", same, inputs=keyed, schema="id long, value double")
    topology.sink("printed", sinks.console(), inputs=read_twice)
    topology.sink("frames_out", sinks.noop(), inputs=frames)
    definition = topology.definition()
    placement = all_on({A: 1}, definition)
    chains = chains_of(definition, placement)
    assert chains == (("rows", "read_twice"),)
    reasons = why_apart(definition, placement, chains)
    assert reasons["read_twice->joined"] == "read_twice has other readers"
    assert reasons["more->joined"] == "joined has other inputs"
    assert reasons["joined->by_key"] == "rows go by id to other instances"
    assert reasons["by_key->everywhere"] == "rows go broadcast to other instances"
    assert reasons["everywhere->keyed"] == "keyed is keyed: Spark's shuffle splits its rows"
    assert reasons["keyed->frames"] == "keyed is keyed: apart, it can be scaled without loading its state again"
    assert reasons["frames->frames_out"] == "the work of frames is done by Spark SQL"
    assert reasons["read_twice->printed"] == "printed is written by Spark"


def test_a_repair_does_not_tear_a_chain_apart() -> None:
    torn = Placement({"rows": {A: 1}, "one": {B: 1}, "other": {B: 2}}, {})
    assert as_one(torn, (("rows", "one"),)).instances == {"rows": {A: 1}, "one": {A: 1}, "other": {B: 2}}
    assert as_one(torn, ()) == torn


def test_of_several_outputs_one_goes_on() -> None:
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1))
    both = topology.map(
        "both",
        halves,
        inputs=rows,
        outputs=dict.fromkeys(("left", "right"), "id long, value double"),
        on_error="dead_letter",
    )
    topology.sink("failed", sinks.noop(), inputs=both.dead_letter)
    topology.sink("right", sinks.noop(), inputs=both["right"])
    topology.sink("left", sinks.noop(), inputs=both["left"])
    definition = topology.definition()
    placement = all_on({A: 1}, definition)
    chains = chains_of(definition, placement)
    assert chains == (("rows", "both", "right"),)
    reasons = why_apart(definition, placement, chains)
    assert reasons["both.dead_letter->failed"] == "rows that failed go their own way"
    assert reasons["both.left->left"] == "right is behind both already"


def test_by_default_operators_that_can_run_as_one_share_their_slots() -> None:
    definition = in_a_row()
    placement = chained_round_robin(Wanted.at_start(definition, Cluster.of(["a", "b"], slots=2)))
    assert chains_of(definition, placement) == (("rows", "one", "two", "out"),)


def test_by_default_those_that_cannot_are_dealt_on() -> None:
    definition = in_a_row(instances=2)
    placement = chained_round_robin(Wanted.at_start(definition, Cluster.of(["a", "b"], slots=1)))
    a, b = Slot("a", 0), Slot("b", 0)
    assert {name: dict(slots) for name, slots in placement.instances.items()} == {
        "rows": {a: 1},
        "one": {a: 1},
        "two": {b: 1, a: 1},
        "out": {b: 1},
    }
    assert chains_of(definition, placement) == (("rows", "one"),)


def test_by_default_only_one_of_two_outputs_is_taken_along() -> None:
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1))
    both = topology.map("both", halves, inputs=rows, outputs=dict.fromkeys(("left", "right"), "id long, value double"))
    for side in ("left", "right"):
        topology.sink(side, sinks.noop(), inputs=both[side])
    definition = topology.definition()
    placement = chained_round_robin(Wanted.at_start(definition, Cluster.of(["a", "b"], slots=1)))
    assert placement.of("left") == placement.of("rows")
    assert placement.of("right") == {Slot("b", 0): 1}


def test_by_default_one_that_is_declared_apart_is_dealt_on() -> None:
    definition = in_a_row(chained=False)
    cluster = Cluster.of(["a", "b"], slots=2)
    chained = chained_round_robin(Wanted.at_start(definition, cluster))
    assert chained.of("one") == chained.of("rows")
    assert chained.of("two") != chained.of("one")
