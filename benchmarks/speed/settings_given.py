"""Settings of Penstock on the command line of a script, as NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import Settings


def pairs(given: Sequence[str]) -> dict[str, str]:
    return dict(one.split("=", 1) for one in given)


def settings_of(given: Sequence[str]) -> Settings:
    return Settings.of(pairs(given))
