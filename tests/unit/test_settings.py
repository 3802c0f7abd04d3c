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


def test_every_setting_is_in_the_reference_with_a_meaning() -> None:
    rows = reference()
    assert {row["name"] for row in rows} == set(vars(Settings()))
    assert all(row["meaning"].endswith((".", ").")) for row in rows)
