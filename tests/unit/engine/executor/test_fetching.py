"""Rows come from the machine that wrote them, and from the store where that machine does not give them."""

from __future__ import annotations

import fcntl
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from penstock.channels import segment_server
from penstock.channels.keys import grouped_schema, sort_by_group
from penstock.channels.origins import Origins
from penstock.channels.segment_server import serve
from penstock.channels.segments import SegmentStore
from penstock.engine.executor import fetching, worker
from penstock.engine.executor.fetching import FetchedRows
from penstock.engine.executor.readers import ChannelReader
from penstock.engine.message.shares import Descriptor, Piece, Spread
from penstock.monitor.read_counts import ReadCounts

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.dictionary(pa.int32(), pa.string()))])
GROUPS = 8
THERE, GONE = "127.0.0.2", "127.0.0.3"
BETWEEN = "127.0.0.4"


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = pa.array(range(first, first + count), pa.int64())
    words = pa.array([f"w{first}-{n % 7}" for n in range(count)]).dictionary_encode()
    return pa.record_batch([numbers, words], schema=SCHEMA)


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[SegmentStore]:
    with socket.create_server((THERE, 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setattr(Origins, "folder", tmp_path / "kept")
    monkeypatch.setattr(worker, "host_name", lambda: "127.0.0.9")
    fetching._AWAY.clear()
    yield SegmentStore(str(tmp_path / "far"), origins=Origins.with_new_token(port, 1 << 20))
    # A request that was given up ends later, and would say of the next test's machine that it is away.
    fetching._pool().shutdown(wait=True)
    fetching._pool.cache_clear()
    fetching._AWAY.clear()


@pytest.fixture
def server(store) -> Iterator[list[str]]:
    """The paths that were read at the server."""
    assert store.origins is not None
    read: list[str] = []
    original = SegmentStore.read

    def noted(self, path, start=0, stop=None):
        if threading.current_thread() is not threading.main_thread():
            read.append(path)
        return original(self, path, start, stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentStore, "read", noted)
        running = serve(THERE, store.origins)
        yield read
        running.shutdown()


def written(store: SegmentStore, name: str, first: int, by: str = THERE, spread: Spread = Spread.SHUFFLE) -> Piece:
    batches, schema = [rows(first, 300), rows(first + 300, 200)], SCHEMA
    if spread is Spread.BY_KEY:
        batches = [sort_by_group(batch, ["n"], GROUPS) for batch in batches]
        schema = grouped_schema(SCHEMA)
    file = store.write("a.out", name, batches, schema)
    groups = (2, 5) if spread is Spread.BY_KEY else (0, 0)
    return Piece(file.path, 20, 480, spread, 0.0, 0.0, f"{by}/0", *groups)


def read(store: SegmentStore, pieces: list[Piece], instances: int = 3) -> list[list[dict[str, object]]]:
    found = ChannelReader(store).read(Descriptor("x/0", instances, tuple(pieces), None), None)
    return [[row for _, batch in portions for row in batch.to_pylist()] for portions in found]


def without_origins(store: SegmentStore) -> SegmentStore:
    return SegmentStore(store.root)


@pytest.mark.parametrize("spread", [Spread.SHUFFLE, Spread.BY_KEY, Spread.BROADCAST])
def test_rows_from_the_other_machine_are_those_of_the_store(store, server, spread):
    pieces = [written(store, f"s{index}", 1000 * index, spread=spread) for index in range(3)]
    wanted = read(without_origins(store), pieces)
    assert server == []
    assert read(store, pieces) == wanted
    assert sorted(set(server)) == [piece.path for piece in pieces]
    assert sum(map(len, wanted)) > 0


def test_what_was_written_here_is_not_asked_for(store, server):
    piece = written(store, "s", 0, by="127.0.0.9")
    assert read(store, [piece]) == read(without_origins(store), [piece])
    assert server == []


def test_rows_of_a_machine_that_is_gone_come_from_the_store(store, server):
    pieces = [written(store, "one", 0), written(store, "two", 1000, by=GONE)]
    wanted = read(without_origins(store), pieces)
    assert read(store, pieces) == wanted
    assert set(server) == {"a.out/one"}
    assert list(fetching._AWAY) == [GONE]
    assert read(store, pieces) == wanted, "it is left alone now"


def test_a_stranger_gets_nothing(store, server):
    piece = written(store, "one", 0)
    assert store.origins is not None
    stranger = SegmentStore(store.root, origins=Origins(store.origins.port, "guess", 1 << 20))
    assert read(stranger, [piece]) == read(without_origins(store), [piece])
    assert server == []
    assert list(fetching._AWAY) == [THERE]


def test_a_segment_that_the_machine_does_not_have_comes_from_the_store(store, server, tmp_path):
    piece = written(store, "one", 0)
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "far").rename(elsewhere)
    away = SegmentStore(str(tmp_path / "far"), origins=store.origins)
    away._opened = (pa.fs.LocalFileSystem(), str(elsewhere))
    assert read(away, [piece]) == read(SegmentStore(str(elsewhere)), [piece])


def test_a_machine_that_says_nothing_is_not_waited_for(store, monkeypatch):
    monkeypatch.setattr(fetching, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(fetching, "MOST_SECONDS", 3.0)
    assert store.origins is not None
    piece = written(store, "one", 0)
    with socket.create_server((THERE, store.origins.port)):
        began = time.monotonic()
        assert read(store, [piece]) == read(without_origins(store), [piece])
        assert time.monotonic() - began < 3.0
    assert list(fetching._AWAY) == [THERE]


def test_many_pieces_of_a_machine_that_says_nothing_wait_for_it_once(store, monkeypatch):
    monkeypatch.setattr(fetching, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(fetching, "MOST_SECONDS", 5.0)
    assert store.origins is not None
    pieces = [written(store, f"s{number}", 0) for number in range(40)]
    with socket.create_server((THERE, store.origins.port)):
        fetched = FetchedRows(store, pieces)
        began = time.monotonic()
        found = [sum(batch.num_rows for batch in fetched.of(one, one.start, one.stop)) for one in pieces]
        assert time.monotonic() - began < 2.0, "40 times a tenth of what it may be silent would be more"
        assert found == [one.stop - one.start for one in pieces]
        assert fetching._AWAY[THERE] > time.monotonic() + 2.0, "its request still has a thread: nobody asks it again"


def test_a_request_that_waits_for_a_thread_says_nothing_of_its_machine(store, server, monkeypatch):
    monkeypatch.setattr(fetching, "SILENT_SECONDS", 0.3)
    piece, over = written(store, "one", 0), threading.Event()
    for _ in range(fetching.MOST_REQUESTS):
        fetching._pool().submit(over.wait, 10)
    wanted = read(without_origins(store), [piece])
    assert read(store, [piece]) == wanted
    assert fetching._AWAY == {}
    began = time.monotonic()
    assert read(store, [piece]) == wanted
    assert time.monotonic() - began < 0.25, "nobody waits for a thread again at once"
    over.set()
    fetching._pool().no_thread_until = 0.0
    assert read(store, [piece]) == wanted
    assert server == ["a.out/one"], "it was asked as soon as there was a thread"


def test_a_machine_that_answers_late_is_asked_again(store, server, monkeypatch):
    monkeypatch.setattr(fetching, "SILENT_SECONDS", 0.2)
    original = segment_server.parts

    def late(*asked):
        time.sleep(0.8)
        yield from original(*asked)

    monkeypatch.setattr(segment_server, "parts", late)
    piece = written(store, "one", 0)
    fetched = FetchedRows(store, [piece])
    assert sum(batch.num_rows for batch in fetched.of(piece, piece.start, piece.stop)) == piece.stop - piece.start
    assert list(fetching._AWAY) == [THERE]
    assert fetched._requests[piece]._over.wait(10)
    assert fetching._AWAY == {}


def test_rows_that_several_read_come_over_once(store, server):
    piece = written(store, "one", 0, spread=Spread.BROADCAST)
    wanted = read(without_origins(store), [piece])
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(read(store, [piece]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4
    assert server == ["a.out/one"]


def test_a_slow_link_is_no_silence_for_a_bundle_that_waits_for_what_another_one_fetches(store, server, monkeypatch):
    monkeypatch.setattr(fetching, "SILENT_SECONDS", 2.0)
    monkeypatch.setattr(segment_server, "PART_BYTES", 1 << 9)
    original = segment_server.parts

    def slow(*asked):
        for part in original(*asked):
            time.sleep(0.3)
            yield part

    monkeypatch.setattr(segment_server, "parts", slow)
    piece = written(store, "one", 0, spread=Spread.BROADCAST)
    wanted = read(without_origins(store), [piece])
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(counted(store, [piece]).rows)) for _ in range(2)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began > 3.0, "the rows took longer than a machine may be silent"
    assert sorted(map(str, found)) == ["{'kept': 460}", "{'link': 460}"]
    assert fetching._AWAY == {}
    assert server == ["a.out/one"]
    assert read(store, [piece]) == wanted


def test_a_bundle_does_not_wait_for_another_one_that_gets_nothing(store, server, monkeypatch, tmp_path):
    monkeypatch.setattr(fetching, "SILENT_SECONDS", 0.5)
    piece = written(store, "one", 0, spread=Spread.BROADCAST)
    read(store, [piece])
    [kept] = (tmp_path / "kept").glob("*.piece")
    kept.unlink()
    with kept.with_suffix(".lock").open() as stuck:
        fcntl.flock(stuck, fcntl.LOCK_EX)
        fetched = FetchedRows(store, [piece])
        found = [row for batch in fetched.of(piece, piece.start, piece.stop) for row in batch.to_pylist()]
        assert fetched._requests[piece]._over.wait(10), "the thread of the request is free again"
    assert len(found) == 460
    assert fetching._AWAY[THERE] > time.monotonic() + 2 * fetching.AWAY_SECONDS, "who holds the lock may hang so long"


def test_only_the_groups_that_are_asked_for_come(store, server):
    piece = written(store, "one", 0, spread=Spread.BY_KEY)
    fetched = list(FetchedRows(store, [piece]).of(piece, piece.start, piece.stop))
    groups = {group for batch in fetched for group in batch.column(batch.num_columns - 1).to_pylist()}
    assert groups <= {2, 3, 4}
    assert groups


def test_a_machine_keeps_what_it_writes_to_a_store_that_is_far(store, server, tmp_path, monkeypatch):
    monkeypatch.setattr(SegmentStore, "_is_near", lambda self, channel: "kept" in self.root)
    piece = written(store, "one", 0)
    assert (tmp_path / "kept" / "a.out" / "one").exists()
    wanted = read(without_origins(store), [piece])
    (tmp_path / "far" / "a.out" / "one").unlink()
    assert read(store, [piece]) == wanted, "it came from the copy on the other machine"


def test_a_mistake_in_the_code_is_not_taken_for_a_machine_that_is_gone(store, server, monkeypatch):
    monkeypatch.setattr(fetching._Request, "_ask", lambda self, pieces: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        read(store, [written(store, "one", 0)])


def counted(store: SegmentStore, pieces: list[Piece], instances: int = 3) -> ReadCounts:
    counts = ReadCounts()
    for portions in ChannelReader(store).read(Descriptor("x/0", instances, tuple(pieces), None), None, counts):
        assert all(batch.num_rows for _, batch in portions)
    return counts


@pytest.mark.parametrize("spread", [Spread.SHUFFLE, Spread.BY_KEY, Spread.BROADCAST])
def test_it_is_counted_where_rows_came_from_and_each_row_once(store, server, spread):
    there, here = written(store, "there", 0, spread=spread), written(store, "here", 0, "127.0.0.9", spread)
    gone = written(store, "gone", 0, GONE, spread)
    fetched = counted(store, [there, here, gone])
    # Of groups, only those come over the link that were asked for; from a disk all of them are read.
    asked = sum(batch.num_rows for batch in FetchedRows(store, [there]).of(there, there.start, there.stop))
    assert fetched.rows == {"link": asked, "own": 460, "store": 460}
    assert asked == 460 or spread is Spread.BY_KEY
    assert fetched.bytes.keys() == fetched.rows.keys()
    # A row has a number of eight bytes and a word of four at least.
    assert all(fetched.bytes[where] >= 12 * rows for where, rows in fetched.rows.items())


def test_rows_that_the_machine_had_kept_did_not_come_over_the_link_again(store, server):
    piece = written(store, "one", 0, spread=Spread.BROADCAST)
    first, again = counted(store, [piece]), counted(store, [piece])
    assert first.rows == {"link": 460}
    assert first.links.keys() == {THERE}
    assert (again.rows, again.links) == ({"kept": 460}, {})


@pytest.fixture
def relay(store, server) -> Iterator[list[int]]:
    """A machine that hands on what it is asked to the one that serves; the bytes that came back by TCP."""
    sent: list[int] = []

    def hand_on(source: socket.socket, to: socket.socket, sizes: list[int]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sizes.append(len(data))
                to.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                asks, _ = listener.accept()
                answers = socket.create_connection((THERE, store.origins.port))
                ends.extend((asks, answers))
                begin(hand_on, asks, answers, [])
                begin(hand_on, answers, asks, sent)

    def begin(work: Callable[..., None], *arguments: object) -> None:
        threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        threads[-1].start()

    threads: list[threading.Thread] = []
    listener = socket.create_server((BETWEEN, store.origins.port))
    ends = [listener]
    begin(accept)
    yield sent
    fetching._client.cache_clear()
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(5)
    for end in ends:
        end.close()


@pytest.mark.parametrize("spread", [Spread.SHUFFLE, Spread.BY_KEY, Spread.BROADCAST])
def test_what_a_link_carried_is_what_a_network_carries(store, relay, spread):
    pieces = [written(store, f"s{index}", 1000 * index, BETWEEN, spread) for index in range(20)]
    counts = counted(store, pieces)
    assert counts.links.keys() == {BETWEEN}
    # What is not counted are the frames of Flight and HTTP around each part, and the first words of a connection.
    assert 0.8 < counts.links[BETWEEN] / sum(relay) < 1.0
    assert counts.links[BETWEEN] > counts.bytes["link"], "the schema of each part crossed, too"


def test_without_origins_rows_come_from_the_store(store):
    pieces = [written(store, "one", 0), written(store, "two", 0, by="127.0.0.9")]
    assert counted(without_origins(store), pieces).rows == {"store": 460, "own": 460}
