"""The control loop: collect, decide, act. Everything that it uses is handed in."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from penstock.autoscaler.goals import Goal, Grow, Shrink, Stay, Wish, wish
from penstock.autoscaler.guards import Guard, Situation, first_veto
from penstock.autoscaler.measured_load import measured_load
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.monitor.snapshot import Snapshot
from penstock.strategies.scaling.rules import PAPER, Rules

RETRY_SECONDS = 60.0


class Hands(Protocol):
    """What the loop acts with."""

    def snapshot(self) -> Snapshot: ...
    def situation(self) -> Situation: ...
    def scale_out(self, machines: int) -> None: ...
    def scale_in(self, machines: int) -> None: ...
    def tell(self, kind: EventKind, reason: str) -> None: ...


class Controller:
    """`step` is one round; as a context manager it goes round in a thread of its own."""

    def __init__(
        self,
        goal: Goal,
        hands: Hands,
        guards: Sequence[Guard],
        every: float,
        rules: Rules = PAPER,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """A wish that was refused is not repeated for `retry_seconds`, and a machine that was missed as soon as it was
        gone is not given back for as long, twice as long each time."""
        self._goal = goal
        self._hands = hands
        self._guards = guards
        self._every = every
        self._rules = rules
        self._retry_seconds = retry_seconds
        self._refused_at: float | None = None
        self._gave_back = False
        self._regretted_at: float | None = None
        self._regret_seconds = retry_seconds
        #: What was told last, by kind.
        self._told: dict[EventKind, str] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_round, name="penstock-controller", daemon=True)

    def step(self) -> None:
        situation = self._hands.situation()
        try:
            wanted = self._decide(self._hands.snapshot())
            if isinstance(wanted, Stay):
                self._tell(EventKind.DECISION, f"{_in_words(wanted)}: {wanted.reason}")
            elif veto := first_veto(self._guards, wanted, situation) or self._own_veto(wanted, situation.now):
                self._tell(EventKind.VETO, f"{_in_words(wanted)} is not done now: {veto}")
            else:
                self._act(wanted, situation.now)
        except PenstockError as refusal:
            self._tell(EventKind.VETO, f"{refusal.name}: {refusal.message}")

    def _decide(self, snapshot: Snapshot) -> Wish:
        return wish(self._goal, snapshot, measured_load(snapshot), self._rules)

    def _own_veto(self, wanted: Wish, now: float) -> str:
        if self._refused_at is not None and now < self._refused_at + self._retry_seconds:
            return "it was refused a moment ago"
        regretted = self._regretted_at is not None and now < self._regretted_at + self._regret_seconds
        return "it was missed when it was given back the last time" if regretted and isinstance(wanted, Shrink) else ""

    def _act(self, wanted: Grow | Shrink, now: float) -> None:
        self._told = {}  # what is done is told each time
        self._tell(EventKind.DECISION, f"{_in_words(wanted)}: {wanted.reason}")
        try:
            if isinstance(wanted, Grow):
                self._hands.scale_out(wanted.machines)
            else:
                self._hands.scale_in(wanted.machines)
        except PenstockError:
            self._refused_at = now
            raise
        if self._gave_back and isinstance(wanted, Grow):
            self._regret_seconds *= 2 if self._regretted_at is not None else 1
            self._regretted_at = now
        self._gave_back = isinstance(wanted, Shrink)

    def _tell(self, kind: EventKind, reason: str) -> None:
        """Nobody wants to read every ten seconds that there is nothing to do: figures apart, only what is new."""
        news = "".join(letter for letter in reason if not letter.isdigit())
        if news != self._told.get(kind):
            self._told[kind] = news
            self._hands.tell(kind, reason)

    def _go_round(self) -> None:
        while not self._ending.wait(self._every):
            try:
                self.step()
            except Exception as problem:  # a mistake in one round must not end all that follow
                self._tell(EventKind.FAULT, f"the controller could not look: {type(problem).__name__}: {problem}")

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
