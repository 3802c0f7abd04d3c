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

#: How many of its earlier decisions a policy sees.
REMEMBERED = 1000


class Hands(Protocol):
    """What the controller reads and acts with."""

    def look(self, history: tuple[Decided, ...]) -> View:
        """The view of the topology at this moment, taken from one snapshot."""

    def carry_out(self, proposal: Proposal) -> int:
        """Ask for the plan of a proposal; returns the number of the operation. A refusal is a named error."""

    def fate(self, operation: int) -> tuple[Fate, str]:
        """What became of an operation so far, and why."""

    def tell(self, kind: EventKind, reason: str) -> None: ...


class Controller:
    """Scales one topology. `step` is one round; as a context manager, the controller makes a round every so many
    seconds in a thread of its own."""

    def __init__(self, name: str, policy: Policy, hands: Hands, guards: Iterable[Guard], every: float) -> None:
        self.name = name
        #: The guards are asked in this order, and the first veto counts.
        self.guards = list(guards)
        self._policy = policy
        self._hands = hands
        self._every = every
        self._history: deque[Decided] = deque(maxlen=REMEMBERED)
        #: The last text that was told, by kind of event.
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
        """The earlier decisions, with what has become of each by now."""
        for index, one in enumerate(self._history):
            if one.operation is not None and not one.fate.over:
                fate, reason = self._hands.fate(one.operation)
                self._history[index] = replace(one, fate=fate, reason=reason)
        return tuple(self._history)

    def _act(self, proposal: Proposal, now: float) -> None:
        self._told = {}  # a decision to act is told each time
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
        """Enter an event, unless the last one of its kind had the same text apart from figures: nobody wants to read
        every ten seconds that there is nothing to do."""
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
