"""Every example loads and is valid; the published topologies are what was published."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from penstock.topology import Map

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(file.stem for file in EXAMPLES.glob("*.py"))

#: name: (instances, tasks, streams); a stream is "from to", with the columns of its grouping if it has one.
PUBLISHED = {
    "linear": (6, 12, ["word exclaim1", "exclaim1 exclaim2", "exclaim2 exclaim_output_3"]),
    "diamond": (
        4,
        8,
        [f"spout_head bolt_{n}" for n in (1, 2, 3, 4)] + [f"bolt_{n} bolt_output_3" for n in (1, 2, 3, 4)],
    ),
    "star": (2, 4, ["spout_0 center", "spout_1 center", "center bolt_output_0", "center bolt_output_1"]),
    "page_load": (
        4,
        8,
        [
            "spout_head bolt_transform",
            "bolt_transform bolt_filter",
            "bolt_filter bolt_join",
            "bolt_join bolt_filter_2",
            "bolt_filter_2 bolt_aggregate",
            "bolt_aggregate bolt_output_sink",
        ],
    ),
    "processing": (
        4,
        8,
        [
            "spout_head bolt_transform",
            "bolt_transform bolt_filter",
            "bolt_filter bolt_join1",
            "bolt_join1 bolt_output_1",
            "bolt_transform bolt_join2",
            "bolt_join2 bolt_normalize",
            "bolt_normalize bolt_output_2",
        ],
    ),
    "network_monitoring": (
        4,
        8,
        [
            "spout parseLines",
            "parseLines filterFailure",
            "filterFailure parseFailures",
            "parseFailures aggregate id",
            "aggregate filter",
            "filter functor",
            "parseLines filterSuccess",
            "filterSuccess parseSuccess",
            "parseSuccess join_output_bolt count",
            "functor join_output_bolt count",
        ],
    ),
}
LOADS = {
    "page_load": {
        "bolt_transform": 40,
        "bolt_filter": 40,
        "bolt_join": 15,
        "bolt_filter_2": 20,
        "bolt_aggregate": 20,
        "bolt_output_sink": 15,
    },
    "processing": {
        "bolt_transform": 30,
        "bolt_filter": 30,
        "bolt_join1": 10,
        "bolt_output_1": 10,
        "bolt_join2": 15,
        "bolt_normalize": 10,
        "bolt_output_2": 10,
    },
}


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def definition(name):
    return load(name)["topology"].definition()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid_and_says_how_to_run_it(name):
    assert definition(name).name == name
    text = (EXAMPLES / f"{name}.py").read_text()
    assert f"penstock run examples/{name}.py --cluster standalone --machines 2" in text


def test_the_published_ones_are_there():
    assert {*PUBLISHED, "word_count", "top_n"} <= set(NAMES)


@pytest.mark.parametrize("name", PUBLISHED)
def test_names_streams_instances_and_tasks_are_the_published_ones(name):
    instances, tasks, published = PUBLISHED[name]
    declared = definition(name)
    streams = [
        " ".join((stream.producer, stream.consumer, *getattr(stream.grouping, "columns", ())))
        for stream in declared.streams
    ]
    assert sorted(streams) == sorted(published)
    for operator in declared.operators:
        assert operator.instances == instances
        if isinstance(operator, Map):
            assert operator.tasks == tasks


@pytest.mark.parametrize("name", LOADS)
def test_loads_and_selectivities_are_the_published_ones(name):
    declared = definition(name)
    for operator, published in LOADS[name].items():
        declared_operator = declared.operator(operator)
        work = getattr(declared_operator, "function", None) or declared_operator.spec.function
        assert work.seconds_per_row == pytest.approx(published * 0.000_1)
        assert work.selectivity == (0.8 if "filter" in operator else 1.0)


def test_network_monitoring_halves_the_lines():
    example = load("network_monitoring")
    outputs = example["split_by"]("tag", example["TAGS"])(example["lines"](1, 1000))
    assert {name: rows.num_rows for name, rows in outputs.items()} == {"failure": 500, "success": 500}


def test_word_count_splits_into_words():
    example = load("word_count")
    batch = example["pa"].record_batch({"sentence": ["To be  or", None, "", "not"]})
    assert example["split"](batch).to_pydict() == {"word": ["to", "be", "or", "not"]}


class FakeState:
    """Spark's GroupState, as far as top_n uses it."""

    exists = False

    def update(self, value):
        self.exists, self.get = True, value


def test_top_n_is_exact_in_any_order_of_updates():
    example = load("top_n")
    best, frame = example["best"], example["pd"].DataFrame
    totals = {f"item-{n:02}": 100 - n // 2 for n in range(30)}  # With ties.
    history = [(item, total - back) for item, total in totals.items() for back in (0, 2, 1)]
    wanted = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    for updates in (history, history[::-1], history[::2] + history[1::2]):
        state = FakeState()
        for first in range(0, len(updates), 7):
            (board,) = best(("all",), iter([frame(updates[first : first + 7], columns=["item", "total"])]), state)
        assert list(zip(board["item"], board["total"], strict=True)) == wanted
        assert list(board["place"]) == list(range(1, 11))
