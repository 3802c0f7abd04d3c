"""Py4J's own chatter is not logged, and what others log is."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.engine.spark import java_log


@pytest.fixture
def quiet() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("py4j")
    filters, handlers = list(root.filters), list(own.handlers)
    java_log.quiet()
    yield
    root.filters[:], own.handlers[:] = filters, handlers


@pytest.mark.parametrize(
    ("path", "logged"),
    [("/lib/py4j/java_gateway.py", False), ("/lib/py4j/clientserver.py", False), ("/home/me/java_gateway.py", True)],
)
def test_only_what_py4j_writes_is_left_out(quiet: None, path: str, logged: bool) -> None:
    record = logging.LogRecord("root", logging.ERROR, path, 1, "an error", (), None)
    assert bool(logging.getLogger().filter(record)) == logged
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("py4j").handlers)
