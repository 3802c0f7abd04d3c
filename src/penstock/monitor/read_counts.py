"""How many rows and bytes of a share came from where: over a link, from what the machine keeps, from the store. And how
many bytes the links carried for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pyarrow as pa

#: The keys of penstock.monitor.metric.READ_FROM.
LINK, KEPT, OWN, STORE = "link", "kept", "own", "store"


class ReadCounts:
    """Of one share, by where it came from. Any thread may add to it."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        #: By the machine that sent them: bytes as they came over the link.
        self.links: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, where: str, batches: Iterable[pa.RecordBatch]) -> None:
        rows = size = 0
        for batch in batches:
            rows, size = rows + batch.num_rows, size + batch.nbytes
        with self._lock:
            self.rows[where] = self.rows.get(where, 0) + rows
            self.bytes[where] = self.bytes.get(where, 0) + size

    def crossed(self, machine: str, size: int) -> None:
        """So many bytes came over the link from this machine."""
        with self._lock:
            self.links[machine] = self.links.get(machine, 0) + size
