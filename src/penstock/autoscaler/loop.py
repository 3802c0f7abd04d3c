"""The control loop: collect, decide, act. Everything that it uses is handed in."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from penstock.autoscaler.book import Book
from penstock.autoscaler.book_keeper import BookKeeper
from penstock.autoscaler.guards import Guard, reviewed
from penstock.autoscaler.policy import Decided, Fate, Policy, View, decide
from penstock.autoscaler.proposals import Answer, Nothing, Proposal, in_words
from penstock.autoscaler.records import Record
from penstock.autoscaler.undoing import undoing
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.monitor.events import EventKind


class Hands(Protocol):
    """What the controller reads and acts with."""

    def look(self, history: tuple[Decided, ...]) -> View:
        """The view of the topology at this moment, taken from one snapshot."""

    def carry_out(self, proposal: Proposal) -> int:
        """Ask for the plan of a proposal; returns the number of the operation. A refusal is a named error."""

    def fate(self, operation: int) -> tuple[Fate, str]:
        """What became of an operation so far, and why."""

    def keep(self, record: Record) -> Record:
        """Keep the record of a decision, for people; it gets an id the first time."""

    def tell(self, kind: EventKind, reason: str) -> None: ...


class Controller:
    """Scales one topology. `step` is one round; as a context manager, the controller makes a round every so many
    seconds in a thread of its own."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        hands: Hands,
        guards: Iterable[Guard],
        every: float,
        keeper: BookKeeper | None = None,
    ) -> None:
        """`keeper` has what a controller knew before the driver restarted, and keeps what this one knows; without it, a
        controller knows what it has seen itself."""
        self.name = name
        #: The guards are asked in this order, and the first veto counts.
        self.guards = list(guards)
        self._policy = policy
        self._hands = hands
        self._book = Book(hands.fate, hands.keep, hands.tell)
        self._keeper = keeper
        #: Seconds from one round to the next.
        self.every = every
        #: The last text that was told, by kind of event.
        self._told: dict[EventKind, str] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_round, name="penstock-controller", daemon=True)

    def step(self) -> None:
        try:
            view = self._collect()
            try:
                answer = self._decide(view)
                self._act(answer, view)
            finally:
                if self._keeper is not None:
                    self._keeper.note(view, self._book.decided, self._book.last_ended)
        except PenstockError as refusal:
            self._tell(EventKind.VETO, f"{refusal.name}: {refusal.message}")

    def _collect(self) -> View:
        """The topology at this moment, and what the earlier decisions turned out to be."""
        view = self._hands.look(self._book.history())
        if self._keeper is not None and (known := self._keeper.recall(view)) is not None:
            self._book.recall(known)
        return self._book.checked(view)

    def _decide(self, view: View) -> Answer:
        """A harmful decision is undone before anything else is thought of."""
        return undoing(view, self.name) or decide(self.name, self._policy, view)

    def _act(self, answer: Answer, view: View) -> None:
        view = self._book.wanted(answer, view)
        if isinstance(answer, Nothing):
            self._tell_nothing(answer)
            return
        found = reviewed(self.guards, answer, view)
        proposal = found.proposal
        if found.veto:
            self._tell(EventKind.VETO, f"{in_words(proposal.plan)} is not done now: {found.veto}")
            return
        self._told = {}  # a decision to act is told each time
        because = proposal.reasons[0] if proposal.reasons else proposal.plan.reason
        changed = "" if proposal == answer else "; a guard changed it"
        self._tell(EventKind.DECISION, f"{in_words(proposal.plan)}: {because}{changed}")
        try:
            self._book.enter(view, proposal, self._hands.carry_out(proposal))
        except PenstockError as refusal:
            self._book.refused(view, proposal, str(refusal))
            raise

    def history(self) -> tuple[Decided, ...]:
        """The earlier decisions, with what has become of each by now."""
        return self._book.history()

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
        while not self._ending.wait(self.every):
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
