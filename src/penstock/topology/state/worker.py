"""How a processor is handed its rows and timers, and what it yields is checked: the same on Spark and in tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.errors import Location, PenstockError
from penstock.failing import OperatorFailure, failure
from penstock.topology.state.held import moment
from penstock.topology.state.processor import Processor

_HINT = "Correct it; with --state the topology then goes on from where it was."


@dataclass(frozen=True)
class Worker:
    """Calls one processor, and names its failures."""

    operator: str
    processor: Processor
    key: tuple[str, ...]
    #: The columns that the processor may yield.
    columns: tuple[str, ...]
    where: Location

    def rows(self, key: tuple[Any, ...], rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """What the processor yields for the rows of one key."""
        return self._checked(lambda: self.processor.rows(self._named(key), map(_in_utc, rows)))

    def timer(self, key: tuple[Any, ...], at: int) -> Iterator[dict[str, Any]]:
        """What the processor yields when a timer has come."""
        return self._checked(lambda: self.processor.timer(self._named(key), moment(at)))

    def _named(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return _in_utc(dict(zip(self.key, key, strict=True)))

    def _checked(self, call: Any) -> Iterator[dict[str, Any]]:
        try:
            # A method without a yield returns nothing.
            for row in call() or ():
                if not isinstance(row, Mapping) or not row.keys() <= set(self.columns):
                    raise self._wrong(row)
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
            f"Yield a dict for each row, with the declared columns: {', '.join(self.columns)}.",
        )


def _in_utc(row: Mapping[str, Any]) -> dict[str, Any]:
    """Spark gives moments in the time zone of its session."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value
        for name, value in row.items()
    }
