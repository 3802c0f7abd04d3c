"""Whether a value that a processor sets or yields fits its column.

Arrow alone is not enough: without a word it cuts off fractions and the time of a day, and takes numbers for moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from numbers import Real
from typing import Any

import pyarrow as pa

#: Values of exactly these classes fit these types: most values need no further look.
_PLAIN: Mapping[pa.DataType, type] = {
    pa.string(): str,
    pa.bool_(): bool,
    pa.float64(): float,
    pa.binary(): bytes,
    pa.timestamp("us", "UTC"): datetime,
    pa.timestamp("us"): datetime,
}


def fitting(type_: pa.DataType) -> Callable[[Any], bool]:
    """Says whether a column of this type can hold a value as it is."""
    plain = _PLAIN.get(type_)
    most = 2 ** (type_.bit_width - 1) if pa.types.is_signed_integer(type_) else 0

    def fits(value: Any) -> bool:
        if value is None or type(value) is plain or (type(value) is int and -most <= value < most):
            return True
        try:
            scalar_of(value, type_)
        except ValueError:
            return False
        return True

    return fits


def scalar_of(value: Any, type_: pa.DataType) -> pa.Scalar:
    """The value in Arrow; ValueError if it does not fit."""
    number = isinstance(value, Real | Decimal)
    if number and pa.types.is_integer(type_) and value % 1 != 0:
        raise ValueError("it is no whole number")
    if number and pa.types.is_temporal(type_):
        raise ValueError("it is a number")
    if isinstance(value, datetime) and pa.types.is_date(type_):
        raise ValueError("it has a time of the day")
    try:
        return pa.scalar(value, type=type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(str(error)) from None
