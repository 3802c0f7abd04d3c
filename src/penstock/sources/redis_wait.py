"""Waits for the next entry of a Redis stream, in a thread of its own, so that nobody has to ask while none comes.

Redis answers a question that may wait (XREAD with BLOCK) in the moment in which an entry comes. The answer is not used:
it only has the driver look. So entries that a wait did not hear of are late and never lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.sources.redis_stream import RedisStream

#: One question waits so long. The thread of a source that is closed ends within this time, or when the connection gives
#: a server up that hangs.
BLOCK_SECONDS = 1.0
#: A server that fails twice in a row, though it answers the driver (it has no connection to spare, say), is not asked
#: for so long; for twice as long each time after that, up to the most.
REST_SECONDS = 1.0
#: One that refuses is not asked for so long: the user may not call XREAD, or the server has just changed its role.
MOST_REST_SECONDS = 60.0
THREAD = "penstock-redis-wait"


class EntryWait:
    """Of one source. Any thread may call it."""

    def __init__(self, stream: RedisStream, heard: Callable[[], None], failed: Callable[[], None]) -> None:
        """`heard` is called when an entry has come, `failed` when nobody waits any more because Redis did not answer;
        both in the thread that waits."""
        self._stream = stream
        self._heard, self._failed = heard, failed
        self._changed = threading.Condition()
        #: The id after which an entry is waited for; None while nobody waits.
        self._after: str | None = None
        self._thread: threading.Thread | None = None
        #: The last question has failed, and the rest after the next failure.
        self._failing, self._next_rest = False, 0.0
        #: Nobody waits for a moment, because Redis has just failed; or for good.
        self._resting = self._over = self._closed = False

    @property
    def may_wait(self) -> bool:
        """Whether it makes sense to wait: Redis has not just refused it."""
        return not (self._resting or self._over or self._closed)

    def after(self, entry: str) -> bool:
        """From now on, wait for an entry that comes after this id. It is told once. False if nobody will wait."""
        with self._changed:
            if not self.may_wait:
                return False
            self._after = entry
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()
            self._changed.notify()
            return True

    def close(self) -> None:
        with self._changed:
            self._closed, self._after = True, None
            self._changed.notify()

    def _run(self) -> None:
        try:
            with self._stream.waiter() as has_come:
                while (after := self._next()) is not None:
                    self._wait(has_come, after)
        finally:
            self._over = True
            self._tell(self._failed)

    def _wait(self, has_come: Callable[[str, float], bool], after: str) -> None:
        try:
            if has_come(after, BLOCK_SECONDS):
                self._tell(self._heard, after)
            self._failing, self._next_rest = False, 0.0
        except PenstockError as error:
            if not self._failing:
                LOGGER.info("nobody waits for entries now, the driver asks for them: %s", error.message)
            self._failing = True
            self._rest(self._next_rest if error.name == "REDIS_UNREACHABLE" else MOST_REST_SECONDS, after)

    def _rest(self, seconds: float, after: str) -> None:
        """The driver asks meanwhile. The first time it is no time at all: a server that is away may have come back, and
        the driver has nobody wait before it has answered."""
        self._next_rest = min(max(2 * seconds, REST_SECONDS), MOST_REST_SECONDS)
        self._resting = seconds > 0
        self._tell(self._failed, after)
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)
            self._resting = False

    def _next(self) -> str | None:
        """What to wait for; None if the source is closed."""
        with self._changed:
            while self._after is None and not self._closed:
                self._changed.wait()
            return self._after

    def _tell(self, tell: Callable[[], None], after: str | None = None) -> None:
        """Call one of the two, unless the source is closed. After that nobody waits, unless a new wait was asked for
        meanwhile."""
        with self._changed:
            if self._after == after:
                self._after = None
            if self._closed:
                return
        tell()
