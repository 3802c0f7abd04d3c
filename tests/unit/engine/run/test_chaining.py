"""Operators become one chain only when no rows wait between them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engine.run import chaining
from penstock.engine.run.chaining import Chaining


def test_rows_of_a_commit_that_was_not_answered_keep_operators_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads the channel between the operators of a chain."""
    monkeypatch.setattr(chaining, "JOIN_SECONDS", 0.01)
    did: list[str] = []
    #: Rows in front of the second operator, as far as the driver knows.
    known: list[str] = []

    def catch_up() -> None:
        did.append("catch up")
        known.append("a row")

    first = SimpleNamespace(stop=lambda: did.append("stop"))

    class Second:
        @property
        def drained(self) -> bool:
            return not known

        def stop(self) -> None:
            did.append("stop the second")

    queries: dict[str, Any] = {"first": first, "second": Second()}
    run: Any = SimpleNamespace(
        queries=SimpleNamespace(replacing=threading.RLock(), start_parts=lambda parts: did.append(f"start {parts}")),
        query=queries.__getitem__,
        channels=SimpleNamespace(catch_up=catch_up),
        check=lambda: None,
        happened=lambda *told: None,
        arrangement=SimpleNamespace(chains=(), chain=lambda chains: did.append("chain")),
    )
    Chaining(run)._join(("first", "second"), [("first",), ("second",)])
    assert did == ["stop", "catch up", "start ['first']"]
