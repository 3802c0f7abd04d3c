"""The reference pages, made from the code: `python -m penstock.cli.reference docs` writes them, a test compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock import settings
from penstock.errors import ERRORS
from penstock.monitor.metric import METRICS

_MADE = "<!-- Made by `make docs` from the code. Do not edit. -->"


def settings_page() -> str:
    rows = ([f"`{row['name']}`", row["type"], row["default"], row["range"], row["meaning"]] for row in _settings())
    return _page(
        "Settings",
        "Give them as `penstock run FILE --set NAME=VALUE`, or in Python as `Settings(NAME=VALUE)`. "
        "`penstock settings` prints the same list.",
        ("name", "type", "default", "range", "meaning"),
        rows,
    )


def errors_page() -> str:
    return _page(
        "Errors",
        "Every mistake has a name that does not change. The command line prints `file:line: NAME: what is wrong and "
        "what to do` to standard error and ends with exit code 2 (1 for `INTERNAL`); with `--json` it prints one "
        "object with `error`, `message`, `hint` and `where` to standard output instead.",
        ("name", "meaning"),
        ([f"`{name}`", meaning] for name, meaning in ERRORS.items()),
    )


def metrics_page() -> str:
    return _page(
        "Metrics",
        "What is measured of a running topology, in the snapshot that strategies read and in the history of the "
        'statistics store. What was not measured is missing, never 0. The column "over time" says how short intervals '
        "become a longer one.",
        ("name", "unit", "of", "over time", "meaning"),
        (
            [f"`{metric.name}`", metric.unit, ", ".join(metric.of), metric.fold, metric.meaning]
            for metric in METRICS.values()
        ),
    )


def pages() -> Mapping[str, str]:
    """File name -> content."""
    return {"settings.md": settings_page(), "errors.md": errors_page(), "metrics.md": metrics_page()}


def _settings() -> list[dict[str, str]]:
    return settings.reference()


def _page(title: str, text: str, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    table = [headings, ("---" for _ in headings), *rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join([_MADE, "", f"# {title}", "", text, "", *lines, ""])


if __name__ == "__main__":
    for name, content in pages().items():
        (Path(sys.argv[1]) / name).write_text(content, encoding="utf-8")
