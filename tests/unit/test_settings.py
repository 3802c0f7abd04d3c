"""Settings are declared once; a wrong one is a named error."""

from __future__ import annotations

import pytest

from penstock import PenstockError, Settings
from penstock.settings import reference


def test_text_is_read_as_the_setting_s_type() -> None:
    settings = Settings.of({"batch_interval": "0.25", "slot_cores": "2", "state_store": "memory"})
    assert (settings.batch_interval, settings.slot_cores, settings.state_store) == (0.25, 2, "memory")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_interval", "soon"),
        ("batch_interval", 0.0),
        ("batch_interval", float("nan")),
        ("slot_cores", 1.5),
        ("slot_cores", True),
        ("slot_cores", 0),
        ("state_store", "redis"),
        ("batch_interval", 1e9),
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
    assert caught.value.hint == 'Did you mean "batch_interval"?'
    with pytest.raises(PenstockError) as caught:
        Settings.of({"colour": "red"})
    assert caught.value.hint.startswith("There are: backlog_bytes, ")


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
