"""A source of strangers: numbers from several counters, each of which goes up to a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.extending import BadRow, Offset, Offsets, Range, SourceKind, SourcePlace

SCHEMA = pa.schema([("counter", pa.int32()), ("n", pa.int64())])


@dataclass(frozen=True)
class StrangersNumbers(SourceKind):
    counters: int
    limit: int
    schema: pa.Schema = SCHEMA

    kind = "strangers_numbers"

    @property
    def ends(self) -> bool:
        return True

    def offsets(self, place: SourcePlace) -> CounterOffsets:
        return CounterOffsets(self)

    def read(self, load: Any, bad_row: BadRow | None) -> Iterator[pa.RecordBatch]:
        counter, first, stop = load
        numbers = range(first, stop)
        yield pa.record_batch([pa.array([counter] * len(numbers), pa.int32()), pa.array(numbers)], schema=SCHEMA)


class CounterOffsets(Offsets):
    """The offset is a list: how far each counter is."""

    def __init__(self, spec: StrangersNumbers) -> None:
        self._spec = spec
        self.position = [0] * spec.counters

    def available(self) -> int:
        return self._spec.counters * self._spec.limit - sum(self.position)

    @property
    def ended(self) -> bool:
        return self.available() == 0

    def end(self, most: int, instances: int) -> Offset | None:
        each = -(-most // self._spec.counters)
        end = [min(at + each, self._spec.limit) for at in self.position]
        return end if any(end) else None

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> Sequence[Range]:
        begin = start or [0] * self._spec.counters
        pairs = enumerate(zip(begin, end, strict=True))
        return [Range([counter, first, stop], stop - first) for counter, (first, stop) in pairs if first < stop]
