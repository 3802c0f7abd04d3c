"""The watch: one of the bundles that wait looks what is there, and the others sleep.

The watcher is woken by what happens in the channels, and cuts the next batch. When it has work it hands the watch over.
The others sleep until somebody has work for them: if all of them were woken by every batch, the driver would do little
else.
"""

from __future__ import annotations

from penstock.channels.log import SeenChannels
from penstock.engine.standing.batches import Standing, Supply
from penstock.engine.standing.roster import Roster

#: The longest that a bundle which waits goes without a look at what no channel tells: a folder, a broker.
PATIENCE = 5.0
#: And the shortest: rows of a rate source are due one by one.
LEAST_PATIENCE = 0.001
#: Who waits for a batch of a source to be worth while looks this often whether it is.
LINGER_LOOK = 0.02


class Watch:
    """Of one query. It takes no lock: whoever calls it holds that of the channels."""

    def __init__(self, channels: SeenChannels, roster: Roster) -> None:
        self._channels = channels
        self._roster = roster
        #: Which of the bundles that wait has the watch.
        self._watcher: Standing | None = None

    def has(self, standing: Standing) -> bool:
        """Whether a bundle has the watch, or takes it because nobody has it. It must be one that may cut: one of an
        earlier turn hands it over, though it may wait for a share for long."""
        if self._watcher is standing and standing.turn != self._roster.turn:
            self.leave(standing)
        if self._watcher is None and standing.turn == self._roster.turn and not standing.gone:
            self._watcher = standing
        return self._watcher is standing

    def leave(self, standing: Standing) -> None:
        """A bundle does not wait any more. If it had the watch, or nobody had, another one that waits has it now. It is
        the one that has had no work for the longest time: where rows are few, all bundles have some in turn."""
        if self._watcher not in (standing, None):
            return
        waiting = (one for one in self._roster.of(self._roster.turn) if one.asks and one.work is None)
        self._watcher = min(waiting, key=lambda one: one.taken_at, default=None)
        if self._watcher is not None:
            self._watcher.woken.notify_all()

    def wake_all(self) -> None:
        """Something has changed that concerns all who wait, whoever they wait for."""
        self._channels.notify()
        for one in self._roster:
            one.woken.notify_all()


def patience(supply: Supply, lingers: float) -> float:
    """How long the watcher waits in front of an open gate, if nobody says that something has changed. `lingers`: how
    many seconds the next batch waits for more rows, by choice."""
    due = supply.due_in()
    if not supply.available():
        # A source may have a full batch before that, and nobody says so.
        wait = PATIENCE if due is None else max(due, min(lingers, LINGER_LOOK))
    elif lingers > 0:  # a source's rows may be enough before, and nobody says so
        wait = lingers if due is None else min(lingers, LINGER_LOOK)
    else:
        wait = PATIENCE  # there is no room, or others are too far behind: they say when they are not
    return max(min(wait, PATIENCE), LEAST_PATIENCE)
