"""What has to be done every few seconds for as long as a topology runs. Its cost must not grow with operators that do
nothing, or with files that are in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.channels.catalog import Catalog
from penstock.channels.log import SWEEPS_A_ROUND, Channels
from penstock.engine.query.context import RunContext
from penstock.engine.run.any_query import AnyQuery
from penstock.freed_memory import FreedMemory
from penstock.kinds import FileWriter

#: The catalog keeps the manifests of so many batches for every operator. Older manifests are deleted when so many more
#: have come together.
KEPT_BATCHES = 200
PRUNED_BATCHES = 50


@dataclass(frozen=True)
class Staging:
    """The files of a sink that wait for their batch to be published, and the operator whose query counts batches."""

    writer: FileWriter
    query: str


def staging_of(context: RunContext, queries: Mapping[str, AnyQuery]) -> list[Staging]:
    """What the sinks of a run stage, by the queries as they are now: the first operator of a chain gives its name to
    what the sinks in the chain stage."""
    running = [(sink, queries.get(sink.name)) for sink in context.definition.sinks]
    found = [(query, context.file_writer(sink, query.operator)) for sink, query in running if query]
    return [Staging(writer, query.operator.name) for query, writer in found if writer is not None]


class Chores:
    """The chores of one run. One thread calls it again and again."""

    def __init__(
        self, channels: Channels, catalog: Catalog, operators: Sequence[str], staging: Callable[[], Sequence[Staging]]
    ) -> None:
        self._channels = channels
        self._catalog = catalog
        self._operators = operators
        #: What is staged by the queries as they are now: they change when chains do.
        self._staging = staging
        self._pruned_to: dict[str, int] = {}
        self._freed = FreedMemory()
        self._rounds = 0

    def __call__(self) -> None:
        self._channels.sweep()
        self._prune()
        self._clear_staged()
        self._freed.return_sometimes()
        self._rounds += 1

    def end(self, finish_sinks: Callable[[], None]) -> None:
        """Delete everything that is left over. The queries have ended. `finish_sinks` gives the files of published
        batches their final names: a thread that has published a batch while the queries were ended may not have come to
        that. Then all that is still staged is left over, also for the last batch: an attempt at it may have failed."""
        self._channels.sweep_at_the_end()
        if not self._channels.nobody_publishes:
            return  # the files of what is published now are about to be moved; the next start deletes what is left
        finish_sinks()
        for one in self._staging():
            one.writer.clear()

    def _prune(self) -> None:
        for operator in self._operators:
            last = self._channels.last_batch(operator)
            if last is not None and last >= self._pruned_to.get(operator, -PRUNED_BATCHES) + PRUNED_BATCHES:
                self._catalog.prune_batches(operator, KEPT_BATCHES)
                self._pruned_to[operator] = last

    def _clear_staged(self) -> None:
        """Delete the files that were staged by attempts which Spark gave up: those of one sink in each round."""
        staging = self._staging()
        turn = self._rounds % max(len(staging), SWEEPS_A_ROUND)
        for one in staging[turn : turn + 1]:
            self._clear(one)

    def _clear(self, one: Staging) -> None:
        last = self._channels.last_batch(one.query)
        if last is not None:
            # A batch begins when the files of the batch before it were moved: what is staged for older batches is left.
            one.writer.clear(before=last)
