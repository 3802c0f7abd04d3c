"""A controller's hands: it asks for what anybody could ask for, and waits in the same line."""

from __future__ import annotations

from penstock.api.steering import Steering
from penstock.autoscaler.goals import Goal, rules_for
from penstock.autoscaler.guards import Situation, cooldown, not_while_paused, one_at_a_time, quota
from penstock.autoscaler.loop import Controller
from penstock.clock import run_time
from penstock.monitor.events import EventKind
from penstock.monitor.snapshot import Snapshot
from penstock.running import RunningTopology
from penstock.strategies.scaling.rules import Rules


class SteeringHands:
    """Implements `controller.loop.Hands`."""

    def __init__(self, run: RunningTopology, steering: Steering, strategy: str, alpha: float) -> None:
        self._run = run
        self._steering = steering
        self._strategy = strategy
        self._alpha = alpha

    def snapshot(self) -> Snapshot:
        return self._run.snapshot()

    def situation(self) -> Situation:
        all_of_them = self._steering.operations.all()
        under_way = next((one.action for one in all_of_them if not one.state.over), "")
        ended = max((one.ended_at for one in all_of_them if one.ended_at is not None), default=None)
        return Situation(run_time(), ended, under_way, len(self._run.cluster.machines), self._run.paused)

    def scale_out(self, machines: int) -> None:
        self._steering.scale_out(machines, self._strategy, alpha=self._alpha)

    def scale_in(self, machines: int) -> None:
        self._steering.scale_in(machines, strategy=self._strategy)

    def tell(self, kind: EventKind, reason: str) -> None:
        self._run.happened(kind, reason, "controller", self._strategy)


def controller_of(run: RunningTopology, steering: Steering, goal: Goal, strategy: str) -> Controller:
    """A controller with all guards. It decides only on a complete window, which starts anew with every change."""
    settings = run.settings
    guards = (not_while_paused, one_at_a_time, cooldown(settings.cooldown_seconds), quota(goal))
    rules = rules_for(goal, Rules.of(settings))
    hands = SteeringHands(run, steering, strategy, rules.alpha)
    return Controller(goal, hands, guards, settings.sample_seconds, rules, settings.cooldown_seconds)
