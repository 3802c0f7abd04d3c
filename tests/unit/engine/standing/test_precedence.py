"""Groups of keys change hands when a turn begins: those that move wait for what was read of them, the others go on."""

from __future__ import annotations

import pytest
from dealing import Rows, dealer_of, done, in_background, report, served, stand
from keyed_dealing import GROUPS, A, B, C, KeyedRows, groups_of

from penstock.engine.message.shares import Share, Spread
from penstock.engine.standing import precedence
from penstock.engine.standing.batches import Dealt, Standing
from penstock.engine.standing.dealer import AHEAD, Dealer


class Asks:
    """A bundle that asks for work, in a thread of its own."""

    def __init__(self, dealer: Dealer, standing: Standing) -> None:
        self._taken: list[Dealt | None] = []
        self._thread = in_background(lambda: self._taken.append(dealer.take(standing)))

    @property
    def waits(self) -> bool:
        self._thread.join(0.05)
        return not self._taken

    @property
    def batch(self) -> int | None:
        """The batch that it got a share of; None if it was told to leave."""
        self._thread.join(2)
        return self._taken[0].batch.number if self._taken[0] else None

    @property
    def groups(self) -> list[int]:
        self._thread.join(2)
        assert self._taken[0] is not None
        return groups_of(self._taken[0].share)


def take(dealer: Dealer, *stands: Standing) -> list[list[int]]:
    """The groups that these bundles get, one after the other."""
    return [Asks(dealer, one).groups for one in stands]


def test_groups_that_stay_go_on_while_a_batch_of_the_turn_before_is_open() -> None:
    dealer, published, _ = dealer_of(KeyedRows(4 * GROUPS))
    slow, quick = served(dealer, A, B)
    take(dealer, slow, quick)
    done(dealer, quick, report("b/0"))
    still_slow, still_quick = served(dealer, A, B, turn=2)
    for batch in (1, 2):
        asks = Asks(dealer, still_quick)
        assert (asks.batch, asks.groups) == (batch, [6, 7, 8, 9, 10, 11])
        done(dealer, still_quick, report("b/0"))
    assert published.batches == []
    assert Asks(dealer, still_slow).waits, "the rows before are not worked off"
    done(dealer, slow, report())
    assert published.batches == [(0, [0, 12])]


def test_a_group_that_stays_need_not_wait_until_all_before_it_is_published() -> None:
    """Its rows before are worked off. They cannot be published yet because of another bundle."""
    dealer, published, _ = dealer_of(KeyedRows(2 * GROUPS))
    one, two = served(dealer, A, B)
    take(dealer, one, two)
    again, _ = served(dealer, A, B, turn=2)
    asks = Asks(dealer, again)
    assert asks.waits
    done(dealer, one, report())
    assert asks.batch == 1
    assert published.batches == []


def test_groups_that_move_wait_until_what_was_read_of_them_is_published() -> None:
    dealer, published, _ = dealer_of(KeyedRows(2 * GROUPS))
    one, two = served(dealer, A, B)
    take(dealer, one, two)
    new_one, new_two, new_three = served(dealer, A, B, C, turn=2)
    done(dealer, one, report())
    assert take(dealer, new_one) == [[0, 1, 2, 3]]
    dealer.done(two, report("b/0"))
    assert take(dealer, new_two) == [[6, 7]], "they stay; 4 and 5 come from the first bundle"
    dealer.done(new_two, report("b/0"))
    moves, comes = Asks(dealer, new_two), Asks(dealer, new_three)
    assert moves.waits and comes.waits, "what was read of their groups is worked off, and not published"
    assert dealer.publish_next(0)
    assert published.batches == [(0, [0, 12])]
    assert (moves.groups, comes.groups) == ([4, 5], [8, 9, 10, 11])
    for standing in (new_one, new_two, new_three):
        assert done(dealer, standing, report())
    assert published.batches == [(0, [0, 12]), (1, [12, 24])]


def test_a_share_does_not_overtake_one_that_waits_and_has_rows_of_the_same_groups() -> None:
    dealer, _, _ = dealer_of(KeyedRows(3 * GROUPS))
    one, two = served(dealer, A, B)
    take(dealer, one, two)
    dealer.done(two, report("b/0"))
    _, new_two, _ = served(dealer, A, B, C, turn=2)
    assert take(dealer, new_two) == [[6, 7]]
    dealer.done(new_two, report("b/0"))
    asks = Asks(dealer, new_two)
    assert (asks.batch, asks.groups) == (2, [6, 7])
    dealer.done(new_two, report("b/0"))
    asks = Asks(dealer, new_two)
    assert asks.waits
    done(dealer, one, report())
    assert (asks.batch, asks.groups) == (1, [4, 5])
    dealer.done(new_two, report("b/0"))
    asks = Asks(dealer, new_two)
    assert (asks.batch, asks.groups) == (2, [4, 5])


def test_a_bundle_of_a_turn_that_is_over_stays_until_it_has_done_what_waits_for_it() -> None:
    """Its share waits for the turn before, and the next turn has begun meanwhile."""
    dealer, published, _ = dealer_of(KeyedRows(2 * GROUPS))
    [first] = served(dealer, A)
    take(dealer, first)
    [second] = served(dealer, B, turn=2)
    asks = Asks(dealer, second)
    assert asks.waits
    [third] = served(dealer, C, turn=3)
    later = Asks(dealer, third)
    assert asks.waits and later.waits
    done(dealer, first, report())
    assert asks.batch == 1
    done(dealer, second, report("b/0"))
    assert Asks(dealer, second).batch is None
    assert published.batches == [(0, [0, 12]), (1, [12, 24])]
    dealer.end()


def test_what_waits_is_cut_anew_if_the_turn_before_cannot_do_its_share() -> None:
    dealer, published, _ = dealer_of(KeyedRows(2 * GROUPS))
    one, two = served(dealer, A, B)
    take(dealer, one, two)
    dealer.done(two, report("b/0"))
    [new_two] = served(dealer, B, turn=2)
    assert take(dealer, new_two) == [[6, 7, 8, 9, 10, 11]], "the others came from the first bundle"
    dealer.lost(one)
    assert not done(dealer, new_two, report("b/0")), "it is cut again, with all groups"
    asks = Asks(dealer, new_two)
    assert (asks.batch, asks.groups) == (0, list(range(GROUPS)))
    done(dealer, new_two, report("b/0"))
    assert published.batches == [(0, [0, 12])]


def test_what_was_read_before_is_not_cut_anew_for_a_bundle_that_never_came() -> None:
    """A slow share would never be done if it began anew with every turn whose bundles come late."""
    dealer, published, _ = dealer_of(KeyedRows(2 * GROUPS))
    slow, quick = served(dealer, A, B)
    take(dealer, slow, quick)
    dealer.done(quick, report("b/0"))
    here = [stand(dealer, 2, 0, A), stand(dealer, 2, 1, B)]
    dealer.serve(2, (A, B, C))
    assert take(dealer, here[1]) == [[6, 7]]
    assert dealer.rows_in_work == 2 * GROUPS
    last = served(dealer, A, B, C, turn=3)
    assert dealer.rows_in_work == GROUPS, "nobody will come to the third seat of the second turn"
    assert not done(dealer, here[1], report("b/0"))
    assert done(dealer, slow, report())
    assert published.batches == [(0, [0, 12])]
    for standing in last:
        assert Asks(dealer, standing).batch == 1
        assert done(dealer, standing, report())
    assert published.batches == [(0, [0, 12]), (1, [12, 24])]


def test_nobody_misses_a_bundle_whose_share_has_to_wait() -> None:
    """A turn that is begun anew for it would only undo what the others do."""
    dealer, _, _ = dealer_of(KeyedRows(2 * GROUPS))
    one, two = served(dealer, A, B)
    take(dealer, one, two)
    new_one, _, new_three = served(dealer, A, B, C, turn=2)
    asks = Asks(dealer, new_one)
    assert asks.waits
    dealer.lost(new_three)
    assert not dealer.deserted(0.0)
    done(dealer, one, report())
    done(dealer, two, report("b/0"))
    assert asks.batch == 1
    assert dealer.deserted(0.0)


def test_bundles_run_only_so_far_ahead_of_the_turn_before() -> None:
    dealer, _, _ = dealer_of(KeyedRows(100 * GROUPS))
    slow, quick = served(dealer, A, B)
    take(dealer, slow, quick)
    dealer.done(quick, report("b/0"))
    _, quick = served(dealer, A, B, turn=2)
    for _ in range(AHEAD * 2 - 1):
        take(dealer, quick)
        dealer.done(quick, report("b/0"))
    assert Asks(dealer, quick).waits


def test_the_rows_of_a_share_that_is_a_part_of_a_bundles_own_are_counted_as_a_part() -> None:
    dealer, _, _ = dealer_of(KeyedRows(2 * GROUPS))
    one, two = served(dealer, A, B)
    take(dealer, one, two)
    dealer.done(two, report("b/0"))
    _, new_two, _ = served(dealer, A, B, C, turn=2)
    take(dealer, new_two)
    assert new_two.work is not None
    assert new_two.work.portion == 0.5
    dealer.done(new_two, report("b/0"))
    assert new_two.pacer.per_row == pytest.approx(0.01 / 2), "of four rows, the bundle's part of twelve, it had two"


@pytest.mark.parametrize("also", [Spread.BROADCAST, Spread.SHUFFLE])
def test_rows_without_groups_are_read_once_beside_groups_that_move(also: Spread) -> None:
    """A share that has some is not cut in two. It waits as a whole."""
    dealer, published, _ = dealer_of(KeyedRows(2 * GROUPS, also))
    one, two = served(dealer, A, B)
    take(dealer, one, two)
    dealer.done(two, report("b/0"))
    new_one, new_two, new_three = served(dealer, A, B, C, turn=2)
    asks = [Asks(dealer, standing) for standing in (new_one, new_two, new_three)]
    assert all(each.waits for each in asks)
    done(dealer, one, report())
    assert [each.groups for each in asks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    read = [0, 0]
    for standing in (new_one, new_two, new_three):
        assert standing.work is not None
        read[0] += sum(piece.stop - piece.start for piece in standing.work.share.pieces if piece.spread is also)
        read[1] += 1
        done(dealer, standing, report())
    assert read == [GROUPS * (3 if also is Spread.BROADCAST else 1), 3]
    assert len(published.batches) == 2


def test_where_all_bundles_get_all_rows_each_goes_on_after_its_own() -> None:
    dealer, _, _ = dealer_of(KeyedRows(2 * GROUPS, Spread.BROADCAST, by_key=False))
    slow, quick = served(dealer, A, B)
    assert [Asks(dealer, one).batch for one in (slow, quick)] == [0, 0]
    dealer.done(quick, report("b/0"))
    still_slow, still_quick = served(dealer, A, B, turn=2)
    assert Asks(dealer, still_quick).batch == 1
    assert Asks(dealer, still_slow).waits


def test_ranges_of_a_source_are_not_cut_for_a_turn_while_the_one_before_reads() -> None:
    dealer, _, _ = dealer_of(Rows(40, any_bundle=False))
    [old] = served(dealer, A)
    assert Asks(dealer, old).batch == 0
    [new] = served(dealer, B, turn=2)
    assert Asks(dealer, new).waits
    assert dealer.rows_in_work == 10


def test_ranges_are_looked_for_in_all_batches_of_the_turns_before() -> None:
    """The oldest one may have none: a source may go on without a row."""
    rows = Rows(40, any_bundle=False)
    dealer, _, _ = dealer_of(rows)
    [old] = served(dealer, A)
    rows.shared_by = ()
    dealer._cut(old, 0.0)
    rows.shared_by = None
    assert Asks(dealer, old).batch == 1
    [new] = served(dealer, B, turn=2)
    assert Asks(dealer, new).waits
    assert dealer.rows_in_work == 20


def test_a_bundle_that_waits_for_its_last_share_does_not_keep_the_watch() -> None:
    """It may not cut, so nobody would cut for the newest turn as long as it waits."""
    rows = KeyedRows(2 * GROUPS)
    dealer, _, _ = dealer_of(rows)
    [first] = served(dealer, A)
    take(dealer, first)
    [second] = served(dealer, B, turn=2)
    assert Asks(dealer, second).waits, "it has the watch, and a share that waits"
    rows.begun.clear()
    rows.rows += GROUPS
    [third] = served(dealer, C, turn=3)
    assert Asks(dealer, third).waits
    assert rows.begun.wait(2), "the bundle of the newest turn cuts"
    assert dealer.rows_in_work == 3 * GROUPS
    dealer.end()


def test_what_bundles_wait_for_is_not_looked_for_in_all_open_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bundle that waits asks whenever a share is done: with many bundles the driver would do nothing else."""
    dealer, _, _ = dealer_of(KeyedRows(100 * GROUPS))
    slow, quick = served(dealer, A, B)
    take(dealer, slow, quick)
    dealer.done(quick, report("b/0"))
    for _ in range(AHEAD):
        take(dealer, quick)
        dealer.done(quick, report("b/0"))
    again, _ = served(dealer, A, B, turn=2)
    dealer._cut(again, 0.0)
    looked: list[Share] = []
    monkeypatch.setattr(precedence, "_held_by", lambda share, done: looked.append(share))
    assert not dealer._has_found(again)
    assert looked == []
