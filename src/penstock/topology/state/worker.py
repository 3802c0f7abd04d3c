"""How a processor is handed its rows and timers, and what it yields is checked: the same on Spark and in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.failing import OperatorFailure, failure
from penstock.schema import schema_text, type_text
from penstock.topology.state.held import moment
from penstock.topology.state.processor import Processor
from penstock.topology.state.values import fitting

_HINT = "Correct it; with --state the topology then goes on from where it was."


@dataclass(frozen=True)
class Worker:
    """Calls one processor, and names its failures."""

    operator: str
    processor: Processor
    key: tuple[str, ...]
    #: What the processor may yield.
    schema: pa.Schema
    where: Location

    def rows(self, key: tuple[Any, ...], rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """What the processor yields for the rows of one key."""
        return self._checked(lambda: self.processor.rows(self._named(key), map(_in_utc, rows)))

    def timer(self, key: tuple[Any, ...], at: int) -> Iterator[dict[str, Any]]:
        """What the processor yields when a timer has come."""
        return self._checked(lambda: self.processor.timer(self._named(key), moment(at)))

    @cached_property
    def _fits(self) -> dict[str, Callable[[Any], bool]]:
        return {column.name: fitting(column.type) for column in self.schema}

    def _named(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return _in_utc(dict(zip(self.key, key, strict=True)))

    def _checked(self, call: Any) -> Iterator[dict[str, Any]]:
        fits = self._fits
        try:
            # A method without a yield returns nothing.
            for row in call() or ():
                if not isinstance(row, Mapping) or not row.keys() <= fits.keys():
                    raise self._wrong(row)
                for name, value in row.items():
                    if not fits[name](value):
                        raise self._unfit(name, value)
                yield dict(row)
        except OperatorFailure:
            raise
        except Exception as error:
            raise failure(self, error, _HINT) from error

    def _wrong(self, row: Any) -> PenstockError:
        what = f"a row with {', '.join(map(str, row))}" if isinstance(row, Mapping) else f"a {type(row).__name__}"
        return PenstockError(
            "FUNCTION_SCHEMA",
            f"the processor yielded {what}.",
            f"Yield a dict for each row, with the declared columns: {', '.join(self.schema.names)}.",
        )

    def _unfit(self, name: str, value: Any) -> PenstockError:
        return PenstockError(
            "FUNCTION_SCHEMA",
            f"the processor yielded {value!r}, a {type(value).__name__}, which does not fit into the column "
            f'"{name} {type_text(self.schema.field(name).type)}".',
            f'Yield rows of "{schema_text(self.schema)}".',
        )


def _in_utc(row: Mapping[str, Any]) -> dict[str, Any]:
    """Spark gives moments in the time zone of its session."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value
        for name, value in row.items()
    }
