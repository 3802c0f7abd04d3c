"""Does a run of bench-stateful say of every pattern what a batch job over the same tweets says? In a process of its
own, with a Spark of its own, after the run has ended.

    python benchmarks/stateful_counts.py GIVEN
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

#: A pattern, the second at which it changed, how, and its count.
Said = tuple[str, float, str, int]
#: Rows of tweets that are made at once.
BLOCK = 4096


def said(rows: Iterable[Mapping[str, Any]]) -> Counter[Said]:
    return Counter((row["pattern"], row["at"].timestamp(), row["change"], row["n"]) for row in rows)


def compared(reported: Counter[Said], wanted: Counter[Said]) -> dict[str, Any]:
    """How many changes are missing, and how many are there that should not be: those that are doubled, too."""
    missing, surplus = wanted - reported, reported - wanted
    return {
        "changes": wanted.total(),
        "kinds": dict(Counter(change for _, _, change, _ in wanted.elements())),
        "missing": missing.total(),
        "surplus": surplus.total(),
        "examples": [str(one) for one in [*list(missing)[:3], *list(surplus)[:3]]],
    }


def reported(folder: Path) -> Counter[Said]:
    files = sorted(folder.glob("part-*.parquet"))
    return said(row for file in files for row in pq.read_table(file).to_pylist())


def wanted(given: Any) -> Counter[Said]:
    """The changes up to where the watermark gets by the last tweet."""
    import frequent_patterns as example
    from pattern_counts import exact_changes
    from pyspark.sql import SparkSession
    from stateful_topology import FREQUENT

    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take the first Python that it finds
    builder = SparkSession.builder.master("local[2]").appName("stateful-counts")
    for name, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        import pyarrow as pa

        tweets = given.tweets
        blocks = [tweets(first, min(BLOCK, given.rows - first)) for first in range(0, given.rows, BLOCK)]
        table = pa.Table.from_batches(blocks).select(["at", "text"])
        frame = spark.createDataFrame(table)
        rows = exact_changes(frame, example.patterns_of, example.WINDOW, FREQUENT).toArrow().to_pylist()
    finally:
        spark.stop()
    last = tweets.at(given.rows - 1).replace(microsecond=0) - timedelta(seconds=example.LATENESS)
    return said(row for row in rows if row["at"] <= last)


def main() -> int:
    from children import answer, end_with_parent
    from stateful_topology import Given

    end_with_parent()
    given = Given.read(sys.argv[1])
    answer(compared(reported(Path(given.out)), wanted(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
