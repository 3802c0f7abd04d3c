"""How much memory a benchmark's processes take."""

from __future__ import annotations

import threading

import psutil


class PeakMemory:
    """The most resident memory of a process (this one) and its descendants, sampled ten times a second."""

    def __init__(self, pid: int | None = None) -> None:
        self._root = psutil.Process(pid)
        self._peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            total = 0
            try:
                processes = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in processes:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self._peak = max(self._peak, total)

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak >> 20
