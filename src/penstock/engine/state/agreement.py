"""Whether Spark's checkpoints and the catalog tell of the same batches.

A batch is planned by Spark, published in the catalog, and then finished by Spark. So for every query the last published
batch is the last finished one or the one that was planned after it, and it ended where Spark says. If the checkpoint is
older, Spark gives the numbers of published batches to new rows, and these would be taken for replays and lost. If the
catalog is older, batches are missing in it, and the files of their segments would be swept as nobody's. Either can
happen when a copy of one was restored without the other, after a power cut, or when a database fails over to a replica
that lagged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from penstock.channels.catalog import Catalog
from penstock.engine.state.checkpoint_log import CheckpointLog, Positions
from penstock.engine.state.tasks import under_way
from penstock.errors import PenstockError
from penstock.topology.definition import Operator, Source

_RESTORE = "Restore checkpoints and catalog of the same moment, or start with a new state folder"


@dataclass(frozen=True)
class LastBatch:
    """The last batch of an operator that the catalog has."""

    #: -1 if there is none.
    number: int
    #: Where it ended; what an older Penstock wrote does not say it.
    ends: Positions


def last_batch(catalog: Catalog, operator: str) -> LastBatch:
    """The last batch that the catalog has of an operator, and where that batch ended."""
    last = catalog.last_batch(operator)
    if last is None:
        return LastBatch(-1, {})
    [batch] = catalog.manifests(operator, last - 1)
    return LastBatch(last, _ends_of(batch.manifest))


def ends_from(catalog: Catalog, operator: str, batch: int) -> dict[int, Positions]:
    """Where the batches of an operator ended that the catalog has, from this one on."""
    return {one.batch: _ends_of(one.manifest) for one in catalog.manifests(operator, batch - 1)}


def check_agreement(operators: Iterable[Operator], catalog: Catalog, checkpoints: str, spark: SparkSession) -> None:
    """Refuse a state whose checkpoints and catalog do not belong together, before anything is run or deleted: for the
    operators that are to go on from it."""
    channel_ends = catalog.load().ends
    rewriting = under_way(catalog)
    for operator in operators:
        log = CheckpointLog.open(spark, f"{checkpoints}/{operator.name}")
        # Spark counts the rewriting of state as a batch, which is entered in the catalog afterwards.
        unpublished = 1 if rewriting is not None and rewriting[0] == operator.name else 0
        check_operator(operator, log, last_batch(catalog, operator.name), channel_ends, unpublished)


def check_standing(operators: Iterable[Operator], catalog: Catalog, checkpoints: str, spark: SparkSession) -> None:
    """Refuse a state on which the bundles of these operators cannot stand, before anything is run or deleted. Bundles
    that stand begin where the catalog says. A checkpoint is left from a run in which they could not stand: it may be
    older than the catalog, and a batch that was only planned in it is cut anew, but the catalog has what it has
    finished."""
    for operator in operators:
        log, found = CheckpointLog.open(spark, f"{checkpoints}/{operator.name}"), last_batch(catalog, operator.name)
        _check_finished(operator, log, found)
        if isinstance(operator, Source) and found.number >= 0 and "0" not in found.ends:
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f'The catalog does not say how far "{operator.name}" was read: an older Penstock wrote it.',
                f"Give up what the operator holds with --forget {operator.name}, or start with a new state folder (or, "
                "on PostgreSQL, another topology name). Nothing was deleted.",
                operator.where,
            )


def check_stood(
    operators: Iterable[Operator], lacking: str, catalog: Catalog, checkpoints: str, spark: SparkSession
) -> None:
    """Refuse a state on which bundles of these operators have stood, now that they cannot stand: Spark would give the
    numbers of batches that they have published to new rows. `lacking` says why they cannot stand."""
    for operator in operators:
        log, found = CheckpointLog.open(spark, f"{checkpoints}/{operator.name}"), last_batch(catalog, operator.name)
        if log.planned() >= found.number:
            continue  # they have published nothing since the checkpoint was written, or one batch, which is compared
        at = f"is at batch {log.planned()}" if log.planned() >= 0 else "has run no batch"
        raise PenstockError(
            "STATE_DOES_NOT_FIT",
            f'"{operator.name}" cannot go on in micro-batches: the catalog has batches up to {found.number}, and by '
            f"its checkpoint {log.folder} Spark {at}. Its bundles have stood since, or the checkpoint is an older one.",
            f"Bundles cannot stand here: {lacking}. Give the executors as many task threads (spark.executor.cores), so "
            f"that bundles stand and go on, give up what the operator holds with --forget {operator.name}, or start "
            "with a new state folder (or, on PostgreSQL, another topology name). Nothing was deleted.",
            operator.where,
        )


def check_operator(
    operator: Operator,
    log: CheckpointLog,
    found: LastBatch,
    channel_ends: Mapping[str, int],
    unpublished: int = 0,
) -> None:
    """Refuse the state of one operator if its checkpoint and the catalog do not belong together. As many of its
    finished batches may be missing in the catalog as `unpublished` says."""
    _check_finished(operator, log, found, unpublished)
    planned = log.planned()
    if planned < 0 <= found.number:
        raise _unfit(operator, f"the catalog has batches up to {found.number}, and there is no checkpoint {log.folder}")
    if planned < found.number:
        raise _behind(operator, log, found, planned)
    _compare_ends(operator, log, found)
    read = log.ends(planned, of_source=False) if not isinstance(operator, Source) else None
    for channel, row in (read or {}).items():
        if row > channel_ends.get(channel, 0):
            raise _went_back(
                operator,
                f"its checkpoint {log.folder} has batch {planned}, which reads the channel {channel} up to row {row}, "
                f"and in the catalog the channel ends at row {channel_ends.get(channel, 0)}",
            )


def _check_finished(operator: Operator, log: CheckpointLog, found: LastBatch, unpublished: int = 0) -> None:
    """Refuse a catalog that lacks a batch which Spark has finished."""
    finished = log.finished()
    if finished > found.number + unpublished:
        raise _went_back(
            operator,
            f"Spark has finished batch {finished} by its checkpoint {log.folder}, and the catalog has "
            f"{f'batches up to {found.number} only' if found.number >= 0 else 'none of its batches'}",
        )


def check_batch(operator: Operator, log: CheckpointLog, catalog: Catalog, batch: int, last: int) -> None:
    """Refuse a batch that Spark is about to run unless it is the next one after the last that was published, or that
    one again with the same end."""
    if batch > last + 1:
        raise _went_back(operator, f"Spark is at batch {batch}, and the catalog has batches up to {last} only")
    found = last_batch(catalog, operator.name)
    if batch < found.number:
        raise _behind(operator, log, found, batch)
    _compare_ends(operator, log, found)


def _compare_ends(operator: Operator, log: CheckpointLog, found: LastBatch) -> None:
    """Refuse a state whose last published batch ended elsewhere than Spark says."""
    if not found.ends:
        return
    ends = log.ends(found.number, of_source=isinstance(operator, Source))
    if ends is None:
        raise _unfit(operator, f"its checkpoint {log.folder} does not say where batch {found.number} ended")
    for name, end in found.ends.items():
        if ends.get(name) != end:
            where = "" if isinstance(operator, Source) else f" of {name}"
            raise _unfit(
                operator,
                f"batch {found.number} was published up to {end}{where}, and by its checkpoint {log.folder} it ends at "
                f"{ends.get(name)}",
            )


def _behind(operator: Operator, log: CheckpointLog, found: LastBatch, batch: int) -> PenstockError:
    return _unfit(
        operator,
        f"the catalog has batches up to {found.number}, and by its checkpoint {log.folder} Spark is at batch {batch}",
    )


def _unfit(operator: Operator, what: str) -> PenstockError:
    return PenstockError(
        "STATE_DOES_NOT_FIT",
        f'The checkpoint of "{operator.name}" and the catalog are not of the same moment; rows would be lost: {what}.',
        f"{_RESTORE} (or, on PostgreSQL, another topology name), or give up what the operator holds with "
        f"--forget {operator.name}. Nothing was deleted.",
        operator.where,
    )


def _went_back(operator: Operator, what: str) -> PenstockError:
    return PenstockError(
        "CATALOG_WENT_BACK",
        f'The catalog lacks batches of "{operator.name}": {what}.',
        f"{_RESTORE}. Nothing was deleted.",
        operator.where,
    )


def _ends_of(manifest: str) -> Positions:
    ends: Positions = json.loads(manifest).get("ends", {})
    return ends
