"""The files of a file source are read in the order that the catalog has listed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import PenstockError, Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.cluster.model import Slot
from penstock.engine.feeds import Seats
from penstock.engine.file_feed import FileFeed
from penstock.engine.splitting import Bundle
from penstock.sources.specs import FileSource
from penstock.topology.definition import Source


def feed(folder: Path) -> FileFeed:
    topology = Topology("files")
    rows = topology.source("rows", sources.files(folder, format="json", schema="id long"))
    topology.sink("out", sinks.noop(), inputs=[rows])
    [source] = topology.definition().sources
    assert isinstance(source, Source)
    assert isinstance(source.spec, FileSource)
    gate: Any = SimpleNamespace(add=lambda feed: None)
    seats = Seats(lambda: [Bundle(Slot("a", 0), 1)], lambda slot: None)
    return FileFeed(source, source.spec, Catalog.open("sqlite://", "files"), gate, seats)


def test_more_files_counted_than_listed_are_refused(tmp_path: Path) -> None:
    """The list is of an older catalog: a file that comes into the place of a missing one would never be read."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text("{}\n")
    assert len(feed(tmp_path).partitions("0", "2")) == 1
    for ask in (lambda one: one.partitions("1", "3"), lambda one: one.seek("3")):
        with pytest.raises(PenstockError) as caught:
            ask(feed(tmp_path))
        assert caught.value.name == "CATALOG_WENT_BACK"
