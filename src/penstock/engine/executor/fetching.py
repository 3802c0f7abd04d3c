"""How a bundle gets the rows of its share that were written on other machines: from there, all at once, or from the
store where that does not work.

One request goes to each machine, side by side. A machine that sends nothing for some seconds, or that is gone, is left
alone for a while, and its segments are read from the store: nothing depends on it.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from penstock.channels.kept_pieces import KeptPieces
from penstock.channels.origins import Origins, origin_of
from penstock.channels.segments import SegmentStore
from penstock.engine.executor import worker
from penstock.engine.message.shares import SHARED, Piece, Spread
from penstock.monitor.read_counts import KEPT, LINK, OWN, STORE, ReadCounts

#: How many machines a worker process fetches from at once.
MOST_REQUESTS = 8
#: Seconds without a part after which a machine counts as gone.
SILENT_SECONDS = 10.0
#: Seconds for which a machine is left alone that has refused, or failed.
AWAY_SECONDS = 10.0
#: Seconds after which a request ends that nobody waits for any more. A machine that fell silent is left alone for so
#: long, or until it answers: more requests to it would only take more threads.
MOST_SECONDS = 120.0
#: By machine: until when nobody asks it.
_AWAY: dict[str, float] = {}


class FetchedRows:
    """The rows of one share, wherever they come from. Any thread may read them."""

    def __init__(self, store: SegmentStore, pieces: Sequence[Piece], counts: ReadCounts | None = None) -> None:
        """Where the rows came from is added to `counts`."""
        self._store = store
        self._counts = counts or ReadCounts()
        #: Pieces that several instances read, and that are counted already.
        self._counted: set[Piece] = set()
        self._lock = threading.Lock()
        self._here = worker.host_name()
        self._requests: dict[Piece, _Request] = {}
        if store.origins is None or _pool().no_thread_until > time.monotonic():
            return
        by_machine = dict[str, list[Piece]]()
        for piece in pieces:
            machine = origin_of(piece.producer_slot)
            if machine not in (None, self._here) and _AWAY.get(machine, 0) < time.monotonic():
                by_machine.setdefault(machine, []).append(piece)
        for machine, wanted in by_machine.items():
            # A share is bounded (rows_at_once_mb), and so is what is fetched for it.
            request = _Request(machine, store, store.origins, list(dict.fromkeys(wanted)), self._counts)
            self._requests |= dict.fromkeys(wanted, request)
            _pool().submit(request.run)

    def of(self, piece: Piece, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows [start, stop) of the piece's segment; where the piece names groups, perhaps only rows of these."""
        request = self._requests.get(piece)
        found = request.rows(piece) if request is not None else None
        counts = self._is_first(piece) or (found is None and piece.spread is Spread.SHUFFLE)
        if request is None or found is None:
            where = OWN if origin_of(piece.producer_slot) == self._here else STORE
            for batch in self._store.read(piece.path, start, stop):
                if counts:
                    self._counts.add(where, [batch])
                yield batch
            return
        if counts:
            self._counts.add(request.where(piece), found)
        first = piece.start
        for batch in found:
            if piece.stop_group and piece.spread is Spread.BY_KEY:
                yield batch
                continue
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            first += batch.num_rows
            if low < high:
                yield batch.slice(low, high - low)

    def _is_first(self, piece: Piece) -> bool:
        """Whether no other instance of the share has read this piece. What is fetched comes once for all of them, and
        so it counts once; of a piece that the store has, instances read parts of their own only where rows are
        shuffled."""
        with self._lock:
            is_first = piece not in self._counted
            self._counted.add(piece)
            return is_first


class _Request:
    """What one machine is asked for."""

    def __init__(
        self, machine: str, store: SegmentStore, origins: Origins, pieces: Sequence[Piece], counts: ReadCounts
    ) -> None:
        self._machine = machine
        self._counts = counts
        self._store = store
        self._origins = origins
        self._pieces = pieces
        self._found: dict[Piece, list[pa.RecordBatch]] = {}
        #: Pieces that this machine had kept.
        self._were_kept: set[Piece] = set()
        self._over = threading.Event()
        self._last = time.monotonic()
        #: Whether the machine has been asked. A request that waits for a thread says nothing of its machine.
        self._asked = False
        #: Whether nobody waits for it any more. No further piece does then: a share has hundreds of them, and a little
        #: for each would be minutes.
        self._given_up = False
        self._error: Exception | None = None

    def rows(self, piece: Piece) -> list[pa.RecordBatch] | None:
        """None if the machine does not give them."""
        while not self._given_up and not self._over.wait(SILENT_SECONDS / 10):
            was_asked = self._asked  # before the time: when it is asked, its time begins anew
            if time.monotonic() > self._last + SILENT_SECONDS:
                self._give_up(was_asked)
        if not self._over.is_set():
            return None
        if self._error is not None:
            raise self._error
        return self._found.get(piece)

    def where(self, piece: Piece) -> str:
        """Where the rows of a piece came from that were found."""
        return KEPT if piece in self._were_kept else LINK

    def run(self) -> None:
        if self._given_up:
            self._over.set()
            return
        self._last = time.monotonic()
        self._asked = True
        try:
            alone = [piece for piece in self._pieces if piece.spread not in SHARED]
            found = dict(zip(alone, self._ask(alone), strict=True)) if alone else {}
            for piece in self._pieces:
                if piece.spread in SHARED:
                    found[piece] = self._kept(piece)
            self._found = found
            if self._given_up:
                _AWAY.pop(self._machine, None)  # it has answered after all
        except TimeoutError:
            self._leave_alone(MOST_SECONDS)  # the request of the bundle that this one waited for still hangs
        except (OSError, pa.ArrowException):
            self._leave_alone(AWAY_SECONDS)  # whatever it is, the store has the rows
        except Exception as error:
            self._error = error
        finally:
            self._over.set()

    def _give_up(self, was_asked: bool) -> None:
        """Nobody waits any longer. The request may hang until its time is over, in one of the few threads: meanwhile
        nobody asks the machine again. If it still waits for a thread, nobody waits for one again at once."""
        self._given_up = True
        if was_asked:
            self._leave_alone(MOST_SECONDS)
        else:
            _pool().no_thread_until = time.monotonic() + AWAY_SECONDS

    def _leave_alone(self, seconds: float) -> None:
        _AWAY[self._machine] = time.monotonic() + seconds

    def _kept(self, piece: Piece) -> list[pa.RecordBatch]:
        kept = KeptPieces(self._origins.folder, self._origins.kept_bytes)
        self._were_kept.add(piece)
        began = self._last = time.monotonic()

        def waits(came: bool) -> None:
            """Rows that come to the other bundle are a sign of life. Without one, nobody waits for it."""
            now = time.monotonic()
            if came:
                self._last = now
            if now > min(self._last + SILENT_SECONDS, began + MOST_SECONDS):
                raise TimeoutError(f"another bundle does not get the rows of {piece.path} either")

        def fetch(came: Callable[[], None]) -> bytes:
            self._were_kept.discard(piece)
            self._last = time.monotonic()
            [rows] = self._ask([piece], came)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows[0].schema) as writer:
                for batch in rows:
                    writer.write_batch(batch)
            return bytes(sink.getvalue())

        content = kept.get(f"{self._store.root} {piece.path} {piece.start} {piece.stop}", fetch, waits)
        assert content is not None
        return list(pa.ipc.open_stream(content))

    def _ask(self, pieces: Sequence[Piece], came: Callable[[], None] = lambda: None) -> list[list[pa.RecordBatch]]:
        """The rows of these pieces. `came` is called at every part."""
        from pyarrow import flight

        wanted = [
            [
                piece.path,
                piece.start,
                piece.stop,
                *((piece.first_group, piece.stop_group) if _by_key(piece) else (0, 0)),
            ]
            for piece in pieces
        ]
        asked = {"token": self._origins.token, "root": self._store.root, "pieces": wanted}
        ticket = flight.Ticket(json.dumps(asked).encode())
        # Nobody waits this long; but a request to a machine that is cut off must not hold its thread for good.
        answer = _client(self._machine, self._origins.port).do_get(
            ticket, flight.FlightCallOptions(timeout=MOST_SECONDS)
        )
        found: list[list[pa.RecordBatch]] = [[] for _ in pieces]
        for chunk in answer:
            self._last = time.monotonic()
            came()
            # As it was sent, with a schema for each part: of a few rows that is more than their values.
            self._counts.crossed(self._machine, chunk.data.nbytes)
            index, rows = (column[0] for column in chunk.data.columns)
            # One copy puts the rows where their columns are aligned in memory.
            found[index.as_py()] += pa.ipc.open_stream(rows.as_buffer().to_pybytes())
        return found


def _by_key(piece: Piece) -> bool:
    return piece.spread is Spread.BY_KEY and piece.stop_group > piece.first_group


class _Pool(ThreadPoolExecutor):
    #: All threads hung a short while ago: until then the store is asked at once.
    no_thread_until = 0.0


@functools.cache
def _pool() -> _Pool:
    return _Pool(MOST_REQUESTS, thread_name_prefix="fetch")


@functools.lru_cache(maxsize=256)
def _client(machine: str, port: int) -> Any:
    from pyarrow import flight

    address = f"[{machine}]" if ":" in machine else machine
    return flight.connect(f"grpc://{address}:{port}")
