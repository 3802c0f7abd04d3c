"""Every kind of change of a declaration on an old state: carried on, begun anew, gone, or refused by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Topology, sinks, sources, state
from penstock.engine.state.shape import channel_shapes, channels_read, shape_of
from penstock.engine.state.succession import OldState, Succession, decide

PLAN = {
    "spark": "4.3.0",
    "stateful": ["Aggregate(word) count(1)"],
    "stateful_by_input": ["Aggregate(0.word) count(0.n)"],
}


def nothing(batch: Any) -> None:
    """No rows: fits every schema."""


def count(frame: Any) -> Any:
    return frame


def declared(
    *,
    name: str = "words",
    schema: str = "word string",
    kind: Callable[[], Any] = lambda: sources.rate(10, sources.sentences()),
    key: str = "word",
    tasks: int = 3,
    mode: str = "update",
    plan: Any = PLAN,
    by_key: int = 4,
    by: str = "word",
    without: tuple[str, ...] = (),
    renamed: dict[str, str] | None = None,
    extra: bool = False,
    clean_reads: str = "split",
) -> dict[str, dict[str, Any]]:
    """lines -> split -> count -> counts; split -> clean (by key) -> cleaned."""
    called = {"lines": "lines", "split": "split", "count": "count", "counts": "counts", "cleaned": "cleaned"}
    called |= renamed or {}
    topology = Topology(name)
    lines = topology.source(called["lines"], kind())
    words = topology.map(called["split"], nothing, inputs=[lines], schema=schema)
    if "count" not in without:
        counted = topology.keyed(
            called["count"],
            count,
            inputs=[words],
            key=key,
            schema="word string, n long",
            tasks=tasks,
            output_mode=mode,
        )
        topology.sink(called["counts"], sinks.noop(), inputs=[counted])
    if "clean" not in without:
        read = words if clean_reads == "split" else lines
        cleaned = topology.map(
            "clean",
            nothing,
            inputs=[read.by_key(by)] if clean_reads == "split" else [read],
            schema=schema,
            tasks=by_key,
        )
        if "cleaned" not in without:
            topology.sink(called["cleaned"], sinks.noop(), inputs=[cleaned])
    if "cleaned" in without or extra:
        topology.sink("extra", sinks.noop(), inputs=[words if extra else cleaned])
    return shape_of(topology.definition(), {called["count"]: plan})


EVERYTHING = ("lines", "split", "count", "clean", "counts", "cleaned")
OLD = OldState(declared(), begun=EVERYTHING)


def waiting(**rows: int) -> OldState:
    """`rows` wait for an operator in the first channel that it reads."""
    unread = {(reader, channels_read(OLD.shape, reader)[0]): count for reader, count in rows.items()}
    return dataclasses.replace(OLD, unread=unread)


def refused(found: Succession) -> list[str]:
    return [one.operator for one in found.refusals]


def test_the_channels_of_a_shape_are_those_of_the_layout() -> None:
    assert set(channel_shapes(OLD.shape)) == {"lines.out", "split.out", "split.out.to.clean", "count.out", "clean.out"}
    by_key = channel_shapes(OLD.shape)["split.out.to.clean"]
    assert (by_key.producer, by_key.split, by_key.readers) == ("split", ("by word", 4), ("clean",))


def test_what_did_not_change_is_carried_on_whatever_waits() -> None:
    found = decide(waiting(count=7, counts=8, clean=9), declared())
    assert set(found.carried) == set(EVERYTHING)
    assert (found.anew, found.gone, found.refusals) == ((), (), ())


def test_a_state_without_anything_begins_anew() -> None:
    assert set(decide(OldState({}), declared()).anew) == set(EVERYTHING)


def test_an_operator_that_is_added_begins_anew() -> None:
    found = decide(waiting(count=7), declared(extra=True))
    assert found.anew == ("extra",)
    assert set(found.carried) == set(EVERYTHING)
    assert not found.refusals


def test_a_sink_that_is_removed_goes_if_nothing_waits_for_it() -> None:
    old = OldState(declared(extra=True), begun=(*EVERYTHING, "extra"))
    found = decide(old, declared())
    assert (found.gone, found.refusals) == (("extra",), ())
    found = decide(dataclasses.replace(old, unread={("extra", "split.out"): 1_200}), declared())
    assert refused(found) == ["extra"]
    assert "1,200 rows" in found.refusals[0].problem


def test_a_sink_that_is_renamed_goes_and_comes() -> None:
    renamed = declared(renamed={"counts": "totals"})
    found = decide(OLD, renamed)
    assert (found.gone, found.anew, found.refusals) == (("counts",), ("totals",), ())
    assert refused(decide(waiting(counts=1), renamed)) == ["counts"]


@pytest.mark.parametrize(
    ("renamed", "held"),
    [({"count": "counter"}, ["count"]), ({"lines": "text"}, ["lines"]), ({"split": "cut"}, ["count"])],
)
def test_renaming_what_holds_state_or_feeds_it_is_refused(renamed: dict[str, str], held: list[str]) -> None:
    assert refused(decide(OLD, declared(renamed=renamed))) == held


def test_a_keyed_operator_that_is_removed_must_be_given_up() -> None:
    found = decide(OLD, declared(without=("count",)))
    assert refused(found) == ["count"], "of its sink nothing is lost"
    assert "state" in found.refusals[0].problem
    found = decide(OLD, declared(without=("count",)), ["count"])
    assert (found.gone, found.refusals) == (("count", "counts"), ())


def test_what_never_ran_holds_nothing() -> None:
    never = dataclasses.replace(OLD, begun=())
    for changed in (declared(without=("count",)), declared(tasks=9), declared(renamed={"lines": "text"})):
        assert not decide(never, changed).refusals


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"key": "other", "schema": "word string, other string"}, "key"),
        ({"tasks": 5}, "tasks"),
        ({"mode": "complete"}, "mode"),
        ({"plan": {"spark": "4.3.0", "stateful": ["Aggregate(word) sum(n)"]}}, "function"),
        ({"plan": PLAN | {"stateful_by_input": ["Aggregate(0.word) count(1.n)"]}}, "function"),
    ],
)
def test_a_keyed_operator_that_changed_is_refused_and_can_be_given_up(change: dict[str, Any], word: str) -> None:
    found = decide(OLD, declared(**change))
    assert refused(found) == ["count"]
    assert word in found.refusals[0].problem
    found = decide(OLD, declared(**change), ["count"])
    assert (found.anew, found.refusals) == (("count",), ())


def test_plans_are_compared_where_both_are_known_and_of_one_spark() -> None:
    other = {"spark": "4.4.0", "stateful": ["Agg"]}
    for plan in (None, other):
        assert not decide(OLD, declared(plan=plan)).refusals
    assert not decide(dataclasses.replace(OLD, shape=declared(plan=None)), declared()).refusals
    older = {fact: PLAN[fact] for fact in ("spark", "stateful")}
    assert not decide(dataclasses.replace(OLD, shape=declared(plan=older)), declared()).refusals


def test_tasks_may_be_declared_as_they_were_repartitioned() -> None:
    repartitioned = dataclasses.replace(OLD, tasks={"count": 5})
    for tasks, names in ((3, []), (5, []), (4, ["count"])):
        assert refused(decide(repartitioned, declared(tasks=tasks))) == names


def test_another_kind_of_source_is_refused() -> None:
    def files() -> Any:
        return sources.files("/data", format="json", schema="sentence string")

    found = decide(OLD, declared(kind=files))
    assert refused(found) == ["lines"]
    assert "read so far" in found.refusals[0].problem
    assert decide(OLD, declared(kind=files), ["lines"]).anew == ("lines",)


def test_another_schema_is_carried_on_once_the_rows_of_the_old_one_are_read() -> None:
    wider = declared(schema="word string, at timestamp")
    found = decide(OLD, wider)
    assert (set(found.carried), found.refusals) == (set(EVERYTHING), ())
    found = decide(waiting(count=3), wider)
    assert refused(found) == ["count"]
    assert "3 rows" in found.refusals[0].problem
    assert '"split"' in found.refusals[0].problem
    assert not decide(waiting(count=3), wider, ["count"]).refusals
    # Spark has the last batch of a keyed operator read again when its end was not written down.
    assert refused(decide(dataclasses.replace(OLD, unfinished=("count",)), wider)) == ["count"]


@pytest.mark.parametrize("change", [{"by_key": 6}, {"by": "other", "schema": "word string, other string"}])
def test_other_groups_of_keys_are_carried_on_once_the_rows_are_read(change: dict[str, Any]) -> None:
    old = dataclasses.replace(OLD, shape=declared(schema="word string, other string") if "by" in change else OLD.shape)
    assert not decide(old, declared(**change)).refusals
    old = dataclasses.replace(old, unread={("clean", "split.out.to.clean"): 2})
    assert refused(decide(old, declared(**change))) == ["clean"]


def test_other_inputs_of_a_stateless_operator_begin_anew_if_nothing_waits() -> None:
    changed = declared(clean_reads="lines")
    found = decide(OLD, changed)
    assert (found.anew, found.refusals) == (("clean",), ())
    assert refused(decide(waiting(clean=2), changed)) == ["clean"]
    assert decide(waiting(clean=2), changed, ["clean"]).anew == ("clean",)


def merged(reads: list[list[str]] | None, *, keyed: bool = False) -> dict[str, dict[str, Any]]:
    """Two sources into one operator over DataFrames, which reads them in this order."""
    topology = Topology("merging")
    inputs = [topology.source(name, sources.rate(10, sources.numbers())) for name in "ab"]
    if keyed:
        both = topology.keyed("both", count, inputs=inputs, key="id", schema="id long", tasks=2)
    else:
        both = topology.map_dataframe("both", count, inputs=inputs, schema="id long")
    topology.sink("out", sinks.noop(), inputs=[both])
    return shape_of(topology.definition(), {"both": {**PLAN, "reads": reads}})


OTHER_READS = [[["b.out"], ["a.out"]], [["a.out", "b.out"]], [["a.out"]]]


@pytest.mark.parametrize("reads", OTHER_READS)
def test_inputs_that_a_dataframe_function_reads_otherwise_are_other_inputs(reads: list[list[str]]) -> None:
    """Spark writes down how far each is read by its place alone."""
    before = [["a.out"], ["b.out"]]
    old = OldState(merged(before), begun=("a", "b", "both", "out"))
    assert decide(old, merged(before)).carried == ("a", "b", "both", "out")
    found = decide(old, merged(reads))
    assert (found.anew, found.refusals) == (("both",), ())
    assert refused(decide(dataclasses.replace(old, unread={("both", "a.out"): 1}), merged(reads))) == ["both"]
    found = decide(dataclasses.replace(old, shape=merged(before, keyed=True)), merged(reads, keyed=True))
    assert refused(found) == ["both"]
    assert "its inputs" in found.refusals[0].problem


def test_the_order_of_inputs_is_compared_where_it_is_known() -> None:
    old = OldState(merged(None), begun=("a", "b", "both", "out"))
    assert not decide(old, merged([["a.out"], ["b.out"]])).anew
    older = {name: {key: facts[key] for key in facts if key != "reads"} for name, facts in old.shape.items()}
    assert not decide(dataclasses.replace(old, shape=older), merged([["a.out"], ["b.out"]])).anew


def test_a_map_over_batches_reads_all_its_inputs_as_one() -> None:
    topology = Topology("merging")
    inputs = [topology.source(name, sources.rate(10, sources.numbers())) for name in "ab"]
    topology.sink("out", sinks.noop(), inputs=[topology.map("both", nothing, inputs=inputs, schema="id long")])
    old = OldState(shape_of(topology.definition(), {}), begun=("both",))
    assert "both" in decide(old, merged([["a.out", "b.out"]])).carried
    assert "both" in decide(old, merged([["a.out"], ["b.out"]])).anew


def test_what_is_given_up_begins_anew_though_it_did_not_change() -> None:
    found = decide(waiting(count=5), declared(), ["count"])
    assert found.anew == ("count",)
    assert not found.refusals


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = decide(waiting(counts=4), declared(tasks=9, renamed={"counts": "totals", "lines": "text"}))
    assert set(refused(found)) == {"lines", "count", "counts"}


def test_a_shape_of_an_older_penstock_is_compared_by_what_it_has() -> None:
    old = {name: {key: value for key, value in facts.items() if key != "plan"} for name, facts in OLD.shape.items()}
    assert not decide(dataclasses.replace(OLD, shape=old), declared()).refusals


class Counts(state.Processor):
    n = state.value("n long")

    def rows(self, key: Any, rows: Any) -> Any:
        return ()


class Others(Counts):
    n = state.value("n int")


class Timed(Counts):
    def timer(self, key: Any, at: Any) -> Any:
        return ()


class Mortals(Counts):
    n = state.value("n long", ttl=5)


class Longer(Counts):
    n = state.value("n long", ttl=60)


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [(Counts, Counts, True), (Counts, Others, False), (Counts, Mortals, False), (Mortals, Longer, True)],
)
def test_a_processor_goes_on_with_the_states_that_it_declared(before: Any, after: Any, fits: bool) -> None:
    def shape(processor: Any) -> dict[str, dict[str, Any]]:
        topology = Topology("t")
        lines = topology.source("lines", sources.rate(10, sources.sentences()))
        counts = topology.stateful("count", processor, inputs=lines, key="sentence", schema="sentence string")
        topology.sink("out", sinks.noop(), inputs=counts)
        return shape_of(topology.definition(), {})

    found = decide(OldState(json.loads(json.dumps(shape(before))), begun=["count"]), shape(after))
    assert [one.operator for one in found.refusals] == ([] if fits else ["count"])
    assert fits or "the states that its processor declares" in found.refusals[0].problem


@pytest.mark.parametrize(("before", "after"), [((Counts, None), (Timed, None)), ((Timed, None), (Timed, "at"))])
def test_a_processor_keeps_its_clock(before: Any, after: Any) -> None:
    def shape(processor: Any, event_time: str | None) -> dict[str, dict[str, Any]]:
        topology = Topology("t")
        lines = topology.source("lines", sources.rate(10, sources.events()))
        options = {"key": "key", "schema": "key string", "event_time": event_time}
        counts = topology.stateful("count", processor, inputs=lines, **options)
        topology.sink("out", sinks.noop(), inputs=counts)
        return shape_of(topology.definition(), {})

    assert not decide(OldState(shape(*before), begun=["count"]), shape(*before)).refusals
    [refusal] = decide(OldState(shape(*before), begun=["count"]), shape(*after)).refusals
    assert "the clock that its processor goes by" in refusal.problem
