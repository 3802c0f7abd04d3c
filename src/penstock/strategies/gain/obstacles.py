"""Why another machine would bring nothing, and what would help instead."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.strategies.fluid import Pipes, rates_at
from penstock.strategies.gain.allocation import full, next_count


def why_nothing(pipes: Pipes, instances: Sequence[int], most: Sequence[float]) -> str:
    """What holds the throughput back, operator by operator, each with what would help."""
    rates = rates_at(pipes, instances)
    slow = full(pipes, rates)
    if not slow:
        return "no operator has more rows than it can handle: the sources offer no more"
    bound = [place for place in slow if instances[place] >= most[place]]
    if bound:
        return "; ".join(_at_its_bound(pipes, place, instances[place], most[place]) for place in bound)
    return "; ".join(_too_few(pipes, place, instances[place], most[place]) for place in slow)


def _at_its_bound(pipes: Pipes, place: int, count: int, most: float) -> str:
    name, tasks = pipes.load.operators[place].name, pipes.tasks[place] if pipes.tasks else None
    if tasks is None:
        return f"{name} can use at most {most:.0f} instances and has {count}: its input must be cut into more parts"
    return f"{name} has {tasks} tasks and {count} instances: `penstock repartition {name} {2 * tasks}` would help"


def _too_few(pipes: Pipes, place: int, count: int, most: float) -> str:
    name, step = pipes.load.operators[place].name, next_count(pipes, place, count, most)
    if step is None or step == count + 1:
        return f"{name} has more rows than it can handle, but what it would do more does not reach a sink"
    return f"{name} gets faster with {step} instances, not with fewer: its tasks are dealt to whole instances"
