"""The parts of examples/frequent_patterns.py: its tweets, its candidates, and its detector beside a plain count."""

from __future__ import annotations

import runpy
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import sinks, sources, testing
from penstock.topology import Keyed

MODULE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "frequent_patterns.py"))
START, SECOND, WINDOW = MODULE["START"], MODULE["SECOND"], MODULE["WINDOW"]


def topology(threshold: int = 2):
    source = sources.files("/data/tweets", format="json", schema=MODULE["TWEET"])
    return MODULE["frequent_patterns"](source, sinks.noop(), threshold)


def test_the_operators_have_the_instances_tasks_and_minima_of_the_paper() -> None:
    definition = MODULE["topology"].definition()
    assert [operator.name for operator in definition.operators] == ["input", "generator", "detector", "reporter"]
    assert [operator.instances for operator in definition.operators] == [1, 2, 5, 1]
    assert [operator.min_instances for operator in definition.operators] == [1, 1, 1, 1]
    detector = definition.operator("detector")
    assert isinstance(detector, Keyed)
    assert detector.tasks == 20


def test_tweets_are_the_same_however_they_are_cut() -> None:
    tweets = MODULE["Tweets"](lambda row: row / 120, seed=3)
    whole = tweets(0, 700).to_pylist()
    assert [*tweets(0, 300).to_pylist(), *tweets(300, 1).to_pylist(), *tweets(301, 399).to_pylist()] == whole
    assert tweets(0, 0).num_rows == 0
    assert whole != MODULE["Tweets"](lambda row: row / 120, seed=4)(0, 700).to_pylist()
    assert whole[240]["at"] == START + timedelta(seconds=2)
    words = Counter(word for row in whole for word in row["text"].split())
    assert len(words) > 100
    assert words.most_common(1)[0][1] > 20, "few words are in most tweets"


def test_the_patterns_of_a_tweet_are_its_sets_of_words() -> None:
    assert list(MODULE["patterns_of"]("Rain, again rain!")) == ["again", "rain", "again rain"]
    assert list(MODULE["patterns_of"]("")) == []


def change_of(row: dict) -> tuple[int, str, int]:
    return (row["at"] - START) // SECOND, row["change"], row["n"]


def window_counts(seconds: list[int], threshold: int) -> list[tuple[int, str, int]]:
    """By counting every window: the changes of one pattern that is in a tweet in each of these seconds."""
    found, previous, total = [], 0, 0
    for end in range(min(seconds), max(seconds) + WINDOW + 3):
        n = sum(1 for second in seconds if end - WINDOW <= second < end)
        total += sum(1 for second in seconds if second == end - 1)
        if (n > threshold) != (previous > threshold):
            found.append((end, "above" if n > threshold else "below", n))
        if previous and not n:
            found.append((end, "gone", total))
            total = 0
        previous = n
    return found


@given(st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=12), min_size=1, max_size=12), st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_the_detector_says_what_counting_every_window_says(batches, threshold) -> None:
    trial = testing.stateful(topology(threshold), "detector")
    taken, said, watermark = [], [], -1
    for seconds in batches:
        rows = [{"pattern": "a", "at": START + second * SECOND, "n": 1} for second in seconds]
        said += trial.rows(rows)
        taken += [second for second in seconds if second > watermark]
        watermark = max(watermark, max(seconds) - int(MODULE["LATENESS"]))
        passed = [change for change in window_counts(taken, threshold) if change[0] <= watermark]
        assert sorted(map(change_of, said)) == sorted(passed), "what the watermark has passed is told, and nothing else"
    said += trial.pass_to(START + 1_000 * SECOND)
    assert sorted(map(change_of, said)) == sorted(window_counts(taken, threshold))
    assert trial.state("held", pattern="a") is None, "what is gone leaves no state"
    assert trial.timers(pattern="a") == []


def test_the_whole_topology_without_spark() -> None:
    texts = ["rain again", "sun again", "rain rain", "rain and sun"]
    rows = [{"id": n, "at": START + n * SECOND, "text": text} for n, text in enumerate(texts)]
    rows.append({"id": 9, "at": START + 300 * SECOND, "text": "late"})
    said = defaultdict(list)
    for row in testing.run(topology(threshold=1), {"input": rows})["reporter"]:
        said[row["pattern"]].append(((row["at"] - START) // SECOND, row["change"], row["n"]))
    assert sorted(said["rain"]) == [(3, "above", 2), (63, "below", 1), (64, "gone", 3)]
    assert sorted(said["again"]) == [(2, "above", 2), (61, "below", 1), (62, "gone", 2)]
    assert said["rain sun"] == [(64, "gone", 1)]
    assert "late" not in said, "its window is still open"


@pytest.mark.parametrize(
    ("given", "kind"),
    [("", "rate"), ("/data/tweets", "files"), ("redis://here:1/tweets", "redis"), ("rediss://here:1/tweets", "redis")],
)
def test_the_tweets_come_from_where_the_environment_says(given, kind) -> None:
    assert MODULE["given"](given).kind == kind
