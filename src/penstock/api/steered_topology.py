"""A topology that can be steered by whoever finds its control interface, and that steers itself if it has a goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from penstock.api.discovery import Entry, starting
from penstock.api.server import served
from penstock.api.steering import Steering
from penstock.autoscaler.autonomy import needs_no_goal
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard
from penstock.autoscaler.hands import controller_of
from penstock.autoscaler.neighbours import ALONE, Neighbours
from penstock.monitor.events import EventKind
from penstock.running import RunningTopology
from penstock.settings import Settings


@contextmanager
def steered(
    run: RunningTopology,
    cluster_kind: str,
    request_stop: Callable[[bool], object],
    goal: Goal | None = None,
    entry: Entry | None = None,
    neighbours: Neighbours = ALONE,
    guards: Sequence[Guard] = (),
    forget_decisions: bool = False,
) -> Iterator[Steering]:
    """Steer a run until the block is left; an operation that is under way then is rolled back first."""
    steering = Steering(run, cluster_kind, request_stop, neighbours)
    with ExitStack() as until_the_end:
        until_the_end.callback(steering.close)
        open_to_others(steering, run, until_the_end, goal, entry, guards, forget_decisions)
        yield steering


def found_from_the_start(topology: str, settings: Settings, own_process: bool) -> AbstractContextManager[Entry | None]:
    """Other processes find the topology until the block is left, even before it can be steered."""
    return starting(topology, own_process) if settings.control == "on" else nullcontext()


def open_to_others(
    steering: Steering,
    run: RunningTopology,
    until_the_end: ExitStack,
    goal: Goal | None,
    entry: Entry | None,
    guards: Sequence[Guard] = (),
    forget_decisions: bool = False,
) -> None:
    """Serve the control interface, and start a controller if there is a goal, or if the policy needs none. The user's
    own guards come last. The controller may have to forget what it decided before."""
    if run.settings.control == "on":
        until_the_end.enter_context(served(steering, run.definition.name, str(run.state.path), run.settings, entry))
    strategy = run.settings.strategy
    if goal is not None or needs_no_goal(strategy):
        what = "scales the topology" if goal is None else f"is to reach {goal}"
        run.happened(EventKind.NOTICE, f"{strategy} {what}", "controller", strategy)
        until_the_end.enter_context(controller_of(run, steering.desk, goal, strategy, guards, forget_decisions))
