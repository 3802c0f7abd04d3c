"""The feed of a keyed operator that needs no shuffle: its partitions are its tasks."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.message.shares import InputRange, Share
from penstock.engine.message.task_shares import split_by_task
from penstock.engine.query.feeds import ChannelFeed


class KeyedFeed(ChannelFeed):
    """Rows of one or several interleaved channels, split by Spark's own hash of the key: partition n is task n."""

    def _split(self, ranges: Sequence[InputRange]) -> list[Share]:
        return split_by_task(ranges, self._seats.tasks(self._inputs[0].groups))
