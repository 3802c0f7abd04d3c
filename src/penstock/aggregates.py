"""Aggregates that are declared, not programmed: what a user gives to `topology.aggregate`.

    topology.aggregate("counts", {"count": aggregates.count()}, inputs=words, key="word")

Because they are known, rows are combined where they are made: what goes to the state is one row a key and bundle. Each
aggregate is two steps: columns of combined rows, made in Arrow, and a column over those, made by Spark's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import Location, PenstockError


@dataclass(frozen=True)
class CombinedColumn:
    """One column of combined rows: Arrow's aggregation that makes it, and Spark's that merges it."""

    suffix: str
    arrow: str
    type: pa.DataType
    spark: str
    options: Any = None


@dataclass(frozen=True)
class Aggregate:
    kind: str
    #: The column that is aggregated; None counts rows.
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}({self.column or ''})"

    def result(self, of: pa.Schema) -> pa.DataType:
        """The type of the result."""
        match self.kind:
            case "count":
                return pa.int64()
            case "mean":
                return pa.float64()
        return self.parts(of)[0].type

    def parts(self, of: pa.Schema) -> list[CombinedColumn]:
        if self.kind == "count":
            return [CombinedColumn("", "count_all", pa.int64(), "sum")]
        type_ = of.field(self.column).type
        if self.kind == "mean":
            counted = pc.CountOptions(mode="only_valid")
            return [
                CombinedColumn("_sum", "sum", pa.float64(), "sum"),
                CombinedColumn("_count", "count", pa.int64(), "sum", counted),
            ]
        return [CombinedColumn("", self.kind, _summed(type_) if self.kind == "sum" else type_, self.kind)]

    def problem(self, of: pa.Schema) -> str:
        """What is wrong with it on rows of this schema; empty if nothing is."""
        if self.column is None:
            return ""
        if self.column not in of.names:
            return f'there is no column "{self.column}"'
        type_ = of.field(self.column).type
        numeric = pa.types.is_integer(type_) or pa.types.is_floating(type_)
        if self.kind in ("sum", "mean") and not numeric:
            return f'column "{self.column}" is {type_}, which is not a number'
        orderable = numeric or pa.types.is_temporal(type_) or pa.types.is_string(type_)
        return "" if orderable else f'column "{self.column}" is {type_}, which has no order'


def count() -> Aggregate:
    """How many rows."""
    return Aggregate("count")


def sum(column: str) -> Aggregate:
    """The sum of a column of numbers; nulls do not count."""
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """The mean of a column of numbers; nulls do not count."""
    return Aggregate("mean", column)


def _summed(type_: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(type_) else pa.float64()


@dataclass(frozen=True)
class Combine:
    """Rows of one schema by key, in Arrow: an Arrow function for a map that gathers its rows."""

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    of: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        columns = [(name, part.type) for name, part, _ in self._parts()]
        return pa.schema([*(self.of.field(key) for key in self.keys), *columns])

    def _parts(self) -> list[tuple[str, CombinedColumn, str | None]]:
        """Name, how it is made, and of which column."""
        return [
            (f"{name}{part.suffix}", part, one.column)
            for name, one in self.aggregates.items()
            for part in one.parts(self.of)
        ]

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        # By number, and not by name: what Arrow calls its results may be the name of a key.
        columns = [batch.column(key) for key in self.keys]
        asked: list[Any] = []
        for _, part, column in self._parts():
            if column is None:
                asked.append(([], part.arrow))
                continue
            # Cast first: a sum in a narrow type would overflow, or come out as another type than declared.
            values = batch.column(column)
            exact = not pa.types.is_floating(part.type)  # a mean of large whole numbers is rounded, as in Spark
            columns.append(values.cast(part.type, safe=exact) if part.arrow == "sum" else values)
            asked.append((str(len(columns) - 1), part.arrow, *([part.options] if part.options else [])))
        return self._grouped(columns, asked)

    def fold(self, combined: pa.RecordBatch) -> pa.Table:
        """Combined rows once more: of several parts of the rows, what it would be of all of them."""
        parts = self._parts()
        columns = [combined.column(name) for name in (*self.keys, *(name for name, _, _ in parts))]
        asked = [(str(len(self.keys) + number), part.spark) for number, (_, part, _) in enumerate(parts)]
        return self._grouped(columns, asked)

    def _grouped(self, columns: list[pa.Array], asked: list[Any]) -> pa.Table:
        keys = [str(number) for number in range(len(self.keys))]
        rows = pa.table(columns, names=[str(number) for number in range(len(columns))])
        grouped = rows.group_by(keys, use_threads=False).aggregate(asked)
        results = [grouped.column(index) for index, name in enumerate(grouped.column_names) if name not in keys]
        return pa.table([*(grouped.column(key) for key in keys), *results], schema=self.schema)


@dataclass(frozen=True)
class Merge:
    """Combined rows into results, by Spark's stateful aggregation: the DataFrame function of a keyed operator."""

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    of: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        results = [(name, one.result(self.of)) for name, one in self.aggregates.items()]
        return pa.schema([*(self.of.field(key) for key in self.keys), *results])

    def __call__(self, frame: Any) -> Any:
        from pyspark.sql import functions as F

        merged, results = [], []
        for name, one in self.aggregates.items():
            columns = [f"{name}{part.suffix}" for part in one.parts(self.of)]
            for column, part in zip(columns, one.parts(self.of), strict=True):
                merged.append(getattr(F, part.spark)(column).alias(column))
            if one.kind == "mean":
                total, counted = columns
                results.append(F.when(F.col(counted) > 0, F.col(total) / F.col(counted)).alias(name))
            else:
                results.append(F.col(name))
        return frame.groupBy(*self.keys).agg(*merged).select(*self.keys, *results)


def checked(
    name: str, keys: tuple[str, ...], aggregates: Mapping[str, Aggregate], of: pa.Schema, where: Location
) -> tuple[Combine, Merge]:
    """Both steps, or BAD_AGGREGATE."""
    hint = f"The columns are: {', '.join(of.names)}."
    if not isinstance(aggregates, Mapping) or not aggregates:
        raise PenstockError(
            "BAD_AGGREGATE", f'"{name}" has no aggregates.', 'Give some, such as {"count": aggregates.count()}.', where
        )
    for key in keys:
        if key not in of.names:
            raise PenstockError("BAD_AGGREGATE", f'"{name}" has the key "{key}", which is not a column.', hint, where)
    for column, one in aggregates.items():
        if not isinstance(one, Aggregate):
            raise PenstockError(
                "BAD_AGGREGATE",
                f'"{name}": "{column}" is a {type(one).__name__}.',
                "Use an aggregate of penstock.aggregates.",
                where,
            )
        if problem := one.problem(of):
            raise PenstockError("BAD_AGGREGATE", f'"{name}": {one}: {problem}.', hint, where)
    parts = [f"{column}{part.suffix}" for column, one in aggregates.items() for part in one.parts(of)]
    clashes = {one for one in parts if parts.count(one) > 1} | ({*keys} & {*parts, *aggregates})
    if clashes:
        twice = ", ".join(sorted(clashes))
        raise PenstockError(
            "BAD_AGGREGATE",
            f'"{name}" has two columns called {twice}.',
            "Give each column of the result a name of its own.",
            where,
        )
    return Combine(keys, dict(aggregates), of), Merge(keys, dict(aggregates), of)
