"""A stream of updates gives the row of a key again whenever it changes: who would count those as rows is refused."""

from __future__ import annotations

import pytest
from topology_fakes import FakeSink, expect, one_source, rows, same

from penstock import aggregates
from penstock.topology import Keyed, Topology
from penstock.topology.updates import origins_of_updates

WORDS = "word string, n long"


def averaged(topology, totals):
    """A second aggregation over the results of a first one."""
    topology.sink(
        "out", FakeSink(), inputs=topology.aggregate("mean", {"m": aggregates.mean("n")}, inputs=totals, key="word")
    )


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_keyed_operator_over_updates(mode):
    def declare():
        topology, lines = one_source()
        totals = topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS, output_mode=mode)
        average = topology.keyed("average", same, inputs=totals, key="n", schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=average)
        topology.definition()

    error = expect("UPDATES_AS_ROWS", declare)
    assert f'"totals" has output_mode="{mode}"' in error.message
    assert '"average" would count' in error.message
    for way_out in ('Declare "totals" with output_mode="append"', "watermark", "takes_updates=True"):
        assert way_out in error.hint


def test_updates_go_through_maps():
    def declare():
        topology, lines = one_source()
        totals = topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS)
        first = topology.map("first", same, inputs=[totals, topology.source("more", rows(WORDS))], schema=WORDS)
        second = topology.map_dataframe("second", same, inputs=first.by_key("word"), schema=WORDS)
        average = topology.keyed("average", same, inputs=[lines, second], key="n", schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=average)
        topology.definition()

    error = expect("UPDATES_AS_ROWS", declare)
    assert '"totals"' in error.message
    assert '"average"' in error.message


def test_an_aggregate_of_an_aggregate():
    def declare():
        topology, lines = one_source()
        totals = topology.aggregate("totals", {"n": aggregates.count()}, inputs=lines, key="word")
        average = topology.aggregate("average", {"m": aggregates.mean("n")}, inputs=totals, key="word")  # <- here
        topology.sink("out", FakeSink(), inputs=average)
        topology.definition()

    error = expect("UPDATES_AS_ROWS", declare)
    assert '"average" would count' in error.message
    assert "topology.keyed" in error.hint, "an aggregate has no output mode, so the way out is another operator"
    assert 'Declare "totals" with output_mode' not in error.hint


def test_a_join_with_updates_on_one_side():
    def declare():
        topology, lines = one_source()
        totals = topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS)
        joined = topology.keyed("join", lambda a, b: a, inputs=[lines, totals], key="word", schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=joined)
        topology.definition()

    expect("UPDATES_AS_ROWS", declare)


def test_results_that_are_given_once_may_be_aggregated_again():
    topology, lines = one_source()
    averaged(topology, topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS, output_mode="append"))
    assert origins_of_updates(topology.definition()).keys() == {"mean"}


def test_a_function_that_expects_updates_says_so():
    topology, lines = one_source()
    totals = topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS)
    newest = topology.keyed("newest", same, inputs=totals, key="n", schema=WORDS, takes_updates=True)
    topology.sink("out", FakeSink(), inputs=newest)
    operator = topology.definition().operator("newest")
    assert isinstance(operator, Keyed)
    assert operator.takes_updates


def test_what_takes_updates_gives_updates_all_the_same():
    def declare():
        topology, lines = one_source()
        totals = topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS)
        newest = topology.keyed("newest", same, inputs=totals, key="n", schema=WORDS, takes_updates=True)
        average = topology.keyed("average", same, inputs=newest, key="n", schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=average)
        topology.definition()

    assert '"newest"' in expect("UPDATES_AS_ROWS", declare).message


def test_sinks_and_maps_may_read_updates():
    topology, lines = one_source()
    totals = topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS)
    by_key = topology.map("by_key", same, inputs=totals.by_key("word"), schema=WORDS)
    frames = topology.map_dataframe("frames", same, inputs=by_key, schema=WORDS)
    topology.sink("out", FakeSink(), inputs=[totals, frames])
    origins = origins_of_updates(topology.definition())
    assert {name: origin.name for name, origin in origins.items()} == dict.fromkeys(
        ["totals", "by_key", "frames"], "totals"
    )


def test_dead_letters_of_updates_are_rows():
    """Each tells of one failure, and none of them takes another back."""
    topology, lines = one_source()
    totals = topology.keyed("totals", same, inputs=lines, key="word", schema=WORDS)
    parsed = topology.map("parsed", same, inputs=totals, schema=WORDS, on_error="dead_letter")
    topology.sink("out", FakeSink(), inputs=parsed)
    failures = topology.aggregate("failures", {"n": aggregates.count()}, inputs=parsed.dead_letter, key="operator")
    topology.sink("failed", FakeSink(), inputs=failures)
    assert "failures" in origins_of_updates(topology.definition())


def test_a_flag_that_is_none():
    def declare():
        topology, lines = one_source()
        kept = topology.keyed("kept", same, inputs=lines, key="word", schema=WORDS, takes_updates="yes")  # <- here
        topology.sink("out", FakeSink(), inputs=kept)
        topology.definition()

    assert "takes_updates" in expect("BAD_CHAINING", declare).message


def test_a_topology_without_state_has_no_updates():
    topology, lines = one_source()
    topology.sink("out", FakeSink(), inputs=lines)
    assert isinstance(topology, Topology)
    assert origins_of_updates(topology.definition()) == {}
