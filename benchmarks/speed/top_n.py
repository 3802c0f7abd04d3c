"""The keyed top-N: of every board, the ten items with the most points in one row, kept up to date."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

TOP = 10
BOARD = "board string, place int, item string, points long"


def best(board: tuple[str], updates: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    kept: list[tuple[int, str]] = [tuple(one) for one in json.loads(state.get[0])] if state.exists else []
    for rows in updates:
        top = rows.nlargest(TOP, "points")
        kept += zip(top["points"].tolist(), top["item"].tolist(), strict=True)
    kept = sorted(kept, reverse=True)[:TOP]
    state.update((json.dumps(kept),))
    yield pd.DataFrame(
        [(board[0], place, item, points) for place, (points, item) in enumerate(kept, 1)],
        columns=["board", "place", "item", "points"],
    )


def best_of_boards(frame: Any) -> Any:
    return frame.groupBy("board").applyInPandasWithState(
        best, outputStructType=BOARD, stateStructType="kept string", outputMode="update", timeoutConf="NoTimeout"
    )
