"""How tests have bundles of Arrow operators run in micro-batches: as on an attached cluster whose executors have too
few task threads. Penstock has no setting for it: bundles stand wherever there is room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.engine.query import standing_room
from penstock.engine.query.standing_room import StandingRoom

#: The room of a run in which no bundle can stand.
NO_ROOM = StandingRoom("an executor can run 1 Spark tasks at once, and 2 may have to")


@contextmanager
def no_standing_room() -> Iterator[None]:
    """A run that is started within this block finds too few task threads, whatever there is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standing_room, "lacking_threads", lambda *_: NO_ROOM.lacking)
        yield
