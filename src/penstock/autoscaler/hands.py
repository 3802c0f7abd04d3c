"""The hands of a controller: it looks and acts over the desk, as a person's request does, and its operations wait in
the same queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.autoscaler.autonomy import rounds_of
from penstock.autoscaler.book_keeper import BookKeeper
from penstock.autoscaler.desk import Desk
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard
from penstock.autoscaler.loop import Controller
from penstock.autoscaler.policy import Decided, Fate, View, policy
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.records import Record, kept
from penstock.clock import run_time, shown
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.running import RunningTopology


class DeskHands:
    """Implements `autoscaler.loop.Hands`."""

    def __init__(self, run: RunningTopology, desk: Desk, goal: Goal | None, strategy: str) -> None:
        self._run = run
        self._desk = desk
        self._goal = goal
        self._strategy = strategy

    def look(self, history: tuple[Decided, ...]) -> View:
        all_of_them, now = self._desk.operations.all(), run_time()
        return replace(
            self._desk.view(),
            goal=self._goal,
            history=history,
            now=now,
            wall=shown(now),
            under_way=next((one.action for one in all_of_them if not one.state.over), ""),
            last_ended=max((one.ended_at for one in all_of_them if one.ended_at is not None), default=None),
            paused=self._run.paused,
        )

    def carry_out(self, proposal: Proposal) -> int:
        return int(self._desk.carry_out(proposal)["id"])

    def fate(self, operation: int) -> tuple[Fate, str]:
        try:
            found = self._desk.operations.get(operation)
        except PenstockError:  # only operations that are over are forgotten
            return Fate.NOTHING, "the operation is no longer known"
        return found.state, found.reason

    def keep(self, record: Record) -> Record:
        return kept(self._run.decisions, record)

    def tell(self, kind: EventKind, reason: str) -> None:
        self._run.happened(kind, reason, "controller", self._strategy)


def controller_of(
    run: RunningTopology, desk: Desk, goal: Goal | None, strategy: str, guards: Sequence[Guard] = ()
) -> Controller:
    """A controller with all guards, and those of the user's own after them. It goes on with what the controller of the
    last driver knew. It decides only on a complete window, which starts anew with every change. Only a policy that
    needs no goal may do without one."""
    hands, decider = DeskHands(run, desk, goal, strategy), policy(strategy)
    every, general = rounds_of(strategy, decider, goal, run.settings)
    keeper = BookKeeper(run.kept_book, hands.tell, desk.operations.continue_after)
    return Controller(strategy, decider, hands, [*general, *guards], every, keeper)
