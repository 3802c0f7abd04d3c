"""How far a Redis stream is read, and what there is to read, on the driver.

Redis counts the entries that a stream ever got. An offset has that count too, so that entries which were deleted before
they were read are noticed, whether the driver had seen them or not.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence

from penstock.errors import PenstockError
from penstock.kinds import Offset, Offsets, Range, SourcePlace
from penstock.sources.looks import Looks, thinned
from penstock.sources.redis_stream import BEGIN, PATIENCE_SECONDS, Look, RedisStream, data_lost, number_of
from penstock.sources.redis_wait import EntryWait

#: Ids that the driver fetches at once, and keeps at most: it need not know all entries of a long stream.
IDS, MOST_IDS = 20_000, 200_000
#: Answers that are kept at most, to know when an entry was first seen.
ANSWERS = 256


class RedisOffsets(Offsets):
    """The offset is the id of the last entry that is read, and the number of entries that the stream got up to it."""

    def __init__(self, stream: RedisStream, start: str, follow: bool, place: SourcePlace) -> None:
        self._stream = stream
        self._clock = place.clock
        key = f"{place.prefix}start"
        noted = place.notes.get_meta(key)
        #: Where the source was read at first. It is written down before the first batch: a run that begins again must
        #: begin there too.
        self._first: Offset = json.loads(noted) if noted is not None else self._beginning(start)
        if noted is None:
            place.notes.change_metas({key: json.dumps(self._first)})
        self.position: Offset = self._first
        #: Where the source ends for this run; None if it follows.
        self._stop: str | None = None
        if not follow:
            if "stop" not in place.memory:
                place.memory["stop"] = self._stream.newest() or BEGIN
            self._stop = place.memory["stop"]
        #: Held while the position or the ids change: a batch may be cut while the driver waits for an answer of Redis.
        self._lock = threading.Lock()
        #: The ids of entries that are there and not read, in their order: all that follow the position, without a gap.
        self._ids: deque[str] = deque()
        #: How often the ids were forgotten.
        self._forgotten = 0
        #: When the driver saw which newest entry, the newest at the end.
        self._answers: list[tuple[float, tuple[int, int]]] = []
        self._looks = Looks(place)
        #: Waits for entries where nobody has to ask for them; None where nobody could be woken.
        self._wait: EntryWait | None = None
        self._wake = place.wake
        if follow and place.wake is not None:
            self._wait = EntryWait(stream, self._heard, self._wait_failed)
        #: Since when Redis does not answer.
        self._silent_since: float | None = None

    # What there is

    def look(self) -> None:
        now = self._clock()
        if self._looks.due_in() > 0:
            return
        self._looks.failed()  # unless it is answered
        with self._lock:
            known, forgotten = len(self._ids), self._forgotten
            after = self._ids[-1] if self._ids else self.position[0]
            before = self.position[1] + known
        if known >= MOST_IDS or (self._stop is not None and number_of(after) >= number_of(self._stop)):
            return
        try:
            found = self._stream.look(after, IDS)
        except PenstockError as error:
            since = self._silent_since = now if self._silent_since is None else self._silent_since
            if error.name != "REDIS_UNREACHABLE" or now - since > PATIENCE_SECONDS:
                raise
            return
        self._silent_since = None
        wait = self._wait if self._wait is not None and self._wait.may_wait and not found.ids else None
        with self._lock:
            self._looks.looked(bool(found.ids), is_told=wait is not None)
            if forgotten != self._forgotten:
                self._looks.at_once()  # the answer is about entries further on
                return
            self._check(found, after, before)
            self._add(found.ids, now)
            if len(found.ids) == IDS:
                self._looks.at_once()  # there are more
        # The last thing: it may hurry the next look.
        if wait is not None and not wait.after(after):
            self._looks.untold()

    def available(self) -> int:
        return len(self._ids)

    def due_in(self) -> float | None:
        return None if self.ended else self._looks.due_in()

    @property
    def unmet(self) -> int:
        return self.available()

    @property
    def ended(self) -> bool:
        return self._stop is not None and number_of(self.position[0]) >= number_of(self._stop)

    # What a batch reads

    def go_to(self, offset: Offset) -> None:
        reached = number_of(offset[0])
        with self._lock:
            if not self._reaches(reached):
                self._ids.clear()  # they do not follow the new position without a gap: they have to be asked for again
                self._forgotten += 1
                self._looks.at_once()
            self.position = offset
            while self._ids and number_of(self._ids[0]) <= reached:
                self._ids.popleft()

    def end(self, most: int, instances: int) -> Offset | None:
        with self._lock:
            count = min(most, len(self._ids))
            if not count:
                return self.position if self.position != self._first else None
            return [self._ids[count - 1], self.position[1] + count]

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> Sequence[Range]:
        after, before = start or self._first
        last, until = end
        if until <= before:
            return []
        seen_from = self._seen(lambda newest: newest > number_of(after))
        seen_to = self._seen(lambda newest: newest >= number_of(last))
        return [Range([after, last, until - before], until - before, seen_from, seen_to)]

    def close(self) -> None:
        if self._wait is not None:
            self._wait.close()

    # Inside

    def _heard(self) -> None:
        """An entry has come."""
        self._looks.hurry()
        if self._wake is not None:
            self._wake()

    def _wait_failed(self) -> None:
        """Nobody will say that an entry has come."""
        self._looks.untold()
        if self._wake is not None:
            self._wake()

    def _beginning(self, start: str) -> Offset:
        """Where a new state begins to read."""
        found = self._stream.look(BEGIN, 1)
        return [found.newest, found.added] if start == "latest" else [BEGIN, found.added - found.length]

    def _reaches(self, offset: tuple[int, int]) -> bool:
        """Whether an offset is the position, or one of the entries that are known to follow it."""
        newest = number_of(self._ids[-1] if self._ids else self.position[0])
        return number_of(self.position[0]) <= offset <= newest

    def _add(self, ids: Sequence[str], seen: float) -> None:
        stop = None if self._stop is None else number_of(self._stop)
        fresh = [one for one in ids if stop is None or number_of(one) <= stop]
        if fresh:
            self._ids.extend(fresh)
            self._answers = [*thinned(self._answers, ANSWERS), (seen, number_of(fresh[-1]))]

    def _check(self, found: Look, after: str, before: int) -> None:
        """REDIS_DATA_LOST, if the stream has not all entries that it got after this id; up to it, it had got `before`.
        A look that does not show all of them tells only what was cut off at the beginning of the stream, and only once
        the entries up to the id are gone."""
        got = found.added - before
        if got < 0:
            raise data_lost(self._stream.key, f"it ever got {found.added:,} entries, and {before:,} were seen before")
        if number_of(found.newest) < number_of(after):
            raise data_lost(self._stream.key, f"its newest entry is {found.newest}, and {after} was seen before")
        if len(found.ids) < IDS:
            there = len(found.ids)
        elif number_of(found.first) > number_of(after):
            there = found.length
        else:
            return
        if got != there:
            raise data_lost(self._stream.key, f"it got {got:,} entries after {after}, and {there:,} are there")

    def _seen(self, has: Callable[[tuple[int, int]], bool]) -> float:
        """When the driver first got an answer with such a newest entry; now, if that was in another run."""
        return next((at for at, newest in self._answers if has(newest)), self._clock())
