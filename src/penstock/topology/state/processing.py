"""What a stateful operator does: its processor, by which key and which clock, and what comes out.

It is the DataFrame function of a keyed operator: with it the operator is rehearsed, placed, moved and restarted like
any other. Spark's transformWithState does the work, with on_spark.py between Spark and the processor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.schema import schema_text, type_text
from penstock.topology.state.declared import Declared, states_of
from penstock.topology.state.on_spark import SparkProcessor
from penstock.topology.state.processor import Processor
from penstock.topology.state.worker import Worker

#: Spark's words for the clock of timers.
NO_TIME, PROCESSING_TIME, EVENT_TIME = "None", "ProcessingTime", "EventTime"


@dataclass(frozen=True)
class Processing:
    """A processor, and how the rows of its operator reach it."""

    operator: str
    processor: Processor
    key: tuple[str, ...]
    #: What the processor yields; with several outputs also the column that names the output of a row.
    schema: pa.Schema
    #: The column with the time of a row; None if timers go by the time at which rows are worked on.
    event_time: str | None
    #: Seconds by which the watermark stays behind the newest event time.
    lateness: float
    output_mode: str
    where: Location = field(compare=False)

    @property
    def states(self) -> dict[str, Declared]:
        return states_of(type(self.processor))

    @property
    def time_mode(self) -> str:
        """Which clock Spark keeps for the processor. By processing time Spark runs batches also when no rows come."""
        if self.event_time is not None:
            return EVENT_TIME
        timed = self.processor.has_timers or any(one.ttl is not None for one in self.states.values())
        return PROCESSING_TIME if timed else NO_TIME

    @property
    def words(self) -> dict[str, str]:
        """What the state in a checkpoint depends on, by the name of the state."""
        return {name: one.words for name, one in self.states.items()}

    def __call__(self, frame: Any) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        if self.event_time is not None:
            frame = frame.withWatermark(self.event_time, f"{round(self.lateness * 1000)} milliseconds")
        return frame.groupBy(*self.key).transformWithState(
            SparkProcessor(self.worker(), [frame.schema[name].dataType for name in self.key]),
            from_arrow_schema(self.schema),
            self.output_mode.capitalize(),
            self.time_mode,
        )

    def worker(self) -> Worker:
        """What works with a copy of the processor."""
        return Worker(self.operator, self.processor, self.key, self.schema, self.where)

    def check_inputs(self, rows: pa.Schema) -> None:
        """BAD_PROCESSOR, if rows of this schema have no such event time."""
        name = self.event_time
        if name is None:
            return
        if name not in rows.names:
            found = "is no column"
        elif rows.field(name).type != pa.timestamp("us", "UTC"):
            found = f"has the type {type_text(rows.field(name).type)}"
        else:
            return
        raise PenstockError(
            "BAD_PROCESSOR",
            f'"{self.operator}" has event_time={name!r}, which {found} of its input.',
            f'Name a column of the type timestamp. The input has "{schema_text(rows)}".',
            self.where,
        )


def checked(
    operator: str, processor: Any, event_time: Any, lateness: Any, where: Location
) -> tuple[Processor, str | None, float]:
    """What was declared, as an object, or BAD_PROCESSOR, or BAD_STATE."""
    made = _made(operator, processor, where)
    if type(made).rows is Processor.rows:
        raise PenstockError(
            "BAD_PROCESSOR",
            f'{type(made).__name__}, the processor of "{operator}", has no method rows().',
            "Write rows(self, key, rows), which yields the rows that the operator emits.",
            where,
        )
    if event_time is not None and not isinstance(event_time, str):
        raise PenstockError(
            "BAD_PROCESSOR", f'"{operator}" has event_time={event_time!r}.', "Give the name of a column.", where
        )
    number = isinstance(lateness, int | float) and not isinstance(lateness, bool)
    if not number or not math.isfinite(lateness) or lateness < 0 or (lateness and event_time is None):
        raise PenstockError(
            "BAD_PROCESSOR",
            f'"{operator}" has lateness={lateness!r}{" and no event_time" if event_time is None else ""}.',
            "Give the seconds that a row may come late, with event_time=... for the column that has its time.",
            where,
        )
    for name, state in states_of(type(made)).items():
        _check_state(name, state, event_time)
    return made, event_time, float(lateness)


def _made(operator: str, processor: Any, where: Location) -> Processor:
    is_class = isinstance(processor, type) and issubclass(processor, Processor)
    if not is_class and not isinstance(processor, Processor):
        raise PenstockError(
            "BAD_PROCESSOR",
            f'"{operator}" is given {processor!r}, which is no processor.',
            "Give a class that derives from penstock.state.Processor, or an object of it.",
            where,
        )
    try:
        made: Processor = processor() if is_class else processor
    except TypeError as error:
        raise PenstockError(
            "BAD_PROCESSOR",
            f'the processor of "{operator}" cannot be made: {error}.',
            f"Give an object, such as {processor.__name__}(...), and not the class.",
            where,
        ) from error
    return made


def _check_state(name: str, state: Declared, event_time: str | None) -> None:
    if name in Processor.RESERVED or name.startswith("_"):
        raise PenstockError(
            "BAD_STATE",
            f'a state is called "{name}", which is a reserved name.',
            f"Give it another name: not {', '.join(sorted(Processor.RESERVED))}, and none that begins with _.",
            state.where,
        )
    if state.ttl is not None and event_time is not None:
        raise PenstockError(
            "BAD_STATE",
            f'the state "{name}" has a ttl, and its operator goes by the event time "{event_time}".',
            "Set a timer and clear the state in timer(): Spark lets values expire by processing time only.",
            state.where,
        )
