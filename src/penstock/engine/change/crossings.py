"""The barriers that operators cross while their tasks move: the last batch on the old placement, and the first batch on
the new one. They are found in the times of published batches. Spark is asked only when both are crossed: how long the
commit of the state took in the one, and each task in the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.clock import shown
from penstock.engine.run.any_query import AnyQuery
from penstock.engine.run.run import Run
from penstock.engine.standing.query import StandingQuery
from penstock.logs import traced
from penstock.monitor.events import EventKind
from penstock.monitor.publications import BatchTimes
from penstock.plans.enacting import Move
from penstock.plans.migration import (
    Barrier,
    Barriers,
    Flow,
    Migration,
    barriers_of,
    flow_of,
    longest,
    operators_behind,
)


@dataclass(frozen=True)
class Crossing:
    """An operator between its two barriers: how long Spark took to commit the state at the first of them, and how the
    operator and those that the change does not touch flowed."""

    barriers: Barriers
    save_seconds: float | None
    own: Flow
    others: tuple[Flow, ...]


class Crossings:
    """The operators whose tasks one change moves. The thread that carries the change out calls it."""

    def __init__(
        self,
        run: Run,
        tasks: Mapping[str, Sequence[int]],
        touched: Collection[str],
        asked_at: float,
        took: Callable[[str, int], Mapping[int, list[float]]],
    ) -> None:
        """By operator, the tasks that move. `touched` are all operators that the change places anew. `took` says how
        long each task of an operator took in a batch."""
        self._run = run
        self._tasks = tasks
        self._asked_at = asked_at
        #: Since when the new placement is planned: chains that it does not allow are split after it was asked for.
        self.placed_at = asked_at
        self._took = took
        #: By operator: how long each task took in the first batch on the new placement.
        self.task_seconds: dict[str, Mapping[int, list[float]]] = {}
        operators = [one.name for one in run.definition.operators]
        self._others = [name for name in operators if name not in touched]
        self._behind = operators_behind(run.definition, tasks)
        # Now, because only the newest batches are remembered.
        self._usual = {name: self._flow(name, asked_at) for name in operators}
        self._crossed: dict[str, Crossing] = {}

    def crossed(self, operator: str, since: float) -> bool:
        """Whether an operator has published a batch on the new placement, which batches before `since` did not run on.
        The first time, both barriers become events. An operator whose tasks all stay has nothing to cross."""
        if operator in self._crossed or operator not in self._tasks:
            return True
        barriers = self._barriers(operator, since)
        if barriers.second is None:
            return False
        if barriers.first is not None:
            self._tell(operator, barriers.first, "first", "the last batch on the old placement")
        self._tell(operator, barriers.second, "second", "the first batch on the new placement")
        # At once, because only what happened in the newest batches is remembered.
        self.task_seconds[operator] = self._took(operator, barriers.second.batch)
        self._crossed[operator] = self._crossing(operator, barriers, barriers.second.at)
        return True

    def is_replay(self, operator: str, batch: int) -> bool:
        """Whether a batch was published before the new placement was planned, and was run once more since. It has moved
        the state, but nothing is published of it."""
        batches = self._run.publications.batches(operator)
        return any(one.batch == batch and one.finished <= self.placed_at for one in batches)

    def reports(
        self, moves: Sequence[Move], sizes: Mapping[str, Sequence[int]], over_at: float
    ) -> tuple[Migration, ...]:
        """The migration of every operator, with its state in bytes by task. The change was over at `over_at`."""
        found = []
        for operator, tasks in self._tasks.items():
            # An operator that has nothing to do crosses nothing.
            crossing = self._crossed.get(operator) or self._crossing(
                operator, self._barriers(operator, self.placed_at), over_at
            )
            found.append(
                Migration(
                    operator,
                    tuple(tasks),
                    len(sizes[operator]),
                    sum(sizes[operator][task] for task in tasks),
                    sum(sizes[operator]),
                    self._asked_at,
                    crossing.barriers,
                    crossing.save_seconds,
                    longest(move.load_seconds for move in moves if move.operator == operator),
                    crossing.own,
                    crossing.others,
                )
            )
        return tuple(found)

    def _crossing(self, operator: str, barriers: Barriers, ended_at: float) -> Crossing:
        return Crossing(
            barriers,
            self._save_seconds(operator, barriers),
            self._during(operator, ended_at),
            tuple(self._during(other, ended_at) for other in self._others),
        )

    def _during(self, operator: str, ended_at: float) -> Flow:
        usual = self._usual[operator]
        return replace(
            self._flow(operator, ended_at),
            usual_gap_seconds=usual.usual_gap_seconds,
            rows_per_second_before=usual.rows_per_second_before,
        )

    def _flow(self, operator: str, ended_at: float) -> Flow:
        batches = self._run.publications.batches(operator)
        return flow_of(operator, batches, self._asked_at, ended_at, operator in self._behind)

    def _barriers(self, operator: str, since: float) -> Barriers:
        query, batches = self._run.query(operator), self._run.publications.batches(operator)
        if self._run.host.streams.internals is not None:  # otherwise Spark chooses, whatever a batch asked for
            batches = [_as_asked(query, one) for one in batches]
        return barriers_of(batches, self.placed_at, since)

    def _save_seconds(self, operator: str, barriers: Barriers) -> float | None:
        query = self._run.query(operator).query
        if query is None or barriers.first is None:
            return None
        with traced(f"what Spark took to commit the state of {operator} could not be read", Exception):
            return commit_seconds(query.recentProgress, barriers.first.batch)
        return None

    def _tell(self, operator: str, barrier: Barrier, which: str, what: str) -> None:
        after = barrier.at - self._asked_at
        when = f"{after:.2f} s after" if after >= 0 else "before"
        self._run.happened(
            EventKind.ACTION,
            f"{which} barrier: batch {barrier.batch} is {what}; it was published {when} the placement was asked for",
            operator,
            fields={
                "barrier": which,
                "batch": barrier.batch,
                "time": shown(barrier.at),
                "tasks": list(self._tasks[operator]),
            },
        )


def _as_asked(query: AnyQuery, batch: BatchTimes) -> BatchTimes:
    """A batch whose start is when it asked where it is to run, where that is remembered: the placement may change
    between the two. A batch that never asked has no rows, and ran where the batch before it ran. One that has asked
    after it was published is a replay, of which nothing is published."""
    requested = None if isinstance(query, StandingQuery) else query.requested(batch.batch)
    is_own = requested is not None and requested.at <= batch.finished
    return replace(batch, started=requested.at) if requested is not None and is_own else batch


def commit_seconds(progress: Iterable[Mapping[str, Any]], batch: int) -> float | None:
    """How long Spark took to commit the state in a batch, by the progress that it keeps of the newest batches: all
    tasks and stateful steps added up. Spark also writes progress while it waits, under the number of the batch that
    comes next; so the newest progress with a number counts. None if Spark does not tell."""
    found = [one for one in progress if one["batchId"] == batch]
    times = [step["commitTimeMs"] for one in found[-1:] for step in one["stateOperators"] or ()]
    return sum(times) / 1000 if times else None
