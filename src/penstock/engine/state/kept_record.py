"""What keyed operators keep as state, written down in the catalog: Spark says nothing of it before a query's first
batch, and a run on the state of an earlier one may have no batch to run.

Each entry has the number of the batch after which it was true. It counts for as long as that batch is the operator's
last one, however the run that wrote it has ended. An operator's entry is written when it has had no batch for a while,
and at the end of the run: under load nothing is written, since the next batch would make it untrue.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from penstock.channels.catalog import Catalog
from penstock.monitor.kept_state import KeptState, Kind

_KEPT = "kept"


@dataclass(frozen=True)
class Kept:
    """What an operator keeps after a batch."""

    batch: int
    states: tuple[KeptState, ...]

    @property
    def may_hold_results(self) -> bool:
        """Whether the operator's state is of a kind that may emit results later, whatever the batch."""
        return any(one.open or one.kind in (Kind.JOIN, Kind.OWN) for one in self.states)


class KeptRecord:
    """The record of one run. Queries tell it of their batches, each on its own thread."""

    def __init__(self, catalog: Catalog, last_batch: Callable[[str], int | None]) -> None:
        self._catalog = catalog
        self._last_batch = last_batch
        self._lock = threading.Lock()
        self._written = _read(catalog)
        self._newest = {name: kept for name, kept in self._written.items() if kept.batch == last_batch(name)}
        #: What was known when `settle` was called last.
        self._seen: dict[str, Kept] = {}

    @property
    def known(self) -> dict[str, Kept]:
        """By operator, what it keeps: told of in this run, or written down after the batch that is still its last."""
        with self._lock:
            return dict(self._newest)

    def unknown(self, operators: Iterable[str]) -> list[str]:
        """Those of these operators that have run batches, and of which nobody knows whether they hold results."""
        known = self.known
        closed = {name for name, kept in self._written.items() if not kept.may_hold_results}
        return [
            name
            for name in operators
            if name not in known and name not in closed and self._last_batch(name) is not None
        ]

    def note(self, operator: str, batch: int, states: tuple[KeptState, ...]) -> None:
        """Remember what an operator keeps after a batch."""
        with self._lock:
            self._newest[operator] = Kept(batch, states)

    def settle(self) -> None:
        """Called at intervals: write down what has not changed since the last time."""
        newest = self.known
        self._write({name: kept for name, kept in newest.items() if self._seen.get(name) == kept})
        self._seen = newest

    def write(self) -> None:
        """Write down everything, at the end."""
        self._write(self.known)

    def _write(self, kept: dict[str, Kept]) -> None:
        content = self._written | kept
        if content != self._written:
            self._catalog.set_meta(_KEPT, json.dumps({name: _as_json(one) for name, one in content.items()}))
            self._written = content


def forgotten(catalog: Catalog, operators: Collection[str]) -> dict[str, str]:
    """What is to be recorded, by key, when these operators begin anew or are gone."""
    left = {name: _as_json(kept) for name, kept in _read(catalog).items() if name not in operators}
    return {_KEPT: json.dumps(left) if left else ""}


def _read(catalog: Catalog) -> dict[str, Kept]:
    found = json.loads(catalog.get_meta(_KEPT) or "{}")
    return {
        name: Kept(fields["batch"], tuple(KeptState.parse(one) for one in fields["states"]))
        for name, fields in found.items()
        if "batch" in fields  # without a number it may be of any batch
    }


def _as_json(kept: Kept) -> dict[str, object]:
    return {"batch": kept.batch, "states": [one.as_json() for one in kept.states]}
