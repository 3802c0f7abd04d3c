"""The page of decisions: one line each, with what was expected and what was measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from penstock.cli.numbers import NOTHING
from penstock.cli.running_pages import page_console, page_table

Json = Mapping[str, Any]


def print_decisions(answer: Json) -> None:
    if not answer["decisions"]:
        click.echo("Nothing was decided yet.")
        return
    numbers = ("id", "before/s", "expected/s", "measured/s", "machines")
    page = page_table(
        "id", "time", "decision", "before/s", "expected/s", "measured/s", "machines", "verdict", "why", numbers=numbers
    )
    for column in page.columns[:-1]:
        column.no_wrap = True
    for one in answer["decisions"]:
        at = time.strftime("%m-%d %H:%M:%S", time.localtime(one["time"]))
        measured = one["measured"] or {}
        page.add_row(
            str(one["id"]),
            at,
            one["change"],
            _rate(one["before"]["throughput"]),
            _rate(_expected(one)),
            _rate(measured.get("throughput")),
            str(measured.get("machines", one["before"]["machines"])),
            one["verdict"],
            one["why"] or (one["reasons"][0] if one["reasons"] else ""),
        )
    page_console().print(page)


def _expected(one: Json) -> float | None:
    found = (said["value"] for said in one["expected"] if said["metric"] == "throughput")
    return next(found, None)


def _rate(rows: float | None) -> str:
    return NOTHING if rows is None else f"{rows:,.0f}"
