"""Waiting for entries of a Redis stream, with a Redis that does not answer. Real threads, and no time that matters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import PenstockError
from penstock.sources import redis_wait
from penstock.sources.redis_wait import EntryWait


class Failing:
    """A stream of which every question fails with an error of this name; none: an entry comes at once."""

    def __init__(self, name: str | None) -> None:
        self.name, self.failed, self.heard = name, threading.Event(), threading.Event()
        stream: Any = self
        self.wait = EntryWait(stream, self.heard.set, self.failed.set)

    @contextmanager
    def waiter(self) -> Iterator[Callable[[str, float], bool]]:
        yield self._has_come

    def fails(self) -> None:
        """Ask once, and see that it fails."""
        self.failed.clear()
        assert self.wait.after("1-1")
        assert self.failed.wait(20)

    def _has_come(self, after: str, seconds: float) -> bool:
        if self.name is not None:
            raise PenstockError(self.name, "no", "")
        return True


def ended(wait: EntryWait) -> None:
    """Close it, and see that its thread ends."""
    thread = wait._thread
    wait.close()
    assert thread is not None
    thread.join(20)
    assert not thread.is_alive()


def until_asked(stream: Failing) -> None:
    deadline = time.monotonic() + 20
    while not stream.wait.after("1-1"):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_server_that_keeps_failing_is_left_alone_for_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redis_wait, "REST_SECONDS", 60.0)
    stream = Failing("REDIS_UNREACHABLE")
    with caplog.at_level(logging.INFO):
        stream.fails()
        stream.fails()  # it may only have started again
        assert not stream.wait.may_wait
        assert not stream.wait.after("1-1"), "whoever asks must know that nobody waits"
    assert len([one for one in caplog.records if "waits for entries" in one.message]) == 1
    ended(stream.wait)  # though it rests


@pytest.mark.parametrize("name", ["BAD_SOURCE", "REDIS_UNREACHABLE"])
def test_somebody_waits_again_after_a_while(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that changes its role refuses whoever waits at that moment."""
    monkeypatch.setattr(redis_wait, "MOST_REST_SECONDS", 0.05)
    stream = Failing(name)
    stream.fails()
    stream.name = None
    until_asked(stream)
    assert stream.heard.wait(20)
    ended(stream.wait)


def test_where_redis_refuses_nobody_asks_again_soon() -> None:
    stream = Failing("BAD_SOURCE")
    stream.fails()
    assert not stream.wait.may_wait
    ended(stream.wait)
    assert not stream.wait.after("1-1")
