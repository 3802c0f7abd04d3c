"""A bundle that stands, inside a Spark task: it takes share after share from the driver until its turn is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection

import pyarrow as pa
from pyspark import TaskContext

from penstock.engine.executor import task_rows, worker
from penstock.engine.executor.bundle import ShareRun
from penstock.engine.message import wire
from penstock.engine.message.program import PackedProgram, Program
from penstock.engine.message.shares import Descriptor
from penstock.engine.message.wire import Address, Seat, SentShare
from penstock.monitor.report import BundleReport

#: Seconds before a bundle that was given up takes its seat again.
AGAIN_SECONDS = 0.1
#: So often in a row a bundle may not reach the driver before its task fails: the driver may be gone for good.
MOST_TRIES = 50


def stand(packed: PackedProgram, address: Address, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the Spark task does: one row for every seat, with how many shares were done on it."""
    worker.prepare()
    task_rows.forget()
    program = packed.unpack()
    task = TaskContext.get()
    attempt = 0 if task is None else task.attemptNumber()
    for batch in batches:
        for seat in batch.column(0):
            done = _stand(program, address, replace(Seat.parse(seat.as_py()), attempt=attempt).as_text())
            worker.relieve()  # a turn is long, and what comes next in this process may be little
            yield pa.record_batch([pa.array([str(done).encode()], pa.binary())], names=["done"])


def _stand(program: Program, address: Address, seat: bytes) -> int:
    """Take a seat until its turn is over. A bundle that the driver has given up, because it was stopped or cut off for
    a while, takes its seat again: if it failed instead, Spark would count that against the query."""
    done = tries = 0
    while True:
        try:
            with wire.while_there():
                connection = wire.connect(address)
        except wire.Gone:
            tries += 1
            if tries == MOST_TRIES:
                raise
            time.sleep(AGAIN_SECONDS)
            continue
        tries, standing = 0, _Seated(program, connection, seat)
        try:
            standing.run()
            return done + standing.done
        except wire.Gone:  # the driver's end of the connection writes down why it ended
            done += standing.done
            time.sleep(AGAIN_SECONDS)


class _Seated:
    """One seat, from taking it to leaving it."""

    def __init__(self, program: Program, connection: Connection, seat: bytes) -> None:
        #: How many shares were done.
        self.done = 0
        self._program = program
        self._seat = seat
        self._connection = connection
        #: Held while something is sent: signs of life come from a thread of their own.
        self._sending = threading.Lock()
        self._working = threading.Event()
        self._left = threading.Event()

    def run(self) -> None:
        """Returns when the driver says that the turn is over; raises `Gone` when there is no more to be heard."""
        with self._connection, self._alive():
            with wire.while_there():
                self._connection.send_bytes(self._seat)
            while (share := self._next()) is not None:
                reports = self._done(share)
                with self._sending, wire.while_there():
                    wire.send_reports(self._connection, [one.as_json() for one in reports])
                self.done += 1
                worker.share_done()

    def _done(self, share: SentShare) -> Sequence[BundleReport]:
        self._working.set()
        try:
            return ShareRun(self._program, Descriptor.parse(share.descriptor), share.batch, share.part).run()
        except Exception as error:
            # The driver says nothing to a bundle that works, so there is something to be heard only if it has hung up.
            # Then another bundle has done this share meanwhile, and what the share reads may be swept.
            if self._connection.poll(0):
                raise wire.Gone("the driver has given this bundle up") from error
            raise
        finally:
            self._working.clear()

    def _next(self) -> SentShare | None:
        with wire.while_there():
            return wire.receive_share(self._connection)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        thread = threading.Thread(target=self._say_so, name="alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._left.set()
            thread.join()

    def _say_so(self) -> None:
        while not self._left.wait(wire.ALIVE_SECONDS):
            if self._working.is_set():
                with self._sending:
                    try:
                        wire.send_alive(self._connection)
                    except OSError:
                        return  # the driver has given this bundle up: it will find out when it reports
