"""The two clusters without processes of their own."""

import pytest

from penstock.cluster.attached import AttachedCluster
from penstock.cluster.local import LocalCluster
from penstock.cluster.model import Machine
from penstock.cluster.provider import Executor
from penstock.errors import PenstockError

A0, A1, B2 = Executor("0", "a", 4), Executor("1", "a", 4), Executor("2", "b", 4)


def changing(*answers):
    """Executors that change from call to call; the last answer stays."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_local_slots_are_logical():
    local = LocalCluster(slots=3, cores=2, task_threads=8)
    assert local.master_url == "local[8]"
    assert [slot.name for slot in local.cluster.slots] == ["local/0", "local/1", "local/2"]
    assert {slot.cores for slot in local.cluster.slots} == {2}
    assert local.bind(list, 1.0) == dict.fromkeys(local.cluster.slots)
    local.stop()
    local.stop()


@pytest.mark.parametrize("what", ["slots", "cores", "task_threads"])
def test_local_needs_at_least_one_of_everything(what):
    with pytest.raises(PenstockError, match=what) as caught:
        LocalCluster(**{"slots": 1, "cores": 1, "task_threads": 1, what: 0})
    assert caught.value.name == "BAD_CLUSTER"


def test_attached_reads_machines_and_slots_once_they_are_stable():
    attached = AttachedCluster("spark://somewhere:7077", cores=2, settle_seconds=0.15)
    assert attached.cluster.slots == ()
    bound = attached.bind(changing([], [A0], [A0, B2], [B2, A1, A0]), 5.0)
    assert {slot.name: who and who.id for slot, who in bound.items()} == {"a/0": "0", "a/1": "1", "b/0": "2"}
    assert [machine.name for machine in attached.cluster.machines] == ["a", "b"]
    assert attached.cluster.slots == tuple(bound)
    assert {slot.cores for slot in bound} == {2}


def test_attached_keeps_slots_when_bound_again():
    attached = AttachedCluster("spark://somewhere:7077", cores=1, settle_seconds=0.01)
    attached.bind(lambda: [A0, A1], 5.0)
    assert [slot.name for slot in attached.bind(lambda: [A1, B2], 5.0)] == ["a/1", "b/0"]


def test_attached_without_time_takes_what_is_there_now():
    attached = AttachedCluster("spark://somewhere:7077", cores=1)
    assert list(attached.bind(lambda: [A0], 0.0).values()) == [A0]


@pytest.mark.parametrize("answers", [[[]], [[A0], [A1]] * 50], ids=["none", "never stable"])
def test_attached_gives_up_at_the_deadline(answers):
    with pytest.raises(PenstockError) as caught:
        AttachedCluster("spark://somewhere:7077", cores=1, settle_seconds=0.2).bind(changing(*answers), 0.3)
    assert caught.value.name == "CLUSTER_FAILED"


def test_attached_refuses_a_master_without_executors():
    with pytest.raises(PenstockError) as caught:
        AttachedCluster("local[2]", cores=1)
    assert caught.value.name == "BAD_CLUSTER"


def test_the_machines_of_a_local_cluster_are_fixed():
    local = LocalCluster(slots=2, cores=1, task_threads=8)
    [machine] = local.cluster.machines
    for change in (
        lambda: local.upcoming(1),
        lambda: local.add_machine(machine, FakeSpark([])),
        lambda: local.remove_machine("local", FakeSpark([])),
    ):
        with pytest.raises(PenstockError) as caught:
            change()
        assert caught.value.name == "FIXED_MACHINES"
    assert local.arrived(machine) is None
    assert local.tend() == []


class FakeSpark:
    """A cluster manager that gives executors on request."""

    def __init__(self, executors):
        self.now = list(executors)
        #: How many executors were asked for in all, time after time.
        self.wanted = []

    def executors(self):
        return list(self.now)

    def request_executors(self, total):
        self.wanted.append(total)

    def decommission(self, ids):
        self.now = [one for one in self.now if one.id not in ids]


def attached_to(spark):
    attached = AttachedCluster("spark://somewhere:7077", cores=1, settle_seconds=0.01)
    attached.bind(spark.executors, 5.0)
    return attached


def test_machines_come_to_an_attached_cluster_wherever_its_manager_likes():
    attached = AttachedCluster("spark://somewhere:7077", cores=1, settle_seconds=0.01)
    spark = FakeSpark([A0, B2])
    attached.bind(spark.executors, 5.0)
    first, second = attached.upcoming(2)
    assert [first.name, second.name] == ["new-1", "new-2"]
    attached.add_machine(first, spark)
    attached.add_machine(second, spark)
    assert spark.wanted == [3, 4]
    assert attached.arrived(first) is None
    spark.now += [A1]
    attached.bound(spark.executors)
    assert {old.name: new.name for old, new in attached.arrived(first).items()} == {"new-1/0": "a/1"}
    assert attached.arrived(second) is None, "a slot counts for one machine only"
    spark.now += [Executor("5", "c", 4)]
    attached.bound(spark.executors)
    assert {old.name: new.name for old, new in attached.arrived(second).items()} == {"new-2/0": "c/0"}
    assert attached.arrived(first) is not None, "asked twice, answered twice"
    assert attached.upcoming(1)[0].name == "new-3"


def asked_for_one_more():
    attached = AttachedCluster("spark://somewhere:7077", cores=1, settle_seconds=0.01)
    spark = FakeSpark([A0, B2])
    attached.bind(spark.executors, 5.0)
    [new] = attached.upcoming(1)
    attached.add_machine(new, spark)
    return attached, spark, new


def test_a_machine_that_came_goes_alone_by_the_name_it_was_planned_under():
    attached, spark, new = asked_for_one_more()
    spark.now += [A1]  # on a host that had an executor before
    attached.bound(spark.executors)
    attached.arrived(new)
    assert {slot.name for slot in attached.slots_of(new.name)} == {"a/1"}
    attached.remove_machine(new.name, spark)
    assert spark.now == [A0, B2]
    assert attached.upcoming(1)[0].name == "new-2", "a name is given once"


def test_a_machine_that_did_not_come_is_asked_for_no_longer():
    attached, spark, new = asked_for_one_more()
    attached.remove_machine(new.name, spark)
    assert spark.wanted == [3, 2]
    [again] = attached.upcoming(1)
    attached.add_machine(again, spark)
    assert spark.wanted == [3, 2, 3]


def test_an_attached_machine_leaves_with_all_its_executors():
    attached = AttachedCluster("spark://somewhere:7077", cores=1, settle_seconds=0.01)
    spark = FakeSpark([A0, A1, B2])
    attached.bind(spark.executors, 5.0)
    attached.remove_machine("a", spark)
    assert attached.cluster.names == ("b",)
    with pytest.raises(PenstockError) as caught:
        attached.remove_machine("a", spark)
    assert caught.value.name == "NO_SUCH_MACHINE"


A3, C4, C5 = Executor("3", "a", 4), Executor("4", "c", 4), Executor("5", "c", 4)


def test_an_executor_that_is_being_replaced_stays_wanted():
    spark = FakeSpark([A0, B2])
    attached = attached_to(spark)
    spark.now = [B2]  # A0 is lost: its manager is about to start another one
    attached.bound(spark.executors)
    [new] = attached.upcoming(1)
    attached.add_machine(new, spark)
    assert spark.wanted == [3], "the two there were, and one more"
    spark.now = [B2, A3]  # the one in A0's place
    attached.bound(spark.executors)
    assert attached.arrived(new) is None, "it stands where A0 stood"
    spark.now = [B2, A3, C4]
    attached.bound(spark.executors)
    assert {old.name: came.name for old, came in attached.arrived(new).items()} == {"new-1/0": "c/0"}


def test_a_machine_that_leaves_while_an_executor_is_being_replaced():
    spark = FakeSpark([A0, B2, C4])
    attached = attached_to(spark)
    spark.now = [B2, C4]
    attached.bound(spark.executors)
    attached.remove_machine("c", spark)
    assert spark.now == [B2]
    assert spark.wanted == [2], "A0 is still to be replaced, and C4 is not"


B5, A6, A7, C8 = Executor("5", "b", 4), Executor("6", "a", 4), Executor("7", "a", 4), Executor("8", "c", 4)


def came_to(attached, machine):
    return {slot.name for slot in (attached.arrived(machine) or {}).values()}


def test_an_executor_replaced_on_another_host_leaves_its_slot_to_a_machine_that_comes():
    spark = FakeSpark([A0, B2])
    attached = attached_to(spark)
    for now in ([B2], [B2, B5]):  # A0 is lost, and B5 comes in its place
        spark.now = now
        attached.bound(spark.executors)
    [new] = attached.upcoming(1)
    assert len(new.slots) == 2
    attached.add_machine(new, spark)
    assert spark.wanted == [4]
    spark.now = [B2, B5, A6, A7]
    attached.bound(spark.executors)
    assert came_to(attached, new) == {"a/0", "a/1"}


def test_one_of_two_lost_executors_is_replaced_on_another_host():
    spark = FakeSpark([A0, A1, B2])
    attached = attached_to(spark)
    for now in ([B2], [B2, B5]):
        spark.now = now
        attached.bound(spark.executors)
    new = attached.upcoming(1)[0]
    new = Machine(new.name, new.slots[:1])
    attached.add_machine(new, spark)
    assert spark.wanted == [4], "the three there were, and one more"
    spark.now = [B2, B5, A6, A7]  # the other one in its place, and the new one
    attached.bound(spark.executors)
    assert len(came_to(attached, new)) == 1


def test_the_executor_of_a_machine_that_came_is_replaced_on_another_host():
    attached, spark, new = asked_for_one_more()
    for now in ([A0, B2, C4], [A0, B2], [A0, B2, B5]):
        spark.now = now
        attached.bound(spark.executors)
        attached.arrived(new)
    assert came_to(attached, new) == {"b/1"}, "it is where the one in its place is"
    [other] = attached.upcoming(1)
    other = Machine(other.name, other.slots[:1])
    attached.add_machine(other, spark)
    spark.now = [A0, B2, B5, C8]
    attached.bound(spark.executors)
    assert came_to(attached, other) == {"c/0"}, "where the first machine was at first"


def test_a_machine_leaves_with_the_executor_that_is_being_replaced():
    spark = FakeSpark([A0, A1, B2, B5])
    attached = attached_to(spark)
    spark.now = [A0, B2, B5]  # A1 is lost: its manager is about to start another one
    attached.bound(spark.executors)
    attached.remove_machine("a", spark)
    assert spark.wanted == [2], "those of b; none is started in the place of A1"
    [new] = attached.upcoming(1)
    attached.add_machine(new, spark)
    spark.now = [B2, B5, A6, A7]
    attached.bound(spark.executors)
    assert came_to(attached, new) == {"a/0", "a/1"}, "nothing of a is awaited any more"


def test_an_executor_that_is_lost_while_a_machine_leaves_stays_wanted():
    spark = FakeSpark([A0, B2, B5])
    attached = attached_to(spark)

    def leave(ids):
        spark.now = [B2]  # A0 as it was told to, and B5 by itself
        attached.bound(spark.executors)

    spark.decommission = leave
    attached.remove_machine("a", spark)
    [new] = attached.upcoming(1)
    attached.add_machine(new, spark)
    assert spark.wanted == [2, 3]
    spark.now = [B2, Executor("9", "b", 4)]
    attached.bound(spark.executors)
    assert attached.arrived(new) is None, "it stands where B5 stood"


def test_the_total_is_lowered_before_executors_leave():
    """Else their manager starts others in their place."""
    spark = FakeSpark([A0, B2])
    attached = attached_to(spark)
    told = []
    spark.decommission = lambda ids: (told.append(list(spark.wanted)), spark.now.remove(A0))
    attached.remove_machine("a", spark)
    assert told == [[1]]


def test_what_came_by_itself_is_taken_in_before_more_is_asked_for():
    spark = FakeSpark([A0, B2])
    attached = attached_to(spark)
    spark.now += [C4]  # somebody added a machine
    attached.bound(spark.executors)
    used = [slot for slot in attached.cluster.slots if slot.machine != "c"]
    first, second = attached.upcoming(2)
    idle = set(attached.cluster.slots) - set(used)
    attached.add_machine(first, spark, idle)
    assert spark.wanted == []
    assert {old.name: came.name for old, came in attached.arrived(first).items()} == {"new-1/0": "c/0"}
    attached.add_machine(second, spark, idle)
    assert spark.wanted == [4], "nothing is idle any more: the three that are there, and one more"
    assert attached.arrived(second) is None


def test_what_could_come_is_known_at_one_moment():
    spark = FakeSpark([A0, B2])
    attached = attached_to(spark)
    coming = attached.coming()
    assert set(coming.spare) == set(attached.cluster.slots), "whether anything is placed there, the placement knows"
    assert coming.machines[:2] == attached.upcoming(2)
    attached.add_machine(coming.machines[0], spark, set(attached.cluster.slots))
    assert len(attached.coming().spare) == 1, "the other one was taken in"
    assert attached.coming().machines[0].name == "new-2"
    with pytest.raises(PenstockError, match="at once") as caught:
        attached.upcoming(len(coming.machines) + 1)
    assert caught.value.name == "FIXED_MACHINES"
    assert LocalCluster(slots=1, cores=1, task_threads=4).coming().machines == ()


def test_an_idle_executor_counts_for_one_machine_only():
    spark = FakeSpark([A0, C4])
    attached = attached_to(spark)
    idle = {slot for slot in attached.cluster.slots if slot.machine == "c"}
    first, second = attached.upcoming(2)
    attached.add_machine(first, spark, idle)
    attached.add_machine(second, spark, idle)  # before anybody has looked whether the first is there
    assert spark.wanted == [3]


def test_half_of_a_machine_is_there_already():
    spark = FakeSpark([A0, A1, B2, Executor("9", "b", 4), C4])
    attached = attached_to(spark)
    [new] = attached.upcoming(1)
    assert len(new.slots) == 2
    idle = {slot for slot in attached.cluster.slots if slot.machine == "c"}
    attached.add_machine(new, spark, idle)
    assert spark.wanted == [6], "one more than there are"
    assert attached.arrived(new) is None
    spark.now += [C5]
    attached.bound(spark.executors)
    assert sorted(slot.name for slot in attached.arrived(new).values()) == ["c/0", "c/1"]


def test_what_came_by_itself_stays_when_the_change_that_took_it_in_is_undone():
    spark = FakeSpark([A0, C4])
    attached = attached_to(spark)
    idle = {slot for slot in attached.cluster.slots if slot.machine == "c"}
    [new] = attached.upcoming(1)
    attached.add_machine(new, spark, idle)
    attached.arrived(new)
    assert attached.slots_of(new.name) == frozenset()
    attached.remove_machine(new.name, spark)
    assert spark.now == [A0, C4]
    assert spark.wanted == []
    [again] = attached.upcoming(1)
    attached.add_machine(again, spark, idle)
    assert attached.arrived(again) is not None, "it can be taken in again"


def test_a_machine_that_came_and_left_by_its_host_s_name_can_come_again():
    attached, spark, new = asked_for_one_more()
    spark.now += [C4]
    attached.bound(spark.executors)
    assert attached.arrived(new) is not None
    attached.remove_machine("c", spark)
    assert spark.wanted == [3, 2]
    [again] = attached.upcoming(1)
    attached.add_machine(again, spark)
    spark.now += [C5]  # on the same host, so in the same slot
    attached.bound(spark.executors)
    assert {slot.name for slot in attached.arrived(again).values()} == {"c/0"}


def test_what_came_by_itself_is_wanted_once_it_is_used_or_another_leaves():
    spark = FakeSpark([A0, B2])
    attached = attached_to(spark)
    spark.now += [C4]
    attached.bound(spark.executors)
    [new] = attached.upcoming(1)
    attached.add_machine(new, spark, attached.cluster.slots[2:])
    spark.now = [A0, B2]  # it is lost again, and to be replaced
    attached.bound(spark.executors)
    attached.remove_machine("b", spark)
    assert spark.wanted == [2]
    by_itself = FakeSpark([A0, B2])
    other = attached_to(by_itself)
    by_itself.now += [C4]
    other.bound(by_itself.executors)
    other.remove_machine("b", by_itself)
    assert by_itself.wanted == [2], "those that are left: nobody asked for the end of the one that came by itself"


def test_a_machine_on_two_hosts_of_which_one_leaves():
    spark = FakeSpark([A0, A1, B2, Executor("9", "b", 4)])
    attached = attached_to(spark)
    [new] = attached.upcoming(1)
    attached.add_machine(new, spark)
    spark.now += [C4, Executor("6", "d", 4)]
    attached.bound(spark.executors)
    assert {slot.name for slot in attached.arrived(new).values()} == {"c/0", "d/0"}
    attached.remove_machine("c", spark)
    assert {slot.name for slot in attached.slots_of(new.name)} == {"d/0"}
    [again] = attached.upcoming(1)
    attached.add_machine(again, spark)
    spark.now += [C5, Executor("7", "e", 4)]
    attached.bound(spark.executors)
    assert {slot.name for slot in attached.arrived(again).values()} == {"c/0", "e/0"}
    assert spark.wanted == [6, 5, 7]
