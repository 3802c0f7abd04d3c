"""The fault campaign's verdict can be "wrong": a row that is lost, doubled, swapped, miscounted or wrongly joined is
noticed. Without Spark: the sinks' files are written here."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fault_campaign import Campaign, Scenario
from fault_topologies import ANSWERS, COPIES, JOINED, REFUSED, check
from steered import CONTENT

from penstock.channels.catalog import Catalog
from penstock.channels.records import NewSegment

ROWS, BATCH = 400, 100
KEYS = CONTENT.rows(0, ROWS).column("key").to_pylist()
ANSWER = ANSWERS.rows(0, ROWS).column("key").to_pylist()
Sinks = dict[str, list[list[dict]]]


def in_batches(rows: list[dict]) -> list[list[dict]]:
    return [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]


def ordered() -> Sinks:
    last: dict[str, int] = {}
    rows = []
    for number in (number for number in range(ROWS) if number % REFUSED != 7):
        rows.append({"id": number, "key": KEYS[number], "before": last.get(KEYS[number], -1)})
        last[KEYS[number]] = number
    letters = [{"row": json.dumps({"id": number})} for number in range(ROWS) if number % REFUSED == 7]
    copies = [{"id": number} for number in range(20) for _ in range(COPIES)]
    return {"rows": in_batches(rows), "letters": in_batches(letters), "copies": in_batches(copies)}


def joined() -> Sinks:
    rows = [{"id": number, "key": KEYS[number]} for number in range(ROWS)]
    pairs = [
        {"id": number, "key": KEYS[number], "answer": ANSWER[number]} for number in range(0, ROWS // 2, JOINED)
    ]  # the other source emitted half as many
    return {"rows": in_batches(rows), "pairs": in_batches(pairs)}


def counted() -> Sinks:
    rows = [{"id": number, "key": KEYS[number]} for number in range(ROWS)]
    counts = [{"key": key, "count": count} for key, count in Counter(KEYS).items()]
    return {"rows": in_batches(rows), "counts": [counts]}


SINKS: dict[str, Callable[[], Sinks]] = {"ordered": ordered, "joined": joined, "counted": counted}
EMITTED = {"events": ROWS, "few": 20, "answers": ROWS // 2}


def write(folder: Path, sinks: Sinks) -> Path:
    for sink, batches in sinks.items():
        (folder / sink).mkdir()
        for number, rows in enumerate(batches):
            pq.write_table(pa.Table.from_pylist(rows), folder / sink / f"part-{number:010d}-00000-x.parquet")
    return folder


@pytest.mark.parametrize("shape", SINKS)
def test_what_is_right_passes(shape: str, tmp_path: Path) -> None:
    check(shape, write(tmp_path, SINKS[shape]()), EMITTED)


def lose(batches: list[list[dict]]) -> None:
    batches[0].pop(3)


def double(batches: list[list[dict]]) -> None:
    batches[-1].append(batches[0][3])


ALL_SINKS = [(shape, sink) for shape, make in SINKS.items() for sink in make()]


@pytest.mark.parametrize("harm", [lose, double])
@pytest.mark.parametrize(("shape", "sink"), ALL_SINKS)
def test_a_row_that_is_lost_or_doubled_is_noticed(shape: str, sink: str, harm: Callable, tmp_path: Path) -> None:
    sinks = SINKS[shape]()
    harm(sinks[sink])
    with pytest.raises(AssertionError):
        check(shape, write(tmp_path, sinks), EMITTED)


@pytest.mark.parametrize("shape", ["ordered", "counted"])
def test_a_row_in_a_batch_too_late_is_noticed(shape: str, tmp_path: Path) -> None:
    sinks = SINKS[shape]()
    rows = sinks["rows"]
    first = rows[0][0]
    behind = next(row for row in rows[1] if row["key"] == first["key"])
    rows[0].remove(first)
    rows[1].append(first | {"before": -1} if "before" in first else first)
    if "before" in behind:
        behind["before"] = -1  # as if each were the first of its call
    later = next(row for row in rows[0] if row["key"] == first["key"])
    if "before" in later:
        later["before"] = -1
    with pytest.raises(AssertionError, match="came"):
        check(shape, write(tmp_path, sinks), EMITTED)


def test_rows_of_a_key_that_are_swapped_within_a_call_are_noticed(tmp_path: Path) -> None:
    sinks = ordered()
    [one, other, *_] = [row for row in sinks["rows"][0] if row["key"] == KEYS[0]]
    one["before"], other["before"] = other["id"], -1
    with pytest.raises(AssertionError, match="came right after"):
        check("ordered", write(tmp_path, sinks), EMITTED)


def test_a_row_that_is_joined_with_another_is_noticed(tmp_path: Path) -> None:
    sinks = joined()
    pair = sinks["pairs"][0][2]
    pair["answer"] = next(answer for answer in ANSWER if answer != pair["answer"])
    with pytest.raises(AssertionError, match="was joined as"):
        check("joined", write(tmp_path, sinks), EMITTED)


def test_a_count_that_fell_is_noticed(tmp_path: Path) -> None:
    sinks = counted()
    sinks["counts"].insert(0, [{"key": KEYS[0], "count": ROWS}])
    with pytest.raises(AssertionError, match="fell"):
        check("counted", write(tmp_path, sinks), EMITTED)


def test_files_that_are_left_are_noticed_and_those_that_are_needed_are_not(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, 1, 100, Scenario("counted", "sqlite", ()))
    segments, staging = tmp_path / "disk/shared/segments/ch", tmp_path / "disk/out/rows/_staging"
    for folder in (segments, staging, tmp_path / "disk/state"):
        folder.mkdir(parents=True)
    catalog = Catalog.open(f"sqlite:///{tmp_path}/disk/state/catalog.sqlite", "faulty")
    catalog.publish("events", 0, [NewSegment("ch", "ch/known.arrow", 1, 8, "local/0", 0.0, 0.0)], "{}", {})
    catalog.close()
    (segments / "known.arrow").touch()
    assert campaign._leftovers() == []
    left = [campaign.temporary / "socket", staging / "part.parquet", segments / "orphan.arrow"]
    for file in left:
        file.touch()
    assert sorted(campaign._leftovers()) == sorted(map(str, left))
    shutil.rmtree(campaign.temporary)
