"""Decision records: every decision is a prediction, and what is measured after it is compared with it. Values only;
`verdicts.py` judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from penstock.autoscaler.balance import Balance, balance_of
from penstock.autoscaler.proposals import Proposal, action_of, in_words
from penstock.clock import shown
from penstock.monitor.decisions import DecisionLog, KeptDecision
from penstock.monitor.snapshot import Snapshot

#: A load that differs by more than this share is another load.
CHANGED = 0.15


class Verdict(StrEnum):
    """What a decision turned out to be."""

    PENDING = "pending"
    AS_EXPECTED = "as expected"
    LESS = "less"
    NONE = "none"
    HARMFUL = "harmful"
    #: Something else changed meanwhile, or too little was measured.
    UNCLEAR = "unclear"
    NOT_APPLIED = "not applied"

    @property
    def judged(self) -> bool:
        """Whether the decision's effect is known."""
        return self in (Verdict.AS_EXPECTED, Verdict.LESS, Verdict.NONE, Verdict.HARMFUL)


@dataclass(frozen=True)
class Figures:
    """What a topology did at one moment, as far as decisions are judged by it."""

    balance: Balance
    machines: int
    #: By operator.
    utilisation: Mapping[str, float] = field(default_factory=dict)
    instances: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot) -> Figures:
        placement = snapshot.placement
        return Figures(
            balance_of(snapshot),
            len(snapshot.cluster.machines),
            {name: one.utilisation for name, one in snapshot.operators.items() if one.utilisation is not None},
            {name: placement.total(name) for name in placement.instances},
            {name: len(slots) for name, slots in placement.tasks.items()},
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "throughput": self.balance.throughput,
            "offered": self.balance.offered,
            "backlog": self.balance.backlog,
            "trend": self.balance.trend,
            "machines": self.machines,
            "utilisation": dict(self.utilisation),
            "instances": dict(self.instances),
        }


def another_load(before: Figures, now: Figures) -> str:
    """In what the load is another one than before; empty if it is the same."""
    if before.tasks != now.tasks:
        return "an operator was repartitioned"
    pairs = (
        ("the sources are offered", before.balance.offered, now.balance.offered),
        # Where sources do not say what they are offered, and where nothing is lacking, throughput is demand.
        ("the sinks get", before.balance.throughput, now.balance.throughput),
    )
    for what, old, new in pairs if before.balance.offered is None else pairs[:1]:
        if old is not None and new is not None and abs(new - old) > CHANGED * max(old, new):
            return f"{what} {new:,.0f} rows/s and not {old:,.0f}"
    return ""


@dataclass(frozen=True)
class Record:
    """One decision: what was measured before it, what it expected, what was measured after it, and the verdict."""

    #: When it was decided, in run time.
    at: float
    proposal: Proposal
    before: Figures
    #: The number of the operation that carries it out; None if it was refused at once.
    operation: int | None = None
    measured: Figures | None = None
    verdict: Verdict = Verdict.PENDING
    #: The reason for the verdict.
    why: str = ""
    #: Given by the log that keeps it; 0 before that.
    id: int = 0

    def expected(self, metric: str, subject: str = "") -> float | None:
        found = (one.value for one in self.proposal.predictions if (one.metric, one.subject) == (metric, subject))
        return next(found, None)

    def as_json(self) -> dict[str, Any]:
        proposal = self.proposal
        return {
            "id": self.id,
            "time": shown(self.at),
            "action": action_of(proposal.plan),
            "change": in_words(proposal.plan),
            "strategy": proposal.strategy,
            "operation": self.operation,
            "reasons": list(proposal.reasons),
            "reverts": list(proposal.reverts),
            "before": self.before.as_json(),
            "expected": [dataclasses.asdict(one) for one in proposal.predictions],
            "measured": None if self.measured is None else self.measured.as_json(),
            "verdict": str(self.verdict),
            "why": self.why,
        }


def kept(log: DecisionLog, record: Record) -> Record:
    """The record with the id under which a log keeps it."""
    entry = log.enter(KeptDecision(shown(record.at), str(record.verdict), record.as_json(), record.id))
    return replace(record, id=entry.id)
