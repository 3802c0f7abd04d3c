"""What is found by name: Penstock's own and what packages register, and how mistakes of both are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from installed_strangers import write_metadata

from penstock import PenstockError, Settings, plugins, sinks, sources
from penstock.autoscaler.policy import policy
from penstock.autoscaler.strategies import STRATEGIES
from penstock.strategies.mapping import mapping


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def refused(group: str, name: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        plugins.build(group, name)
    return caught.value


@pytest.mark.parametrize("group", plugins.GROUPS)
def test_everything_of_penstock_s_own_can_be_had(group: str) -> None:
    for name in plugins.BUILT_IN[group]:
        assert plugins.find(group, name) is not None
        assert plugins.package_of(group, name) == "penstock"


def test_every_strategy_is_a_policy_and_every_name_has_one() -> None:
    assert {*STRATEGIES, "threshold"} == set(plugins.BUILT_IN[plugins.POLICIES])
    for name in STRATEGIES:
        assert policy(name)
    for name in plugins.BUILT_IN[plugins.MAPPINGS]:
        assert mapping(name)


def test_every_kind_of_penstock_s_own_has_a_name() -> None:
    not_kinds = {"columns", "constant", "events", "generated", "named", "numbers", "sentences", "stepped", "trace"}
    for group, module in ((plugins.SOURCES, sources), (plugins.SINKS, sinks)):
        made = {name for name in module.__all__ if name[0].islower()} - not_kinds
        assert set(plugins.BUILT_IN[group]) == made
        for name in made:
            assert plugins.find(group, name) is getattr(module, name)


def test_a_kind_by_its_name_is_the_kind() -> None:
    assert sources.named("kafka", "broker:9092", "clicks") == sources.kafka("broker:9092", "clicks")
    assert sources.named("rate", 10, rows=5) == sources.rate(10, rows=5)
    assert sinks.named("parquet", "/data/counts", existing="append") == sinks.parquet("/data/counts", existing="append")


@pytest.mark.parametrize(
    ("group", "error"),
    [
        (plugins.POLICIES, "UNKNOWN_STRATEGY"),
        (plugins.MAPPINGS, "UNKNOWN_MAPPING"),
        (plugins.SOURCES, "UNKNOWN_SOURCE"),
        (plugins.SINKS, "UNKNOWN_SINK"),
    ],
)
def test_an_unknown_name_lists_those_there_are(group: str, error: str) -> None:
    found = refused(group, "stella")
    assert found.name == error
    assert '"stella"' in found.message
    assert all(name in found.hint for name in plugins.names(group))


@pytest.mark.parametrize(("setting", "error"), [("strategy", "UNKNOWN_STRATEGY"), ("mapping", "UNKNOWN_MAPPING")])
def test_a_setting_is_refused_when_it_is_given(setting: str, error: str) -> None:
    with pytest.raises(PenstockError) as caught:
        Settings.of({setting: "magic"})
    assert caught.value.name == error
    with pytest.raises(PenstockError) as caught:
        Settings.of({setting: 3})
    assert caught.value.name == "BAD_SETTING"


def test_names_are_known_without_an_import(site: Path) -> None:
    write_metadata(site, "acme-lazy", "1", {plugins.POLICIES: {"lazy": "acme_lazy.nowhere:Lazy"}})
    assert "lazy" in plugins.names(plugins.POLICIES)
    assert Settings(strategy="lazy").strategy == "lazy"
    assert not any(name.startswith("acme_lazy") for name in sys.modules)


def test_what_cannot_be_loaded_names_its_package(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    (site / "acme_broken.py").write_text("class Broken:\n    def __init__(self):\n        raise OSError('no disk')\n")
    entries = {"absent": "acme_absent:Absent", "no_class": "acme_broken:Absent", "broken": "acme_broken:Broken"}
    write_metadata(site, "acme-broken", "1", {plugins.MAPPINGS: entries})
    for name, why in (("absent", "ModuleNotFoundError"), ("no_class", "AttributeError"), ("broken", "no disk")):
        found = refused(plugins.MAPPINGS, name)
        assert found.name == "PLUGIN_FAILED"
        assert "acme-broken" in found.message
        assert why in found.message
        # Not the text of it all: PySpark, where it has run in the same process, has it written as JSON.
        assert f'the mapping "{name}" of the package acme-broken failed' in caplog.messages
    assert sum(bool(record.exc_info) for record in caplog.records) >= 3


def test_what_is_no_policy_or_mapping_is_refused(site: Path) -> None:
    (site / "acme_odd.py").write_text("class Odd:\n    pass\n")
    write_metadata(
        site, "acme-odd", "1", {plugins.MAPPINGS: {"odd": "acme_odd:Odd"}, plugins.POLICIES: {"odd": "acme_odd:Odd"}}
    )
    for find in (policy, mapping):
        with pytest.raises(PenstockError, match="acme-odd") as caught:
            find("odd")
        assert caught.value.name == "PLUGIN_FAILED"


def test_the_same_name_twice_is_an_error(site: Path) -> None:
    write_metadata(site, "acme-one", "1", {plugins.POLICIES: {"twice": "acme_one:One", "stela": "acme_one:One"}})
    write_metadata(site, "acme-two", "1", {plugins.POLICIES: {"twice": "acme_two:Two"}})
    for name, packages in (("twice", ("acme-one", "acme-two")), ("stela", ("acme-one", "penstock"))):
        found = refused(plugins.POLICIES, name)
        assert found.name == "DUPLICATE_PLUGIN"
        assert all(package in found.message for package in packages)
    assert policy("storm"), "the others are as they were"
