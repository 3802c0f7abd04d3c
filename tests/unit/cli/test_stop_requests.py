"""Ctrl-C and SIGTERM: interrupt a start, are counted while it runs, and are given back afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from foreground import hearing_ctrl_c, ignoring_ctrl_c

from penstock.cli.stopping import StoppedEarly, StopRequests


@pytest.fixture(autouse=True)
def in_the_foreground() -> Iterator[None]:
    """These tests are about Ctrl-C, also where they are run in the background of a script, which ignores it."""
    with hearing_ctrl_c():
        yield


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_is_interrupted(number):
    with pytest.raises(StoppedEarly), StopRequests().listening():
        signal.raise_signal(number)


def test_a_run_is_asked_to_stop():
    with StopRequests().listening() as stops:
        stops.started()
        assert not stops.wait(0)
        signal.raise_signal(signal.SIGTERM)
        assert stops.wait(60)
        signal.raise_signal(signal.SIGINT)
        assert stops.count == 2


def test_the_handlers_before_are_given_back():
    before = signal.getsignal(signal.SIGINT)
    with StopRequests().listening():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_where_ctrl_c_is_ignored_it_stays_so():
    """A script's background job: the shell has it ignore SIGINT, which is for the foreground. SIGTERM stops it."""
    with ignoring_ctrl_c(), StopRequests().listening() as stops:
        signal.raise_signal(signal.SIGINT)
        stops.started()
        assert not stops.wait(0)
        signal.raise_signal(signal.SIGTERM)
        assert stops.wait(60)
        assert stops.count == 1
