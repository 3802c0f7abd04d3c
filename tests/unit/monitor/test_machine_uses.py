"""Counters of a machine become what it uses of what it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.cluster.readings import MachineReading, use_between
from penstock.monitor.machine_uses import MachineUses

START = MachineReading(
    at=100.0,
    cpu_seconds=5.0,
    throttled_seconds=1.0,
    memory_bytes=1 << 20,
    received_bytes=1000,
    sent_bytes=2000,
    cores=0.25,
    memory_limit=4 << 20,
    link_bytes_per_second=100.0,
)


def later(seconds: float, **grown: float) -> MachineReading:
    values = {name: getattr(START, name) + by for name, by in grown.items()}
    return replace(START, at=START.at + seconds, **values)


def test_a_use_is_a_share_of_what_the_machine_has():
    use = use_between(START, later(10, cpu_seconds=2, throttled_seconds=3, received_bytes=500, sent_bytes=250))
    assert use is not None
    assert (use.cpu, use.memory, use.link) == pytest.approx((0.8, 0.25, 0.5))
    assert use.throttled == pytest.approx(0.3)
    assert use.as_json()["cpu_cores"] == pytest.approx(0.2)


def test_a_machine_that_is_another_one_now_has_no_use_yet():
    assert use_between(START, later(10, received_bytes=-1)) is None
    assert use_between(START, START) is None


def test_a_use_is_that_of_about_an_interval():
    uses = MachineUses(10.0)
    assert uses.take({}) == {}
    assert uses.take({"a": START}) == {}
    for second in range(1, 60):
        # In the first half of the time it uses nothing, then a tenth of a core.
        cpu = max(second - 30, 0) * 0.1
        found = uses.take({"a": later(second, cpu_seconds=cpu)})
        assert 1 <= found["a"].seconds <= 20
        if second > 50:
            assert found["a"].cpu_cores == pytest.approx(0.1)
    assert uses.take({"b": later(60)}) == {}, "a machine that has just come"
