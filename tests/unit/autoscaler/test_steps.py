"""The steps that are open after histories of decisions, made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_up import cluster, decided, placed, seen

from penstock.autoscaler.policy import Decided
from penstock.autoscaler.steps import Step, open_steps, taken_back, with_machines
from penstock.cluster.model import Cluster, Placement
from penstock.monitor.sample import StateSize
from penstock.plans.plan import Action, AddMachine, RemoveMachine, SetInstances
from penstock.strategies.mapping.tasks import follow_instances

SPEEDS = {"rows": 10_000.0, "work": 100.0, "out": 10_000.0}


def change(number: int, machines: tuple[int, int], work: tuple[int, int], *, out: Any = (1, 1), **more: Any) -> Decided:
    """A decision from so many machines and instances to others."""
    old, new = (cluster(count) for count in machines)
    before, after = placed(old, rows=1, work=work[0], out=out[0]), placed(new, rows=1, work=work[1], out=out[1])
    actions: list[Action] = [AddMachine(one) for one in new.machines[machines[0] :]]
    actions += [SetInstances(name, after.of(name)) for name in after.instances if after.of(name) != before.of(name)]
    actions += [RemoveMachine(name) for name in old.names[machines[1] :]]
    return decided(number, seen(before, Cluster(old.machines), SPEEDS, 100.0), *actions, **more)


def opened(*history: Decided) -> list[tuple[int, int, dict[str, int]]]:
    """Operation, machines and instances of each open step."""
    return [(step.operation, step.machines, dict(step.instances)) for step in open_steps(history)]


OUT = change(1, (1, 2), (1, 3))
IN_KEEPS_ONE = change(2, (2, 1), (3, 2), reverts=(1,))


def test_what_was_kept_is_a_step_without_a_machine() -> None:
    assert opened(OUT, IN_KEEPS_ONE) == [(2, 0, {"work": 1})]


def test_a_scale_out_is_not_open_again_once_what_was_kept_of_it_is_taken_back() -> None:
    assert opened(OUT, IN_KEEPS_ONE, change(3, (1, 1), (2, 1), reverts=(2,))) == []


def test_a_scale_out_is_open_again_if_the_scale_in_was_undone() -> None:
    undone = change(3, (1, 2), (2, 3), reverts=(2,), undo=True)
    assert opened(OUT, IN_KEEPS_ONE, undone) == [(1, 1, {"work": 2})]


def test_what_was_kept_is_there_again_if_taking_it_back_was_undone() -> None:
    taken, undone = change(3, (1, 1), (2, 1), reverts=(2,)), change(4, (1, 1), (1, 2), reverts=(3,), undo=True)
    assert opened(OUT, IN_KEEPS_ONE, taken, undone) == [(2, 0, {"work": 1})]


def test_what_was_kept_twice_is_still_a_step() -> None:
    """The second scale-in takes back what the first one kept, and the scale-out before, but for one instance."""
    history = [change(1, (1, 2), (1, 3)), change(2, (2, 3), (3, 5)), change(3, (3, 2), (5, 4), reverts=(2,))]
    assert opened(*history) == [(1, 1, {"work": 2}), (3, 0, {"work": 1})]
    assert [step.operation for step in with_machines(history, 1)] == [3, 1]
    assert opened(*history, change(4, (2, 1), (4, 2), reverts=(3, 1))) == [(4, 0, {"work": 1})]


def test_cycles_do_not_count_an_instance_twice() -> None:
    history = [OUT, IN_KEEPS_ONE]
    for cycle in range(1, 4):
        history.append(change(2 * cycle + 1, (1, 2), (2, 4)))
        history.append(change(2 * cycle + 2, (2, 1), (4, 2), reverts=(2 * cycle + 1,)))
        assert opened(*history) == [(2, 0, {"work": 1})]


def test_machines_that_stay_with_what_was_kept_go_with_it() -> None:
    """Two machines came at once, and go one after the other."""
    history = [change(1, (1, 3), (1, 5)), change(2, (3, 2), (5, 3), reverts=(1,))]
    assert opened(*history) == [(2, 1, {"work": 2})]
    assert [step.operation for step in with_machines(history, 1)] == [2]
    assert opened(*history, change(3, (2, 1), (3, 1), reverts=(2,))) == []


def test_of_steps_that_are_forgotten_nothing_is_known_to_be_kept() -> None:
    """It gave an instance of `out` back that the step, which is not remembered, had taken away."""
    assert opened(change(2, (2, 1), (3, 1), out=(1, 2), reverts=(1,))) == []
    later = change(2, (2, 2), (3, 4))
    assert opened(later, change(3, (2, 1), (4, 1), out=(1, 2), reverts=(2, 1))) == []


def test_instances_that_a_person_took_away_were_not_kept() -> None:
    """A person took one of the two that came, so the scale-in could take only one."""
    assert opened(OUT, change(2, (2, 1), (2, 1), reverts=(1,))) == []


def test_corrections_count_for_what_was_kept() -> None:
    corrected = change(2, (2, 2), (3, 2), out=(1, 2), corrects=1)
    assert opened(OUT, corrected, change(3, (2, 1), (2, 1), out=(2, 2), reverts=(1,))) == [(3, 0, {"out": 1})]
    undone = change(3, (2, 2), (2, 3), out=(2, 1), reverts=(2,), undo=True)
    assert opened(OUT, corrected, undone) == [(1, 1, {"work": 2})]


def test_tasks_go_home_when_a_scale_out_is_taken_back_also_where_their_sizes_differ() -> None:
    a, b, c = Cluster.of("abc", 1).slots
    sizes = (9, 1, 9, 9, 9, 9, 1, 9)
    before = Placement({"rows": {a: 1}, "work": {a: 1}, "count": {a: 2, b: 2}, "out": {a: 1}}, {"count": (a, b) * 4})
    grown = {a: 2, b: 2, c: 2}
    more = Placement(
        {**before.instances, "count": grown}, {"count": follow_instances(before.tasks["count"], grown, sizes)}
    )
    assert more.tasks["count"] != before.tasks["count"]
    found = seen(more, Cluster.of("abc", 1), {"rows": 1e4, "work": 1e4, "count": 100.0, "out": 1e4}, 10.0)
    known = {task: StateSize(1, size) for task, size in enumerate(sizes)}
    counted = replace(found.operators["count"], state=known)
    found = replace(found, operators=found.operators | {"count": counted})
    step = Step(1, 0.0, 1, before, more)
    assert taken_back(found, [step]) == before
    forgotten = replace(step, before=replace(before, tasks={}))
    assert taken_back(found, [forgotten]).tasks != before.tasks, "by their sizes alone they would be swapped"
