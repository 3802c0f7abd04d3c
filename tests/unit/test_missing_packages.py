"""A library that only some topologies need: where it is missing, the hint is a command that installs it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import PenstockError, sources
from penstock.channels.database import CATALOG, Database
from penstock.kafka_client import library

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def read_redis() -> None:
    sources.redis("redis://127.0.0.1:1", "orders", schema="n long").check(None)


def open_postgresql() -> None:
    Database.open("postgresql://user@127.0.0.1:1/penstock", content=CATALOG)


@pytest.mark.parametrize(
    ("use", "module", "name", "extra"),
    [
        (library, "confluent_kafka", "KAFKA_MISSING", "kafka"),
        (read_redis, "redis", "REDIS_MISSING", "redis"),
        (open_postgresql, "psycopg", "CATALOG_UNREACHABLE", "postgresql"),
    ],
)
def test_the_hint_names_the_library_itself(
    use: Callable[[], object], module: str, name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PenstockError) as caught:
        use()
    assert caught.value.name == name
    # Penstock itself may be a checkout or a package from anywhere: the library is the same for both.
    assert f"pip install '{EXTRAS[extra][0]}'" in caught.value.hint
    assert f"extra `{extra}`" in caught.value.hint
    assert "penstock[" not in caught.value.hint
