"""How far every operator had published, written down beside the catalog every few seconds.

Of operators whose bundles stand the catalog alone knows how far they are. A catalog that was restored from an older
copy, or a replica that lagged and took the place of another, would have them begin again where they were then: rows
that sinks have written already would be written once more. This record says that batches are missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.topology.definition import Operator

_NAME = "published.json"


class PublishedRecord:
    """In the state folder. It may lag behind the catalog, and never runs ahead of it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _NAME
        self._written: dict[str, int] | None = None

    def check(self, operators: Iterable[Operator], last_batches: Mapping[str, int]) -> None:
        """Refuse a catalog that lacks batches of these operators, before anything is run or deleted."""
        recorded = self._read()
        for operator in operators:
            number, found = recorded.get(operator.name, -1), last_batches.get(operator.name, -1)
            if number > found:
                has = f"batches up to {found} only" if found >= 0 else "none of its batches"
                raise PenstockError(
                    "CATALOG_WENT_BACK",
                    f'The catalog lacks batches of "{operator.name}": by {self._file}, batch {number} was published, '
                    f"and the catalog has {has}.",
                    "Give the topology the catalog that has everything, restore the whole state folder of one moment, "
                    "or start with a new one. Nothing was deleted.",
                    operator.where,
                )

    def write(self, last_batches: Mapping[str, int]) -> None:
        """Note the last batch of every operator, if there are others than before."""
        if dict(last_batches) == self._written:
            return
        fresh = self._file.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(dict(last_batches), file)
        fresh.replace(self._file)
        self._written = dict(last_batches)

    def _read(self) -> dict[str, int]:
        try:
            found = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:  # a record that cannot be read says nothing
            LOGGER.warning("%s cannot be read: %s", self._file, error)
            return {}
        return {str(name): int(number) for name, number in found.items()} if isinstance(found, dict) else {}
