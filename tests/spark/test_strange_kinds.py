"""A source and a sink of strangers, each one file outside of Penstock: by the names of their entry points, or directly.

They are placed, chained, restarted and written exactly once like Penstock's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.csv as pv
import pytest
from installed_strangers import installed
from test_results import WAIT

from penstock import PenstockError, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost

COUNTERS, LIMIT = 3, 7_000


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed(tmp_path_factory.mktemp("site")) as site:
        yield site


def counted(source: Any, sink: Any) -> Topology:
    topology = Topology("strange")
    numbers = topology.source("numbers", source, instances=2)
    topology.sink("out", sink, inputs=[numbers], instances=2)
    return topology


def written(folder: Path) -> list[tuple[int, int]]:
    tables = [pv.read_csv(path) for path in sorted(folder.glob("*.csv"))]
    return [(row["counter"], row["n"]) for table in tables for row in table.to_pylist()]


def test_strangers_kinds_run_like_penstocks_own(
    local_host: SparkHost, running: Callable, tmp_path: Path, strangers: Path
) -> None:
    by_name = counted(
        sources.named("strangers_numbers", COUNTERS, limit=LIMIT), sinks.named("text_files", str(tmp_path / "named"))
    )
    with running(by_name, local_host, state="kept") as run:
        while not run.statistics.totals("out")[0]:
            assert not run.wait(0.01)
        run.stop(drain=False)
    with running(by_name, local_host, state="kept") as run:
        assert run.wait(WAIT)
    rows = written(tmp_path / "named")
    assert Counter(rows) == Counter((counter, n) for counter in range(COUNTERS) for n in range(LIMIT))
    for counter in range(COUNTERS):
        assert [n for one, n in rows if one == counter] == list(range(LIMIT))

    from penstock_strangers.strangers_numbers import StrangersNumbers
    from penstock_strangers.text_files import TextFiles

    directly = counted(StrangersNumbers(2, 100), TextFiles(str(tmp_path / "direct")))
    with running(directly, local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("numbers")[0] == 200
    assert len(written(tmp_path / "direct")) == 200


def test_names_that_nobody_registers_are_refused(strangers: Path) -> None:
    for make, error in ((sources.named, "UNKNOWN_SOURCE"), (sinks.named, "UNKNOWN_SINK")):
        with pytest.raises(PenstockError) as caught:
            make("nobodys")
        assert caught.value.name == error
        assert caught.value.where is not None and caught.value.where.file == __file__
    with pytest.raises(PenstockError, match="strangers_numbers"):
        sources.named("nobodys")
