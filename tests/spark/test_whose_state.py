"""Whose state it is: shared locations, another topology's folder, a declaration that changed since the state was
written, and what is given up on purpose."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import TEST_SETTINGS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from test_results import WAIT, written

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.engine.query.rehearsal import rehearse
from penstock.engine.run import opening
from penstock.engine.run.function_plans import plans_of
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology

ROWS = 300
Running = Callable[..., Iterator[SparkTopology]]
APART = dataclasses.replace(TEST_SETTINGS, chaining="off")


@contextmanager
def held_back(topology: Topology, host: SparkHost, state: Path, settings: Settings = APART) -> Iterator[SparkTopology]:
    """A run whose sink "out" gets nothing: what the source emits waits in front of it."""
    folder = StateFolder.hold(str(state))
    run = SparkTopology(topology.definition(), host, folder, settings)
    try:
        run.start(held=["out"])
        yield run
    finally:
        run.stop(drain=False)
        folder.release()


def numbers_to(folder: Path, name: str = "first", rows: int = ROWS, others: Collection[str] = ()) -> Topology:
    topology = Topology(name)
    numbers = topology.source("numbers", sources.rate(3_000, sources.numbers(), rows=rows))
    for sink in ("out", *others):
        topology.sink(sink, sinks.parquet(folder / sink), inputs=[numbers])
    return topology


def leave_a_backlog(topology: Topology, host: SparkHost, state: Path, settings: Settings = APART) -> None:
    with held_back(topology, host, state, settings) as run:
        assert run.channels.wait(lambda: run.channels.end("numbers.out") == ROWS, WAIT)
        assert run.backlog("out") == ROWS


def ids(folder: Path) -> list[int]:
    return sorted(row["id"] for row in written(folder))


def test_topologies_that_share_locations_keep_what_is_theirs(
    local_host: SparkHost, running: Running, tmp_path: Path
) -> None:
    shared = dataclasses.replace(APART, segments=str(tmp_path / "seg"), checkpoints=str(tmp_path / "check"))
    first = numbers_to(tmp_path / "one")
    leave_a_backlog(first, local_host, tmp_path / "a", shared)
    # The same operators and channels: under another name, and under the same name on another state.
    for index, name in enumerate(["second", "first"]):
        with running(numbers_to(tmp_path / f"other-{index}", name), local_host, f"b-{index}", shared) as run:
            assert run.wait(WAIT)
        assert ids(tmp_path / f"other-{index}" / "out") == list(range(ROWS))
    with running(first, local_host, "a", shared) as run:
        assert run.wait(WAIT)
    assert ids(tmp_path / "one" / "out") == list(range(ROWS)), "what waited for it was still there"


def test_another_topology_is_refused_and_the_backlog_stays(
    local_host: SparkHost, running: Running, tmp_path: Path
) -> None:
    first = numbers_to(tmp_path)
    leave_a_backlog(first, local_host, tmp_path / "kept")
    before = sorted(str(path) for path in (tmp_path / "kept").rglob("*.arrow"))
    with (
        pytest.raises(PenstockError) as caught,
        running(numbers_to(tmp_path / "other", "second"), local_host, "kept", APART),
    ):
        pass
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert "first" in caught.value.message
    assert sorted(str(path) for path in (tmp_path / "kept").rglob("*.arrow")) == before
    with running(first, local_host, "kept", APART) as run:
        assert run.wait(WAIT)
    assert ids(tmp_path / "out") == list(range(ROWS))


def test_an_operator_that_was_removed_and_added_again_runs(
    local_host: SparkHost, running: Running, tmp_path: Path
) -> None:
    for index, others in enumerate([["late"], [], ["late"]]):
        topology = numbers_to(tmp_path, rows=(index + 1) * ROWS, others=others)
        with running(topology, local_host, "kept") as run:
            assert run.wait(WAIT)
            left = set(run.catalog.load().last_batches)
        assert ("late" in left) == ("late" in others), "what a removed operator left goes"
    assert ids(tmp_path / "out") == list(range(3 * ROWS))
    away = range(ROWS, 2 * ROWS)
    assert ids(tmp_path / "late") == [number for number in range(3 * ROWS) if number not in away]


def test_removing_an_operator_that_rows_wait_for_is_refused_until_they_are_given_up(
    local_host: SparkHost, tmp_path: Path
) -> None:
    leave_a_backlog(numbers_to(tmp_path, others=["other"]), local_host, tmp_path / "kept")
    without = numbers_to(tmp_path, others=["other"]).definition()
    without = dataclasses.replace(
        without,
        operators=tuple(one for one in without.operators if one.name != "out"),
        streams=tuple(one for one in without.streams if one.consumer != "out"),
    )
    folder = StateFolder.hold(str(tmp_path / "kept"))
    try:
        with pytest.raises(PenstockError) as caught, SparkTopology(without, local_host, folder, APART):
            pass
        assert caught.value.name == "STATE_DOES_NOT_FIT"
        assert f"{ROWS} rows" in caught.value.message
        assert "--forget out" in caught.value.hint
        with SparkTopology(without, local_host, folder, APART, forget=["out"]) as run:
            assert run.wait(WAIT)
            known = run.catalog.load()
            assert {reader for reader, _ in known.positions} == {"other"}
            assert set(known.last_batches) == {"numbers", "other"}
    finally:
        folder.release()
    assert ids(tmp_path / "other") == list(range(ROWS))


def test_a_driver_that_dies_while_it_gives_an_operator_up_can_be_started_again(
    local_host: SparkHost, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(numbers_to(tmp_path), local_host, "kept") as run:
        assert run.wait(WAIT)
    more = numbers_to(tmp_path, rows=2 * ROWS).definition()

    def dies(*_: object) -> None:
        raise ChildProcessError("the driver is killed here")

    folder = StateFolder.hold(str(tmp_path / "kept"))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(opening, "Channels", dies)
            with (
                pytest.raises(ChildProcessError),
                SparkTopology(more, local_host, folder, TEST_SETTINGS, forget=["out"]),
            ):
                pass
        with SparkTopology(more, local_host, folder, TEST_SETTINGS) as run:
            assert run.wait(WAIT)
    finally:
        folder.release()
    assert ids(tmp_path / "out")[-ROWS:] == list(range(ROWS, 2 * ROWS))


def per_word(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").agg(F.count("*").alias("n"))


def in_windows(length: str) -> Callable[[DataFrame], DataFrame]:
    def windows(frame: DataFrame) -> DataFrame:
        counted = frame.withWatermark("at", "30 seconds").groupBy(F.window("at", length), "key")
        return counted.agg(F.count("*").alias("n")).select("key", "n")

    return windows


def counting(
    folder: Path, function: Callable[[DataFrame], DataFrame], rows: int, tasks: int = 2, instances: int = 1
) -> Topology:
    topology = Topology("counting")
    events = topology.source("events", sources.rate(3_000, sources.events(keys=3, seed=1), rows=rows))
    counts = topology.keyed(
        "count", function, inputs=[events], key="key", schema="key string, n long", tasks=tasks, instances=instances
    )
    topology.sink("out", sinks.parquet(folder / "out"), inputs=[counts])
    return topology


@pytest.fixture
def starting(local_host: SparkHost, tmp_path: Path) -> Callable[..., None]:
    """Run a topology on the state "kept" until it ends."""

    def start(topology: Topology, forget: Collection[str] = ()) -> None:
        folder = StateFolder.hold(str(tmp_path / "kept"))
        try:
            with SparkTopology(topology.definition(), local_host, folder, TEST_SETTINGS, forget=forget) as run:
                assert run.wait(WAIT)
        finally:
            folder.release()

    return start


def refused(starting: Callable[..., None], topology: Topology) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        starting(topology)
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    return caught.value


def test_state_that_is_given_up_begins_anew_and_the_rest_goes_on(starting: Callable[..., None], tmp_path: Path) -> None:
    starting(counting(tmp_path, per_word, ROWS))
    before = Counter((row["key"], row["n"]) for row in written(tmp_path / "out"))
    changed = counting(tmp_path, per_word, 2 * ROWS, tasks=3)
    error = refused(starting, changed)
    assert '"count"' in error.message
    assert "--forget count" in error.hint
    # The sink too: it counts its batches from 0 again, and must not write over the files it has.
    starting(changed, forget=["count", "out"])
    after = Counter((row["key"], row["n"]) for row in written(tmp_path / "out"))
    assert not before - after, "what the sink had written is still there"
    last: dict[str, int] = {}
    for row in (after - before).elements():
        last[row[0]] = max(last.get(row[0], 0), row[1])
    assert sum(last.values()) == ROWS, "it counts what came since, from 0"


def test_a_keyed_function_that_changed_is_refused_and_one_that_did_not_is_not(
    starting: Callable[..., None], tmp_path: Path
) -> None:
    starting(counting(tmp_path, in_windows("10 seconds"), ROWS))
    error = refused(starting, counting(tmp_path, in_windows("20 seconds"), 2 * ROWS))
    assert '"count"' in error.message
    assert "--forget count" in error.hint
    # Written anew, with other instances: the same.
    starting(counting(tmp_path, in_windows("10 seconds"), 2 * ROWS, instances=2))


def drawn(frame: DataFrame) -> DataFrame:
    """With a variable that Spark numbers and seeds that it draws whenever the function is called."""
    word = F.array_join(F.transform(F.split("key", ""), lambda letter: F.lower(F.upper(letter))), "")
    counted = frame.select(word.alias("key"), F.rand().alias("drawn"), F.uuid().alias("name")).dropDuplicates()
    return counted.groupBy("key").agg(F.count("drawn").alias("n"))


def test_a_function_is_the_same_whatever_spark_makes_up_for_it(local_host: SparkHost, tmp_path: Path) -> None:
    definition = counting(tmp_path, drawn, ROWS).definition()
    first, second = (plans_of(definition, rehearse(definition, local_host.spark, "rocksdb")) for _ in range(2))
    assert first == second
    assert len(first["count"]["stateful"]) == 2


def summed(side: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    """By minute, the values of one of two streams that are joined and have the same columns."""

    def total(a: DataFrame, b: DataFrame) -> DataFrame:
        left, right = (one.withWatermark("at", "1 minute").alias(name) for name, one in (("a", a), ("b", b)))
        both = left.join(right, F.expr("a.id = b.id AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE"))
        return both.groupBy(F.window("a.at", "1 minute")).agg(F.sum(f"{side}.value").alias("n")).select("n")

    return total


def test_columns_of_two_inputs_are_two_though_they_have_one_name(local_host: SparkHost) -> None:
    def plan(side: str) -> Any:
        topology = Topology("joined")
        inputs = [topology.source(name, sources.rate(10, sources.events())) for name in ("a", "b")]
        totals = topology.keyed(
            "total", summed(side), inputs=inputs, key="id", schema="n long", tasks=2, output_mode="append"
        )
        topology.sink("out", sinks.noop(), inputs=[totals])
        definition = topology.definition()
        return plans_of(definition, rehearse(definition, local_host.spark, "rocksdb"))["total"]

    one, again, other = plan("a"), plan("a"), plan("b")
    assert one == again
    assert len(one["stateful_by_input"]) == 2
    assert one["stateful_by_input"] != other["stateful_by_input"]


def one_after_the_other(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.union(b)


def the_other_way_round(a: DataFrame, b: DataFrame) -> DataFrame:
    return b.union(a)


def interleaved(rows: DataFrame) -> DataFrame:
    return rows


def test_inputs_in_another_order_are_other_inputs(starting: Callable[..., None], tmp_path: Path) -> None:
    """Spark knows how far it has read each only by its place: it would ask "b" for the rows of "a"."""

    def merging(function: Callable[..., DataFrame], rows: int) -> Topology:
        topology = Topology("merging")
        inputs = [
            topology.source(name, sources.rate(3_000, sources.numbers(), rows=rows + more))
            for more, name in enumerate(("a", "b"))
        ]
        merged = topology.map_dataframe("merged", function, inputs=inputs, schema="id long, value double")
        topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[merged])
        return topology

    for index, function in enumerate([one_after_the_other, the_other_way_round, interleaved]):
        starting(merging(function, (index + 1) * ROWS))
    assert len(ids(tmp_path / "out")) == 2 * 3 * ROWS + 1, "each began anew, where the rows that were read end"


def narrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id"])


def wide(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([batch.column("id"), batch.column("id")], names=["id", "again"])


def per_id(frame: DataFrame) -> DataFrame:
    return frame.groupBy((F.col("id") % 2).alias("id")).agg(F.count("*").alias("n"))


def test_another_schema_goes_on_once_the_rows_of_the_old_one_are_read(
    local_host: SparkHost, running: Running, tmp_path: Path
) -> None:
    for index, (function, schema) in enumerate([(narrow, "id long"), (wide, "id long, again long")]):
        topology = Topology("schema")
        numbers = topology.source("numbers", sources.rate(3_000, sources.numbers(), rows=(index + 1) * ROWS))
        mapped = topology.map("mapped", function, inputs=[numbers], schema=schema)
        topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[mapped])
        counts = topology.keyed("count", per_id, inputs=[mapped], key="id", schema="id long, n long", tasks=2)
        topology.sink("counts", sinks.parquet(tmp_path / "counts"), inputs=[counts])
        with running(topology, local_host, "kept", APART) as run:
            assert run.wait(WAIT)
    assert ids(tmp_path / "out") == list(range(2 * ROWS))
    assert max(row["n"] for row in written(tmp_path / "counts")) == ROWS, "it counted on"
