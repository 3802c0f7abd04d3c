"""DataFrame functions in `penstock.testing`: they run on a small local Spark that is started when it is needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import PenstockError, Topology, aggregates, sinks, sources, testing

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
WORDS = [{"word": word, "n": n} for n, word in enumerate(["a", "b", "a", "c", "b", "a"])]


@pytest.fixture(autouse=True, scope="module")
def spark_ends_with_the_module() -> Iterator[None]:
    yield
    testing.stop_spark()
    assert SparkSession.getActiveSession() is None


def words_topology() -> tuple[Topology, object]:
    topology = Topology("words")
    return topology, topology.source("words", sources.files("/w", format="json", schema="word string, n long"))


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_keyed_operator_gives_one_row_a_key(mode):
    topology, words = words_topology()
    schema = "word string, count long"
    count = topology.keyed(
        "count", lambda frame: frame.groupBy("word").count(), inputs=words, key="word", schema=schema, output_mode=mode
    )
    topology.sink("out", sinks.noop(), inputs=count)
    out = testing.run(topology, {"words": WORDS})["out"]
    assert sorted((row["word"], row["count"]) for row in out) == [("a", 3), ("b", 2), ("c", 1)]
    assert sorted(testing.run(topology, {"words": WORDS[:1]})["out"][0].values(), key=str) == [1, "a"]


def test_an_aggregate_is_combined_and_merged():
    topology, words = words_topology()
    columns = {"mean": aggregates.mean("n"), "most": aggregates.max("n")}
    topology.sink("out", sinks.noop(), inputs=topology.aggregate("numbers", columns, inputs=words, key="word"))
    out = testing.run(topology, {"words": WORDS})["out"]
    assert {row["word"]: (row["mean"], row["most"]) for row in out} == {"a": (7 / 3, 5), "b": (2.5, 4), "c": (3.0, 3)}


def test_windows_with_a_watermark_give_what_is_final():
    def windows(frame):
        window = F.window("at", "1 minute")
        counted = frame.withWatermark("at", "10 seconds").groupBy(window, "key").count()
        return counted.select("key", F.col("window.start").alias("start"), "count")

    topology = Topology("windows")
    events = topology.source("events", sources.files("/e", format="json", schema="key string, at timestamp"))
    schema = "key string, start timestamp, count long"
    topology.keyed("windows", windows, inputs=events, key="key", schema=schema, output_mode="append")
    topology.sink("out", sinks.noop(), inputs="windows")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = [{"key": "k", "at": noon + timedelta(seconds=second)} for second in (1, 2, 61, 80)]
    assert testing.run(topology, {"events": rows})["out"] == [{"key": "k", "start": noon, "count": 2}]


def test_a_join_of_two_inputs_and_several_outputs_of_a_dataframe_map():
    topology, words = words_topology()
    prices = topology.source("prices", sources.files("/p", format="json", schema="word string, price long"))
    schema = "word string, cost long"
    joined = topology.keyed(
        "join",
        lambda words, prices: words.join(prices, "word").select("word", (F.col("n") * F.col("price")).alias("cost")),
        inputs=[words, prices],
        key="word",
        schema=schema,
        output_mode="append",
    )
    parts = topology.map_dataframe(
        "parts",
        lambda frame: frame.withColumn("output", F.when(F.col("cost") > 20, "dear").otherwise("cheap")),
        inputs=joined,
        outputs={"dear": schema, "cheap": schema},
    )
    for name in ("dear", "cheap"):
        topology.sink(name, sinks.noop(), inputs=parts[name])
    results = testing.run(topology, {"words": WORDS, "prices": [{"word": "a", "price": 10}]})
    assert results["dear"] == [{"word": "a", "cost": 50}]
    assert sorted(row["cost"] for row in results["cheap"]) == [0, 20]


def test_a_function_sink_gets_its_rows_as_a_dataframe():
    written: list[tuple[int, int]] = []
    topology, words = words_topology()
    topology.sink("out", sinks.function(lambda frame, batch: written.append((frame.count(), batch))), inputs=words)
    assert testing.run(topology, {"words": WORDS})["out"] == WORDS
    assert written == [(6, 0)]


def test_mistakes_in_a_dataframe_function_have_the_names_that_they_have_in_production():
    topology, words = words_topology()
    topology.map_dataframe("state", lambda frame: frame.dropDuplicates(), inputs=words, schema="word string, n long")
    topology.sink("out", sinks.noop(), inputs="state")
    with pytest.raises(PenstockError) as caught:
        testing.run(topology, {"words": WORDS})
    assert caught.value.name == "STATE_OUTSIDE_KEYED"


def test_the_guides_example_is_true(tmp_path, monkeypatch):
    shop, test_shop, clock = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "shop.py").write_text(shop)
    monkeypatch.syspath_prepend(str(tmp_path))
    code: dict[str, object] = {}
    exec(test_shop, code)
    try:
        code["test_orders_are_priced"]()
    finally:
        sys.modules.pop("shop")
    exec(clock, {})
