"""What examples/frequent_patterns.py must say, computed by a batch job of Spark SQL over the same tweets.

The job knows nothing of watermarks, timers or state: it counts every pattern in every window, and compares each window
with the one before. Tests and benchmarks compare the detector's changes with its own, to the last count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def exact_changes(
    tweets: DataFrame, patterns_of: Callable[[str], Iterable[str]], window: int, threshold: int
) -> DataFrame:
    """The changes of all patterns, `pattern string, at timestamp, change string, n long`: a pattern gets above the
    threshold, gets below it, or is gone; then `n` is how many tweets had it since it came."""
    split = F.udf(lambda text: list(patterns_of(text)), "array<string>")
    seconds = tweets.select(
        F.explode(split("text")).alias("pattern"), F.floor(F.unix_micros("at") / 1_000_000).alias("second")
    )
    bins = seconds.groupBy("pattern", "second").agg(F.count("*").alias("tweets"))
    # A second is in the windows that end one to `window` seconds later, and in the one after these it is missed.
    counted = bins.select(
        "pattern", F.explode(F.expr(f"sequence(second + 1, second + {window})")).alias("end"), "tweets"
    )
    missed = bins.select("pattern", (F.col("second") + window + 1).alias("end"), F.lit(0).alias("tweets"))
    counts = counted.unionByName(missed).groupBy("pattern", "end").agg(F.sum("tweets").alias("n"))
    came = bins.select("pattern", (F.col("second") + 1).alias("end"), F.col("tweets").alias("came"))
    counts = counts.join(came, ["pattern", "end"], "left").fillna(0, ["came"])

    by_pattern = Window.partitionBy("pattern").orderBy("end")
    before = by_pattern.rowsBetween(Window.unboundedPreceding, -1)
    counts = counts.withColumn("previous", F.coalesce(F.lag("n").over(by_pattern), F.lit(0)))
    counts = counts.withColumn("gone_before", F.coalesce(F.sum((F.col("n") == 0).cast("int")).over(before), F.lit(0)))
    total = F.sum("came").over(Window.partitionBy("pattern", "gone_before"))
    counts = counts.withColumn("total", total)

    above = (F.col("n") > threshold) & (F.col("previous") <= threshold)
    below = (F.col("n") <= threshold) & (F.col("previous") > threshold)
    gone = F.col("n") == 0
    changes = [_changes(counts.where(what), name, n) for what, name, n in _kinds(above, below, gone)]
    return changes[0].unionByName(changes[1]).unionByName(changes[2])


def _kinds(above: Any, below: Any, gone: Any) -> list[tuple[Any, str, str]]:
    return [(above, "above", "n"), (below, "below", "n"), (gone, "gone", "total")]


def _changes(counts: DataFrame, change: str, n: str) -> DataFrame:
    at = F.timestamp_seconds("end").alias("at")
    return counts.select("pattern", at, F.lit(change).alias("change"), F.col(n).cast("long").alias("n"))
