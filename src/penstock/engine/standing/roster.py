"""Who stands where: the bundles of the turn that is served, who is on which seat, and which seats were deserted.

A seat is a place in a turn. It outlives who is on it: when Spark starts a task again, another one takes the same seat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.engine.message.shares import Bundle
from penstock.engine.standing.batches import SeatKey, Standing

#: So many seconds may pass until somebody sits on a new seat. Spark starts a task again that does not start; one that
#: has started, and then hangs before it comes here, nobody else would miss.
FIRST_SECONDS = 120.0
#: If nobody came, somebody may only have needed longer, to load a model, say: later turns give twice the time, but
#: no more than this.
MOST_FIRST_SECONDS = 3600.0


class Roster:
    """Of one query. It takes no lock: whoever calls it holds that of the channels."""

    def __init__(self) -> None:
        #: The turn that gets new batches, and its bundles; -1 before the first.
        self.turn = -1
        self.bundles: tuple[Bundle, ...] = ()
        self._stands: dict[SeatKey, Standing] = {}
        #: Since when somebody is missed on a seat: the bundle was lost then, or should have come by then.
        self._empty_since: dict[SeatKey, float] = {}
        #: The seats on which nobody has been yet, and how much time they are given.
        self._awaited: set[SeatKey] = set()
        self._first_seconds = FIRST_SECONDS

    def __contains__(self, seat: SeatKey) -> bool:
        return seat in self._stands

    def __iter__(self) -> Iterator[Standing]:
        """All that stand, of whatever turn."""
        return iter(self._stands.values())

    def on(self, seat: SeatKey) -> Standing | None:
        return self._stands.get(seat)

    def of(self, turn: int) -> list[Standing]:
        """Those of one turn."""
        return [one for one in self if one.turn == turn]

    def sit(self, standing: Standing) -> None:
        """A bundle takes its seat, from whoever is on it."""
        self._stands[standing.seat] = standing
        self._empty_since.pop(standing.seat, None)
        self._awaited.discard(standing.seat)

    def leave(self, standing: Standing, now: float) -> None:
        """A bundle is gone. If another one is on its seat already, the seat is not empty."""
        if self._stands.get(standing.seat) is standing:
            del self._stands[standing.seat]
            self._empty_since[standing.seat] = now

    def serve(self, turn: int, bundles: Sequence[Bundle], now: float) -> None:
        """New batches are for the bundles of this turn. Nobody is missed on the seats of those before."""
        if turn != self.turn:
            came_late = any(self._empty_since[seat] <= now for seat in self._awaited if seat in self._empty_since)
            if came_late:
                self._first_seconds = min(self._first_seconds * 2, MOST_FIRST_SECONDS)
            self._awaited.clear()
        self.turn, self.bundles = turn, tuple(bundles)
        self._empty_since = {seat: since for seat, since in self._empty_since.items() if seat[0] >= turn}
        for seat in ((turn, index) for index in range(len(self.bundles))):
            if seat not in self and seat not in self._empty_since:
                self._empty_since[seat] = now + self._first_seconds
                self._awaited.add(seat)

    def empty(self, before: float) -> list[SeatKey]:
        """The seats of this turn on which somebody has been missed since then or longer."""
        return [seat for seat, since in self._empty_since.items() if since <= before and seat[0] == self.turn]

    @property
    def instances(self) -> int:
        """The instances of all bundles of this turn."""
        return sum(bundle.instances for bundle in self.bundles)

    @property
    def asking(self) -> int:
        """The instances of those of this turn that wait for work."""
        return sum(one.bundle.instances for one in self if one.asks and one.turn == self.turn)
