"""Whatever bundles and turns do, the rows of a group of keys are worked on by one bundle at a time and in their order,
and every row is published once."""

from __future__ import annotations

from collections.abc import Sequence

from dealing import Channels, report
from hypothesis import given
from hypothesis import strategies as st
from keyed_dealing import GROUPS, KeyedRows, rows_by_key

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle, Spread, bundles_of
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import CutBatch, Dealt, OpenBatch, Standing
from penstock.engine.standing.dealer import Dealer
from penstock.engine.standing.precedence import Held, place_of

SLOTS = [Slot("a", 0, 2), Slot("b", 0, 1), Slot("c", 0, 3)]
PLACEMENTS = [
    bundles_of(dict(zip(SLOTS, counts, strict=True)))
    for counts in ((1, 1, 0), (2, 1, 0), (1, 1, 1), (0, 1, 3), (0, 0, 1), (3, 2, 1))
]
ROWS = 8 * GROUPS

steps = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "take", "done", "done", "publish", "lose", "back", "turn", "late"]),
        st.integers(0, 11),
    ),
    min_size=20,
    max_size=150,
)


class World:
    """A dealer, the bundles that talk to it, and a list of what they do next: also while a batch is cut or published,
    when nobody holds the lock."""

    def __init__(self, todo: Sequence[tuple[str, int]], also: Spread | None) -> None:
        self.todo = list(todo)
        self.rows = KeyedRowsMeanwhile(self, also)
        self.dealer = Dealer(Channels(), [], lambda: Pacer(0.05, 10, 10), lambda: 0.0, self.publish)  # type: ignore[arg-type]
        self.dealer.feed_from(self.rows)
        self.dealer.open()
        self.turn = 0
        self.bundles: dict[int, Sequence[Bundle]] = {}
        self.stands: list[Standing] = []
        #: What bundles work on that were given up, and do not know it.
        self.late: list[tuple[Standing, Dealt]] = []
        self.published: list[int] = []
        self.inside = False
        self.begin(0)

    # What happens

    def step(self, kind: str, which: int) -> None:
        idle = [one for one in self.stands if one.work is None]
        busy = [one for one in self.stands if one.work is not None]
        if kind == "take" and idle:
            self.take(idle[which % len(idle)])
        elif kind == "done" and busy:
            assert self.dealer.done(busy[which % len(busy)], report())
        elif kind == "publish" and not self.inside:
            self.dealer.publish_next(0)
        elif kind == "lose" and self.stands:
            self.lose(self.stands[which % len(self.stands)])
        elif kind == "back":
            self.come_back(which)
        elif kind == "turn":
            self.begin(which)
        elif kind == "late" and self.late:
            standing, _ = self.late.pop(which % len(self.late))
            assert not self.dealer.done(standing, report()), "nobody listens to it any more"

    def meanwhile(self) -> None:
        """What happens next happens while a batch is cut or published."""
        if self.todo and not self.inside:
            self.inside = True
            kind, which = self.todo.pop()
            if which % 2:
                self.step(kind, which)
            self.inside = False

    def take(self, standing: Standing) -> None:
        """As `Dealer.take` does, for a bundle that does not wait."""
        dealer = self.dealer
        if not dealer._has_found(standing):
            dealer._cut(standing, 0.0)
        if not dealer._has_found(standing):
            return
        dealt = dealer.take(standing)
        if dealt is None:
            dealer.lost(standing)
            self.stands = [one for one in self.stands if one is not standing]
        else:
            self.check(standing, dealt)

    def lose(self, standing: Standing) -> None:
        self.stands.remove(standing)
        if standing.work is not None:
            self.late.append((standing, standing.work))
        self.dealer.lost(standing)

    def come_back(self, which: int) -> None:
        """Spark starts a task again, or a bundle that was given up lives."""
        turns = [turn for turn in self.bundles if turn >= self.dealer.serves]
        free = [
            (turn, index)
            for turn in turns
            for index in range(len(self.bundles[turn]))
            if (turn, index) not in {one.seat for one in self.stands}
        ]
        if free:
            self.sit(*free[which % len(free)])

    def sit(self, turn: int, index: int) -> None:
        standing = self.dealer.stand(turn, index, self.bundles[turn][index])
        assert standing is not None
        self.stands.append(standing)

    def begin(self, which: int) -> None:
        """A turn begins. Not all of its bundles need be there."""
        self.turn += 1
        self.bundles[self.turn] = bundles = PLACEMENTS[which % len(PLACEMENTS)]
        for index in range(len(bundles) - which % 3 // 2):
            self.sit(self.turn, index)
        self.dealer.serve(self.turn, bundles)

    # What must hold

    def check(self, standing: Standing, dealt: Dealt) -> None:
        batches = self.dealer._batches
        assert set(batches._holds.before(standing.turn)) == {
            Held(place_of(share), share.groups, batch.reports[part] is not None)
            for batch in batches._batches
            if batch.turn < standing.turn
            for part, share in enumerate(batch.cut.shares)
        }
        mine = {row % GROUPS for row in rows_by_key(dealt.share)}
        for other in self.stands:
            if other is not standing and other.work is not None:
                assert not mine & {row % GROUPS for row in rows_by_key(other.work.share)}, "two have one group"
        for batch in self.dealer._batches._batches:
            for part, share in enumerate(batch.cut.shares):
                if batch is dealt.batch or not mine & {row % GROUPS for row in rows_by_key(share)}:
                    continue
                if batch.number < dealt.batch.number:
                    assert batch.reports[part] is not None, "rows before are not worked off"
                    assert place_of(share) == place_of(dealt.share), "a group moves that is not published"
                else:
                    assert batch.reports[part] is None, "rows behind are worked off already"

    def publish(self, batches: Sequence[OpenBatch]) -> None:
        self.meanwhile()
        for batch in batches:
            self.publish_one(batch)

    def publish_one(self, batch: OpenBatch) -> None:
        assert batch.number == len(self.published) // GROUPS
        rows = sorted(row for share in batch.cut.shares for row in rows_by_key(share))
        start = self.rows.published
        assert rows == list(range(start, batch.cut.ends["0"])), "each row once, and none is missing"
        self.published.extend(rows)
        self.rows.published = batch.cut.ends["0"]

    def drain(self) -> None:
        """Whatever happened, bundles on all seats of the last turn do the rest."""
        while len([one for one in self.stands if one.turn == self.turn]) < len(self.bundles[self.turn]):
            self.come_back(0)
        for _ in range(100 * len(PLACEMENTS)):
            for one in list(self.stands):
                self.take(one) if one.work is None else self.dealer.done(one, report())
            while self.dealer.publish_next(0):
                pass
        assert self.published == list(range(ROWS))
        assert self.dealer.idle
        assert not self.dealer._batches._holds.before(self.turn + 1), "nothing is held any more"
        assert {one.turn for one in self.stands} == {self.turn}


class KeyedRowsMeanwhile(KeyedRows):
    def __init__(self, world: World, also: Spread | None) -> None:
        super().__init__(ROWS, also)
        self._world = world

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        found = super().cut(most, bundles)
        self._world.meanwhile()
        return found


@given(steps, st.sampled_from([None, None, Spread.BROADCAST, Spread.SHUFFLE]))
def test_groups_have_one_bundle_at_a_time_and_rows_are_published_once(
    todo: list[tuple[str, int]], also: Spread | None
) -> None:
    world = World(todo, also)
    while world.todo:
        world.step(*world.todo.pop())
    world.drain()
