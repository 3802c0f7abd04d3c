"""Processors for the tests on real Spark: state of every kind, timers of event time and of processing time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from penstock import state

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Totals(state.Processor):
    """Counts the rows of a key, once in each kind of state."""

    value = state.value("n long, newest timestamp")
    ids = state.list("id long")
    by_value = state.map("value long, odd boolean", "n int")

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        held = self.value.get({"n": 0, "newest": None})
        for row in rows:
            newest = max(row["at"], held["newest"] or row["at"])
            held = {"n": held["n"] + 1, "newest": newest}
            self.ids.append(row["id"])
            of = (row["value"] % 5, row["value"] % 2 == 1)
            self.by_value.set(of, self.by_value.get(of, 0) + 1)
        self.value.set(held)
        yield {
            **key,
            "n": held["n"],
            "newest": held["newest"],
            "ids": sum(self.ids),
            "counted": sum(self.by_value.values()),
        }


TOTALS = "key string, n long, newest timestamp, ids long, counted long"


class Windows(state.Processor):
    """Counts the rows of a key by second of event time, and says the count when the watermark has passed the second."""

    counts = state.map("second long", "n long")

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        for row in rows:
            second = (row["at"] - EPOCH) // timedelta(seconds=1)
            self.counts.set(second, self.counts.get(second, 0) + 1)
            self.timers.set(EPOCH + timedelta(seconds=second + 1))
        return iter(())

    def timer(self, key: dict, at: datetime) -> Iterator[dict]:
        second = (at - EPOCH) // timedelta(seconds=1) - 1
        yield {**key, "second": second, "n": self.counts.get(second)}
        self.counts.remove(second)


WINDOWS = "key string, second long, n long"


class Alarm(state.Processor):
    """Rings once, a second after the first row of a key; forgets after a while that it has rung."""

    rung = state.value("first timestamp", ttl=3600)
    brief = state.value("n long", ttl=0.05)

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        self.brief.set(sum(1 for _ in rows))
        if self.rung.get() is None:
            self.rung.set(self.now)
            self.timers.set(self.now + timedelta(seconds=1))
        return iter(())

    def timer(self, key: dict, at: datetime) -> Iterator[dict]:
        yield {
            **key,
            "early": self.now < at,
            "after": (at - self.rung.get()).total_seconds(),
            "left": len(list(self.timers)),
        }


ALARM = "key string, early boolean, after double, left long"


class Counting(state.Processor):
    """The counts of tests/spark/steered.py, in state of one's own."""

    held = state.value("n long")

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        n = self.held.get(0) + sum(1 for _ in rows)
        self.held.set(n)
        yield {**key, "count": n}


class Raising(state.Processor):
    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        raise LookupError(f"no such key as {key['key']}")
