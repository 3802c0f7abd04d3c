"""How files of tests are dealt over the processes of `make test`. No Spark is needed for that."""

from __future__ import annotations

from collections import Counter

from conftest import LOCAL_GROUPS, TESTS_MORE, dealt

TESTS_OF = {"many": 30, "some": 12, "others": 11, "few": 3, "fewer": 2, "one": 1, "another": 1, "third": 1}


def test_every_file_is_in_one_group_and_no_group_has_much_more_than_another() -> None:
    group_of = dealt(TESTS_OF)
    assert group_of.keys() == TESTS_OF.keys()
    loads: Counter[int] = Counter()
    for file, group in group_of.items():
        loads[group] += TESTS_OF[file] + TESTS_MORE
    assert set(loads) == set(range(LOCAL_GROUPS))
    assert max(loads.values()) - min(loads.values()) <= max(TESTS_OF.values()) // 2


def test_it_does_not_depend_on_the_order_in_which_files_are_found() -> None:
    assert dealt(TESTS_OF) == dealt(dict(reversed(TESTS_OF.items())))
