"""What has to be done every few seconds for as long as a topology runs. Nothing here may cost more the more operators
there are that do nothing, or the more files lie there that are in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.channels.catalog import Catalog
from penstock.channels.log import SWEEPS_A_ROUND, Channels
from penstock.kinds import FileWriter

if TYPE_CHECKING:
    from penstock.engine.run.run import Run

#: Manifests of so many batches stay in the catalog for every operator, and of so many more until they are deleted.
KEPT_BATCHES = 200
PRUNED_BATCHES = 50


@dataclass(frozen=True)
class Staging:
    """A sink's files that wait for their batch to be published, and the operator whose query counts the batches."""

    writer: FileWriter
    query: str


def staging_of(run: Run) -> list[Staging]:
    """What the sinks of a run stage, by the queries as they are now: the first operator of a chain gives its name to
    what the sinks in the chain stage."""
    running = [(sink, run.queries.by_operator.get(sink.name)) for sink in run.definition.sinks]
    found = [(query, run.context.file_writer(sink, query.operator)) for sink, query in running if query]
    return [Staging(writer, query.operator.name) for query, writer in found if writer is not None]


class Chores:
    """Called again and again by one thread."""

    def __init__(
        self, channels: Channels, catalog: Catalog, operators: Sequence[str], staging: Callable[[], Sequence[Staging]]
    ) -> None:
        self._channels = channels
        self._catalog = catalog
        self._operators = operators
        #: As the queries are now: an operator that joins a chain stages under the name of the first one.
        self._staging = staging
        self._pruned_to: dict[str, int] = {}
        self._rounds = 0

    def __call__(self) -> None:
        self._channels.sweep()
        self._prune()
        self._clear_staged()
        self._rounds += 1

    def end(self) -> None:
        """The queries have ended, and the files of published batches have their final names. What is left over is found
        now, wherever it is: all that is still staged, also for the last batch, of which an attempt may have failed."""
        self._channels.sweep(thorough=True)
        for one in self._staging():
            one.writer.clear()

    def _prune(self) -> None:
        for operator in self._operators:
            last = self._channels.last_batch(operator)
            if last is not None and last >= self._pruned_to.get(operator, -PRUNED_BATCHES) + PRUNED_BATCHES:
                self._catalog.prune_batches(operator, KEPT_BATCHES)
                self._pruned_to[operator] = last

    def _clear_staged(self) -> None:
        """Files that attempts have staged which Spark gave up: those of one sink, the next one at the next round."""
        staging = self._staging()
        turn = self._rounds % max(len(staging), SWEEPS_A_ROUND)
        for one in staging[turn : turn + 1]:
            self._clear(one)

    def _clear(self, one: Staging) -> None:
        last = self._channels.last_batch(one.query)
        if last is not None:
            # A batch begins when the one before it has been moved: all that is still staged for that is left over.
            one.writer.clear(before=last)
