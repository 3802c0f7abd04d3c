"""One operator, or a chain of operators, whose bundles stand: its life from start to stop, turn after turn."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from penstock.clock import run_time
from penstock.engine.executor import standing
from penstock.engine.executor.readers import SourceReader
from penstock.engine.message.program import PackedProgram
from penstock.engine.message.wire import Seat
from penstock.engine.query.batch_reports import FinishedBatch
from penstock.engine.query.context import RunContext
from penstock.engine.query.frames import channel_input
from penstock.engine.query.pacing import Pacer, pacer_of
from penstock.engine.query.programs import Programs
from penstock.engine.query.publisher import Publisher
from penstock.engine.query.seats import Seats
from penstock.engine.spark.failures import FailureKind, kind_of, named_error
from penstock.engine.spark.streams import TurnJob
from penstock.engine.standing.batches import OpenBatch, Standing
from penstock.engine.standing.crowding import Crowding
from penstock.engine.standing.dealer import TOGETHER, Dealer
from penstock.engine.standing.linger import Linger, at_a_far_store
from penstock.engine.standing.server import BundleServer
from penstock.engine.standing.supplies import ChannelSupply, SourceSupply
from penstock.engine.standing.turn import Turn, TurnPlaces
from penstock.engine.state.agreement import ends_from, last_batch
from penstock.errors import PenstockError
from penstock.kinds import Unit
from penstock.logs import LOGGER, traced
from penstock.monitor.sample import Waited
from penstock.topology.dataframe_function import stands
from penstock.topology.definition import Operator, Sink, Source

#: How often somebody who waits looks again.
POLL = 0.01
#: The bundles of a new turn may take so long to come before the turn begins without those that are missing.
STAND_SECONDS = 15.0
#: Rows that only micro-batches read linger for so much of the time that those take: they come late by half of that.
READERS_SHARE = 0.25
#: How often it is looked whether the bundles are to run elsewhere, if nobody says so.
LOOK_SECONDS = 0.5
#: A batch that is being published when the query stops may take so long: the catalog may be restarting, and is asked
#: again for about a minute.
PUBLISH_SECONDS = 180.0
#: A bundle that was lost while work waits for it, and that Spark has not started again, is replaced after so long.
DESERTED_SECONDS = 5.0
#: A bundle that has been gone for so long does not come back at once, as one does whose function was silent.
GONE_SECONDS = 1.0
#: Bundles may take so long to leave before Spark ends them.
LEAVE_SECONDS = 1.0
#: And so long if it is another turn's time, and nobody of theirs stands any more.
GIVE_UP_SECONDS = 5.0
#: Seconds before a turn is begun again after one that failed.
AGAIN_SECONDS = 0.2


def turn_length(operator: str, most: float) -> float:
    """How long the turns of an operator are. All operators begin their first turn together, and should not all change
    turns in the same second later."""
    return most * (1 - crc32(operator.encode()) % 1000 / 4000)


def _finished(batch: OpenBatch) -> FinishedBatch:
    """A batch of which all shares are done."""
    bundles = tuple(report for reports in batch.reports for report in reports or ())
    started = run_time() - (time.monotonic() - batch.started)
    return FinishedBatch(batch.number, [batch.cut.read], bundles, batch.cut.ends, started)


class StandingQuery:
    """The life of a query: it is started with its gate closed, opened, drained and stopped."""

    #: Bundles that stand are no query of Spark's, and have no state in its store.
    query: None = None
    state: None = None
    #: Several batches are open at a time.
    batch_started: None = None

    def __init__(
        self, chain: Sequence[Operator], context: RunContext, seats: Seats, server: BundleServer, linger: Linger
    ) -> None:
        self.chain = tuple(chain)
        self.operator = operator = self.chain[0]
        self.context = context
        self.seats = seats
        self.failure: PenstockError | None = None
        #: Why it failed. It says nothing while there is no failure.
        self.kind = FailureKind.CERTAIN
        #: Whether it had nothing to do when it failed.
        self.was_idle = False
        self._server = server
        self._stopping = False
        self._failing = threading.Lock()
        self._name = ""
        self._publisher = Publisher(self.chain, context)
        settings, name = context.settings, operator.name
        self._channels = context.channels.seen_by(name)
        self._lingers = self._lingering(linger)
        self.dealer = Dealer(
            self._channels,
            context.written_by(self.chain),
            functools.partial(pacer_of, operator, settings) if not self._writes_files() else self._file_pacer,
            self._lingers,
            self._publish,
            throttle=settings.backlog_policy == "throttle",
        )
        self.intake = self.dealer
        self.supply: ChannelSupply | SourceSupply | None = None
        self._program: PackedProgram | None = None
        #: The turns that are not over, by number.
        self._turns: dict[int, Turn] = {}
        #: The earlier turns on which nobody stands any more and whose job goes on, and since when.
        self._left: dict[int, float] = {}
        self._last_turn = 0
        self._changed = threading.Event()
        self._keeper = threading.Thread(target=self._keep_turns, name=f"penstock-turns-{name}", daemon=True)
        self._publishes = threading.Thread(target=self._keep_publishing, name=f"penstock-out-{name}", daemon=True)

    @property
    def feeds(self) -> list[ChannelSupply | SourceSupply]:
        return [] if self.supply is None else [self.supply]

    def _writes_files(self) -> bool:
        return any(isinstance(one, Sink) and self.context.file_writer(one) is not None for one in self.chain)

    def _lingering(self, linger: Linger) -> Callable[[], float]:
        """How long rows linger before bundles take them. Rows that only micro-batches will read have to wait for those
        anyway: smaller batches would make no row faster, but many small segments, and of rows that are combined by key
        many more rows."""
        settings, paces = self.context.settings, self.context.paces
        if self._writes_files():
            return lambda: settings.file_seconds
        seconds = linger.at_source if isinstance(self.operator, Source) else linger.at_hop
        if not self.context.store.is_near:
            seconds = at_a_far_store(seconds, lambda: self.dealer.cost_of_a_share, settings.latency_under_load / 2)
        readers = self.context.readers_of(self.chain)
        if not readers or any(isinstance(one, Sink) for one in self.chain) or any(map(stands, readers)):
            return seconds
        names, most = [one.name for one in readers], settings.latency_under_load / 2
        return lambda: max(seconds(), min(paces.shortest(names) * READERS_SHARE, most))

    def _file_pacer(self) -> Pacer:
        """A batch becomes a file for every share: it waits until that is worth while."""
        settings = self.context.settings
        if isinstance(self.operator, Source) and self.operator.spec.unit is not Unit.ROWS:
            return pacer_of(self.operator, settings)  # it counts no rows: only the time makes files large
        return Pacer(max(settings.file_seconds, settings.latency_under_load), settings.file_rows)

    # Starting

    def start(self) -> None:
        """Start the first turn. No row gets in before `intake.open()`."""
        operator, context = self.operator, self.context
        newest = context.channels.last_batch(operator.name)
        if newest is not None:
            # The query before this one may have failed between the catalog and the last name of a file.
            self._publisher.finish_again(newest)
        for channel in context.written_by(self.chain):
            context.channels.written_by(channel, operator.name)
        programs = Programs(self.chain, context)
        if isinstance(operator, Source):
            spec = operator.spec
            place = replace(context.place_of_source(operator), lingers=self._lingers, wake=self._channels.notify)
            offsets = spec.offsets(place)
            self.supply = SourceSupply(offsets, spec, self._read_so_far(), self.dealer)
            program = programs.whole(SourceReader(spec))
        else:
            streams = context.definition.inputs_of(operator.name)
            inputs = [channel_input(context, stream) for stream in streams]
            self.supply = ChannelSupply(operator.name, inputs, context.channels, context.settings.bytes_at_once)
            program = programs.whole(programs.channel_reader(streams))
        self._program = program.pack()
        self.dealer.feed_from(self.supply, 0 if newest is None else newest + 1)
        self._name = self._server.add(self)
        self._keeper.start()
        self._publishes.start()

    def _read_so_far(self) -> Any:
        """Where the newest published batch of a source ends; None if there is none."""
        found = last_batch(self.context.channels.catalog, self.operator.name)
        return found.ends["0"] if found.number >= 0 else None  # `check_standing` has seen that it is there

    # Turns

    def placed_anew(self) -> None:
        """Where the bundles are to run may have changed."""
        self._changed.set()

    @property
    def turn(self) -> Turn | None:
        """The newest turn, whose bundles stand or are about to."""
        return max(list(self._turns.values()), key=lambda one: one.number, default=None)

    def serves(self, turn: Turn) -> bool:
        """Whether batches are dealt to the bundles of a turn."""
        return self.dealer.serves == turn.number

    def group(self, turn: int) -> str:
        """Under which name Spark knows the job of a turn."""
        return f"penstock-{self._name}-{turn}"

    def seat_taken(self, seat: Seat) -> Standing | None:
        turn = self._turns.get(seat.turn)
        if self._stopping or turn is None or seat.turn < self.dealer.serves or seat.index >= len(turn.bundles):
            return None
        return self.dealer.stand(seat.turn, seat.index, turn.bundles[seat.index], seat.attempt)

    def _keep_turns(self) -> None:
        while not self._stopping and self.failure is None:
            self._changed.clear()
            try:
                self._keep_turn()
            except Exception as error:
                self.fail(error)
                return
            self._changed.wait(LOOK_SECONDS)

    def _keep_turn(self) -> None:
        self._end_what_is_left()
        newest = self.turn
        for turn in [one for one in self._turns.values() if one.over.is_set()]:
            del self._turns[turn.number]
            if turn.number != self._last_turn:
                continue
            if turn.error is not None:
                raise turn.error
            newest = None
            time.sleep(AGAIN_SECONDS)  # whatever made its bundles leave shall not make this a busy loop
        places = self._wanted()
        if not places.bundles:
            return
        length = turn_length(self.operator.name, self.context.settings.turn_seconds)
        if newest is None or newest.places != places or run_time() > newest.began + length:
            self._begin(places)
        elif self.dealer.deserted(DESERTED_SECONDS):
            LOGGER.warning('a bundle of "%s" fell silent or never came: its turn is begun anew', self.operator.name)
            self._begin(places)

    def _end_what_is_left(self) -> None:
        """Have Spark end the tasks of earlier turns on which nobody stands any more: a worker that hangs would keep its
        thread for good, and there may be no other for the bundle that is to take its place."""
        now = time.monotonic()
        for number, turn in list(self._turns.items()):
            if number >= self.dealer.serves or turn.over.is_set() or self.dealer.stands(number):
                self._left.pop(number, None)
            elif now > self._left.setdefault(number, now) + GIVE_UP_SECONDS:
                self._left[number] = math.inf  # once
                with traced(f'a turn of "{self.operator.name}" could not be cancelled', Exception):
                    self.context.spark.sparkContext.cancelJobGroup(self.group(number))
        for number in self._left.keys() - self._turns.keys():
            del self._left[number]

    def _wanted(self) -> TurnPlaces:
        bundles = tuple(self.seats.bundles())
        return TurnPlaces(bundles, tuple(self.seats.executor(bundle.slot) for bundle in bundles))

    def _begin(self, places: TurnPlaces) -> None:
        """Begin a turn. Its bundles stand before those of the turn before leave, so that rows wait for nobody. Where
        executors have just the threads that are needed, some can only come when those have left."""
        self._last_turn += 1
        turn = Turn(self._last_turn, places, run_time(), self._run_turn, lambda _: self._changed.set())
        before = self.turn
        self._turns[turn.number] = turn
        turn.start()
        named = frozenset(one for one in places.executors if one is not None)
        crowding = Crowding(places.executors, lambda: self.context.streams.task_threads(self.group(turn.number), named))
        deadline = time.monotonic() + STAND_SECONDS
        # Who stands is asked first: the task of a bundle that stands has begun, and is not crowded out.
        while self.dealer.stands(turn.number) + crowding.out() < len(places.bundles) and time.monotonic() < deadline:
            if turn.over.is_set() or self._stopping:
                break
            if before is None or before.over.is_set() or not self.dealer.stands(before.number):
                break  # nobody else works meanwhile
            if self.dealer.deserted(GONE_SECONDS):
                # Rows wait for a bundle that is gone, and what the others do cannot be published before that. If they
                # hold the threads that the new bundles need, it would wait for as long as they stand.
                break
            time.sleep(POLL)
        self.dealer.serve(turn.number, places.bundles)

    def _run_turn(self, turn: Turn) -> None:
        if self._program is None:
            raise RuntimeError("a turn needs a program")
        seats = [
            (Seat(self._name, turn.number, index, bundle.slot.name, bundle.instances).as_text(), executor)
            for index, (bundle, executor) in enumerate(zip(turn.places.bundles, turn.places.executors, strict=True))
        ]
        run = functools.partial(standing.stand, self._program, self._server.address)
        self.context.streams.run_turn(TurnJob(self.group(turn.number), self.operator.name, seats, run))

    # Batches

    def _keep_publishing(self) -> None:
        """In a thread of its own, so that no bundle waits for a transaction before it gets its next share."""
        # After a crash only the files of the newest batch get the names that they lack.
        most = 1 if self._writes_files() else TOGETHER
        while not self._stopping and self.failure is None:
            try:
                self.dealer.publish_next(LOOK_SECONDS, most)
            except Exception as error:
                self.fail(error)

    def _publish(self, batches: Sequence[OpenBatch]) -> None:
        finished = [_finished(batch) for batch in batches]
        published = self._publisher.publish_all(finished)
        if not all(one.is_new for one in published):
            self._check_own(batches)
        for one in published:
            if self.supply is not None:
                self.supply.published(one.batch.ends)
            self._publisher.report(replace(one, is_new=True))  # nobody has reported it yet

    def _check_own(self, batches: Sequence[OpenBatch]) -> None:
        """Batches were in the catalog before: they may be these, if the answer to an earlier attempt was lost. If they
        are others, rows would be taken for published that are not."""
        first, catalog = batches[0].number, self.context.channels.catalog
        found = ends_from(catalog, self.operator.name, first)
        if found != {batch.number: batch.cut.ends for batch in batches}:
            raise PenstockError(
                "STATE_IN_USE",
                f'batch {first} of "{self.operator.name}" is in the catalog already, and is not this one.',
                "Stop the other process that runs the topology on this catalog, and start this one again.",
                self.operator.where,
            )

    # How it is

    @property
    def emits_by_itself(self) -> bool:
        return False

    @property
    def quiet(self) -> bool:
        """Whether nothing more will come from a source whose gate is closed."""
        return self.dealer.idle

    @property
    def rows_in_work(self) -> int | None:
        """Rows of a source that were cut and are not published; None if the source says nothing now."""
        return self.dealer.rows_in_work if self.dealer.is_open and self.dealer.has_looked else None

    @property
    def open_batches(self) -> Mapping[int, float]:
        """When each batch was cut that is open, of the monotonic clock, by its number."""
        return self.dealer.open_batches

    def waited(self) -> list[Waited]:
        """What its bundles have waited, as far as that was not told yet."""
        return self.dealer.waited()

    @property
    def drained(self) -> bool:
        # Both at the same moment: between two questions a last batch may be cut, or dropped to be cut again.
        with self.context.channels.lock:
            return self.supply is not None and self.supply.drained and self.dealer.idle

    def fail(self, error: Exception) -> None:
        """Keep the first failure; those after it are its consequences."""
        with self._failing:
            if self.failure is None and not self._stopping:
                # Both come before the failure: whoever sees the failure decides by them whether to mend it.
                self.kind, self.was_idle = kind_of(error), self._is_idle()
                self.failure = named_error(self.operator, error)
                self.dealer.end()  # nothing more is published: whoever takes its place begins at what is
                return
        why = "is being stopped" if self._stopping else "has failed before"
        LOGGER.info('the query of "%s" %s: %s: %s', self.operator.name, why, type(error).__name__, error)

    def _is_idle(self) -> bool:
        # A source that cannot say what it has may be what failed: the failure must be known all the same.
        with traced(f'it is not known whether "{self.operator.name}" had something to do', Exception):
            return self.dealer.has_nothing_to_do
        return False

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def notice_end(self) -> None:
        pass

    # Ending

    def await_replay(self, seconds: float) -> None:
        """Nothing is replayed: what was cut and not published is cut again."""

    def stop(self) -> None:
        """End the query between two batches if that is possible, and in the middle of one otherwise: what was cut and
        not published is cut again by whoever takes its place. When this returns, nothing more is published."""
        self.dealer.close()
        settings, name = self.context.settings, self.operator.name
        deadline = time.monotonic() + max(settings.latency_under_load, settings.latency_with_backlog / 2) * 4 + 2
        while not self._stopping and self.dealer.in_batch and self.failure is None and time.monotonic() < deadline:
            time.sleep(POLL)
        self._stopping = True
        if not self.dealer.end(PUBLISH_SECONDS):
            LOGGER.warning('a thread of "%s" is still at work: it looks at its source, or publishes a batch', name)
        self._changed.set()
        for thread in (self._keeper, self._publishes):
            if thread.is_alive():
                thread.join(STAND_SECONDS)
        for turn in list(self._turns.values()):
            if not turn.wait(LEAVE_SECONDS):
                with traced(f'the turn of "{name}" could not be cancelled', Exception):
                    self.context.spark.sparkContext.cancelJobGroup(self.group(turn.number))
        self._server.remove(self._name)
        if self.supply is not None:
            with traced(f'what "{name}" reads could not be closed', Exception):
                self.supply.close()
