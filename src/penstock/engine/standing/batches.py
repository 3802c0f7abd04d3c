"""The values that a dealer deals in: what a batch reads, its shares, and the bundles that stand and work on them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.engine.message.shares import Bundle, Share
from penstock.engine.query.feeds import Batch
from penstock.engine.query.pacing import Pacer
from penstock.monitor.report import BundleReport

#: A turn, and the place of a bundle in it.
SeatKey = tuple[int, int]


@dataclass(frozen=True)
class CutBatch:
    """What a batch reads, and how that is shared out."""

    #: The account of it, for the reports.
    read: Batch
    shares: tuple[Share, ...]
    #: Where each input ends after this batch.
    ends: dict[str, Any]


class Supply(Protocol):
    """What the dealer asks of a feed. One thread at a time looks or cuts; nobody holds a lock meanwhile."""

    #: Whether any bundle may have any of the rows.
    any_bundle: bool

    @property
    def counts_rows(self) -> bool:
        """Whether what it counts are rows, and not bytes of files, say."""

    def look(self) -> None:
        """Find out what is there, where that may take a while."""

    def available(self) -> int:
        """How much could be read now, in what the pacer counts. Quick: the channels' lock is held."""

    def due_in(self) -> float | None:
        """Seconds until there may be more without anything being published; None if that never happens."""

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        """The next batch, of about so much, for these bundles; None if there is nothing to read after all."""

    def go_back(self, ends: Mapping[str, Any] | None) -> None:
        """The next batch begins where a batch ended that was cut before; None: where the newest published one ended."""


@dataclass(eq=False)
class OpenBatch:
    """A batch that was cut and is not published."""

    number: int
    cut: CutBatch
    turn: int
    #: When it was cut, of the monotonic clock.
    started: float
    reports: list[tuple[BundleReport, ...] | None] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return None not in self.reports


@dataclass(eq=False)
class Dealt:
    """One share of an open batch, which one bundle works on or will."""

    batch: OpenBatch
    part: int
    share: Share
    #: How many bundles that worked on it were silent for too long, and were given up.
    silences: int = 0
    #: How much it is of what its bundle was to have of the batch: less than all where groups of keys change hands.
    portion: float = 1.0


@dataclass(eq=False)
class Standing:
    """A bundle that stands: which one of which turn, what it works on, and how fast it is."""

    turn: int
    index: int
    bundle: Bundle
    pacer: Pacer
    #: What its thread waits for while another bundle has the watch; its lock is that of the channels.
    woken: threading.Condition
    #: The how-manieth attempt of Spark at its task.
    attempt: int = 0
    work: Dealt | None = None
    taken_at: float = 0.0
    #: Whether it waits for work.
    asks: bool = False
    #: Whether it is gone, or another one has taken its seat: nothing that it says counts any more.
    gone: bool = False

    @property
    def seat(self) -> SeatKey:
        return self.turn, self.index
