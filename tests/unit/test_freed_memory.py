"""Memory that was freed goes back to the system, once a minute."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock import freed_memory
from penstock.freed_memory import RETURN_SECONDS, FreedMemory

FRAGMENTS = """
import os, pathlib
from penstock.freed_memory import return_now

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

# 64 MB in blocks of 8 kB, of which one in a thousand stays: the C library cannot shorten its heap.
blocks = [bytes(8192) for _ in range(8192)]
kept = blocks[::1000] + blocks[-1:]
del blocks
before = resident()
assert return_now()
print(before - resident())
"""


def test_pages_between_what_is_used_go_back() -> None:
    if freed_memory._trim() is None:
        pytest.skip("this C library keeps nothing that could be given back by name")
    done = subprocess.run([sys.executable, "-c", FRAGMENTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 32_000_000


def test_it_is_done_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[float] = []
    now = 100.0
    monkeypatch.setattr(freed_memory, "return_now", lambda: returned.append(now) or True)
    freed = FreedMemory(lambda: now)
    for seconds in range(150):
        now = 100.0 + seconds
        freed.return_sometimes()
    assert returned == [100.0 + RETURN_SECONDS, 100.0 + 2 * RETURN_SECONDS]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_trim", lambda: None)
    assert not freed_memory.return_now()
