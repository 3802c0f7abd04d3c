"""For how long the bundles of a query wait, and why: for input, when there is nothing to hand out, or for room, when
rows are there and something holds them back.

All that wait at one moment wait for the same reason, because they share one supply and one gate. So the seconds of each
reason are counted once for the query, and a bundle's own are the difference between two looks at that count: nobody is
gone through when a reason changes, however many wait. Every second is told once: with the report of a bundle's next
share, or when somebody looks, which comes first. Otherwise nobody would hear of a bundle that waits for an hour.

Time in which a batch is being cut, or a bundle is being woken, is neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from penstock.engine.standing.batches import Standing
from penstock.monitor.report import BundleReport, ShareTimes
from penstock.monitor.sample import Waited

#: What bundles have waited that are gone is kept until somebody looks, of so many: with `monitoring` off, nobody looks.
MOST_LEFT = 256


class Reason(StrEnum):
    """Why a batch is not cut."""

    #: No rows are there, or too few: they linger, so that more may join them.
    INPUT = "input"
    #: Rows are there: an output channel is full, the gate is closed or paused, or other bundles are too far behind.
    ROOM = "room"


class _Seconds(NamedTuple):
    """In which bundles waited for each reason."""

    input: float = 0.0
    room: float = 0.0


_NONE = _Seconds()


@dataclass
class _Account:
    """Of one bundle."""

    #: The query's seconds up to which its own are known; None while it does not wait.
    since: _Seconds | None = None
    untold: _Seconds = _NONE
    #: Where it runs, by its own last report.
    executor: str | None = None


class Waits:
    """Of one query. It takes no lock: whoever calls it holds that of the channels. Time is handed in, and monotonic."""

    def __init__(self) -> None:
        self._reason: Reason | None = None
        self._counted_to = 0.0
        self._seconds = _Seconds()
        self._accounts: dict[Standing, _Account] = {}
        self._asking = 0
        #: Of bundles that are gone.
        self._left: deque[Waited] = deque(maxlen=MOST_LEFT)
        self._turn = -1

    # Who waits

    def begin(self, standing: Standing, now: float) -> None:
        """A bundle asks for work. If no other one did, nobody knows yet why it has to wait: until somebody has looked
        what is there, it waits for input."""
        if not self._asking:
            self.because(Reason.INPUT, now)
        account = self._accounts.setdefault(standing, _Account())
        account.since = self._up_to(now)
        self._asking += 1

    def end(self, standing: Standing, now: float) -> None:
        """It has work, or it leaves."""
        self._asking -= 1
        if (account := self._accounts.get(standing)) is not None:  # none if it was given up meanwhile
            self._settle(account, now)
            account.since = None

    def leave(self, standing: Standing, now: float) -> None:
        """A bundle is gone; what it has waited and nobody has told yet is told at the next look."""
        account = self._accounts.pop(standing, None)
        if account is not None and standing.turn <= self._turn:
            self._settle(account, now)
            self._left.append(_waited(standing, account))

    def serve(self, turn: int, now: float) -> None:
        """Batches are for the bundles of another turn. Theirs may have stood for a while; only from now on they wait:
        until now the instances were those of the turn before."""
        self._turn = turn
        for standing, account in self._accounts.items():
            if standing.turn == turn and account.since is not None:
                account.since, account.untold = self._up_to(now), _NONE

    # Why

    def because(self, reason: Reason | None, now: float) -> None:
        """From now on all that wait do so for this reason; None: a batch is about to be cut."""
        self._seconds, self._counted_to, self._reason = self._up_to(now), now, reason

    # How it is told

    def told_with(self, standing: Standing, reports: Sequence[BundleReport], held: float) -> tuple[BundleReport, ...]:
        """A bundle's reports of a share, one for each operator of its chain, with what it has waited before, and for
        how many seconds it `held` the share."""
        account = self._accounts[standing]
        untold, account.untold = account.untold, _NONE
        account.executor = next((one.executor for one in reports), account.executor)
        return tuple(
            replace(one, times=ShareTimes(held, untold.input * one.instances, untold.room * one.instances))
            for one in reports
        )

    def tell(self, now: float) -> list[Waited]:
        """What every bundle has waited and nobody has told yet. A bundle that has worked all the time has waited for
        0 s, which is known, and so it is here too."""
        told = list(self._left)
        self._left.clear()
        for standing, account in self._accounts.items():
            if standing.turn <= self._turn:
                self._settle(account, now)
                told.append(_waited(standing, account))
                account.untold = _NONE
        return told

    def _settle(self, account: _Account, now: float) -> None:
        if account.since is not None:
            up_to, since, untold = self._up_to(now), account.since, account.untold
            account.untold = _Seconds(untold.input + up_to.input - since.input, untold.room + up_to.room - since.room)
            account.since = up_to

    def _up_to(self, now: float) -> _Seconds:
        passed = max(now - self._counted_to, 0.0)
        if self._reason is None:
            return self._seconds
        on_input, on_room = self._seconds
        is_input = self._reason is Reason.INPUT
        return _Seconds(on_input + passed, on_room) if is_input else _Seconds(on_input, on_room + passed)


def _waited(standing: Standing, account: _Account) -> Waited:
    bundle, untold = standing.bundle, account.untold
    instances = bundle.instances
    return Waited(bundle.slot.name, account.executor, instances, untold.input * instances, untold.room * instances)
