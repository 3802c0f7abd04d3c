"""What follows from Spark's plans: which keyed operators need no shuffle, and what is said of the others."""

from __future__ import annotations

from penstock.engine.query.splitting import Splitting, chosen, hashed_keys

KEPT = "StateStoreSave\n+- HashAggregate\n   +- Scan ExistingRDD[key#1,id#2L]"
SHUFFLED = (
    "StateStoreSave\n+- Exchange hashpartitioning({}, 8), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=7]\n"
    "   +- BroadcastExchange HashedRelationBroadcastMode(List(input[0, int, true])), [plan_id=8]"
)


def test_no_exchange_is_left() -> None:
    assert chosen(("key",), lambda key: KEPT if key else SHUFFLED.format("key#1")) == Splitting(("key",))


def test_another_order_of_the_key() -> None:
    plans = {("b", "a"): KEPT}
    assert chosen(("a", "b"), lambda key: plans.get(key, SHUFFLED.format("b#1, a#2"))) == Splitting(("b", "a"))


def test_keys_of_many_columns_are_tried_in_one_order() -> None:
    tried = []
    key = ("a", "b", "c", "d")
    chosen(key, lambda order: tried.append(order) or SHUFFLED.format("x#1"))
    assert tried == [(), key]


def test_an_exchange_that_the_split_does_not_spare() -> None:
    split = chosen(("key",), lambda _: SHUFFLED.format("lower(key#12), window#3-T1000ms"))
    assert split == Splitting((), "Spark needs its rows by hashpartitioning(lower(key), window-T1000ms, 8)")


def test_a_watermark_is_named() -> None:
    split = chosen(("key",), lambda _: SHUFFLED.format("key#1") + "\n+- EventTimeWatermark at#5")
    assert split.why.endswith(", and its plan forgets at a watermark how rows are split")


def test_one_of_two_exchanges_is_spared() -> None:
    left = SHUFFLED.format("n#1L")
    split = chosen(("key",), lambda key: left if key else left + "\n" + SHUFFLED.format("key#1"))
    assert split == Splitting(("key",), "inside it, Spark still shuffles 1 of 2 times (hashpartitioning(n, 8))")


def test_nothing_is_split_where_nothing_was_shuffled() -> None:
    assert chosen(("key",), lambda _: KEPT) == Splitting()


def test_the_keys_that_are_hashed() -> None:
    splits = {"count": Splitting(("word",)), "late": Splitting(why="a reason")}
    assert hashed_keys(splits) == {"count": ("word",)}
