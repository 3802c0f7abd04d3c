"""How a topology has ended, as far as whoever asked for it can know."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.ending import NOTHING_READ, await_end


@pytest.mark.parametrize(("early", "how"), [(True, NOTHING_READ), (False, "")])
def test_a_process_that_is_gone_before_it_was_heard(early: bool, how: str) -> None:
    process: Any = SimpleNamespace(entry=lambda: None, has_ended=True, ended_early=early)
    assert await_end(process, time.monotonic() + 5, lambda text: None) == (True, how)
