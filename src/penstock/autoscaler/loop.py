"""The control loop: collect, decide, act. Everything that it uses is handed in."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from penstock.autoscaler.guards import Guard, first_veto
from penstock.autoscaler.policy import Decided, Fate, Policy, View, decide
from penstock.autoscaler.proposals import Nothing, Proposal, in_words
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.monitor.events import EventKind

#: Decisions that a policy is shown again.
REMEMBERED = 1000


class Hands(Protocol):
    """What the loop looks and acts with."""

    def look(self, history: tuple[Decided, ...]) -> View:
        """Everything about the topology at this moment, on one snapshot."""

    def carry_out(self, proposal: Proposal) -> int:
        """Ask for the proposal's plan; the number of the operation. Refused with a named error."""

    def fate(self, operation: int) -> tuple[Fate, str]:
        """What became of an operation so far, and why."""

    def tell(self, kind: EventKind, reason: str) -> None: ...


class Controller:
    """`step` is one round; as a context manager it goes round in a thread of its own, every so many seconds."""

    def __init__(self, name: str, policy: Policy, hands: Hands, guards: Iterable[Guard], every: float) -> None:
        self.name = name
        #: Asked in this order; the first reason counts.
        self.guards = list(guards)
        self._policy = policy
        self._hands = hands
        self._every = every
        self._history: deque[Decided] = deque(maxlen=REMEMBERED)
        #: What was told last, by kind.
        self._told: dict[EventKind, str] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_round, name="penstock-controller", daemon=True)

    def step(self) -> None:
        try:
            view = self._hands.look(self.history())
            answer = decide(self.name, self._policy, view)
            if isinstance(answer, Nothing):
                self._tell_nothing(answer)
            elif veto := first_veto(self.guards, answer, view):
                self._tell(EventKind.VETO, f"{in_words(answer.plan)} is not done now: {veto}")
            else:
                self._act(answer, view.now)
        except PenstockError as refusal:
            self._tell(EventKind.VETO, f"{refusal.name}: {refusal.message}")

    def history(self) -> tuple[Decided, ...]:
        """What was decided so far, with what has become of it by now."""
        for index, one in enumerate(self._history):
            if one.operation is not None and not one.fate.over:
                fate, reason = self._hands.fate(one.operation)
                self._history[index] = replace(one, fate=fate, reason=reason)
        return tuple(self._history)

    def _act(self, proposal: Proposal, now: float) -> None:
        self._told = {}  # what is done is told each time
        because = proposal.reasons[0] if proposal.reasons else proposal.plan.reason
        self._tell(EventKind.DECISION, f"{in_words(proposal.plan)}: {because}")
        try:
            self._history.append(Decided(now, proposal, operation=self._hands.carry_out(proposal)))
        except PenstockError as refusal:
            self._history.append(Decided(now, proposal, Fate.REFUSED, reason=str(refusal)))
            raise

    def _tell_nothing(self, answer: Nothing) -> None:
        if answer.error:
            self._tell(EventKind.VETO, f"{answer.error}: {answer.reason}")
        else:
            self._tell(EventKind.DECISION, f"nothing to change: {answer.reason}")

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
                LOGGER.exception("a round of the controller failed")
                self._tell(EventKind.FAULT, f"a round of the controller failed: {type(problem).__name__}: {problem}")

    def __enter__(self) -> Controller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
