"""What a run tells about its declaration when it starts: facts that a user may not expect, by operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.engine.query.splitting import Splitting
from penstock.engine.query.standing_room import StandingRoom
from penstock.topology import TopologyDefinition


def shuffled(splits: Mapping[str, Splitting]) -> Iterator[tuple[str, str]]:
    """The keyed operators whose rows Spark shuffles, and why."""
    for name, split in splits.items():
        if split.why:
            yield name, f"Spark shuffles its rows: {split.why}"


def not_standing(room: StandingRoom) -> Iterator[tuple[str, str]]:
    """That bundles do not stand, and why; of no operator by itself."""
    if room.lacking:
        yield (
            "",
            f"bundles do not stand: {room.lacking}. This is slower: with more of them (spark.executor.cores) rows "
            "would not wait for micro-batches.",
        )


def not_replayable(definition: TopologyDefinition) -> Iterator[tuple[str, str]]:
    """The sources that cannot send rows again."""
    for source in definition.sources:
        if not source.spec.replayable:
            yield (
                source.name,
                f'a crash loses the rows that "{source.name}" has read and not published: '
                "this source cannot send them again",
            )
