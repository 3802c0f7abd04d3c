"""A driver that publishes batch after batch until it is killed: python publish_forever.py URL ROOT."""

from __future__ import annotations

import sys
from itertools import count

import pyarrow as pa

from penstock.channels.catalog import Catalog
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore, segment_name

SCHEMA = pa.schema([("batch", pa.int64()), ("row", pa.int64())])
CHANNELS = ("left", "right")
#: Batch n has n % 5 + 1 rows a segment, and a segment a channel.
SIZES = 5


def main(url: str, root: str) -> None:
    catalog = Catalog.open(url, "crash")
    store = SegmentStore(root)
    last = catalog.last_batch("writer")
    batch = 0 if last is None else last + 1
    for turn in count():
        size = batch % SIZES + 1
        rows = pa.record_batch([[batch] * size, list(range(size))], schema=SCHEMA)
        segments = []
        for part, channel in enumerate(CHANNELS):
            file = store.write(channel, segment_name(batch, part), [rows], SCHEMA)
            segments.append(NewSegment(channel, file.path, file.rows, file.bytes, "local/0", 0.0, 1.0))
        catalog.publish("writer", batch, segments, "{}", {"input": batch + 1})
        batch += 1
        if turn == 0:
            print("ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
