"""Settings are declared once; a wrong one is a named error."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from penstock import PenstockError, Settings
from penstock.settings import REPLACED, reference


def test_text_is_read_as_the_setting_s_type() -> None:
    settings = Settings.of({"latency_under_load": "0.25", "slot_cores": "2", "state_store": "memory"})
    assert (settings.latency_under_load, settings.slot_cores, settings.state_store) == (0.25, 2, "memory")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latency_under_load", "soon"),
        ("latency_under_load", 0.0),
        ("latency_under_load", float("nan")),
        ("slot_cores", 1.5),
        ("slot_cores", True),
        ("slot_cores", 0),
        ("state_store", "redis"),
        ("latency_under_load", 1e9),
    ],
)
def test_a_wrong_value_is_named(name: str, value: object) -> None:
    with pytest.raises(PenstockError) as caught:
        Settings.of({name: value})
    assert caught.value.name == "BAD_SETTING"
    assert name in caught.value.message


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(PenstockError) as caught:
        Settings.of({"batch_intervall": 1})
    assert caught.value.name == "UNKNOWN_SETTING"
    assert caught.value.hint == 'Did you mean "latency_under_load"?'
    with pytest.raises(PenstockError) as caught:
        Settings.of({"colour": "red"})
    assert caught.value.hint.startswith("There are: backlog_bytes, ")


@pytest.mark.parametrize(("old", "new"), REPLACED.items())
def test_a_name_that_another_one_replaced_says_which(old: str, new: str) -> None:
    with pytest.raises(PenstockError) as caught:
        Settings.of({old: "1"})
    assert caught.value.name == "UNKNOWN_SETTING"
    assert f'"{new}"' in caught.value.message
    assert old in caught.value.message
    [meaning] = [row["meaning"] for row in reference() if row["name"] == new]
    assert caught.value.hint == f"{new}: {meaning}"


@pytest.mark.parametrize("given", [*REPLACED, "colour", "latencyy"])
def test_python_names_an_unknown_setting_as_the_command_line_does(given: str) -> None:
    with pytest.raises(PenstockError) as expected:
        Settings.of({given: 1})
    with pytest.raises(PenstockError) as caught:
        Settings(**{given: 1})
    assert str(caught.value) == str(expected.value)
    with pytest.raises(PenstockError) as caught:
        dataclasses.replace(Settings(), **{given: 1})
    assert str(caught.value) == str(expected.value)


def test_settings_are_still_a_dataclass_like_any_other() -> None:
    """What checks the names in front of it hides none of them, and is in nobody's way."""
    settings = Settings(latency=0.2)
    assert list(inspect.signature(Settings).parameters) == list(vars(settings))
    assert pickle.loads(pickle.dumps(settings)) == copy.copy(settings) == dataclasses.replace(settings) == settings
    with pytest.raises(TypeError):
        Settings(*range(1000))


def test_no_name_that_was_replaced_is_back() -> None:
    assert not set(REPLACED) & set(vars(Settings()))


def test_what_is_taken_at_once_at_defaults() -> None:
    """The figures that batch_interval, batch_interval_most, batch_linger, batch_rows and batch_bytes had."""
    settings = Settings()
    assert (settings.latency_under_load, settings.latency_with_backlog, settings.latency_spark) == (0.5, 3.0, 0.1)
    assert (settings.rows_at_once, settings.bytes_at_once) == (1_000_000, 134_217_728)
    assert settings.longest_batch == 3.0


def test_the_longest_batch_is_never_shorter_than_one_under_load() -> None:
    assert Settings(latency_under_load=2.0, latency_with_backlog=0.0).longest_batch == 2.0


def test_megabytes_are_those_of_memory() -> None:
    assert Settings(rows_at_once_mb=5).bytes_at_once == 5 * 1024 * 1024


def test_every_setting_is_in_the_reference_with_a_meaning() -> None:
    rows = reference()
    assert {row["name"] for row in rows} == set(vars(Settings()))
    assert all(row["meaning"].endswith((".", ").")) for row in rows)


@pytest.mark.parametrize(
    ("out", "in_", "gap"), [(0.7, 0.35, 0.0), (0.7, 0.3, 0.1), (0.5, 0.2, 0.1), (0.2, 0.4, 0.0), (1.0, 0.5, 0.0)]
)
def test_thresholds_that_call_for_each_other_are_refused_by_name(out: float, in_: float, gap: float) -> None:
    with pytest.raises(PenstockError) as caught:
        Settings(threshold_out=out, threshold_in=in_, threshold_gap=gap)
    assert caught.value.name == "BAD_THRESHOLDS"
    assert "threshold_out" in caught.value.message


def test_the_paper_s_thresholds_and_others_with_a_gap_are_taken() -> None:
    assert (Settings().threshold_out, Settings().threshold_in) == (0.7, 0.2)
    assert Settings.of({"threshold_out": "0.9", "threshold_in": "0.4", "threshold_gap": "0.05"}).threshold_out == 0.9
    with pytest.raises(PenstockError, match="threshold_out"):
        Settings(threshold_out=1.5)
