"""Which topologies are neighbours, in a user's words."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from control_fixtures import registry

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.api import handle as module
from penstock.api.neighbourhood import FILE, cluster_name, leases_of, neighbours_of
from penstock.autoscaler.neighbours import ALONE
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.model import Cluster
from penstock.testing import RecordingTopology

__all__ = ["registry"]
ONE = ClusterChoice("attached", master="spark://rack:7077")
OTHER = ClusterChoice("attached", master="spark://attic:7077")


@pytest.mark.parametrize("kind", ["local", "standalone", "lab"])
def test_a_cluster_of_its_own_is_not_shared(kind: str, registry: Path) -> None:
    with leases_of(ClusterChoice(kind), "t", Settings()) as leases:
        assert leases is None
        with neighbours_of(None, leases) as neighbours:  # type: ignore[arg-type]
            assert neighbours is ALONE
    assert not (registry / FILE).exists()


def test_topologies_that_name_the_same_master_share_it(registry: Path) -> None:
    with ExitStack() as end:
        first, second, elsewhere = (
            end.enter_context(leases_of(choice, name, Settings()))
            for choice, name in ((ONE, "first"), (ONE, "second"), (OTHER, "elsewhere"))
        )
        assert first is not None and second is not None and elsewhere is not None
        assert first.ask() is not None
        assert second.ask() is None
        assert elsewhere.ask() is not None
        assert [one.topology for one in second.neighbours()] == ["first"]
        assert stat.S_IMODE((registry / FILE).stat().st_mode) == 0o600
    with leases_of(ONE, "later", Settings()) as later:
        assert later is not None
        assert later.neighbours() == (), "who has ended is no neighbour"


def test_a_database_of_the_user_s(tmp_path: Path, registry: Path) -> None:
    settings = Settings(neighbours=f"sqlite:///{tmp_path / 'ours.sqlite'}")
    with leases_of(ONE, "first", settings) as first, leases_of(ONE, "second", Settings()) as second:
        assert first is not None and second is not None
        assert first.ask() is not None
        assert second.ask() is not None, "they agree in different places"


def test_it_can_be_switched_off(registry: Path) -> None:
    with leases_of(ONE, "t", Settings(neighbours="off")) as leases:
        assert leases is None


@pytest.mark.parametrize("url", ["sometimes", "mysql://host/ours", "sqlite:////no/such/folder/ours.sqlite"])
def test_a_database_that_cannot_be_used_is_refused_by_name(url: str) -> None:
    with pytest.raises(PenstockError) as caught, leases_of(ONE, "t", Settings(neighbours=url)):
        pass
    assert caught.value.name == "NEIGHBOURS_UNREACHABLE"


def test_a_cluster_has_one_name_however_its_master_is_written() -> None:
    assert cluster_name("spark://Rack:7077/") == cluster_name("spark://rack:7077") == "spark://rack:7077"
    assert cluster_name("spark://b:7077,a:7077") == cluster_name("spark://a:7077,b:7077")
    assert cluster_name("yarn") == "yarn"


def test_two_topologies_of_a_program_see_each_other(monkeypatch: pytest.MonkeyPatch, registry: Path) -> None:
    @contextmanager
    def started(definition: Any, _: object, settings: Any, *words: object, **more: object) -> Iterator[Any]:
        yield RecordingTopology(definition, Cluster.of(["a"], 1), settings)

    def declared(name: str) -> Topology:
        topology = Topology(name)
        topology.sink("out", sinks.noop(), inputs=topology.source("rows", sources.rate(1)))
        return topology

    monkeypatch.setattr(module, "started", started)
    settings, master = Settings(control="off"), "spark://rack:7077"
    with module.run(declared("first"), master=master, settings=settings) as first:
        with module.run(declared("second"), master=master, settings=settings) as second:
            [seen] = second.status()["neighbours"]
            assert (seen["topology"], seen["uses"]) == ("first", {"a": 1.0})
        assert first.status()["cluster"] == "attached"
