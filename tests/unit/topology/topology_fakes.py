"""Sources, sinks and functions that need nothing, and a way to say which line an error must point at."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.kinds import SinkKind, SourceKind
from penstock.topology import Output, Topology, parse_schema


@dataclass(frozen=True)
class FakeSource(SourceKind):
    schema: pa.Schema
    kind: str = "fake"
    read_by_bundles: bool = True

    def describe(self) -> Mapping[str, Any]:
        return {"schema": self.schema}


@dataclass(frozen=True)
class FakeSink(SinkKind):
    kind: str = "fake"

    def describe(self) -> Mapping[str, Any]:
        return {}


def rows(schema: str) -> FakeSource:
    return FakeSource(parse_schema(schema))


def same(batch):
    """An Arrow function, and a DataFrame function too, that changes nothing."""
    return batch


def one_source(schema: str = "word string, n long") -> tuple[Topology, Output]:
    topology = Topology("t")
    return topology, topology.source("lines", rows(schema))


MARK = "# <- here"


def expect(name: str, declare: Callable[[], object]) -> PenstockError:
    """`declare` raises the error of this name, and it points at the line of `declare` that is marked `# <- here`."""
    with pytest.raises(PenstockError) as caught:
        declare()
    lines, first = inspect.getsourcelines(declare)
    (marked,) = (number for number, line in enumerate(lines, first) if line.rstrip().endswith(MARK))
    error = caught.value
    assert error.name == name, str(error)
    assert error.where is not None
    assert error.where.file == inspect.getsourcefile(declare)
    assert error.where.line == marked, str(error)
    return error
