"""The gates of a run: whether rows get into its queries. Operators are held at the start. Sources are paused and
resumed. At the end the sources are shut, and the rows that they have emitted drain into the sinks."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Protocol

from penstock.engine.run.any_query import AnyQuery
from penstock.errors import PenstockError
from penstock.logs import traced
from penstock.topology.definition import Source

POLL = 0.05


class QueriesBehind(Protocol):
    """The queries of a run, as its gates see them."""

    @property
    def by_operator(self) -> Mapping[str, AnyQuery]: ...

    def all(self) -> list[AnyQuery]: ...
    def of_sources(self) -> list[AnyQuery]: ...
    def mendable(self, query: AnyQuery) -> bool: ...
    def tell_who_is_the_last(self) -> None: ...


class Gates:
    """The gates of all queries of one run. Any thread may call."""

    def __init__(self, queries: QueriesBehind) -> None:
        self._queries = queries
        #: Held for a moment, while it is decided whether rows are let in. Whoever pauses, resumes or ends a run and
        #: whoever starts a query do that one after the other, so that no query misses what was decided for all.
        self.lock = threading.RLock()
        #: Operators that get no rows until they are released.
        self.held: set[str] = set()
        #: Whether the sources are to emit nothing for the time being.
        self.paused = False
        #: Whether the sources are to emit nothing more at all.
        self.draining = False

    def prepare(self, query: AnyQuery) -> bool:
        """Before a query starts: pause it if it is a source and the sources are paused. False if it must not start: a
        source that Spark drives would read on while the run drains. What it had begun and not published was never
        emitted."""
        query.intake.pause(self.paused and isinstance(query.operator, Source))
        if self.draining and query.emits_by_itself:
            query.intake.close()
            return False
        return True

    def let_in(self, operator: str) -> None:
        """Let rows into the query of an operator, unless the operator is held, or it is a source and the run drains."""
        query = self._queries.by_operator[operator]
        with self.lock:
            ends = self.draining and isinstance(query.operator, Source)
            if ends:
                self._shut(query)
            elif operator not in self.held:
                query.intake.open()
        if ends and query.emits_by_itself:
            query.stop()  # the drain began while this source was being started

    def release(self, operator: str) -> None:
        """Let rows into an operator that was held."""
        self.held.discard(operator)
        self.let_in(operator)

    def pause(self, paused: bool) -> bool:
        """Let the sources emit nothing, or let them emit again; False if nothing changes."""
        with self.lock:
            changes = paused != self.paused
            self.paused = paused
            for query in self._queries.of_sources():
                query.intake.pause(paused)
        return changes

    def begin_drain(self) -> None:
        """Let the sources emit nothing more; rows that they have emitted go on to the sinks."""
        with self.lock:
            self.draining = True
            sources = self._queries.of_sources()
            for query in sources:
                self._shut(query)
        for query in sources:
            if query.emits_by_itself:
                query.stop()  # Spark asks nobody before it reads from a source that it drives

    def _shut(self, source: AnyQuery) -> None:
        """Let a source emit nothing more. A source that Spark drives has to be stopped as well."""
        source.intake.close()
        source.intake.expect_nothing_more()

    @property
    def drained(self) -> bool:
        """After `begin_drain`: whether all rows that the sources have emitted have reached the sinks."""
        self._queries.tell_who_is_the_last()  # a sink may wait for more rows of a file, which will not come
        sources = self._queries.of_sources()
        others = [query for query in self._queries.all() if query not in sources]
        return all(source.quiet for source in sources) and all(query.drained for query in others)

    def drain(self, seconds: float) -> bool:
        """Shut the sources, and wait until all their rows have reached the sinks. False if that takes longer than so
        many seconds, or if a query fails that cannot be mended."""
        queries, deadline = self._queries, time.monotonic() + seconds
        self.begin_drain()
        while not self.drained:
            failed = any(query.failure is not None and not queries.mendable(query) for query in queries.all())
            if failed or time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def has_arrived(self) -> bool:
        """Whether all rows that the sources have emitted have reached the sinks now. This waits for nothing."""
        # The catalog may be what went wrong.
        with traced("it is not known whether all rows have reached the sinks", PenstockError, OSError):
            return self.drained if self.draining else all(query.drained for query in self._queries.all())
        return False
