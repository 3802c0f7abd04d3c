"""The page of migrations: one line for each operator whose tasks moved, then how all operators flowed meanwhile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from penstock.cli.numbers import NOTHING, count, seconds
from penstock.cli.running_pages import PHASES, page_console, page_table, percent

Json = Mapping[str, Any]


def print_migrations(answer: Json) -> None:
    if not answer["migrations"]:
        click.echo("No state was moved yet.")
        return
    numbers = ("id", "tasks", "MB", "of state", *PHASES, "gap", "usual gap")
    moved = page_table("id", "time", "operator", *numbers[1:], "batches", numbers=numbers)
    flows = ("gap", "usual gap", "rows/s before", "rows/s during")
    flowed = page_table("id", "moved", "meanwhile", "", *flows, numbers=("id", *flows))
    for change in answer["migrations"]:
        at = time.strftime("%m-%d %H:%M:%S", time.localtime(change["time"]))
        for one in change["operators"]:
            moved.add_row(
                *(str(change["id"]), at, one["operator"], f"{len(one['tasks'])}/{one['tasks_of_operator']}"),
                *(f"{one['moved_bytes'] / 1e6:.1f}", percent(one["share"])),
                *(seconds(one[f"{phase}_seconds"]) for phase in PHASES),
                *_gaps(one["own"] or {}),
                f"{_batch(one['first_barrier'])} | {_batch(one['second_barrier'])}",
            )
            for other in (one["own"] or {}, *one["others"]):
                if other:
                    flowed.add_row(
                        *(str(change["id"]), one["operator"], other["operator"], _relation(other, one)),
                        *_gaps(other),
                        *(_rate(other[f"rows_per_second_{when}"]) for when in ("before", "during")),
                    )
    console = page_console()
    console.print(moved)
    if flowed.row_count:
        console.print()
        console.print(flowed)


def _relation(flow: Json, moved: Json) -> str:
    if flow["operator"] == moved["operator"]:
        return "moved"
    return "behind it" if flow["behind"] else ""


def _gaps(flow: Json) -> tuple[str, str]:
    return seconds(flow.get("gap_seconds")), seconds(flow.get("usual_gap_seconds"))


def _batch(barrier: Json | None) -> str:
    return NOTHING if barrier is None else str(barrier["batch"])


def _rate(rows: float | None) -> str:
    return NOTHING if rows is None else count(rows)
