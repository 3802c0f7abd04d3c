"""What a controller learns from its earlier decisions, as guards: an action without effect is not repeated, a harmful
one is not either, one that failed waits, and a machine that was missed is kept for a while. All of it is over when the
load is another one, or with time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.autoscaler.goals import too_slow
from penstock.autoscaler.policy import Decided, Fate, View
from penstock.autoscaler.proposals import Nothing, Proposal, direction, machines_fewer, machines_more
from penstock.autoscaler.records import Figures, Record, Verdict, another_load
from penstock.strategies.rules import Rules

HOUR = 3600.0
DAY = 24 * HOUR
#: A machine that is needed again within this time after it was removed was missed.
SOON = HOUR
#: A machine that was missed is kept at least so long.
KEPT = HOUR / 2
#: What was learned from a mistake counts half after this time.
HALF_LIFE = 2 * HOUR
#: Nobody waits longer than this after a mistake, however often it was made.
LONGEST = 4 * HOUR
#: What failed is tried again after this time at the latest: what was in the way may be gone, and rows wait.
LONGEST_PAUSE = HOUR / 2
#: So many decisions in a row without effect are enough.
WITHOUT_EFFECT = 2
#: A veto ends with this if it is about what happened before the driver restarted. Nobody but a person can tell that the
#: cause is gone: functions, machines and sinks may be others by now.
BEFORE_RESTART = " (known from before the restart: if you have removed the cause, start with --forget-decisions)"


@dataclass(frozen=True)
class Patience:
    """A change is made only if it was wanted for so many windows without a break: a burst is over before that, and what
    is measured while the load changes is half of one load and half of another."""

    windows: float

    def __call__(self, proposal: Proposal, view: View) -> str:
        if proposal.undo or view.wanted_since is None:
            return ""
        wanted = view.now - view.wanted_since
        left = self.windows * view.settings.window_samples * view.settings.sample_seconds - wanted
        return f"it is wanted for {wanted:.0f} s only; {left:.0f} s more are waited for" if left > 0 else ""


def not_judged_yet(proposal: Proposal, view: View) -> str:
    """What the last change brought is measured before the next one begins."""
    done = [one for one in view.history if one.fate is Fate.DONE and one.record is not None]
    if not done or proposal.undo or done[-1].record is None or done[-1].record.verdict is not Verdict.PENDING:
        return ""
    return f"what operation {done[-1].operation} brought is not measured yet"


@dataclass(frozen=True)
class Failures:
    """After a proposal was refused or rolled back, the next one waits so many seconds; twice as long after each further
    failure, up to half an hour."""

    seconds: float

    def __call__(self, _: Proposal, view: View) -> str:
        failed: list[Decided] = []
        for one in reversed(view.history):
            if one.fate not in (Fate.REFUSED, Fate.ROLLED_BACK):
                break
            failed.append(one)
        if not failed:
            return ""
        wait = min(self.seconds * 2 ** (len(failed) - 1), LONGEST_PAUSE)
        last = failed[0].at if failed[0].ended is None else failed[0].ended
        left = last + wait - view.now
        if left <= 0:
            return ""
        text = f"the last proposal was {failed[0].fate}; the next one may begin in {left:.0f} s"
        return f"{text}{_from_before(*failed)}"


@dataclass(frozen=True)
class Harmful:
    """A kind of change that was harmful is not made again, as long as the load is the same."""

    def __call__(self, proposal: Proposal, view: View) -> str:
        if proposal.undo:
            return ""
        now = Figures.of(view.snapshot)
        for one, record in _judged(view):
            if direction(record.proposal) == direction(proposal) and record.verdict is Verdict.HARMFUL:
                if view.now > record.at + DAY or another_load(record.before, now):
                    continue
                text = f"operation {record.operation} of this kind was harmful ({record.why}), and the load is the same"
                return f"{text}{_from_before(one)}"
        return ""


@dataclass(frozen=True)
class Capped:
    """If two changes in a row that were to bring more throughput brought nothing, there is no third, as long as the
    load is the same."""

    def __call__(self, proposal: Proposal, view: View) -> str:
        if direction(proposal) == "fewer" or proposal.undo:
            return ""
        last = [pair for pair in _judged(view) if direction(pair[1].proposal) != "fewer"][:WITHOUT_EFFECT]
        more = [record for _, record in last]
        if len(more) < WITHOUT_EFFECT or any(record.verdict is not Verdict.NONE for record in more):
            return ""
        measured, now = more[0].measured, Figures.of(view.snapshot)
        if measured is None or another_load(measured, now):
            return ""
        numbers = " and ".join(str(record.operation) for record in reversed(more))
        before = _from_before(*(one for one, _ in last))
        return f"operations {numbers} brought nothing, and the load is the same{before}; {limit_in_words(view)}"


def limit_in_words(view: View) -> str:
    """What keeps the throughput from growing, as far as that can be seen, and what a person can do."""
    slow = () if isinstance(view.load, Nothing) else too_slow(view.snapshot, view.load, Rules.of(view.settings))
    return at_their_limit(view, slow) or (
        "more instances are not what it lacks: the driver, a source or the network may be what is slow"
    )


def at_their_limit(view: View, operators: Iterable[str]) -> str:
    """Which of these operators have as many instances as tasks, and what would help."""
    placement, found = view.snapshot.placement, []
    for name in operators:
        tasks = len(placement.tasks.get(name, ()))
        if tasks and placement.total(name) >= tasks:
            found.append(f"{name} has {tasks} tasks and {tasks} instances: penstock repartition {name} {2 * tasks}")
    return "; ".join(found)


@dataclass(frozen=True)
class Regret:
    """If the topology needed a machine again soon after one was removed, no machine is removed for so many seconds.
    Each time this happens again the time doubles, and with time that is forgotten. If the load was the same both times,
    the machine is kept as long as the load stays the same."""

    seconds: float

    def __call__(self, proposal: Proposal, view: View) -> str:
        if not machines_fewer(proposal.plan) or proposal.undo:
            return ""
        level, last = 0.0, None
        for removed, missed in _missed(view):
            level = 1.0 if last is None else level * 0.5 ** ((missed.at - last.at) / HALF_LIFE) + 1.0
            last = missed
            if _same_load(removed, missed, view):
                text = "the topology needed another machine after one was removed at this load"
                return f"{text}{_from_before(removed)}"
        if last is None or view.now >= last.at + min(max(self.seconds, KEPT) * 2 ** (level - 1), LONGEST):
            return ""
        return f"the topology needed another machine right after one was removed the last time{_from_before(last)}"


def _missed(view: View) -> Iterator[tuple[Decided, Decided]]:
    """Removals of machines, each with the decision that brought one back soon after."""
    removed: Decided | None = None
    for one in view.history:
        if one.fate in (Fate.REFUSED, Fate.ROLLED_BACK, Fate.CANCELLED, Fate.NOTHING):
            continue
        if machines_more(one.proposal.plan) and removed is not None and one.at < removed.at + SOON:
            yield removed, one
        if machines_more(one.proposal.plan) or machines_fewer(one.proposal.plan):
            removed = one if machines_fewer(one.proposal.plan) else None


def _same_load(removed: Decided, missed: Decided, view: View) -> bool:
    if removed.record is None or missed.record is None or view.now > missed.at + DAY:
        return False
    if removed.record.before.machines < view.machines:
        return False  # there are more machines now than there were then
    before = removed.record.before
    return not another_load(before, missed.record.before) and not another_load(before, Figures.of(view.snapshot))


def _judged(view: View) -> list[tuple[Decided, Record]]:
    """The decisions whose effect is known, each with its record, the newest first."""
    found = [(one, one.record) for one in reversed(view.history) if one.record is not None and not one.proposal.undo]
    return [(one, record) for one, record in found if record.verdict.judged]


def _from_before(*learned_from: Decided) -> str:
    """What a veto says in addition if one of these decisions was made before the driver restarted."""
    return BEFORE_RESTART if any(one.recalled for one in learned_from) else ""
