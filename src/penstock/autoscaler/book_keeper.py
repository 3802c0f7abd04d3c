"""Keeps a controller's book from one driver to the next: reads what the last driver wrote, and writes what changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.autoscaler.book_form import DoesNotFit, Remembered, Shape, remembered_of, text_of
from penstock.autoscaler.lessons import DAY, WITHOUT_EFFECT
from penstock.autoscaler.policy import Decided, Fate, View
from penstock.autoscaler.proposals import direction
from penstock.autoscaler.recollection import Recollection, recollection
from penstock.autoscaler.records import Verdict
from penstock.autoscaler.steps import open_steps
from penstock.clock import meant, shown
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.monitor.events import EventKind
from penstock.monitor.kept_book import KeptBook

#: The most decisions that are kept beside those that something depends on for longer.
KEPT = 200
#: For so many seconds a store that is away is asked again, and machines that are missing are waited for: the executors
#: of an attached cluster may come one after the other. With the default settings nothing is decided so early anyway.
WAIT = 120.0
#: So many sentences about what does not hold any more are told; the log has all of them.
TOLD = 5
#: What it means that the store cannot be written: without, and with something that is to be forgotten.
_LOST = "what the controller remembers cannot be written, and a restart would lose it"
_OUTDATED = "what is forgotten cannot be deleted, and after a restart the controller would know it again"
Tell = Callable[[EventKind, str], None]


class BookKeeper:
    """Not safe for several threads; the controller has one."""

    def __init__(
        self,
        kept: KeptBook,
        tell: Tell,
        continue_after: Callable[[int], None] = lambda _: None,
        *,
        forget: bool = False,
    ) -> None:
        """`continue_after` has operations numbered from above a number on: two with one number could not be told
        apart. With `forget` nothing is taken up of what the last driver knew, and that is replaced."""
        self._kept = kept
        self._tell = tell
        self._continue_after = continue_after
        self._forget = forget
        #: Whether the store may still have what is forgotten: the next driver must not take it up again.
        self._outdated = forget
        #: Whether it is settled what is known of the time before.
        self._recalled = False
        #: When that was asked first, in run time.
        self._asked_at: float | None = None
        #: What was written last.
        self._written: tuple[tuple[Decided, ...], float | None, Shape] = ((), None, Shape())
        #: Why the last attempt to write failed; empty if it did not.
        self._failed = ""

    def recall(self, view: View) -> Recollection | None:
        """What the last driver's controller knew, as far as it fits this view; None if that was asked before. As long
        as the store is away, or machines are missing that may still come, a named error is raised: a controller that
        knows nothing would do what it has learned not to."""
        if self._recalled:
            return None
        self._asked_at = view.now if self._asked_at is None else self._asked_at
        waits = view.now < self._asked_at + WAIT
        remembered = self._read(view, waits)
        if remembered is None:
            self._recalled = True
            return Recollection()
        # Only steps depend on the machines that are there.
        needed = remembered.left.machines if remembered.decided and not self._forget else 0
        if waits and view.machines < needed:
            raise _some_are_missing(view.machines, needed)
        self._recalled = True
        # Also where all of it is forgotten: people read of earlier operations by their numbers.
        self._continue_after(max((one.operation or 0 for one in remembered.decided), default=0))
        found = self._fitting(remembered, view)
        return self._forgotten(remembered, found) if self._forget else self._told(found)

    def _read(self, view: View, waits: bool) -> Remembered | None:
        """What the last driver has written; None, and a warning, if it cannot be used."""
        try:
            text = self._kept.read()
        except Exception as away:
            if waits and isinstance(away, PenstockError):
                raise
            self._warn(f"{_named(away)} The controller begins anew: it cannot read what it knew before the restart.")
            return None
        return Remembered((), Shape()) if text is None else self._readable(text, view)

    def _readable(self, text: str, view: View) -> Remembered | None:
        """What a text says; None, and a warning, if it says nothing that could be used."""
        try:
            found = remembered_of(text, view.snapshot.definition, view.snapshot.cluster, view.now, meant)
        except PenstockError as unreadable:
            self._warn(str(unreadable))
            return None
        if isinstance(found, DoesNotFit):
            self._warn(f"the controller begins anew, because what it remembers does not fit: {found.reason}")
            return None
        return found

    def _fitting(self, remembered: Remembered, view: View) -> Recollection:
        try:
            found = recollection(remembered, view.snapshot.placement, view.snapshot.cluster, view.now)
        except Exception as problem:  # a mistake in here must not keep a topology from scaling
            LOGGER.info("what a controller remembers does not fit", exc_info=True)
            self._warn(f"the controller begins anew, because what it remembers does not fit: {type(problem).__name__}")
            return Recollection()
        return found

    def _forgotten(self, remembered: Remembered, found: Recollection) -> Recollection:
        """Nothing of it but the verdicts of decisions that were pending: people read those."""
        if not remembered.decided:
            self._tell(EventKind.NOTICE, "the controller has no earlier decisions to forget")
        elif found.decided:
            what = _forgotten_in_words(found)
            LOGGER.warning("%s", what)
            self._tell(EventKind.NOTICE, what)
        return Recollection(judged=found.judged)

    def _told(self, found: Recollection) -> Recollection:
        if found.decided:
            steps = len(open_steps(found.decided))
            what = f"the controller knows {_counted(found)} from before the restart, and can take back {steps} of them"
            self._tell(EventKind.NOTICE, what)
        for sentence in found.told[:TOLD]:
            self._tell(EventKind.NOTICE, sentence)
        if len(found.told) > TOLD:
            self._tell(EventKind.NOTICE, f"the log tells {len(found.told) - TOLD} more such changes")
        for sentence in found.told:
            LOGGER.warning("after the restart, %s", sentence)
        return found

    def note(self, view: View, decided: Sequence[Decided], last_ended: float | None) -> None:
        """Write what is known now, if it has changed since the last time. What cannot be written is tried again in the
        next round; the controller goes on meanwhile."""
        left = Shape.of(view.snapshot.placement, view.machines)
        nothing_is_known = not decided and last_ended is None
        if not self._recalled or (nothing_is_known and not self._outdated):
            return
        before, ended, shape = self._written
        # Decisions are values that are replaced when they change, so that comparing them costs nothing.
        same = len(before) == len(decided) and all(one is other for one, other in zip(before, decided, strict=True))
        if same and (ended, shape) == (last_ended, left) and not self._outdated:
            return
        try:
            kept = Remembered(tuple(worth_keeping(decided, view.now)), left, last_ended)
            self._kept.write(text_of(kept, view.snapshot.definition, view.now, shown))
        except Exception as problem:
            why = _named(problem)
            if why != self._failed:
                self._warn(f"{_OUTDATED if self._outdated else _LOST}: {why}")
            self._failed = why
            return
        if self._failed:
            self._tell(EventKind.RECOVERY, "what the controller remembers is written again")
        self._failed, self._outdated, self._written = "", False, (tuple(decided), last_ended, left)

    def _warn(self, what: str) -> None:
        LOGGER.warning("%s", what)
        self._tell(EventKind.FAULT, what)


def _named(problem: Exception) -> str:
    if isinstance(problem, PenstockError):
        return f"{problem.name}: {problem.message}"
    LOGGER.info("a mistake in what a controller remembers", exc_info=problem)
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}."


def _counted(found: Recollection) -> str:
    return "1 earlier decision" if len(found.decided) == 1 else f"{len(found.decided)} earlier decisions"


def _forgotten_in_words(found: Recollection) -> str:
    verdicts = [one.record.verdict for one in found.decided if one.record is not None]
    learned = f"{verdicts.count(Verdict.NONE)} brought nothing, {verdicts.count(Verdict.HARMFUL)} did harm"
    what = f"as --forget-decisions asks, the controller has forgotten {_counted(found)} from before the restart"
    steps = [str(step.operation) for step in open_steps(found.decided)]
    if not steps:
        return f"{what} ({learned})"
    operations = f"operation{'' if len(steps) == 1 else 's'} {', '.join(steps)}"
    return f"{what} ({learned}); it will not take back {operations}: what was changed then stays"


def _some_are_missing(there: int, before: int) -> PenstockError:
    return PenstockError(
        "INCOMPLETE_SNAPSHOT",
        f"the cluster has {there} of the {before} machines that it had before the restart.",
        "The controller waits a little for the others, and then goes on without them.",
    )


def worth_keeping(decided: Sequence[Decided], now: float) -> list[Decided]:
    """The newest decisions of a day, which is as long as lessons look back; and older ones that are steps to be taken
    back, or that say that more brings nothing, or what rates were."""
    done = [one for one in decided if one.fate is Fate.DONE]
    more = [one for one in decided if _tells_of_more(one)]
    learned = [one for one in done if one.proposal.memory is not None]
    steps = {step.operation for step in open_steps(decided)}
    kept = [one for one in decided[-KEPT:] if one.at > now - DAY]
    kept += [one for one in decided if one.operation in steps]
    kept += [*more[-WITHOUT_EFFECT:], *done[-1:], *learned[-1:]]
    chosen, operations = {id(one) for one in kept}, _with_linked({one.operation for one in kept}, decided)
    return [one for one in decided if id(one) in chosen or one.operation in operations][-2 * KEPT :]


def _with_linked(operations: set[int | None], decided: Sequence[Decided]) -> set[int | None]:
    """With what these decisions have taken back or corrected, and with what has done so to them: a step that was taken
    back must not look open because nobody remembers that it was."""
    linked: dict[int | None, set[int | None]] = {}
    for one in decided:
        proposal = one.proposal
        for other in (*proposal.reverts, *(() if proposal.corrects is None else (proposal.corrects,))):
            linked.setdefault(one.operation, set()).add(other)
            linked.setdefault(other, set()).add(one.operation)
    found, asked = set[int | None](), operations - {None}
    while asked:
        found |= asked
        asked = {other for one in asked for other in linked.get(one, ())} - found - {None}
    return found


def _tells_of_more(one: Decided) -> bool:
    """Whether it says what more machines or instances bring."""
    judged = one.record is not None and one.record.verdict.judged
    return judged and not one.proposal.undo and direction(one.proposal) != "fewer"
