"""Files of a source: large ones in parts that can be replayed, and a list of them that does not grow for ever."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

from penstock import sources
from penstock.channels.catalog import Catalog
from penstock.clock import run_time
from penstock.cluster.model import Slot
from penstock.engine.executor.readers import SourceReader
from penstock.engine.message.shares import Bundle, Descriptor
from penstock.engine.query.feeds import SourceFeed
from penstock.engine.query.seats import Seats
from penstock.errors import PenstockError
from penstock.kinds import SourcePlace
from penstock.sources.file_list import FileList, Found

SCHEMA = "n long, text string"
ADMITTED = 5 << 20
ROWS = 60_000  # of about 500 bytes: few large rows fill a file as well as many small ones, and are made sooner


@pytest.fixture
def catalog(tmp_path: Path):
    catalog = Catalog.open(f"sqlite:///{tmp_path}/catalog.sqlite", "t")
    yield catalog
    catalog.close()


@dataclass
class Stream:
    """A file source as Spark drives it."""

    folder: Path
    catalog: Catalog
    format: str = "json"
    admitted: int = ADMITTED
    instances: tuple[int, ...] = (1,)
    follow: bool = False
    clock: Callable[[], float] = run_time
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spec = sources.files(self.folder, format=self.format, schema=SCHEMA, follow=self.follow)
        bundles = [Bundle(Slot("a", index), count) for index, count in enumerate(self.instances)]
        gate: Any = SimpleNamespace(
            add=lambda feed: None, admits=lambda feed: min(self.admitted, feed.available()), closed=False
        )
        seats = Seats(lambda: bundles, lambda slot: None)
        self.offsets = self.spec.offsets(SourcePlace("files", self.catalog, self.clock, memory=self.memory))
        self.feed = SourceFeed(self.offsets, self.spec.unit, gate, seats)

    def shares(self, start: str | None, end: str) -> list[Descriptor]:
        return [Descriptor.parse(text) for text, _ in self.feed.partitions(start, end)]

    def rows(self, start: str | None, end: str) -> list[int]:
        """Of one micro-batch, in the order in which they are published."""
        numbers = []
        for share in self.shares(start, end):
            for portions in SourceReader(self.spec).read(share, None):
                numbers += [n for _, batch in portions for n in batch.column("n").to_pylist()]
        return numbers

    def run(self, start: str | None = None) -> list[tuple[str | None, str, list[int]]]:
        """Batches until nothing is left: start, end and rows of each."""
        batches = []
        while (end := self.feed.latest()) is not None and end != start:
            batches.append((start, end, self.rows(start, end)))
            self.feed.committed(end)
            start = end
        return batches


def write(path: Path, rows: int = ROWS, first: int = 0) -> None:
    numbers = range(first, first + rows)
    table = pa.table({"n": numbers, "text": [f'{n} says "{n * 7919}",\n' + "x" * 470 for n in numbers]})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=max(rows // 20, 1), compression="none", use_dictionary=False)
    elif path.suffix == ".csv":
        pv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A large file of each format between two small ones."""
    folder = tmp_path_factory.mktemp("large")
    for format in ("json", "csv", "parquet"):
        (folder / format).mkdir()
        write(folder / format / f"a.{format}", 10)
        write(folder / format / f"b.{format}", ROWS, 10)
        write(folder / format / f"c.{format}", 10, ROWS + 10)
    return folder


@pytest.mark.parametrize("instances", [(1,), (2, 1)])
@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_large_file_is_read_in_parts(format: str, instances: tuple[int, ...], large: Path, catalog: Catalog) -> None:
    stream = Stream(large / format, catalog, format, instances=instances)
    largest = max(path.stat().st_size for path in (large / format).iterdir())
    batches = stream.run()
    assert len(batches) > 4
    assert [n for _, _, rows in batches for n in rows] == list(range(ROWS + 20))
    assert max(len(rows) for _, _, rows in batches) < ROWS * ADMITTED / largest * 1.5
    assert stream.feed.drained
    assert stream.feed.available() == 0


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_part_that_is_replayed_has_the_same_rows(format: str, large: Path, catalog: Catalog) -> None:
    batches = Stream(large / format, catalog, format).run()
    for index in (0, 1, 3):
        start, end, rows = batches[index]
        # After a restart: another driver, with other instances, that is told only where the batch begins and ends.
        again = Stream(large / format, catalog, format, instances=(3, 2))
        assert again.rows(start, end) == rows
        assert again.feed.told == {"0": json.loads(end)}
        later = again.run(end)
        assert [n for _, _, rows in later for n in rows] == [n for _, _, rows in batches[index + 1 :] for n in rows]
        assert again.feed.latest() == batches[-1][1], "the end of everything is the same text"
        assert max(len(rows) for _, _, rows in later) <= max(len(rows) for _, _, rows in batches) * 1.2


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_all_instances_share_one_large_file(format: str, large: Path, catalog: Catalog) -> None:
    stream = Stream(large / format, catalog, format, admitted=200 << 20, instances=(2, 2))
    [(start, end, rows)] = stream.run()
    assert rows == list(range(ROWS + 20))
    assert len(stream.shares(start, end)) == 2
    sizes = [sum(size for _, size in share.load["ranges"]) for share in stream.shares(start, end) if share.load]
    assert max(sizes) < 0.7 * sum(sizes)


def test_small_files_are_never_cut(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    for name in "abcd":
        write(tmp_path / "in" / f"{name}.json", 100)
    batches = Stream(tmp_path / "in", catalog, admitted=1).run()
    assert [end for _, end, _ in batches] == ["1", "2", "3", "4"]


def test_compressed_text_is_read_whole(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "rows.json", 40_000)
    data = (tmp_path / "rows.json").read_bytes()
    (tmp_path / "in" / "rows.json.gz").write_bytes(gzip.compress(data, compresslevel=0))
    [(_, end, rows)] = Stream(tmp_path / "in", catalog, admitted=1).run()
    assert (end, len(rows)) == ("1", 40_000)


def test_a_file_that_cannot_be_cut_is_left_to_its_reader(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.parquet").write_bytes(b"no Parquet" * 2_000_000)
    stream = Stream(tmp_path / "in", catalog, "parquet", admitted=1)
    assert stream.feed.latest() == "1"
    with pytest.raises(PenstockError, match="cannot be read as Parquet"):
        stream.run()


def test_the_line_of_a_bad_row_is_that_in_the_file(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": n, "text": "x" * 500}) for n in range(30_000)]
    lines[28_000] = "bad"
    (tmp_path / "in" / "rows.json").write_text("\n".join(lines))
    with pytest.raises(PenstockError, match="line 28001 of "):
        Stream(tmp_path / "in", catalog).run()


# The list of files


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Counted:
    """A catalog that counts what is asked of it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.calls = 0
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._catalog, name)

        def call(*arguments: Any) -> Any:
            self.calls += 1
            if name == "change_metas":
                self.rows += sum(len(argument) for argument in arguments)
            return method(*arguments)

        return call


def followed(folder: Path, catalog: Any, clock: Clock) -> Stream:
    folder.mkdir(exist_ok=True)
    return Stream(folder, catalog, follow=True, clock=clock, admitted=1 << 30)


def arrive(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).write_text('{"n": 1}\n')


def three_files_read(folder: Path, catalog: Any, clock: Clock) -> Stream:
    """Three files have come, and each was read in a batch of its own."""
    stream = followed(folder, catalog, clock)
    arrive(folder, ["a.json", "b.json", "c.json"])
    clock.now += 10
    stream.feed.look()
    for start, end in ((None, "1"), ("1", "2"), ("2", "3")):
        stream.shares(start, end)
        stream.feed.committed(end)
    return stream


class Day:
    """A folder into which so many files come in an hour, and are deleted in the next."""

    def __init__(self, folder: Path, catalog: Catalog, a_look: int) -> None:
        self.clock, self.counted = Clock(), Counted(catalog)
        self.stream = followed(folder, self.counted, self.clock)
        self.folder, self.a_look = folder, a_look
        self.end: str | None = None
        self.hour = 0

    def go_on(self, hours: int) -> None:
        for _ in range(hours):
            names = [f"{self.hour}-{index}.json" for index in range(self.a_look)]
            arrive(self.folder, names)
            for old in self.folder.glob(f"{self.hour - 1}-*"):
                old.unlink()
            self.hour += 1
            self.clock.now += 3_600
            self.stream.feed.look()
            latest = self.stream.feed.latest()
            assert latest is not None
            assert len(self.stream.shares(self.end, latest)) == 1
            self.stream.feed.committed(latest)
            self.end = latest

    def cost(self) -> tuple[int, int, int, int]:
        """Statements and rows written in an hour; rows in the catalog, and files known in memory, after it."""
        self.counted.calls = self.counted.rows = 0
        self.go_on(1)
        kept = len(self.counted._catalog.metas("files/files/at:"))
        return self.counted.calls, self.counted.rows, kept, len(self.stream.offsets._list)


def test_what_a_folder_costs_does_not_grow_with_the_files_that_were_ever_in_it(
    tmp_path: Path, catalog: Catalog
) -> None:
    day = Day(tmp_path / "in", catalog, a_look=50)
    day.go_on(5)
    early = day.cost()
    day.go_on(40)
    assert day.cost() == early
    assert early[2] <= 4 * 50, "those that are there, and those that went a while ago"
    assert len(day.stream.offsets._list._files) <= 4 * 50


class Past:
    """A folder of 20 files, out of which so many have gone within the last hour: the catalog has rows for them."""

    def __init__(self, folder: Path, gone: int) -> None:
        self.catalog = Catalog.open(f"sqlite:///{folder}.sqlite", "t")
        self.clock, self.counted = Clock(), Counted(self.catalog)
        self.clock.now = 10_000.0
        rows = {
            f"files/files/at:{folder}/old-{n}.json": json.dumps([n, 9, 1.0, 9_000.0 + n / gone]) for n in range(gone)
        }
        self.catalog.change_metas({**rows, "files/files/next": str(gone)})
        self.folder = folder
        self.stream = followed(folder, self.counted, self.clock)
        arrive(folder, [f"{index}.json" for index in range(20)])
        self.look()
        end = str(gone + 20)
        self.stream.shares(str(gone), end)
        self.stream.feed.committed(end)
        self.stream.shares(end, end)  # now no file before is asked for again

    def look(self) -> float:
        """Seconds that it takes."""
        self.clock.now += 100
        began = time.perf_counter()
        self.stream.feed.look()
        return time.perf_counter() - began

    def cost(self, looks: int) -> tuple[float, int, int]:
        """Of looks in which nothing is new: seconds of the fastest, and statements and rows of all."""
        self.counted.calls = self.counted.rows = 0
        return min(self.look() for _ in range(looks)), self.counted.calls, self.counted.rows

    @property
    def kept(self) -> int:
        return len(self.catalog.metas("files/files/at:"))


def test_a_look_costs_the_same_however_many_files_have_gone(tmp_path: Path) -> None:
    few, many = Past(tmp_path / "few", 1_000), Past(tmp_path / "many", 30_000)
    assert (few.kept, many.kept) == (1_020, 30_020)
    assert len(many.stream.feed._offsets._list) == 30_020
    (few_seconds, *few_counts), (many_seconds, *many_counts) = few.cost(20), many.cost(20)
    assert few_counts == many_counts == [0, 0]
    assert many_seconds < 3 * few_seconds
    # A file that goes, and one that comes, cost no more either.
    for past in (few, many):
        (past.folder / "7.json").unlink()
        arrive(past.folder, ["new.json"])
    assert few.cost(1)[1:] == many.cost(1)[1:] == (2, 4)
    # When they are gone for an hour, all are forgotten at once, and are in nobody's way.
    for past in (few, many):
        past.clock.now += 3_600
        past.look()
        assert past.kept == len(past.stream.feed._offsets._list) == 20 + 1
        past.catalog.close()


def test_a_file_that_may_be_asked_for_again_keeps_no_other_from_being_forgotten(
    tmp_path: Path, catalog: Catalog
) -> None:
    clock = Clock()
    (tmp_path / "in").mkdir()
    rows = {"late": [0, 9, 1.0, 3_000.0], "early": [1, 9, 1.0, 1_000.0], "last": [2, 9, 1.0, 1_000.0]}
    values = {f"files/files/at:{tmp_path}/in/{name}": json.dumps(row) for name, row in rows.items()}
    catalog.change_metas({**values, "files/files/next": "3"})
    arrive(tmp_path / "in", ["there.json"])
    clock.now = 4_700.0
    stream = followed(tmp_path / "in", catalog, clock)
    stream.shares("2", "3")  # as Spark does: the last batch again
    assert sorted(Path(path).name for path in catalog.metas("files/files/at:")) == ["last", "late", "there.json"]
    clock.now = 7_000.0
    stream.feed.look()
    assert sorted(Path(path).name for path in catalog.metas("files/files/at:")) == ["last", "there.json"]
    for start, end in (("2", "3"), ("3", "4")):
        stream.shares(start, end)
        stream.feed.committed(end)
    stream.shares("4", "4")
    assert [Path(path).name for path in catalog.metas("files/files/at:")] == ["there.json"]


def test_files_are_forgotten_also_where_the_clock_was_ahead_in_an_earlier_run(tmp_path: Path, catalog: Catalog) -> None:
    """A file that went then went in the future by now: files that go now would wait behind it for as long."""
    clock = Clock()
    clock.now = 10_000.0
    rows = {"past": [0, 9, 1.0, 9_000.0], "ahead": [1, 9, 1.0, 10_000.0 + 365 * 24 * 3_600.0]}
    values = {f"files/files/at:{tmp_path}/in/{name}": json.dumps(row) for name, row in rows.items()}
    catalog.change_metas({**values, "files/files/next": "2"})
    (tmp_path / "in").mkdir()
    arrive(tmp_path / "in", ["there.json", "goes.json"])
    stream = followed(tmp_path / "in", catalog, clock)
    for start, end in (("2", "4"), ("4", "4")):
        stream.shares(start, end)
        stream.feed.committed(end)
    stream.shares("4", "4")
    (tmp_path / "in" / "goes.json").unlink()
    for _ in range(2):
        clock.now += 3_700
        stream.feed.look()
    assert [Path(path).name for path in catalog.metas("files/files/at:")] == ["there.json"]


def test_batches_that_are_cut_ahead_can_be_asked_for_again(tmp_path: Path, catalog: Catalog) -> None:
    """Bundles that stand get batches long before the first of them is published. Then the driver is killed."""
    clock = Clock()
    clock.now = 10_000.0
    (tmp_path / "in").mkdir()
    gone = {f"{n}.json": [n, 9, 1.0, 1_000.0] for n in range(4)}
    values = {f"files/files/at:{tmp_path}/in/{name}": json.dumps(row) for name, row in gone.items()}
    catalog.change_metas({**values, "files/files/next": "4"})
    arrive(tmp_path / "in", ["there.json"])
    stream = followed(tmp_path / "in", catalog, clock)
    for start, end in ((None, "1"), ("1", "2"), ("2", "3"), ("3", "4")):
        stream.shares(start, end)
    anew = followed(tmp_path / "in", catalog, clock)
    assert [share.load["ranges"] for share in anew.shares(None, "1")]


def test_a_file_is_new_whatever_its_time_of_modification(tmp_path: Path, catalog: Catalog) -> None:
    clock = Clock()
    stream = followed(tmp_path / "in", catalog, clock)
    arrive(tmp_path / "in", ["new.json"])
    clock.now += 2
    stream.feed.look()
    arrive(tmp_path / "in", ["moved-here.json"])
    os.utime(tmp_path / "in" / "moved-here.json", (0, 0))
    clock.now += 2
    stream.feed.look()
    assert stream.rows(None, "2") == [1, 1]


def test_a_file_that_is_away_for_a_while_is_the_same_when_it_is_back(tmp_path: Path, catalog: Catalog) -> None:
    clock = Clock()
    stream = followed(tmp_path / "in", catalog, clock)
    arrive(tmp_path / "in", ["a.json", "b.json", "c.json"])
    for start, end in ((None, "1"), ("1", "2"), ("2", "3")):
        clock.now += 10
        stream.feed.look()
        stream.shares(start, end)
        stream.feed.committed(end)
    (tmp_path / "in" / "a.json").rename(tmp_path / "a.json")
    for _ in range(2):
        clock.now += 1_700
        stream.feed.look()
    (tmp_path / "a.json").rename(tmp_path / "in" / "a.json")
    clock.now += 10
    stream.feed.look()
    assert stream.feed.available() == 0, "it was not forgotten yet"
    (tmp_path / "in" / "a.json").unlink()
    for _ in range(2):
        clock.now += 3_601
        stream.feed.look()
    arrive(tmp_path / "in", ["a.json"])
    clock.now += 10
    stream.feed.look()
    assert stream.rows("3", "4") == [1], "after an hour it is another file of that name"


def test_an_empty_folder_forgets_nothing(tmp_path: Path, catalog: Catalog) -> None:
    """It may be a network drive that is away, and all files would be read again when it is back."""
    clock = Clock()
    stream = three_files_read(tmp_path / "in", catalog, clock)
    (tmp_path / "in").rename(tmp_path / "away")
    (tmp_path / "in").mkdir()
    for _ in range(5):
        clock.now += 10_000
        stream.feed.look()
    (tmp_path / "in").rmdir()
    (tmp_path / "away").rename(tmp_path / "in")
    clock.now += 10
    stream.feed.look()
    assert stream.feed.available() == 0


def test_the_last_batch_can_be_shown_again_when_its_files_are_long_gone(tmp_path: Path, catalog: Catalog) -> None:
    """As Spark does after a restart, only to say where it stood."""
    clock = Clock()
    stream = three_files_read(tmp_path / "in", catalog, clock)
    for name in ("a.json", "b.json", "c.json"):
        (tmp_path / "in" / name).unlink()
    arrive(tmp_path / "in", ["d.json"])
    for _ in range(3):
        clock.now += 3_601
        stream.feed.look()
    assert sorted(catalog.metas("files/files/at:")) == [
        str(tmp_path / "in" / name) for name in ("b.json", "c.json", "d.json")
    ]
    again = followed(tmp_path / "in", catalog, clock)
    assert len(again.shares("2", "3")) == 1
    assert again.rows("3", "4") == [1]
    with pytest.raises(PenstockError) as error:
        again.shares("0", "3")
    assert error.value.name == "STATE_DOES_NOT_FIT"
    with pytest.raises(PenstockError) as error:
        again.feed.seek("[4, 100]")
    assert error.value.name == "CATALOG_WENT_BACK"


def test_files_are_forgotten_also_by_a_source_that_only_ever_looks_once(tmp_path: Path, catalog: Catalog) -> None:
    """One that does not follow, started every night."""
    clock, start, end = Clock(), None, None
    (tmp_path / "in").mkdir()
    kept = []
    for night in range(8):
        for old in (tmp_path / "in").iterdir():
            old.unlink()
        arrive(tmp_path / "in", [f"{night}-{index}.json" for index in range(10)])
        clock.now += 86_400
        stream = Stream(tmp_path / "in", catalog, clock=clock, admitted=1 << 30)
        if end is not None:
            stream.shares(start, end)  # as Spark does: the last batch again, and then the next
        [(start, end, rows)] = stream.run(end)
        assert len(rows) == 10
        kept.append(len(catalog.metas("files/files/at:")))
    assert max(kept) == kept[-1] <= 50, kept


def test_more_files_counted_than_listed_are_refused(tmp_path: Path) -> None:
    """The list is of an older catalog: a file that comes into the place of a missing one would never be read."""
    (tmp_path / "in").mkdir()
    arrive(tmp_path / "in", ["a.json", "b.json"])
    assert len(Stream(tmp_path / "in", Catalog.open("sqlite://", "files")).shares("0", "2")) == 1
    for ask in (lambda one: one.partitions("1", "3"), lambda one: one.seek("3"), lambda one: one.seek("[2, 7]")):
        with pytest.raises(PenstockError) as caught:
            ask(Stream(tmp_path / "in", Catalog.open("sqlite://", "files")).feed)
        assert caught.value.name == "CATALOG_WENT_BACK"


def test_a_list_of_an_older_penstock_is_taken_over(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    arrive(tmp_path / "in", ["a.json", "b.json", "c.json"])
    for part, name in enumerate(["b.json", "a.json"]):
        catalog.set_meta(f"files/files/{part}", json.dumps([[str(tmp_path / "in" / name), 9, 5.0]]))
    catalog.set_meta("files/files/parts", "2")
    stream = Stream(tmp_path / "in", catalog)
    [share] = stream.shares("1", "3")
    assert share.load is not None
    assert [Path(path).name for (path, *_), _ in share.load["ranges"]] == ["a.json", "c.json"]
    assert sorted(catalog.metas("files/files/"))[-1] == "next"
    assert catalog.get_meta("files/files/parts") is None
    assert catalog.get_meta("files/files/next") == "3"


def test_a_folder_that_takes_long_to_list_is_looked_at_less_often(tmp_path: Path, catalog: Catalog) -> None:
    class Slow(Clock):
        def __call__(self) -> float:
            self.now += 3.0  # whatever is done takes so long
            return self.now

    stream = followed(tmp_path / "in", catalog, Slow())
    due = stream.feed.due_in()
    assert due is not None
    assert due > 20


def test_a_look_that_ends_after_its_query_changes_nothing(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that takes long to be listed: the query is replaced meanwhile, and the next one finds the files too. If
    the look that comes late also numbered them, the next file would get a number that another one has."""
    folder = tmp_path / "in"
    folder.mkdir()
    before = Stream(folder, catalog, follow=True, clock=time.monotonic)
    write(folder / "1.json", rows=3)
    listed = type(before.offsets)._listed

    def slowly(offsets: Any) -> Any:
        found = listed(offsets)
        before.offsets.close()
        write(folder / "2.json", rows=3)
        monkeypatch.undo()
        Stream(folder, catalog, follow=True, clock=time.monotonic)
        return found

    monkeypatch.setattr(type(before.offsets), "_listed", slowly)
    before.offsets._next_look = 0.0
    before.offsets.look()
    write(folder / "3.json", rows=3)
    after = Stream(folder, catalog, follow=True, clock=time.monotonic)
    assert [Path(one.path).name for one in after.offsets._list.files(0, 3)] == ["1.json", "2.json", "3.json"]


def test_bytes_are_counted_while_another_thread_cuts_the_list(catalog: Catalog) -> None:
    files = FileList(catalog, "rows")
    files.add([Found(f"f{number}", 10, 0.0) for number in range(10)])
    cutting: list[threading.Thread] = []

    class Slow(list[Any]):
        """Another thread runs while somebody asks how long it is."""

        def __len__(self) -> int:
            if not cutting:
                cutting.append(threading.Thread(target=files.need_from, args=(9,)))
                cutting[0].start()
                cutting[0].join(0.2)
            return super().__len__()

    files._files = Slow(files._files)
    assert files.bytes_from(8) == 20
    cutting[0].join()
    assert files.bytes_from(9) == 10


def test_what_comes_later_is_not_read_also_where_the_query_is_replaced(tmp_path: Path, catalog) -> None:
    """A change of chains replaces it within a run. The next run has a memory of its own, and lists the folder anew."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.json", 10)
    this_run: dict[str, Any] = {}
    assert [rows for _, _, rows in Stream(tmp_path / "in", catalog, memory=this_run).run()] == [list(range(10))]
    write(tmp_path / "in" / "b.json", 5, 10)
    again = Stream(tmp_path / "in", catalog, memory=this_run)
    again.offsets.go_to(1)
    assert again.offsets.ended
    assert again.offsets.available() == 0
    next_run = Stream(tmp_path / "in", catalog)
    next_run.offsets.go_to(1)
    assert next_run.offsets.available() > 0


def test_a_query_that_is_replaced_reads_the_files_that_were_listed(tmp_path: Path, catalog) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.json", 10)
    this_run: dict[str, Any] = {}
    Stream(tmp_path / "in", catalog, memory=this_run)
    assert [rows for _, _, rows in Stream(tmp_path / "in", catalog, memory=this_run).run()] == [list(range(10))]
