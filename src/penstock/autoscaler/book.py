"""The controller's book: its decisions, what became of each, and what each turned out to be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from penstock.autoscaler.policy import Decided, Fate, View
from penstock.autoscaler.proposals import Answer, Nothing, Proposal, direction, in_words
from penstock.autoscaler.recollection import Recollection
from penstock.autoscaler.records import Figures, Record, Verdict, another_load
from penstock.autoscaler.verdicts import judged
from penstock.monitor.events import EventKind

#: How many of its earlier decisions a policy sees.
REMEMBERED = 1000
#: What was wanted for longer than so many windows, twice the patience of guards, is wanted anew if the load has
#: changed: a load that grows all the time is answered nevertheless.
WANTED_ANEW = 2.5
FateOf = Callable[[int], tuple[Fate, str]]
Tell = Callable[[EventKind, str], None]
Keep = Callable[[Record], Record]


class Book:
    """Not safe for several threads; the controller has one."""

    def __init__(self, fate: FateOf, keep: Keep, tell: Tell) -> None:
        self._fate = fate
        self._keep = keep
        self._tell = tell
        self._decided: deque[Decided] = deque(maxlen=REMEMBERED)
        #: When the last operation ended, whoever had asked for it; None if none is known.
        self.last_ended: float | None = None
        #: What the policy wants, since when, and what was measured when that began.
        self._wanted: tuple[str, float, Figures | None] = ("", 0.0, None)

    def recall(self, known: Recollection) -> None:
        """Take in what a controller knew before the driver restarted."""
        for one in known.decided:
            if one.record is not None and one.operation in known.judged:
                self._keep(one.record)  # people read no longer that it is pending
            self._decided.append(one)
        self.last_ended = known.last_ended

    @property
    def decided(self) -> tuple[Decided, ...]:
        """The earlier decisions, as they were seen last."""
        return tuple(self._decided)

    def history(self) -> tuple[Decided, ...]:
        """The earlier decisions, with what has become of each by now."""
        for index, one in enumerate(self._decided):
            if one.operation is not None and not one.fate.over:
                fate, reason = self._fate(one.operation)
                if (fate, reason) != (one.fate, one.reason):  # what is the same decision is not written again
                    self._decided[index] = replace(one, fate=fate, reason=reason)
        return tuple(self._decided)

    def checked(self, view: View) -> View:
        """The view with a verdict on every decision whose effect can be seen now."""
        for index, entry in enumerate(self._decided):
            one = entry
            if one.fate.over and one.ended is None:
                one = self._decided[index] = replace(one, ended=view.now)
                self._tell_if_failed(one)
            if one.record is not None and one.record.verdict is Verdict.PENDING:
                record = judged(one.record, one.fate, one.reason, view, one.ended)
                if record is not one.record:
                    self._decided[index] = replace(one, record=self._keep(record))
                    self._tell_of(record)
        ended = [at for at in (self.last_ended, view.last_ended) if at is not None]
        self.last_ended = max(ended, default=None)
        return replace(view, history=tuple(self._decided), last_ended=self.last_ended)

    def wanted(self, answer: Answer, view: View) -> View:
        """The view that says since when the policy has wanted this kind of change in every round, under this load. What
        guards have refused for so long that the load is another one by now is wanted anew: the window in which the load
        changed tells of neither."""
        wants = "" if isinstance(answer, Nothing) else direction(answer)
        kind, since, before = self._wanted
        old = view.now - since > WANTED_ANEW * view.settings.window_samples * view.settings.sample_seconds
        now = Figures.of(view.snapshot)
        if wants != kind or (old and before is not None and another_load(before, now)):
            self._wanted = (wants, view.now, now)
        return replace(view, wanted_since=self._wanted[1])

    def enter(self, view: View, proposal: Proposal, operation: int) -> None:
        """A decision that is being carried out."""
        record = self._keep(Record(view.now, proposal, Figures.of(view.snapshot), operation))
        self._decided.append(Decided(view.now, proposal, operation=operation, record=record))

    def refused(self, view: View, proposal: Proposal, reason: str) -> None:
        """A decision that was refused at once."""
        record = Record(view.now, proposal, Figures.of(view.snapshot), verdict=Verdict.NOT_APPLIED, why=reason)
        self._decided.append(
            Decided(view.now, proposal, Fate.REFUSED, reason=reason, ended=view.now, record=self._keep(record))
        )

    def _tell_if_failed(self, one: Decided) -> None:
        if one.fate in (Fate.ROLLED_BACK, Fate.REFUSED, Fate.CANCELLED):
            what = f"operation {one.operation} ({in_words(one.proposal.plan)})"
            self._tell(EventKind.NOTICE, f"{what} was not carried out; {one.fate}: {one.reason}")

    def _tell_of(self, record: Record) -> None:
        if record.verdict is not Verdict.NOT_APPLIED:
            self._tell(EventKind.NOTICE, f"operation {record.operation}: {record.verdict}: {record.why}")
