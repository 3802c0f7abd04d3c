"""One instance inside a bundle: its rows go through the functions of all stages, and what that cost is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.channels.records import NewSegment
from penstock.channels.segments import MAX_BATCH_ROWS
from penstock.engine.message.program import Portion, Stage
from penstock.engine.message.shares import Piece
from penstock.errors import PenstockError
from penstock.failing import OperatorFailure, failure, may_pass
from penstock.printable import printable
from penstock.row_text import row_text
from penstock.topology.arrow_function import outputs_of_call
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, MAIN_OUTPUT, OnError

#: A chain takes rows through all its functions in batches of about this size, to stay in the processor's cache (see
#: docs/design/0011), and of no fewer rows than the second: calls of cheap functions still cost little.
CHAIN_BATCH_BYTES, CHAIN_BATCH_ROWS = 1 << 20, 16_384
#: A stage that wants all rows, and whose function can fold parts of them, does so when it has this many, or so much.
FOLD_ROWS = 262_144
FOLD_BYTES = 64 << 20
#: Batches of fewer rows are joined until they are as many, or as large: a string column holds no more than 2 GiB.
SMALL_BATCH_ROWS = 4_096
JOINED_BYTES = 16 << 20
#: What an instance keeps of the outputs of one stage before it has them written.
KEPT_BYTES = 32 << 20
#: A slice keeps all of the rows that it was cut from in memory. It is copied where those are so many times as large...
SLICE_TIMES = 4
#: ... and larger than this, which is about what a batch takes by itself.
SLICE_BYTES = 4 << 10
BAD_ROW_TEXT = 2_000
BAD_EXAMPLE_TEXT = 500


@dataclass(frozen=True)
class Written:
    """Files of one bundle that nobody has published yet: those that a sink has staged, and segments."""

    staged: tuple[tuple[str, str], ...] = ()
    segments: tuple[NewSegment, ...] = ()


#: Writes what an instance has made in a stage.
Write = Callable[[Stage, Mapping[str, list[pa.RecordBatch]]], Written]


@dataclass
class Work:
    """What one instance did in one stage: its outputs in order, and what they cost."""

    outputs: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    #: What was written already, because it was much; it goes before what is in `outputs`.
    written: list[Written] = field(default_factory=list)
    #: The bytes of what is kept and not written yet.
    kept_bytes: int = 0
    #: Rows that could not be handled: the errors and the rows themselves, as text, only where they are to go somewhere.
    keeps_bad: bool = False
    bad: list[tuple[str, str]] = field(default_factory=list)
    bad_rows: int = 0
    bad_example: str = ""
    rows_in: int = 0
    bytes_in: int = 0
    #: Rows by channel, and bytes by the slot that wrote them.
    rows_by_channel: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, int] = field(default_factory=dict)
    #: Rows of a stage that wants them all at once.
    gathered: list[pa.RecordBatch] = field(default_factory=list)
    gathered_rows: int = 0
    gathered_bytes: int = 0
    #: What its function made of those before them, where it can go on from there.
    folded: list[pa.RecordBatch] = field(default_factory=list)
    #: Rows by output, those that the next stage of a chain got among them.
    rows_out: dict[str, int] = field(default_factory=dict)
    busy: float = 0.0
    cpu: float = 0.0

    def emit(self, output: str, part: pa.RecordBatch, keep: bool) -> None:
        self.rows_out[output] = self.rows_out.get(output, 0) + part.num_rows
        if keep:
            part = _without_its_whole(part)
            self.outputs.setdefault(output, []).append(part)
            self.kept_bytes += part.nbytes

    def count(self, piece: Piece | None, rows: int, size: int) -> None:
        self.rows_in += rows
        self.bytes_in += size
        if piece is not None:
            channel, producer = piece.channel, piece.producer_slot
            self.rows_by_channel[channel] = self.rows_by_channel.get(channel, 0) + rows
            self.traffic[producer] = self.traffic.get(producer, 0) + size

    def spent(self, began: float, cpu: float) -> None:
        """Count the time since this stage took over: `began` by the clock, `cpu` of this thread."""
        self.busy += time.perf_counter() - began
        self.cpu += time.thread_time() - cpu

    def refuse(self, row: str, error: str) -> None:
        """Count a row that could not be handled, and keep it as text if it is to go somewhere."""
        self.bad_rows += 1
        row, error = printable(row[:BAD_ROW_TEXT]), printable(error)
        if not self.bad_example:
            self.bad_example = f"{error}: {row}"[:BAD_EXAMPLE_TEXT]
        if self.keeps_bad:
            self.bad.append((error, row[:BAD_ROW_TEXT]))
            self.kept_bytes += len(error) + min(len(row), BAD_ROW_TEXT)

    def take_outputs(self, operator: str) -> dict[str, list[pa.RecordBatch]]:
        """Hand over the rows that are to be written, bad rows among them; nothing of them is kept here."""
        outputs, bad = self.outputs, self.bad
        self.outputs, self.bad, self.kept_bytes = {}, [], 0
        if bad:
            errors, rows = zip(*bad, strict=True)
            letters = pa.record_batch([[operator] * len(bad), errors, rows], schema=DEAD_LETTER_SCHEMA)
            self.rows_out[DEAD_LETTER] = self.rows_out.get(DEAD_LETTER, 0) + len(bad)
            outputs.setdefault(DEAD_LETTER, []).append(letters)
        return outputs


class Instance:
    """Runs the stages of a chain, one after the other, on each batch of its rows."""

    def __init__(self, stages: Sequence[Stage], write: Write, reading_is_work: bool = False) -> None:
        self.stages = stages
        self._write = write
        #: Whether the time that it takes to read rows counts as work of the first stage.
        self._reading_is_work = reading_is_work
        #: What it did, by stage.
        self.works = [Work(keeps_bad=stage.on_error is OnError.DEAD_LETTER) for stage in stages]

    def run(self, portions: Iterator[Portion]) -> None:
        size = CHAIN_BATCH_BYTES if len(self.stages) > 1 else None
        for batch in in_handy_batches(self._counted(portions), size):
            self._take(0, batch)
            self.relieve()
        for index, (stage, work) in enumerate(zip(self.stages, self.works, strict=True)):
            if work.folded:
                _fold(stage, work)
                last = replace(stage, function=getattr(stage.function, "fold", None))
                self._call(index, last, _all_of(stage, work.folded))
            elif work.gathered:
                self._call(index, stage, _all_of(stage, work.gathered))

    def refuse(self, row: str, error: str) -> None:
        """Count a row that could not be read, as text; what has become much is written at once."""
        self.works[0].refuse(row, error)
        if self.works[0].kept_bytes >= KEPT_BYTES:
            self.relieve()

    def relieve(self) -> None:
        """Write the rows of each stage that keeps many: memory must not grow with the rows of a micro-batch."""
        for stage, work in zip(self.stages, self.works, strict=True):
            if work.kept_bytes >= KEPT_BYTES:
                work.written.append(self._write(stage, work.take_outputs(stage.operator)))

    def _counted(self, portions: Iterator[Portion]) -> Iterator[pa.RecordBatch]:
        work = self.works[0]
        while True:
            began, cpu = time.perf_counter(), time.thread_time()
            portion = next(portions, None)
            if self._reading_is_work:
                work.spent(began, cpu)
            if portion is None:
                return
            piece, batch = portion
            work.count(piece, batch.num_rows, batch.nbytes)
            yield batch

    def _take(self, index: int, batch: pa.RecordBatch) -> None:
        stage = self.stages[index]
        if stage.gathers:
            _gather(stage, self.works[index], batch)
        else:
            self._call(index, stage, batch)

    def _call(self, index: int, stage: Stage, batch: pa.RecordBatch) -> None:
        """Call one operator's function with a batch, and then those behind it in the chain with what came out."""
        work = self.works[index]
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            parts = _parts_of_call(stage, work, batch)
        except PenstockError as error:
            raise failure(stage, error) from error
        work.spent(began, cpu)
        for output, part in parts:
            if part.num_rows:
                work.emit(output, part, stage.keeps(output))
                if output == stage.passes_on:
                    self.works[index + 1].count(None, part.num_rows, part.nbytes)
                    self._take(index + 1, part)


def in_handy_batches(batches: Iterator[pa.RecordBatch], most_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order: large batches cut, runs of small ones joined. A reader with a backlog finds many
    small segments, and every call of a function has its price."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        is_small = batch.num_rows < SMALL_BATCH_ROWS
        if small and (not is_small or size + batch.nbytes > JOINED_BYTES):
            yield joined(small)
            small, rows, size = [], 0, 0
        if is_small:
            small.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= SMALL_BATCH_ROWS:
                yield joined(small)
                small, rows, size = [], 0, 0
            continue
        most = _handy_rows(batch, most_bytes)
        for first in range(0, batch.num_rows, most):
            yield batch.slice(first, most) if batch.num_rows > most else batch
    if small:
        yield joined(small)


def _handy_rows(batch: pa.RecordBatch, most_bytes: int | None) -> int:
    if most_bytes is None:
        return MAX_BATCH_ROWS
    rows = most_bytes * int(batch.num_rows) // max(int(batch.nbytes), 1)
    return max(CHAIN_BATCH_ROWS, min(rows, MAX_BATCH_ROWS))


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _without_its_whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, to be kept: a small slice of a large batch as a copy."""
    held = batch.get_total_buffer_size()
    is_small_slice = held > SLICE_BYTES and held > SLICE_TIMES * batch.nbytes
    return pa.concat_batches([batch]) if is_small_slice else batch


def _all_of(stage: Stage, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows as one batch, for a function that wants that."""
    try:
        return joined(batches)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        size = sum(batch.nbytes for batch in batches) >> 20
        problem = PenstockError(
            "ROWS_TOO_LARGE",
            f"the function wants all rows of a batch at once, and {size:,} MiB of them do not fit into one Arrow "
            f"batch: {error}.",
            "Lower the setting rows_at_once_mb, give the operator more instances, or declare it without gather.",
        )
        raise failure(stage, problem) from error


def _gather(stage: Stage, work: Work, batch: pa.RecordBatch) -> None:
    batch = _without_its_whole(batch)
    work.gathered.append(batch)
    work.gathered_rows += batch.num_rows
    work.gathered_bytes += batch.nbytes
    much = work.gathered_rows >= FOLD_ROWS or work.gathered_bytes >= FOLD_BYTES
    if much and hasattr(stage.function, "fold"):
        _fold(stage, work)


def _fold(stage: Stage, work: Work) -> None:
    """Have the function make what it can of the rows so far: fresh memory for all of them costs more than the work."""
    if stage.function is None or not work.gathered:
        return
    began, cpu = time.perf_counter(), time.thread_time()
    try:
        work.folded += stage.function(_all_of(stage, work.gathered)).combine_chunks().to_batches()
    except OperatorFailure:
        raise
    except Exception as error:
        raise failure(stage, error) from error
    work.gathered, work.gathered_rows, work.gathered_bytes = [], 0, 0
    work.spent(began, cpu)


def _parts_of_call(stage: Stage, work: Work, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """The function's outputs for a batch. Where bad rows may go elsewhere, a batch that fails is halved until they
    stand alone; nothing of a failed call is kept, so no row comes out twice. Where the machine lacked something, halves
    may be small enough; a row that still fails for it alone is no bad row, and the share fails."""
    if stage.function is None:
        return [(MAIN_OUTPUT, batch)]
    try:
        result = stage.function(batch)
        if not stage.outputs:  # a sink's own function: rows end here
            return [(MAIN_OUTPUT, batch)]
        return list(outputs_of_call(result, stage.outputs))
    except PenstockError:
        raise
    except Exception as error:
        if stage.on_error is OnError.FAIL:
            raise failure(stage, error) from error
        if batch.num_rows == 1:
            if may_pass(error):
                raise failure(stage, error) from error
            work.refuse(row_text(batch), f"{type(error).__name__}: {error}")
            return []
        half = batch.num_rows // 2
        first = _parts_of_call(stage, work, batch.slice(0, half))
        return first + _parts_of_call(stage, work, batch.slice(half))
