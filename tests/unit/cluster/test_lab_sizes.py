"""A user's words for the machines of a lab."""

from __future__ import annotations

import pytest

from penstock.cluster.choice import ClusterChoice
from penstock.cluster.lab.ground import LabGround
from penstock.cluster.lab.sizes import LabShape, MachineSize
from penstock.cluster.standalone import StandaloneCluster
from penstock.errors import PenstockError
from penstock.settings import Settings


def test_what_is_not_said_has_a_default():
    assert LabShape.read() == LabShape(MachineSize(0.25, 600, 100e6), (), 0.0)


def test_sizes_are_read_in_a_users_words():
    shape = LabShape.read(0.5, "1.5g", "2gbit", "5ms", "1, 0.25/300m, 2//10mbit")
    assert shape.size == MachineSize(0.5, 1536, 2e9)
    assert shape.latency == pytest.approx(0.005)
    assert [shape.of(index) for index in range(4)] == [
        MachineSize(1, 1536, 2e9),
        MachineSize(0.25, 300, 2e9),
        MachineSize(2, 1536, 10e6),
        shape.size,
    ]


@pytest.mark.parametrize(
    "words",
    [
        {"cores": 0},
        {"cores": float("nan")},
        {"memory": "600"},
        {"memory": "64m"},
        {"link": "fast"},
        {"link": "1kbit"},
        {"latency": "5"},
        {"latency": "11s"},
        {"sizes": "a"},
        {"sizes": "1/600m/1gbit/5ms"},
        # Words that only a program can give.
        {"cores": "half"},
        {"cores": []},
        {"memory": 600},
        {"memory": ""},
        {"link": 100e6},
        {"latency": 0.005},
        {"sizes": [1, 0.5]},
    ],
)
def test_what_makes_no_sense_is_refused(words):
    with pytest.raises(PenstockError) as caught:
        LabShape.read(**words)
    assert caught.value.name == "BAD_CLUSTER"


def test_a_lab_is_a_standalone_cluster_on_another_ground(tmp_path):
    shape = LabShape.read(0.5)
    provider = ClusterChoice("lab", machines=3, slots=2, lab=shape).provider(2, Settings(), tmp_path)
    assert isinstance(provider, StandaloneCluster)
    assert isinstance(provider.ground, LabGround)
    assert provider.ground.shape == shape
    assert provider.spark_conf()["spark.driver.host"] == "10.77.0.1"
    assert provider.driver_environment()["SPARK_LOCAL_IP"] == "10.77.0.1"
    assert [machine.name for machine in provider.upcoming(2)] == ["10.77.0.2", "10.77.0.3"]


def test_only_a_lab_has_sizes():
    with pytest.raises(PenstockError, match="Choose the cluster lab"):
        ClusterChoice("standalone", lab=LabShape())


def test_who_means_the_latency_that_is_aimed_at_is_told_where_it_is():
    with pytest.raises(PenstockError, match="setting: --set latency="):
        LabShape.read(latency="0.02")
