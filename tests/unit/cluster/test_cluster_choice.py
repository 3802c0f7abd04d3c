"""A user's words for a cluster become that cluster; what makes no sense is refused before anything starts."""

from __future__ import annotations

import pytest

from penstock.cluster.attached import AttachedCluster
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.local import LocalCluster
from penstock.cluster.standalone import StandaloneCluster
from penstock.errors import PenstockError
from penstock.settings import Settings


def test_local_has_two_slots_and_room_for_all_operators_on_each(tmp_path):
    provider = ClusterChoice().provider(6, Settings(slot_cores=2), tmp_path)
    assert isinstance(provider, LocalCluster)
    assert [slot.cores for slot in provider.cluster.slots] == [2, 2]
    assert provider.master_url == "local[48]"


def test_standalone_has_two_machines_of_one_slot(tmp_path):
    provider = ClusterChoice("standalone").provider(2, Settings(slot_memory_mb=700), tmp_path)
    assert isinstance(provider, StandaloneCluster)
    assert (provider.machines, provider.slots, provider.cores) == (2, 1, 1)
    assert (provider.task_threads_per_slot, provider.executor_memory_mb) == (8, 700)
    assert provider.work_dir == tmp_path


def test_attached_connects_to_the_master(tmp_path):
    provider = ClusterChoice("attached", master="spark://host:7077").provider(2, Settings(), tmp_path)
    assert isinstance(provider, AttachedCluster)
    assert provider.master_url == "spark://host:7077"


@pytest.mark.parametrize(
    "words",
    [
        {"kind": "moon"},
        {"machines": 2},
        {"slots": 0},
        {"master": "spark://host:7077"},
        {"kind": "standalone", "machines": -1},
        {"kind": "attached"},
        {"kind": "attached", "master": "spark://host:7077", "slots": 1},
    ],
)
def test_what_makes_no_sense_is_refused(words):
    with pytest.raises(PenstockError) as caught:
        ClusterChoice(**words)
    assert caught.value.name == "BAD_CLUSTER"


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (ClusterChoice(), "one local Spark process"),
        (ClusterChoice("standalone", machines=1), "a master and 1 worker"),
        (ClusterChoice("standalone"), "a master and 2 workers"),
        (ClusterChoice("attached", master="spark://host:7077"), "the master spark://host:7077"),
    ],
)
def test_it_says_what_is_started(choice, text):
    assert str(choice) == text
