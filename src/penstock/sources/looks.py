"""When the driver asks again what there is to read, of a source that has to be asked.

A row waits until somebody asks. So the driver asks as often as rows may linger, which follows the setting `latency`,
while rows come. Where nothing comes it asks less and less often: a row never waits longer than a tenth of the silence
before it, and an idle source costs little.
"""

from __future__ import annotations

from typing import TypeVar

from penstock.kinds import SourcePlace

T = TypeVar("T")

#: The longest between two questions. It is also the time between them where nobody says how long rows may linger.
MOST_SECONDS = 0.1
#: The driver waits for so much of the time in which nothing came before it asks again.
SILENCE_SHARE = 0.1
#: And so long where it will be told that something has come.
TOLD_SECONDS = 1.0


class Looks:
    """Of one source. One thread looks; any thread may ask when the next look is due, or hurry it."""

    def __init__(self, place: SourcePlace) -> None:
        self._clock = place.clock
        self._lingers = place.lingers
        self._looked_at = self._news_at = place.clock()
        self._next = self._looked_at

    def due_in(self) -> float:
        """Seconds until the next look; 0 if it is due."""
        return max(self._next - self._clock(), 0.0)

    def looked(self, news: bool, is_told: bool = False) -> None:
        """The driver has just looked, and has seen that something came, or not. `is_told`: somebody calls `hurry` or
        `untold` before anything can be late."""
        now = self._looked_at = self._clock()
        if news:
            self._news_at = now
        quiet = (now - self._news_at) * SILENCE_SHARE
        self._next = now + (TOLD_SECONDS if is_told else min(max(self._quick(), quiet), MOST_SECONDS))

    def failed(self) -> None:
        """The driver has looked, and got no answer."""
        self._looked_at = self._clock()
        self._next = self._looked_at + MOST_SECONDS

    def at_once(self) -> None:
        """There is more than the last look has shown."""
        self._next = self._clock()

    def hurry(self) -> None:
        """Something has come. The next look is not later than if it had come all the time."""
        self._next = min(self._next, self._looked_at + self._quick())

    def untold(self) -> None:
        """Nobody will tell any more that something has come."""
        self._next = min(self._next, self._looked_at + MOST_SECONDS)

    def _quick(self) -> float:
        return MOST_SECONDS if self._lingers is None else min(self._lingers(), MOST_SECONDS)


def thinned(answers: list[T], most: int) -> list[T]:
    """Answers that are kept in order to know when something was first seen. When they are too many, every second one is
    forgotten: the oldest stays, and what was first seen in one that is gone counts as seen in the next."""
    return answers if len(answers) < most else answers[::2]
