"""What the statistics store takes of the driver's memory, however much is written to it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.monitor.events import Event, EventKind
from penstock.monitor.store import StatisticsStore

KB = 1 << 10


#: The fields of glibc's mallinfo2, which are numbers all: the allocated bytes are in two of them.
FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Allocated(ctypes.Structure):
    """What mallinfo2 answers: SQLite's memory is not Python's, and tracemalloc does not see it."""

    _fields_: ClassVar = [(name, ctypes.c_size_t) for name in FIELDS]


def allocated() -> int:
    """The bytes that this process has got from malloc and not given back."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("only glibc 2.33 and later say what is allocated")
    mallinfo.restype = Allocated
    found: Allocated = mallinfo()
    return int(found.uordblks) + int(found.hblkhd)


def test_memory_does_not_grow_with_what_is_written(tmp_path: Path) -> None:
    store = StatisticsStore.open(f"sqlite:///{tmp_path}/statistics.sqlite", "words")

    def write(first: int, count: int) -> None:
        for number in range(first, first + count):
            store.write_events([Event(1.0, EventKind.NOTICE, "words", "x" * 4 * KB, id=number)])

    write(1, 100)
    before = allocated()
    write(101, 600)
    grown = allocated() - before
    store.close()
    assert grown < 400 * KB, f"2.4 MB were written, and {grown // KB} KB of them are in memory"
