"""A driver that publishes so many batches at a time until it is killed: python publish_forever.py URL ROOT TOGETHER."""

from __future__ import annotations

import sys
from itertools import count

import pyarrow as pa

from penstock.channels.catalog import Catalog
from penstock.channels.publishing import NewBatch
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore, segment_name

SCHEMA = pa.schema([("batch", pa.int64()), ("row", pa.int64())])
CHANNELS = ("left", "right")
#: Batch n has n % 5 + 1 rows a segment, and a segment a channel.
SIZES = 5


def main(url: str, root: str, together: int) -> None:
    catalog = Catalog.open(url, "crash")
    store = SegmentStore(root)
    last = catalog.last_batch("writer")
    first = 0 if last is None else last + 1
    for turn in count():
        catalog.publish_all([written(store, first + turn * together + n) for n in range(together)])
        if turn == 0:
            print("ready", flush=True)


def written(store: SegmentStore, batch: int) -> NewBatch:
    size = batch % SIZES + 1
    rows = pa.record_batch([[batch] * size, list(range(size))], schema=SCHEMA)
    segments = []
    for part, channel in enumerate(CHANNELS):
        file = store.write(channel, segment_name(batch, part), [rows], SCHEMA)
        segments.append(NewSegment(channel, file.path, file.rows, file.bytes, "local/0", 0.0, 1.0))
    return NewBatch("writer", batch, segments, "{}", {"input": batch + 1})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
