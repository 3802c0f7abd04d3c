"""Which operators may have results inside of which nobody but the user knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import pytest

from penstock import Topology, sinks, sources
from penstock.monitor.kept_state import KeptState, Kind, may_give_more
from penstock.state import Processor
from penstock.topology.definition import Operator
from penstock.topology.state.processor import Row


def same(frame: Any) -> Any:
    return frame


class Counts(Processor):
    def rows(self, key: Row, rows: Iterator[dict[str, Any]]) -> Iterable[Row]:
        yield {"id": 0}


class Sessions(Counts):
    def timer(self, key: Row, at: datetime) -> Iterable[Row]:
        yield {"id": 0}


def declared() -> dict[str, Operator]:
    topology = Topology("flow")
    rows = topology.source("rows", sources.rate(1, sources.numbers()))
    made = {}
    for mode in ("append", "update"):
        made[mode] = topology.keyed(mode, same, inputs=rows, key="id", schema="id long, value double", output_mode=mode)
    for processor in (Counts, Sessions):
        made[processor.__name__] = topology.stateful(
            processor.__name__, processor(), inputs=rows, key="id", schema="id long"
        )
    for name, output in made.items():
        topology.sink(f"{name}-out", sinks.noop(), inputs=output)
    return {one.name: one for one in topology.definition().operators}


@pytest.mark.parametrize(
    ("name", "kind", "may"),
    [
        ("append", Kind.JOIN, True),
        ("update", Kind.JOIN, False),  # an inner one: what has partners was emitted
        ("append", Kind.OWN, True),
        ("update", Kind.OWN, True),
        ("Sessions", Kind.OWN, True),
        ("Counts", Kind.OWN, False),  # no timer ever comes
        ("append", Kind.DISTINCT, False),
        ("append", Kind.AGGREGATE, False),
        ("rows", Kind.OWN, False),
    ],
)
def test_what_may_give_more(name: str, kind: Kind, may: bool) -> None:
    operator = declared()[name]
    assert may_give_more(operator, [KeptState(Kind.DISTINCT, 5), KeptState(kind, 12)]) is may
    assert not may_give_more(operator, [KeptState(kind, 0)])
