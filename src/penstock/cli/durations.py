"""A length of time as a user writes it: 90s, 10m, 2h, 1d."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)")


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _WRITTEN.fullmatch(str(value))
        if found is None or float(found[1]) == 0:
            self.fail(f'"{value}" is no length of time: write 90s, 10m, 2h or 1d', param, ctx)
        return float(found[1]) * _UNITS[found[2]]


DURATION = Duration()
