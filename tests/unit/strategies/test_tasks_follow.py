"""Tasks follow instances; as few as possible move."""

from __future__ import annotations

from penstock.cluster.model import Cluster
from penstock.strategies.mapping.tasks import follow, follow_instances

A, B, C = Cluster.of("abc", 1).slots


def test_a_new_instance_takes_its_share_from_where_an_instance_has_most() -> None:
    assert follow((A, A, A, B, B, B), {A: 1, B: 1}, {A: 1, B: 1, C: 1}) == (A, A, C, B, B, C)


def test_nobody_moves_where_instances_stayed() -> None:
    tasks = (A, A, A, A, B)
    assert follow(tasks, {A: 1, B: 1}, {A: 1, B: 1}) == tasks


def test_one_more_instance_on_a_slot_takes_tasks_too() -> None:
    assert follow((A, A, A, B, B, B), {A: 1, B: 1}, {A: 2, B: 1}) == (A, A, A, B, B, A)


def test_a_slot_without_instances_gives_all_to_those_that_got_them() -> None:
    assert follow((A, B, C, C), {A: 1, B: 1, C: 1}, {A: 1, B: 2}) == (A, B, B, B)


def test_a_slot_with_fewer_instances_keeps_its_share() -> None:
    assert follow((A, A, A, A), {A: 2}, {A: 1, B: 1}) == (A, A, B, B)


def test_the_smallest_tasks_move_where_sizes_are_known() -> None:
    tasks, sizes = (A, A, A, B, B, B), (1, 9, 5, 7, 3, 8)
    assert follow(tasks, {A: 1, B: 1}, {A: 1, B: 1, C: 1}, sizes) == (C, A, A, B, C, B)
    assert follow_instances(tasks, {A: 1, B: 1, C: 1}, sizes) == (C, A, A, B, C, B)


def test_of_slots_that_are_equally_full_the_one_with_the_smallest_task_gives() -> None:
    assert follow((A, A, B, B), {A: 1, B: 1}, {A: 1, B: 1, C: 1}, (5, 9, 2, 9)) == (A, A, C, B)


def test_of_shares_that_do_not_divide_evenly_the_largest_tasks_stay() -> None:
    assert follow_instances((A, A, A, B, B, B, B), {A: 1, B: 1, C: 1}, (9, 9, 9, 1, 9, 1, 9)) == (A, A, A, C, B, C, B)
    assert follow_instances((A, A, A, B, B, B, B), {A: 1, B: 1, C: 1}, (2, 9, 9, 9, 9, 1, 9)) == (C, A, A, B, B, C, B)


def test_sizes_of_another_number_of_tasks_say_nothing() -> None:
    assert follow_instances((A, A), {A: 1, B: 1}, (1, 2, 3)) == follow_instances((A, A), {A: 1, B: 1}) == (A, B)
