"""Processes that tests start hear a Ctrl-C, also where the tests themselves do not.

A shell without job control (`make test &` in a script) has its background jobs ignore SIGINT, and what is ignored stays
ignored in every process below them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """What is started meanwhile is as if it were started in the foreground: a handler becomes the default at exec."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ignoring_ctrl_c() -> Iterator[None]:
    """What is started meanwhile is as if it were started in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
