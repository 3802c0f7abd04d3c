"""Frequent Pattern Detection on real Spark says what a batch job over the same tweets says, to the last count."""

from __future__ import annotations

import json
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from redis_server import redis_server
from written_rows import WAIT, rows_of

from penstock import sinks, sources
from penstock.engine.spark.host import SparkHost

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from pattern_counts import exact_changes

ROOT = Path(__file__).parents[2]

RATE, TWEETS = 12, 1_500


def example() -> dict:
    return runpy.run_path(str(ROOT / "examples" / "frequent_patterns.py"), run_name="__main__")


def wanted(host: SparkHost, module: dict, tweets: pa.Table) -> Counter:
    """The changes up to where the watermark gets by the last tweet."""
    spark = host.spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    frame = spark.createDataFrame(tweets.select(["at", "text"]))
    rows = exact_changes(frame, module["patterns_of"], module["WINDOW"], module["THRESHOLD"]).toArrow().to_pylist()
    last = max(tweets.column("at").to_pylist()).replace(microsecond=0) - timedelta(seconds=module["LATENESS"])
    return changes([row for row in rows if row["at"] <= last])


def changes(rows: list[dict]) -> Counter:
    return Counter((row["pattern"], row["at"].timestamp(), row["change"], row["n"]) for row in rows)


@contextmanager
def from_redis(folder: Path, table: pa.Table) -> Iterator[sources.RedisSource]:
    with redis_server(folder) as url:
        import redis

        with redis.Redis.from_url(url) as client:
            for row in table.to_pylist():
                client.xadd("tweets", {"at": row["at"].isoformat(), "text": row["text"]})
        yield sources.redis(url, "tweets", schema="at timestamp, text string", follow=False)


@contextmanager
def from_files(folder: Path, table: pa.Table) -> Iterator[sources.FileSource]:
    rows = table.to_pylist()
    third = len(rows) // 3
    for part in range(3):
        lines = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows[part * third : (part + 1) * third]]
        (folder / f"{part}.json").write_text("\n".join(lines))
    yield sources.files(folder, format="json", schema="id long, at timestamp, text string", follow=False)


@pytest.mark.live
@pytest.mark.parametrize("kind", ["generated", "files", "redis"])
def test_every_change_of_every_pattern_is_that_of_a_batch_job(
    kind: str, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    module = example()
    # Event time goes faster than the clock: the example's rate in event time, all tweets in a few seconds.
    schedule = sources.constant(RATE)
    tweets = module["Tweets"](schedule.when, seed=5, topics=30)
    table = pa.Table.from_batches([tweets(0, TWEETS)])
    given = tmp_path / "tweets"
    given.mkdir()
    made = sources.rate(600, sources.generated(tweets, module["TWEET"]), rows=TWEETS)
    opened = {"generated": nullcontext(made), "files": from_files(given, table), "redis": from_redis(given, table)}
    with opened[kind] as source:
        reporter = sinks.parquet(tmp_path / "changes")
        topology = module["frequent_patterns"](source, reporter, instances=2, tasks=2)
        with running(topology, local_host) as run:
            assert run.wait(2 * WAIT)
    expected = wanted(local_host, module, table)
    assert changes(rows_of(tmp_path / "changes")) == expected
    kinds = Counter(change for _, _, change, _ in expected)
    assert min(kinds["above"], kinds["below"], kinds["gone"]) > 5, f"the tweets must have all kinds of changes: {kinds}"
