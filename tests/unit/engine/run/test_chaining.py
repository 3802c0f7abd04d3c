"""Chains of a run, where no Spark is needed to see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Topology, sinks, sources
from penstock.engine.run.chaining import Chaining


def same(batch):
    return batch


def diamond() -> Topology:
    made = Topology("diamond")
    numbers = made.source("numbers", sources.rate(1, sources.numbers()))
    left = made.map("left", same, inputs=numbers, schema="id long, value double")
    middle = made.map("middle", same, inputs=left, schema="id long, value double")
    right = made.map("right", same, inputs=numbers, schema="id long, value double")
    made.sink("out", sinks.noop(), inputs=[middle, right])
    return made


@pytest.mark.parametrize(
    ("chains", "way"),
    [
        ((), ("numbers", "left", "middle", "out")),
        ((("left", "middle"),), ("numbers", "left", "out")),
        ((("numbers", "left"),), ("numbers", "middle", "out")),
    ],
)
def test_the_longest_way_of_a_row_counts_a_chain_once(
    chains: tuple[tuple[str, ...], ...], way: tuple[str, ...]
) -> None:
    run: Any = SimpleNamespace(definition=diamond().definition(), arrangement=SimpleNamespace(chains=chains))
    assert Chaining(run).longest_way() == way
