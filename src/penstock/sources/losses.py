"""What a cast of Arrow's loses without a word: a fraction, the time of day, a zone, a number beyond the largest float.

Arrow refuses most casts that lose a value. These it carries out, so the values are looked at once more. That a double
as a float has fewer digits is no loss here: who declares a float means that.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.schema import type_text

_INFINITY = r"^\s*[+-]?inf"


def cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values in another type; ArrowInvalid if any of them would be lost."""
    if values.type.equals(type_):
        return values
    found = values.cast(type_)
    check(values, found)
    return found


def check(before: pa.Array, after: pa.Array) -> None:
    """Raises ArrowInvalid if a cast has lost a value."""
    if pa.types.is_dictionary(before.type):
        before = before.dictionary_decode()
    old, new = before.type, after.type
    if old.equals(new) or pa.types.is_null(old):
        return
    if pa.types.is_struct(new):
        parts = before.flatten()
        for part, found in zip(new, after.flatten(), strict=True):
            if (index := old.get_field_index(part.name)) >= 0:
                check(parts[index], found)
    elif pa.types.is_list(new):
        check(before.flatten(), after.flatten())
    elif pa.types.is_floating(new):
        _check_infinities(before, after)
    elif pa.types.is_floating(old) and pa.types.is_decimal(new):
        _refuse(pc.greater(pc.abs(pc.subtract(before, after.cast(old))), _tolerance(before)), old, new)
    elif pa.types.is_timestamp(old) and pa.types.is_date(new):
        # The date of a moment is the one in its own zone, and so is the time of day.
        local = pc.local_timestamp(before) if old.tz is not None else before
        _refuse(pc.not_equal(local, after.cast(local.type)), old, new)
    elif pa.types.is_boolean(new) and _is_number(old):
        _refuse(pc.not_equal(before, after.cast(old)), old, new)


def has_infinity(values: pa.Array) -> bool:
    """Whether there is an infinite number anywhere in these."""
    if pa.types.is_struct(values.type):
        return any(has_infinity(part) for part in values.flatten())
    if pa.types.is_list(values.type):
        return has_infinity(values.flatten())
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_inf(values)).as_py())


def fits(written: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a cast between these types keeps what every value means."""
    if pa.types.is_struct(written) and pa.types.is_struct(declared):
        both = [part for part in declared if written.get_field_index(part.name) >= 0]
        return bool(both) and all(fits(written.field(part.name).type, part.type) for part in both)
    if _is_any_list(written) and _is_any_list(declared):
        return fits(written.value_type, declared.value_type)
    if pa.types.is_map(written) and pa.types.is_map(declared):
        return fits(written.key_type, declared.key_type) and fits(written.item_type, declared.item_type)
    if pa.types.is_timestamp(written) and pa.types.is_timestamp(declared):
        return written.tz is None or declared.tz is not None
    return True


def _is_any_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def _check_infinities(before: pa.Array, after: pa.Array) -> None:
    if not has_infinity(after):
        return
    meant = pa.scalar(False)
    if pa.types.is_floating(before.type):
        meant = pc.is_inf(before)
    elif any(
        is_text(before.type) for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    ):
        meant = pc.match_substring_regex(before.cast(pa.large_string()), _INFINITY, ignore_case=True)
    _refuse(pc.and_(pc.is_inf(after), pc.invert(meant)), before.type, after.type)


def _tolerance(values: pa.Array) -> pa.Array:
    """Two steps of the floating numbers at these: Arrow's way back from a decimal is not exact."""
    digits = {16: 10, 32: 23, 64: 52}[values.type.bit_width]
    return pc.multiply(pc.abs(values), pa.scalar(2.0 ** (1 - digits), values.type))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _refuse(lost: pa.Array, old: pa.DataType, new: pa.DataType) -> None:
    if pc.any(lost).as_py():
        raise pa.ArrowInvalid(f"a value that was written as {old} would be another one as {type_text(new)}")
