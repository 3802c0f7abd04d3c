"""Sharing out a batch costs what it has: segments and bundles, not segments times bundles."""

from __future__ import annotations

import json

import pytest

from penstock.channels.records import Segment
from penstock.cluster.model import Slot
from penstock.engine.message import shares as splitting
from penstock.engine.message.shares import Bundle, Descriptor, InputRange, Piece, Spread, split, traffic_of
from penstock.engine.message.task_shares import split_by_task

SEGMENTS, BUNDLES, ROWS = 500, 32, 10
BUNDLE = [Bundle(Slot(f"m{index}", 0), 2) for index in range(BUNDLES)]


def segments() -> list[Segment]:
    return [
        Segment("w", f"w/{index}", ROWS, ROWS * 8, f"a/{index % 2}", 1.0, 2.0, index * ROWS, "split", index)
        for index in range(SEGMENTS)
    ]


@pytest.mark.parametrize("spread", list(Spread))
def test_pieces_are_made_and_written_down_once(spread: Spread, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    dumped: list[int] = []

    class Counted(Piece):
        def __init__(self, *fields: object) -> None:
            made.append(fields)
            super().__init__(*fields)  # type: ignore[arg-type]

    monkeypatch.setattr(splitting, "Piece", Counted)
    dumps = json.dumps

    def dump(value: object) -> str:
        text = dumps(value)
        dumped.append(len(text))
        return text

    monkeypatch.setattr(json, "dumps", dump)
    found = segments()
    shared = split_by_task if spread is Spread.BY_TASK else split
    shares = shared([InputRange(found, 0, SEGMENTS * ROWS, spread, groups=256)], BUNDLE)
    descriptors = [share.as_descriptor() for share in shares]
    traffic = traffic_of(shares, {segment.path: segment.bytes / segment.rows for segment in found})
    # A segment that two bundles read is two pieces of one.
    assert len(made) <= SEGMENTS + 2 * BUNDLES
    assert sum(dumped) <= 200 * (SEGMENTS + 2 * BUNDLES)
    everything = SEGMENTS * ROWS * 8 * (BUNDLES if spread is Spread.BROADCAST else 1)
    assert sum(traffic.values()) == pytest.approx(everything, rel=0.01)
    parsed = [Descriptor.parse(text) for text in descriptors]
    if spread is Spread.SHUFFLE:
        assert sum(piece.stop - piece.start for one in parsed for piece in one.pieces) == SEGMENTS * ROWS
    else:
        assert all(len(one.pieces) == SEGMENTS for one in parsed)
    if spread is Spread.BY_KEY:
        assert [{(piece.first_group, piece.stop_group) for piece in one.pieces} for one in parsed] == [
            {(index * 8, (index + 1) * 8)} for index in range(BUNDLES)
        ]
