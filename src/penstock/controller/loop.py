"""The control loop: collect, decide, act. Everything that it uses is handed in."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from penstock.controller.goals import Goal, Grow, Shrink, Stay, Wish, wish
from penstock.controller.guards import Guard, Situation, first_veto
from penstock.controller.measured_load import measured_load
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.monitor.snapshot import Snapshot
from penstock.strategies.scaling.rules import PAPER, Rules


class Hands(Protocol):
    """What the loop acts with."""

    def snapshot(self) -> Snapshot: ...
    def situation(self) -> Situation: ...
    def scale_out(self, machines: int) -> None: ...
    def scale_in(self, machines: int) -> None: ...
    def tell(self, kind: EventKind, reason: str) -> None: ...


class Controller:
    """`step` is one round; as a context manager it goes round in a thread of its own."""

    def __init__(self, goal: Goal, hands: Hands, guards: Sequence[Guard], every: float, rules: Rules = PAPER) -> None:
        self._goal = goal
        self._hands = hands
        self._guards = guards
        self._every = every
        self._rules = rules
        self._told: tuple[EventKind, str] | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_round, name="penstock-controller", daemon=True)

    def step(self) -> None:
        try:
            wanted = self._decide(self._hands.snapshot())
            if veto := first_veto(self._guards, wanted, self._hands.situation()):
                if not isinstance(wanted, Stay):
                    self._tell(EventKind.VETO, f"{_in_words(wanted)} is not done now: {veto}")
                return
            self._act(wanted)
        except PenstockError as refusal:
            self._tell(EventKind.VETO, f"{refusal.name}: {refusal.message}")

    def _decide(self, snapshot: Snapshot) -> Wish:
        return wish(self._goal, snapshot, measured_load(snapshot), self._rules)

    def _act(self, wanted: Wish) -> None:
        self._tell(EventKind.DECISION, f"{_in_words(wanted)}: {wanted.reason}")
        match wanted:
            case Grow(machines):
                self._hands.scale_out(machines)
            case Shrink(machines):
                self._hands.scale_in(machines)

    def _tell(self, kind: EventKind, reason: str) -> None:
        """Nobody wants to read every ten seconds that there is nothing to do: figures apart, only what is new."""
        news = (kind, "".join(letter for letter in reason if not letter.isdigit()))
        if news != self._told:
            self._told = news
            self._hands.tell(kind, reason)

    def _go_round(self) -> None:
        while not self._ending.wait(self._every):
            self.step()

    def __enter__(self) -> Controller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


def _in_words(wanted: Wish) -> str:
    match wanted:
        case Grow(machines):
            return f"{machines} machine{'s' if machines > 1 else ''} more"
        case Shrink(machines):
            return f"{machines} machine{'s' if machines > 1 else ''} fewer"
    return "nothing to change"
