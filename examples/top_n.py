"""This topology keeps a board of the ten items with the highest score so far.

    penstock run examples/top_n.py --cluster standalone --machines 2

`score` gives each event points, `rank` adds up the points of every item, and `merge` keeps the best ten items of the
board.

`rank` emits the new total of an item whenever it changes. These rows are updates, so `merge` gets the same item again
and again. An aggregation such as "the ten largest" would fill up with old totals of one item. So `merge` keeps ten
pairs (item, total) as state of its own. Ten pairs are enough to be exact: points are never negative, so a total only
grows. An item that has fallen off the board comes back with its next update, if its total is large enough. The order
in which totals arrive does not matter either: the largest total of an item is its latest. `takes_updates=True` says
that `merge` is written for updates; without it Penstock would refuse a keyed operator that reads the updates of
another one.

All items share one board, so `merge` has only one key, and one instance does all its work. With a board for each
country it could use several instances.
"""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from penstock import Topology, sinks, sources

BEST = 10
BOARD = "board string, place int, item string, total long"
#: The totals by item, as JSON: PySpark 4.3 cannot read an array back from this state.
STATE = "totals string"


def score(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "board": pa.repeat(pa.scalar("everything"), batch.num_rows),
            "item": batch.column("key"),
            "points": pc.divide(batch.column("value"), 100),
        }
    )


def rank(scores):
    return scores.groupBy("board", "item").sum("points").withColumnRenamed("sum(points)", "total")


def best(board, updates, state):
    """The board after some updates; `state` holds the board before them."""
    totals = json.loads(state.get[0]) if state.exists else {}
    for rows in updates:
        for item, total in zip(rows["item"], rows["total"], strict=True):
            totals[item] = max(int(total), totals.get(item, 0))
    # Ties go by name: which of two equal items stays must not depend on which came first.
    kept = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))[:BEST]
    state.update((json.dumps(dict(kept)),))
    yield pd.DataFrame(
        [(board[0], place, item, total) for place, (item, total) in enumerate(kept, 1)],
        columns=["board", "place", "item", "total"],
    )


def merge(totals):
    return totals.groupBy("board").applyInPandasWithState(
        best, outputStructType=BOARD, stateStructType=STATE, outputMode="update", timeoutConf="NoTimeout"
    )


topology = Topology("top_n")
events = topology.source("spout", sources.rate(2000, sources.events(keys=1000, skew=0.8)))
scores = topology.map("score", score, inputs=events, schema="board string, item string, points long", instances=2)
totals = topology.keyed(
    "rank", rank, inputs=scores, key=["board", "item"], schema="board string, item string, total long", instances=2
)
board = topology.keyed("merge", merge, inputs=totals, key="board", schema=BOARD, tasks=1, takes_updates=True)
topology.sink("out", sinks.console(rows=BEST), inputs=board)
