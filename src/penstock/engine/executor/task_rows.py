"""The rows of one task of a keyed operator, out of the rows of all its tasks.

Every task of a batch finds its rows in the same pieces. A worker process runs several tasks of a slot one after the
other, and bundles that stand write many small segments, so opening all of them for each task would cost more than the
rest of the task. Therefore a worker splits the pieces for all tasks at once, and keeps the parts for its next tasks.
Segments never change, so what is kept stays true. It is little: a larger batch is split piece by piece for each task,
since then the rows cost more than the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from penstock.channels.key_hashes import Key, rows_by_task, rows_of_tasks
from penstock.engine.message.shares import Piece

#: So many rows of a batch, and so many bytes, are split for all tasks at once.
MOST_ROWS = 262_144
MOST_BYTES = 16 << 20
#: A worker keeps the newest batch of so many inputs of keyed operators.
MOST_INPUTS = 4

#: By input: the pieces that were split last, and the rows of each task.
_kept: dict[tuple[frozenset[str], Key, int], tuple[tuple[tuple[str, int, int], ...], list[pa.RecordBatch]]] = {}


def rows_of_task(
    pieces: Sequence[Piece], batches: Iterable[pa.RecordBatch], key: Key, tasks: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the task that these pieces are for, in their order. `batches` reads all rows of the pieces; it is not
    touched if this worker has split them before."""
    task = pieces[0].first_group
    if sum(piece.stop - piece.start for piece in pieces) > MOST_ROWS:
        yield from _one_by_one(batches, key, tasks, task)
        return
    source = (frozenset(piece.channel for piece in pieces), key, tasks)
    wanted = tuple((piece.path, piece.start, piece.stop) for piece in pieces)
    split = _kept.pop(source, None)
    if split is None or split[0] != wanted:
        found = list(batches)
        if sum(batch.nbytes for batch in found) > MOST_BYTES:
            yield from _one_by_one(found, key, tasks, task)
            return
        split = wanted, rows_by_task(found, key, tasks)
    # The input that was used last is the last one.
    _kept[source] = split
    while len(_kept) > MOST_INPUTS:
        _kept.pop(next(iter(_kept)))
    if split[1][task].num_rows:
        yield split[1][task]


def forget() -> None:
    """Keep nothing any more: this worker has other work now, and may have it for long. The batch that it kept may have
    been the largest of hours, and workers that have had other work since would each keep one."""
    _kept.clear()


def _one_by_one(batches: Iterable[pa.RecordBatch], key: Key, tasks: int, task: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        mine = rows_of_tasks(batch, key, tasks, task, task + 1)
        if mine.num_rows:
            yield mine
