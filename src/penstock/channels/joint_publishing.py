"""Publishing together: batches that several threads want to publish at the same time share one transaction.

A transaction costs about the same for one batch as for many. So a thread that has to wait for its turn finds, as a
rule, that the thread before it has published its batches too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.channels.publishing import NewBatch
from penstock.channels.records import Segment
from penstock.errors import PenstockError
from penstock.logs import LOGGER


class Publication:
    """A batch on its way into the catalog."""

    def __init__(self, batch: NewBatch) -> None:
        self.batch = batch
        self.is_done = False
        self.error: Exception | None = None
        #: Its segments with their rows; None if the batch was published before.
        self.placed: list[Segment] | None = None
        #: Its segments that the index does not have.
        self.unknown: list[str] = []

    def fail(self, error: Exception) -> None:
        if not self.is_done:
            self.error, self.is_done = error, True


class JointPublishing:
    """Any thread may call it. One thread publishes at a time: segments enter the index in the order of the catalog."""

    def __init__(self, enter_all: Callable[[Sequence[Publication]], None]) -> None:
        """`enter_all` enters publications in one transaction and marks each as done, or raises an error."""
        self._enter_all = enter_all
        #: Held while SQL runs, when nobody who only reads may be held up.
        self._turn = threading.Lock()
        #: Guards the list of those that wait: whoever has the turn publishes all of them.
        self._guard = threading.Lock()
        self._waiting: list[tuple[Publication, ...]] = []
        #: Whether nothing can be published any more.
        self._ended = False

    def publish(self, *publications: Publication) -> None:
        """Publish the next batches of one operator, all of them or none, with all that wait. Raises the error that they
        failed with."""
        with self._guard:
            self._waiting.append(publications)
        with self._turn:
            # Or another thread has published them with its own, while this one waited.
            if not all(one.is_done for one in publications):
                with self._guard:
                    waiting, self._waiting = self._waiting, []
                if self._ended:
                    for one in publications:
                        one.fail(RuntimeError("the topology has ended, so nothing is published any more"))
                else:
                    self._publish(waiting)
        for one in publications:
            if one.error is not None:
                raise one.error

    @contextmanager
    def held(self, seconds: float) -> Iterator[bool]:
        """Nothing is published in this block. False if a thread is still publishing after so many seconds."""
        is_held = self._turn.acquire(timeout=seconds)
        try:
            yield is_held
        finally:
            if is_held:
                self._turn.release()

    def end(self, seconds: float) -> bool:
        """Publish nothing more. False if a thread is still publishing after so many seconds: then nothing has ended."""
        if not self._turn.acquire(timeout=seconds):
            return False
        self._ended = True
        self._turn.release()
        return True

    def _publish(self, waiting: Sequence[tuple[Publication, ...]]) -> None:
        """All that wait, in one transaction. If that fails, those of each thread by themselves: only what cannot be
        published fails, and what is behind it."""
        batches = [one for publications in waiting for one in publications]
        try:
            self._enter_all(batches)
        except Exception as error:
            # What is wrong with the database is wrong for all of them.
            if len(waiting) == 1 or isinstance(error, PenstockError):
                for one in batches:
                    one.fail(error)
                return
            LOGGER.info("%d batches could not be published together", len(batches), exc_info=True)
            for publications in waiting:
                self._publish([publications])
        finally:
            for one in batches:
                if not one.is_done:
                    one.fail(RuntimeError("the thread that published this batch was ended"))
