"""What a bundle reports with its batch: who ran where, what it read and wrote, and what that cost.

It travels as JSON, never as a pickle, from the executor through the query to the driver, and into the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from dataclasses import fields as fields_of
from typing import Any

from penstock.channels.records import NewSegment


@dataclass(frozen=True)
class ShareTimes:
    """What the dealer measures of one share of a bundle that stands; the bundle itself cannot know it."""

    #: Seconds from when the bundle got the share to when it had told of it.
    held: float
    #: Seconds that its instances together have waited before that, and nobody has told yet: with nothing to hand out,
    #: and with rows that something held back.
    waiting_input: float
    waiting_room: float


@dataclass(frozen=True)
class BundleReport:
    """One Spark task's part of a micro-batch, for one operator: a task that runs a chain reports for each of them."""

    slot: str
    instances: int
    partition: int
    #: The executor that really ran it, as its own process sees it; None where that cannot be known.
    executor: str | None
    host: str
    pid: int
    rows_in: int
    bytes_in: int
    rows_out: Mapping[str, int]
    #: Seconds in the operator's function, the most of any instance and of all together, and their CPU time.
    busy: float
    busy_total: float
    cpu: float
    #: Seconds from the start of the task to its end, reading and writing included.
    seconds: float
    born_from: float
    born_to: float
    segments: tuple[NewSegment, ...] = ()
    #: Files that a sink has staged: (staged path, final path).
    staged: tuple[tuple[str, str], ...] = ()
    #: Rows that the function could not handle: skipped, or sent to the dead-letter output.
    bad_rows: int = 0
    bad_example: str = ""
    #: Bytes read by the slot that wrote them. With rows from Spark SQL, nobody in the bundle saw them being read.
    traffic: Mapping[str, int] = field(default_factory=dict)
    #: Rows read by the channel they are from: a row of a broadcast counts for every instance that got it.
    rows_by_channel: Mapping[str, int] = field(default_factory=dict)
    #: Rows and bytes read by where they came from (penstock.monitor.metric.READ_FROM): each once, however many
    #: instances got it.
    rows_from: Mapping[str, int] = field(default_factory=dict)
    bytes_from: Mapping[str, int] = field(default_factory=dict)
    #: Bytes of these rows as they came over the machine's link, by the machine that sent them.
    over_links: Mapping[str, int] = field(default_factory=dict)
    #: Bytes of the messages by which the driver gave this bundle its work and got its reports, where these crossed a
    #: link. The driver fills it in; None where Spark carries the messages.
    from_driver: int | None = None
    to_driver: int | None = None
    #: Whether Spark SQL did the work: then neither the rows that it read nor its busy and CPU time are known here.
    by_spark_sql: bool = False
    #: Resident memory of the worker process and of its executor, in bytes, at the end of the task.
    memory: int | None = None
    executor_memory: int | None = None
    operator: str = ""
    #: Added by the dealer, for the statistics; None in a micro-batch. Nobody reads it again, so the catalog lacks it.
    times: ShareTimes | None = None

    def as_json(self) -> bytes:
        return _text(self._told() | {"segments": [vars(one) for one in self.segments]}).encode()

    def in_manifest(self) -> dict[str, Any]:
        """Without the segments, which the catalog holds as rows of their own, and what only the monitor wants."""
        told = self._told()
        for name in ("segments", "times", "over_links", "from_driver", "to_driver"):
            told.pop(name, None)
        return told

    def _told(self) -> dict[str, Any]:
        """What is not as usual: there is a report for every piece, and most of it would say that there was nothing."""
        told = dict(vars(self))
        for name, usual in _USUAL.items():
            if told[name] == usual:
                del told[name]
        return told

    @staticmethod
    def parse(text: bytes) -> BundleReport:
        return BundleReport.of(json.loads(text))

    @staticmethod
    def of(fields: dict[str, Any]) -> BundleReport:
        """From what was JSON."""
        fields["segments"] = tuple(NewSegment(**segment) for segment in fields.get("segments", ()))
        fields["staged"] = tuple((staged, final) for staged, final in fields.get("staged", ()))
        return BundleReport(**fields)


def reports_of_share(text: bytes, sent: int, received: int) -> tuple[BundleReport, ...]:
    """What a bundle that stands has reported of one share, as a JSON list: a report of each operator of its chain. The
    first of them has the bytes of the messages that crossed a link for the share."""
    reports: list[dict[str, Any]] = json.loads(text)
    for index, fields in enumerate(reports):
        fields["from_driver"], fields["to_driver"] = (0, 0) if index else (sent, received)
    return tuple(map(BundleReport.of, reports))


#: What a field of a report is if nothing is said of it.
_USUAL = {
    one.name: one.default if one.default_factory is MISSING else one.default_factory()
    for one in fields_of(BundleReport)
    if one.default is not MISSING or one.default_factory is not MISSING
}


#: `json.dumps` would make a new encoder at every call, because the separators are not its own.
_text = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class BatchReport:
    """A whole micro-batch of an operator as the driver saw it."""

    operator: str
    batch: int
    started: float
    finished: float
    rows_in: int
    rows_out: Mapping[str, int]
    bundles: tuple[BundleReport, ...]
    #: Seconds that the task which had the most to do spent in the functions of others in the same chain.
    busy_elsewhere: float = 0.0
    #: Where the batch ends: by channel, or by the number of a source's input. Compared at every start.
    ends: Mapping[str, Any] = field(default_factory=dict)

    @property
    def busy(self) -> float:
        return max((bundle.busy for bundle in self.bundles), default=0.0)

    @property
    def bad_rows(self) -> int:
        return sum(bundle.bad_rows for bundle in self.bundles)

    def as_json(self) -> str:
        return _text({**vars(self), "bundles": [bundle.in_manifest() for bundle in self.bundles]})

    @staticmethod
    def parse(manifest: str) -> BatchReport:
        fields: dict[str, Any] = json.loads(manifest)
        bundles = tuple(BundleReport.of(one) for one in fields["bundles"])
        return BatchReport(**{**fields, "bundles": bundles})


def rows_out(bundles: Iterable[BundleReport]) -> dict[str, int]:
    return sums(bundle.rows_out for bundle in bundles)


def sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts under the same name added up."""
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total
