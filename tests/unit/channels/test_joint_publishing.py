"""Threads that publish at the same time share a transaction, and only what cannot be published fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from penstock.channels.joint_publishing import JointPublishing, Publication
from penstock.channels.publishing import NewBatch
from penstock.errors import PenstockError


class Entering:
    """Enters publications; the first call waits until the test lets it go on."""

    def __init__(self, refuses: Callable[[Sequence[str]], Exception | None] = lambda _: None) -> None:
        self.entered: list[list[str]] = []
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self._refuses = refuses

    def __call__(self, publications: Sequence[Publication]) -> None:
        names = [one.batch.operator for one in publications]
        self.entered.append(names)
        self.begun.set()
        assert self.may_go_on.wait(10)
        if (error := self._refuses(names)) is not None:
            raise error
        for one in publications:
            one.placed, one.is_done = [], True


def publication(operator: str) -> Publication:
    return Publication(NewBatch(operator, 0, (), "{}", {}))


def published(entering: Entering, *operators: str) -> dict[str, str]:
    """Publish a first batch, and these while it is under way. By operator: what its thread got."""
    joint = JointPublishing(entering)
    results: dict[str, str] = {}

    def publish(one: Publication) -> None:
        try:
            joint.publish(one)
            results[one.batch.operator] = "published" if one.placed is not None else "not placed"
        except Exception as error:
            results[one.batch.operator] = str(error)

    threads = [threading.Thread(target=publish, args=(publication(name),)) for name in ("first", *operators)]
    threads[0].start()
    assert entering.begun.wait(10)
    for number, thread in enumerate(threads[1:], start=1):
        thread.start()
        while len(joint._waiting) < number:
            assert thread.is_alive()
    entering.may_go_on.set()
    for thread in threads:
        thread.join(10)
    return results


def test_what_waits_is_published_in_one_go() -> None:
    entering = Entering()
    assert published(entering, "a", "b", "c") == dict.fromkeys(["first", "a", "b", "c"], "published")
    assert entering.entered == [["first"], ["a", "b", "c"]]


def test_only_the_batch_that_cannot_be_published_fails() -> None:
    entering = Entering(lambda names: ValueError("b is wrong") if "b" in names else None)
    found = published(entering, "a", "b", "c")
    assert found == {"first": "published", "a": "published", "b": "b is wrong", "c": "published"}
    assert entering.entered == [["first"], ["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_batches_of_one_operator_are_published_all_or_none() -> None:
    """If those behind one that cannot be published were published, its rows would be lost."""
    entering = Entering(lambda names: ValueError("it is wrong") if "b" in names else None)
    entering.may_go_on.set()
    joint = JointPublishing(entering)
    ours = [publication("a"), publication("b"), publication("c")]
    with pytest.raises(ValueError, match="it is wrong"):
        joint.publish(*ours)
    assert entering.entered == [["a", "b", "c"]]
    assert [str(one.error) for one in ours] == ["it is wrong"] * 3


def test_what_cannot_be_published_does_not_keep_the_batches_of_others_apart() -> None:
    entering = Entering(lambda names: ValueError("x is wrong") if "x" in names else None)
    joint, threads = JointPublishing(entering), []
    first, wrong, ours = publication("first"), publication("x"), [publication("a"), publication("a")]

    def publish(*publications: Publication) -> None:
        with suppress(ValueError):
            joint.publish(*publications)

    for number, group in enumerate(([first], [wrong], ours)):
        threads.append(threading.Thread(target=publish, args=group))
        threads[-1].start()
        assert entering.begun.wait(10)
        while len(joint._waiting) < number:
            assert threads[-1].is_alive()
    entering.may_go_on.set()
    for thread in threads:
        thread.join(10)
    assert entering.entered == [["first"], ["x", "a", "a"], ["x"], ["a", "a"]]
    assert [one.placed for one in ours] == [[], []]


def test_what_is_wrong_with_the_database_is_wrong_for_all() -> None:
    problem = PenstockError("STATE_TAKEN_OVER", "another driver has it.", "Stop.")
    entering = Entering(lambda names: problem if "a" in names else None)
    found = published(entering, "a", "b")
    assert found == {"first": "published", "a": str(problem), "b": str(problem)}
    assert entering.entered == [["first"], ["a", "b"]]


def test_a_batch_that_nobody_marked_as_done_has_failed() -> None:
    joint = JointPublishing(lambda _: None)
    with pytest.raises(RuntimeError, match="the thread that published this batch was ended"):
        joint.publish(publication("a"))


def test_after_the_end_nothing_is_published() -> None:
    entering = Entering()
    joint = JointPublishing(entering)
    thread = threading.Thread(target=joint.publish, args=(publication("a"),))
    thread.start()
    assert entering.begun.wait(10)
    assert not joint.end(0.01), "a thread is still publishing"
    entering.may_go_on.set()
    thread.join(10)
    assert joint.end(10)
    with pytest.raises(RuntimeError, match="the topology has ended"):
        joint.publish(publication("b"))
    assert entering.entered == [["a"]]
