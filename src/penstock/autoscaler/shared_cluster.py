"""A cluster that a topology shares with others, over the leases in a database: the topology waits for the lease,
renews it while it changes something, tells what it uses, and looks at what the others use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.autoscaler.neighbours import Change, cores_used
from penstock.channels.leases import Leases, Neighbour
from penstock.errors import PenstockError
from penstock.logs import LOGGER, traced
from penstock.monitor.events import EventKind
from penstock.running import RunningTopology

#: Seconds between two looks of a change that waits, and of the watch over a lease.
POLL = 0.2
#: A lease is renewed so many times while it lasts.
RENEWALS = 6
#: A topology that could not renew its lease for this share of its time takes it for lost: its change is rolled back
#: before the next one in line may begin.
SAFE_SHARE = 0.7
SUBJECT = "neighbours"


class SharedCluster:
    """Implements `autoscaler.neighbours.Neighbours`. As a context manager it renews what the database has of this
    topology, in a thread that ends when the block is left."""

    def __init__(self, run: RunningTopology, leases: Leases) -> None:
        self._run = run
        self._leases = leases
        self.seen: tuple[Neighbour, ...] = ()
        #: Held while the ticket is renewed or given back: a ticket that was given back is not a lost one.
        self._busy = threading.Lock()
        #: The ticket that has the lease; None while this topology does not have it.
        self._ticket: int | None = None
        #: Until when the lease is safe, by the clock of this process.
        self._safe_until = 0.0
        self._lost: PenstockError | None = None
        #: Whether a ticket is still to be given back. While it is, nothing may renew the row that has it.
        self._owed = False
        self._reachable = True
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="penstock-neighbours", daemon=True)

    def __enter__(self) -> SharedCluster:
        self.renew()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    # A lease

    @contextmanager
    def lease(self, change: Change) -> Iterator[None]:
        try:
            if self._comes(change):
                with self._watched(change.stop):
                    yield
            else:
                yield
        finally:
            self._give_back()

    @property
    def lost(self) -> PenstockError | None:
        if self._ticket is not None and self._lost is None and time.monotonic() > self._safe_until:
            self._lost = self._leases.lost()
        return self._lost

    def _comes(self, change: Change) -> bool:
        """Wait until this topology has the lease; False if the change is given up before that."""
        with self._busy:
            self._pay()  # otherwise the old ticket would be taken for that of this change, and given back later
        while True:
            asked = time.monotonic()
            if (ticket := self._leases.ask()) is not None:
                with self._busy:
                    self._ticket, self._safe_until = ticket, self._safe(asked)
                return True
            self.seen = self._leases.neighbours()
            # The first in line is changing. It may have left the line since; then the next look has the lease.
            if (first := next((one for one in self.seen if one.ticket is not None), None)) is not None:
                change.waits(f"waits for topology {first.topology}, which is changing")
            if change.given_up(POLL):
                return False

    @contextmanager
    def _watched(self, stop: Callable[[], bool]) -> Iterator[None]:
        """Stop the change if the lease is lost. The watch asks no database, so it never waits for one."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(POLL):
                if self.lost is not None:
                    stop()  # again and again: a plan that is only being checked may begin later

        watcher = threading.Thread(target=watch, name="penstock-lease", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _give_back(self) -> None:
        with self._busy:
            self._ticket, self._lost, self._owed = None, None, True
            with traced("the lease could not be given back yet", PenstockError):
                self._pay()

    def _pay(self) -> None:
        if self._owed:
            self._leases.leave()
            self._owed = False

    # What is renewed all the time

    def renew(self) -> None:
        """Renew the lease if there is one, tell what this topology uses, and look at the others."""
        try:
            with self._busy:
                self._pay()
                if self._ticket is not None and self._lost is None:
                    self._confirm(self._ticket)
            self._leases.tell(cores_used(self._run.snapshot()))
            self.seen = self._leases.neighbours()
        except PenstockError as problem:
            LOGGER.info("what is shared with neighbours could not be renewed: %s", problem)
            self._tell(False, str(problem))
        else:
            self._tell(True, "the database of neighbours answers again")

    def _confirm(self, ticket: int) -> None:
        asked = time.monotonic()
        try:
            self._leases.confirm(ticket)
        except PenstockError as problem:
            if problem.name != "LEASE_LOST":
                raise
            self._lost = problem
        else:
            self._safe_until = self._safe(asked)

    def _safe(self, asked: float) -> float:
        """The lease lasts from a moment after it was asked for."""
        return asked + SAFE_SHARE * self._leases.lasts

    def _tell(self, reachable: bool, reason: str) -> None:
        if reachable != self._reachable:
            self._reachable = reachable
            self._run.happened(EventKind.RECOVERY if reachable else EventKind.FAULT, reason, SUBJECT)

    def _go_on(self) -> None:
        while not self._ending.wait(self._leases.lasts / RENEWALS):
            try:
                self.renew()
            except Exception:  # a mistake in one round must not end all that follow
                LOGGER.exception("a round of renewing what is shared with neighbours failed")
