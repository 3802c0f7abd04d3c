"""Every mistake in an operator's declaration has its name, and points at the line to change."""

from __future__ import annotations

import pytest
from topology_fakes import FakeSink, FakeSource, expect, one_source, rows, same

from penstock.errors import Location, PenstockError
from penstock.topology import Keyed, Map, OnError, Sink, Source, Stream, Topology, parse_schema
from penstock.topology.definition import ByKey, Shuffle
from penstock.topology.validation import validate

WORDS = "word string, n long"


@pytest.mark.parametrize(
    "numbers",
    [
        {"instances": 0},
        {"instances": True},
        {"instances": 1.0},
        {"instances": "2"},
        {"min_instances": 0},
        {"min_instances": 2},
        {"tasks": 0},
        {"tasks": None},
        {"tasks": 4097},
    ],
)
def test_bad_instances(numbers):
    def declare():
        topology, lines = one_source()
        split = topology.map("split", same, inputs=[lines], schema=WORDS, **numbers)  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    expect("BAD_INSTANCES", declare)


def test_a_column_that_channels_need():
    def declare():
        topology, lines = one_source()
        split = topology.map("split", same, inputs=[lines], schema="word string, __group int")  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    expect("BAD_SCHEMA", declare)


def test_bad_instances_of_a_source():
    def declare():
        topology = Topology("t")
        lines = topology.source("lines", rows(WORDS), instances=-1)  # <- here
        topology.sink("out", FakeSink(), inputs=[lines])
        topology.definition()

    expect("BAD_INSTANCES", declare)


def test_bad_instances_of_a_sink():
    def declare():
        topology, lines = one_source()
        topology.sink("out", FakeSink(), inputs=[lines], instances=2, min_instances=3)  # <- here
        topology.definition()

    expect("BAD_INSTANCES", declare)


def test_keyed_with_more_instances_than_tasks():
    def declare():
        topology, lines = one_source()
        count = topology.keyed(  # <- here
            "count", same, inputs=[lines], key="word", schema=WORDS, tasks=2, instances=3
        )
        topology.sink("out", FakeSink(), inputs=[count])
        topology.definition()

    expect("MORE_INSTANCES_THAN_TASKS", declare)


def test_map_by_key_with_more_instances_than_tasks():
    def declare():
        topology, lines = one_source()
        by_word = lines.by_key("word")
        split = topology.map("split", same, inputs=[by_word], schema=WORDS, instances=9)  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    expect("MORE_INSTANCES_THAN_TASKS", declare)


def test_a_map_over_a_shuffled_stream_needs_no_tasks():
    topology, lines = one_source()
    topology.sink("out", FakeSink(), inputs=[topology.map("split", same, inputs=lines, schema=WORDS, instances=9)])
    assert topology.definition().operator("split").instances == 9


@pytest.mark.parametrize("flags", [{"chained": "no"}, {"chained": 0}, {"gather": None}])
def test_flags_are_yes_or_no(flags):
    def declare():
        topology, lines = one_source()
        split = topology.map("split", same, inputs=[lines], schema=WORDS, **flags)  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    expect("BAD_CHAINING", declare)


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), "2", True])
def test_bad_weight_of_a_sink(weight):
    def declare():
        topology, lines = one_source()
        topology.sink("out", FakeSink(), inputs=[lines], weight=weight)  # <- here
        topology.definition()

    expect("BAD_SINK", declare)


def test_unknown_policy():
    def declare():
        topology, lines = one_source()
        topology.map("split", same, inputs=[lines], schema=WORDS, on_error="ignore")  # <- here

    expect("BAD_ON_ERROR", declare)


@pytest.mark.parametrize("kind", ["dataframe", "keyed", "sink"])
def test_a_policy_where_no_single_row_can_fail(kind):
    """The declarations do not offer it; an operator made by hand is refused."""
    here, schema = Location("user.py", 3), parse_schema(WORDS)
    shared = {"on_error": OnError.SKIP, "where": here}
    made = {
        "dataframe": Map(name="x", function=same, takes_dataframes=True, outputs={"out": schema}, **shared),
        "keyed": Keyed(name="x", function=same, key=("word",), outputs={"out": schema}, **shared),
        "sink": Sink(name="x", spec=FakeSink(), outputs={}, **shared),
    }[kind]
    source = Source(name="lines", spec=FakeSource(schema), outputs={"out": schema}, where=here)
    out = Sink(name="out", spec=FakeSink(), outputs={}, where=here)
    into_x = Stream("lines", "out", "x", ByKey(("word",)) if kind == "keyed" else Shuffle(), here)
    into_out = Stream("lines" if kind == "sink" else "x", "out", "out", Shuffle(), here)
    with pytest.raises(PenstockError) as caught:
        validate("t", (source, made, out), (into_x, into_out), here)
    assert (caught.value.name, caught.value.where) == ("BAD_ON_ERROR", here)


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_a_source_that_spark_reads_has_no_bad_rows(policy):
    def declare():
        topology = Topology("t")
        spec = FakeSource(parse_schema(WORDS), read_by_bundles=False)
        lines = topology.source("lines", spec, on_error=policy)  # <- here
        topology.sink("out", FakeSink(), inputs=[lines])
        if policy == "dead_letter":
            topology.sink("bad", FakeSink(), inputs=[lines.dead_letter])
        topology.definition()

    expect("BAD_ON_ERROR", declare)


@pytest.mark.parametrize("declaration", ["map_dataframe", "keyed", "sink"])
def test_broadcast_goes_only_into_arrow_functions(declaration):
    def declare():
        topology, lines = one_source()
        words = {
            "map_dataframe": {"function": same, "schema": WORDS},
            "keyed": {"function": same, "schema": WORDS, "key": "word"},
            "sink": {"spec": FakeSink()},
        }[declaration]
        getattr(topology, declaration)("x", inputs=[lines.broadcast()], **words)  # <- here
        topology.sink("out", FakeSink(), inputs=[lines if declaration == "sink" else "x"])
        topology.definition()

    expect("BAD_GROUPING", declare)


def test_broadcast_into_an_arrow_function():
    topology, lines = one_source()
    topology.sink("out", FakeSink(), inputs=[topology.map("x", same, inputs=[lines.broadcast()], schema=WORDS)])
    assert str(topology.definition().inputs_of("x")[0].grouping) == "broadcast"


def test_another_key_into_a_keyed_operator():
    def declare():
        topology, lines = one_source()
        count = topology.keyed("count", same, inputs=[lines.by_key("n")], key="word", schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=[count])
        topology.definition()

    expect("BAD_GROUPING", declare)


def test_the_same_key_into_a_keyed_operator():
    topology, lines = one_source()
    count = topology.keyed("count", same, inputs=[lines.by_key("word")], key=["word"], schema=WORDS)
    topology.sink("out", FakeSink(), inputs=[count])
    assert topology.definition().inputs_of("count")[0].grouping == ByKey(("word",))


@pytest.mark.parametrize("key", ["wrod", ["word", "m"], (), 3])
def test_unknown_key(key):
    def declare():
        topology, lines = one_source()
        count = topology.keyed("count", same, inputs=[lines], key=key, schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=[count])
        topology.definition()

    expect("UNKNOWN_KEY", declare)


@pytest.mark.parametrize("columns", [("wrod",), (["word"],), ()])
def test_unknown_column_to_group_by(columns):
    def declare():
        topology, lines = one_source()
        split = topology.map("split", same, inputs=[lines.by_key(*columns)], schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    expect("UNKNOWN_KEY", declare)


def test_every_input_must_have_the_key():
    def declare():
        topology, orders = one_source("id long, price double")
        users = topology.source("users", rows("user long"))
        joined = topology.keyed(  # <- here
            "join", lambda orders, users: orders, inputs=[orders, users], key="id", schema="id long"
        )
        topology.sink("out", FakeSink(), inputs=[joined])
        topology.definition()

    error = expect("UNKNOWN_KEY", declare)
    assert '"users"' in error.message
    assert "user long" in error.message


@pytest.mark.parametrize("users_first", [True, False])
def test_a_join_of_inputs_that_name_their_key_differently(users_first):
    """To list the columns of the one input would lead nowhere: none of them is in the other."""

    def declare():
        topology, orders = one_source("user_id long, price double")
        users = topology.source("users", rows("id long, name string"))
        inputs = [users, orders] if users_first else [orders, users]
        joined = topology.keyed("join", lambda a, b: a, inputs=inputs, key="user_id", schema="user_id long")  # <- here
        topology.sink("out", FakeSink(), inputs=[joined])
        topology.definition()

    error = expect("UNKNOWN_KEY", declare)
    assert '"users"' in error.message
    for words in ('as a column "user_id"', 'rename the column of "users"', "before the join", "withColumnRenamed"):
        assert words in error.hint
    assert "Use one or more of" not in error.hint


def test_a_key_that_no_input_has():
    def declare():
        topology, orders = one_source("user_id long, price double")
        users = topology.source("users", rows("id long, user_id long"))
        joined = topology.keyed(  # <- here
            "join", lambda a, b: a, inputs=[orders, users], key="uid", schema="user_id long"
        )
        topology.sink("out", FakeSink(), inputs=[joined])
        topology.definition()

    assert "Use one or more of: user_id, price." in expect("UNKNOWN_KEY", declare).hint


@pytest.mark.parametrize("type_", ["array<int>", "map<string, int>", "struct<x: int>", "float", "double"])
def test_bad_key(type_):
    def declare():
        topology, lines = one_source(f"k {type_}")
        count = topology.keyed("count", same, inputs=[lines], key="k", schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=[count])
        topology.definition()

    expect("BAD_KEY", declare)


@pytest.mark.parametrize("type_", ["string", "long", "boolean", "binary", "date", "timestamp", "decimal(10,2)"])
def test_good_key(type_):
    topology, lines = one_source(f"k {type_}")
    topology.sink("out", FakeSink(), inputs=[topology.keyed("count", same, inputs=[lines], key="k", schema=WORDS)])
    assert topology.definition().operator("count").kind == "keyed"


def test_bad_output_mode():
    def declare():
        topology, lines = one_source()
        count = topology.keyed("count", same, inputs=[lines], key="n", schema=WORDS, output_mode="all")  # <- here
        topology.sink("out", FakeSink(), inputs=[count])
        topology.definition()

    expect("BAD_OUTPUT_MODE", declare)


def test_outputs_of_a_dataframe_function_have_one_schema():
    def declare():
        topology, lines = one_source()
        split = topology.map_dataframe("split", same, inputs=[lines], outputs={"a": "x int", "b": "x long"})  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.sink("more", FakeSink(), inputs=[split["b"]])
        topology.definition()

    expect("BAD_SCHEMA", declare)


def test_the_column_that_names_the_output_is_taken():
    def declare():
        topology, lines = one_source()
        outputs = {"a": "output string", "b": "output string"}
        split = topology.keyed("split", same, inputs=[lines], key="word", outputs=outputs)  # <- here
        topology.sink("out", FakeSink(), inputs=[split, split["b"]])
        topology.definition()

    expect("BAD_SCHEMA", declare)


@pytest.mark.parametrize(
    "words", [{}, {"schema": WORDS, "outputs": {"a": WORDS}}, {"outputs": [WORDS]}, {"schema": "word strng"}]
)
def test_schema_or_outputs(words):
    def declare():
        topology, lines = one_source()
        topology.map("split", same, inputs=[lines], **words)  # <- here

    expect("BAD_SCHEMA", declare)


def test_a_source_is_one_of_penstocks():
    def declare():
        Topology("t").source("lines", "lines.txt")  # <- here

    expect("BAD_SOURCE", declare)


def test_a_sink_is_one_of_penstocks():
    def declare():
        topology, lines = one_source()
        topology.sink("out", print, inputs=[lines])  # <- here

    expect("BAD_SINK", declare)
