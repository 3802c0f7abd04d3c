"""Every setting, declared once: name, type, default, range, meaning. docs/settings.md is generated from this list."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock import plugins
from penstock.errors import PenstockError
from penstock.freeze import freeze_windows
from penstock.setting import check, read, setting, type_of
from penstock.thresholds import check_thresholds

#: Settings that Penstock had before, and the one that took the place of each.
REPLACED: Mapping[str, str] = {
    "batch_interval": "latency_under_load",
    "batch_interval_most": "latency_with_backlog",
    "batch_linger": "latency_spark",
    "batch_rows": "rows_at_once",
    "batch_bytes": "rows_at_once_mb",
}


@dataclass(frozen=True)
class Settings:
    """How a topology is run; give them as `penstock run --set NAME=VALUE` or `Settings(NAME=VALUE)`."""

    backlog_rows: int = setting(2_000_000, "The most rows that may wait in front of an operator.", low=1)
    backlog_bytes: int = setting(512 << 20, "The most bytes that may wait in front of an operator.", low=1024)
    backlog_policy: str = setting(
        "throttle",
        "What happens when backlog_rows or backlog_bytes is reached: throttle makes the operators before it wait, up "
        "to the sources; spill lets the backlog grow.",
        choices=("throttle", "spill"),
    )
    chaining: str = setting(
        "on",
        "Whether neighbouring operators with the same instances on the same slots run as one chain, without a channel "
        "between them. A chain is taken apart for an operator that needs other instances.",
        choices=("on", "off"),
    )
    latency: float = setting(
        0.03,
        "Seconds from source to sink that Penstock aims at where nothing is congested and bundles stand (sources, "
        "Arrow functions, sinks that bundles write; for other operators, see latency_spark). A smaller value costs "
        "more of the processor, a larger one leaves more of it to others. The option --latency of `penstock run` is "
        "another thing: the links of a lab.",
        low=0.001,
        high=60,
    )
    latency_cores: float = setting(
        0.5,
        "How much of a core the driver's Python process may use before Penstock gives the aimed-at latency up. While "
        "it uses more, rows wait longer for other rows, for at most half of latency_under_load, and bundles that stand "
        "take more of them at once. A larger value keeps the latency low where the driver has many operators to serve, "
        "a smaller value saves processor time of the driver.",
        low=0.01,
        high=1024,
    )
    latency_under_load: float = setting(
        0.5,
        "Seconds that rows should take through one operator that is under load: it takes no more rows at once than it "
        "handles in that time. The time that rows wait in front of the operator comes on top. A smaller value gives a "
        "lower latency, a larger value may give more rows a second.",
        low=0.05,
        high=600,
    )
    latency_with_backlog: float = setting(
        3.0,
        "Seconds that rows may take at most through one operator in front of which more and more rows wait. Such "
        "an operator takes more rows at once than latency_under_load allows, if it then gets more of them done. A "
        "smaller value gives a lower latency, a larger value may give more rows a second. A value below "
        "latency_under_load counts as latency_under_load.",
        low=0.0,
        high=600,
    )
    latency_spark: float = setting(
        0.1,
        "Seconds that rows may wait for Spark's next micro-batch, where Spark does the work of an operator in "
        "micro-batches (keyed operators, DataFrame functions) and the operator is not busy. A smaller value gives a "
        "lower latency, a larger value leaves more processor time to other operators. Where rows wait, watermarks and "
        "timers wait for their micro-batch too, but no longer than 15 s. For all other operators, see latency.",
        low=0.0,
        high=60,
    )
    rows_at_once: int = setting(
        1_000_000,
        "The most rows that an operator takes at once. Lower it if memory runs out over large rows of Kafka, Redis or "
        "a rate source: how many MB those are is not known before they are read. For a Parquet sink and whatever is in "
        "one chain with it, file_rows counts instead, unless the chain begins with files.",
        low=1,
    )
    rows_at_once_mb: int = setting(
        128,
        "The most MB of rows that an operator takes at once, as they are in segments or files; in memory they may be "
        "larger. Lower it if an operator runs out of memory. For other sources than files, see rows_at_once.",
        low=1,
        high=1_000_000,
    )
    turn_seconds: float = setting(
        600.0, "Seconds that the Spark task of a bundle stands before another takes its place.", low=1, high=86_400
    )
    file_seconds: float = setting(
        2.0,
        "Seconds of rows that one file of a Parquet sink holds, where bundles stand. With a smaller value rows show "
        "sooner, with a larger one files are fewer and larger.",
        low=0.01,
        high=3600,
    )
    file_rows: int = setting(
        1_000_000, "Rows that one file of a Parquet sink holds at most, where bundles stand.", low=1, high=1_000_000_000
    )
    shuffle: str = setting(
        "exchange",
        "How the rows of a key reach the task of a keyed operator that holds its state: through Spark's shuffle "
        "(exchange), or the task reads them itself, by hashes that are written beside the rows (none). See "
        "docs/design/0024.",
        choices=("exchange", "none"),
    )
    catalog: str = setting(
        "", "URL of the catalog (postgresql://...). If empty, the catalog is an SQLite file in the state folder."
    )
    catalog_durability: str = setting(
        "process",
        "What the SQLite catalog, segments and the files of Parquet sinks survive without losing a published batch: "
        "the end of the process (process), or a power cut as well (power). With a catalog in PostgreSQL this holds for "
        "segments and files alone. Spark does not sync its own checkpoint files to the disk.",
        choices=("process", "power"),
    )
    segments: str = setting(
        "",
        "Where segments are: a folder or pyarrow file-system URI that all machines see. If empty, they are in the "
        "state folder. Several topologies can share it: each has a folder of its own there.",
    )
    checkpoints: str = setting(
        "",
        "Where Spark's checkpoints are: a folder or URI that all machines see. If empty, they are in the state folder. "
        "Several topologies can share it: each has a folder of its own there.",
    )
    segment_origins: str = setting(
        "auto",
        "Whether a bundle fetches segments that were written on another machine from that machine (on), or reads them "
        "from the store (off). The store stays the truth: what cannot be fetched is read there. auto is on in a lab.",
        choices=("auto", "on", "off"),
    )
    segment_port: int = setting(
        7447, "Port on which each machine serves the segments that were written there.", low=1, high=65535
    )
    segment_kept_mb: int = setting(
        256, "The most MB that a machine keeps of segments, for bundles that read the same rows.", low=1, high=1_000_000
    )
    segment_compression: str = setting(
        "none",
        "Compression of segments. Segments without compression (none) are mapped into memory without a copy.",
        choices=("none", "lz4", "zstd"),
    )
    slot_cores: int = setting(1, "Cores of a slot: the most processes that a bundle may use there.", low=1, high=1024)
    slot_instances: int = setting(
        128, "The most instances that all operators together may have on one slot.", low=1, high=100_000
    )
    slot_memory_mb: int = setting(1024, "Memory of a slot's executor in MB (standalone clusters).", low=512)
    driver_memory_mb: int = setting(1024, "Memory of the Spark driver in MB.", low=512)
    locality_wait: float = setting(
        30.0, "Seconds that Spark waits for the slot that the placement names before it runs a bundle elsewhere.", low=0
    )
    state_store: str = setting("rocksdb", "Spark's state store for keyed operators.", choices=("rocksdb", "memory"))
    task_retries: int = setting(
        4,
        "How often in all Spark may try to run the same bundle; if the last try fails too, the topology ends.",
        low=1,
        high=100,
    )
    placement: str = setting(
        "auto",
        "auto runs bundles on the slots of the placement; unplaced uses only public interfaces of Spark, which then "
        "chooses where bundles run.",
        choices=("auto", "unplaced"),
    )
    drain_seconds: float = setting(
        60.0, "Seconds that a stop waits until rows on their way have reached the sinks.", low=0
    )
    cluster_timeout: float = setting(90.0, "Seconds that a cluster may take to start.", low=1)
    change_seconds: float = setting(
        120.0,
        "Seconds that a change of placement may take until Spark is seen to run it. A change that takes longer is "
        "rolled back.",
        low=1,
    )
    query_restarts: int = setting(
        5,
        "How often in a row Penstock restarts an operator whose query ended because executors were lost, or over "
        "anything else that may pass. Two minutes without such a failure, in which the operator published or had no "
        "rows, give all restarts back. If the operator has published before, lost executors end the topology after a "
        "minute at the earliest, however many restarts that takes. Restarts after a full disk are not counted; with "
        "0, nothing else is tried again. Mistakes in functions, declarations and rows end the topology at once. See "
        "docs/running.md.",
        low=0,
        high=1000,
    )
    retention_seconds: float = setting(
        2.0, "Seconds between two sweeps. A sweep deletes the segments that all their readers have read.", low=0.1
    )
    mapping: str = setting(
        "chained",
        "The mapping that says on which slot instances start, and to which slot new ones go if the request names none. "
        "chained is round_robin, but puts operators that can run as one chain on the same slots. docs/control.md says "
        "which to choose.",
        group=plugins.MAPPINGS,
    )
    strategy: str = setting(
        "stela",
        "The scaling strategy (policy) that decides, unless a command names another one. docs/control.md says which to "
        "choose; docs/design/0008 and, for threshold, docs/design/0029 say how they work.",
        group=plugins.POLICIES,
    )
    stela_alpha: float = setting(
        1.2,
        "An operator is congested when its input rate is higher than this many times its processing rate.",
        low=0.01,
    )
    stela_capacity_alpha: float = setting(
        1.05,
        "With stela_capacity, an operator is congested when its input rate is higher than this many times the rate "
        "that it could reach.",
        low=0.01,
        high=1e6,
    )
    threshold_period: float = setting(
        10.0,
        "Seconds from one look of the strategy threshold at the operators to the next. A look is a round.",
        low=0.1,
        high=3600,
    )
    threshold_cooldown: int = setting(
        12, "Rounds after a change in which the strategy threshold changes nothing.", low=0, high=10_000
    )
    threshold_out: float = setting(
        0.7,
        "The strategy threshold adds an instance for every instance that uses more than this share of its CPU time.",
        low=0,
        high=1,
    )
    threshold_in: float = setting(
        0.2,
        "The strategy threshold halves the instances of an operator if each of them uses less than this share of its "
        "CPU time.",
        low=0,
        high=1,
    )
    threshold_gap: float = setting(
        0.1,
        "How far threshold_out must be above twice threshold_in: with a larger gap, the load may vary more before the "
        "strategy threshold takes back what it did.",
        low=0,
        high=1,
    )
    threshold_minimum: int = setting(
        1,
        "The fewest instances that the strategy threshold leaves to an operator. An operator that declares more as "
        "min_instances keeps those.",
        low=1,
        high=100_000,
    )
    traffic_gain: float = setting(
        0.0,
        "By what share the traffic between machines must fall before the mapping traffic_aware moves what runs. At 0, "
        "any fall is enough, as in the paper. If rates fluctuate, a larger share keeps state from moving after every "
        "cooldown.",
        low=0,
        high=1,
    )
    cooldown_seconds: float = setting(
        120.0, "Seconds after a scaling operation during which a controller starts no other.", low=0
    )
    changes_per_hour: int = setting(
        12,
        "The most changes that a controller makes within an hour. Undoing a harmful change is always allowed.",
        low=1,
        high=3600,
    )
    freeze: str = setting(
        "",
        "Times at which a controller changes nothing, by the driver's clock: Mon-Fri 08:00-09:30; 23:00-01:00. If "
        "empty, there are none.",
    )
    scaling_attempts: int = setting(
        2,
        "How often a scaling operation may be tried: an operation that a fault ended is rolled back and tried again.",
        low=1,
        high=100,
    )
    measure_seconds: float = setting(
        60.0, "Seconds before and after a scaling operation over which the throughput is compared.", low=1, high=3600
    )
    neighbours: str = setting(
        "auto",
        "Where topologies on the same attached cluster agree that one of them changes at a time, and see what the "
        "others use: the URL of a database that all of them reach (postgresql://...), auto (your topologies on this "
        "computer share an SQLite file), or off. A topology that starts a cluster of its own has no neighbours.",
    )
    control: str = setting(
        "on",
        "Whether a running topology has a control interface. With off, neither commands nor HTTP requests find the "
        "topology; a program that runs it still has its handle.",
        choices=("on", "off"),
    )
    control_host: str = setting(
        "127.0.0.1",
        "Address that the control interface listens on. With an address that is not loopback, other computers can "
        "reach it, with the token and without encryption.",
    )
    control_port: int = setting(0, "Port of the control interface; 0 takes any free port.", low=0, high=65535)
    monitoring: str = setting("on", "Whether operators are measured for decisions and history.", choices=("on", "off"))
    sample_seconds: float = setting(
        10.0, "Seconds of a sampling interval: rates are measured and stored interval by interval.", low=0.1, high=600
    )
    window_samples: int = setting(
        20, "Sampling intervals in the sliding window that decisions are made on.", low=1, high=10_000
    )
    window_least_samples: int = setting(
        3,
        "Sampling intervals that a window must cover, since the start or the last change, before a controller decides "
        "on it.",
        low=1,
        high=10_000,
    )
    statistics: str = setting(
        "", "URL of the statistics store (postgresql://...). If empty, the store is an SQLite file in the state folder."
    )
    statistics_samples_hours: float = setting(
        2.0, "Hours for which statistics are kept with a value for every sampling interval.", low=0.1
    )
    statistics_minutes_hours: float = setting(
        24.0, "Hours for which statistics are kept with a value for every minute.", low=1
    )
    statistics_days: float = setting(
        30.0, "Days for which events, and statistics with a value for every ten minutes, are kept.", low=0.1
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check(field, getattr(self, field.name))
        freeze_windows(self.freeze)
        check_thresholds(self.threshold_out, self.threshold_in, self.threshold_gap)

    @property
    def durable(self) -> bool:
        """Whether what is written must survive a power cut."""
        return self.catalog_durability == "power"

    @property
    def longest_batch(self) -> float:
        """Seconds that a batch should take at most under any load."""
        return max(self.latency_under_load, self.latency_with_backlog)

    @property
    def bytes_at_once(self) -> int:
        """The most bytes of rows in one batch of an operator."""
        return self.rows_at_once_mb << 20

    @staticmethod
    def of(values: Mapping[str, Any]) -> Settings:
        """Settings from names and values; text (from a command line) is read as the setting's type."""
        _check_names(values)
        fields = {field.name: field for field in dataclasses.fields(Settings)}
        return Settings(**{name: read(fields[name], value) for name, value in values.items()})


def _checking_names(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def checked(settings: Settings, *args: Any, **values: Any) -> None:
        _check_names(values)
        init(settings, *args, **values)

    return checked


# A dataclass raises a TypeError for a name that it does not know, which says nothing of the one that took its place.
Settings.__init__ = _checking_names(Settings.__init__)  # type: ignore[method-assign]


def _check_names(names: Iterable[str]) -> None:
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    for name in names:
        if name not in fields:
            raise _unknown(name, fields)


def _unknown(name: str, fields: Mapping[str, dataclasses.Field[Any]]) -> PenstockError:
    if instead := REPLACED.get(name):
        meaning = fields[instead].metadata["meaning"]
        return PenstockError(
            "UNKNOWN_SETTING", f'"{instead}" took the place of the setting "{name}".', f"{instead}: {meaning}"
        )
    closest = difflib.get_close_matches(name, [*fields, *REPLACED], n=1)
    hint = f"There are: {', '.join(sorted(fields))}."
    if closest:
        hint = f'Did you mean "{REPLACED.get(closest[0], closest[0])}"?'
    return PenstockError("UNKNOWN_SETTING", f'there is no setting "{name}".', hint)


def reference() -> list[dict[str, str]]:
    """One row a setting, for the documentation and `penstock settings`."""
    rows = []
    for field in dataclasses.fields(Settings):
        low, high, choices = (field.metadata[name] for name in ("low", "high", "choices"))
        if group := field.metadata["group"]:
            choices = (*plugins.BUILT_IN[group], "or one of an installed package")
        bounds = [f"at least {low}"] if low is not None else []
        bounds += [f"at most {high}"] if high is not None else []
        rows.append(
            {
                "name": field.name,
                "type": type_of(field).__name__,
                "default": str(field.default) if field.default != "" else "(empty)",
                "range": ", ".join(choices) if choices else ", ".join(bounds),
                "meaning": field.metadata["meaning"],
            }
        )
    return rows
