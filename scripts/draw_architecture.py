"""Draws docs/architecture.svg from the two tables of docs/architecture.md: `python scripts/draw_architecture.py`.

Every row of a table is a hop: a box in the column of where it runs, with an arrow from the hop before it.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
WAYS = ("The way of a row", "The way of a decision")
#: The columns of the drawing, and their colours.
PLACES = {
    "neither": ("no driver, no executor", "#f3f0e6"),
    "driver": ("driver (Python)", "#e3eef9"),
    "Spark": ("Spark (Java)", "#fbe9dc"),
    "executor": ("executor (Python worker)", "#e4f3e4"),
}
BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW = 250, 70, 270, 88
LETTERS_A_LINE = 38
HEAD = 62
_TABLE_ROW = re.compile(r"\| (\S+) \| `([^`]+)` \| (.+) \|")


@dataclass(frozen=True)
class Hop:
    place: str
    file: str
    text: str


def hops(page: str, way: str) -> list[Hop]:
    """The rows of the table below a heading."""
    section = page.split(f"## {way}\n", 1)[1].split("\n## ", 1)[0]
    return [Hop(*row) for row in _TABLE_ROW.findall(section)]


def drawing(page: str) -> str:
    parts: list[str] = []
    top = 10
    for way in WAYS:
        found = hops(page, way)
        columns = [place for place in PLACES if any(hop.place == place for hop in found)]
        parts.append(f'<text x="10" y="{top + 22}" class="way">{escape(way)}</text>')
        height = HEAD - 34 + ROW * len(found)
        for index, place in enumerate(columns):
            label, colour = PLACES[place]
            x = 10 + COLUMN * index
            parts.append(
                f'<rect x="{x}" y="{top + 34}" width="{COLUMN - 6}" height="{height}" rx="6" fill="{colour}"/>'
            )
            parts.append(f'<text x="{x + 10}" y="{top + 54}" class="place">{escape(label)}</text>')
        before: tuple[int, int] | None = None
        for number, hop in enumerate(found):
            x, y = 17 + COLUMN * columns.index(hop.place), top + HEAD + 4 + ROW * number
            parts.append(_box(x, y, number + 1, hop))
            middle = x + BOX_WIDTH // 2
            if before is not None:
                parts.append(_arrow(before, (middle, y)))
            before = (middle, y + BOX_HEIGHT)
        top += height + 64
    width = 14 + COLUMN * max(len({hop.place for hop in hops(page, way)}) for way in WAYS)
    style = (
        "text{font-family:sans-serif;fill:#222}.way{font-size:18px;font-weight:bold}.place{font-size:12px;fill:#555}"
        ".file{font-family:monospace;font-size:11px;font-weight:bold}.what{font-size:11px}"
    )
    marker = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#666"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" height="{top}">',
            "<!-- Drawn by scripts/draw_architecture.py from docs/architecture.md. Do not edit. -->",
            f"<style>{style}</style>",
            f"<defs>{marker}</defs>",
            f'<rect width="{width}" height="{top}" fill="#fff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _box(x: int, y: int, number: int, hop: Hop) -> str:
    lines = textwrap.wrap(hop.text.replace("`", ""), LETTERS_A_LINE)
    what = "".join(f'<tspan x="{x + 8}" dy="14">{escape(line)}</tspan>' for line in lines)
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="#fff" stroke="#888"/>'
        f'<text x="{x + 8}" y="{y + 16}" class="file">{number} {escape(hop.file)}</text>'
        f'<text x="{x + 8}" y="{y + 18}" class="what">{what}</text>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = start, end
    turn = (y1 + y2) // 2
    return (
        f'<path d="M{x1} {y1}V{turn}H{x2}V{y2}" fill="none" stroke="#666" stroke-width="1.5" marker-end="url(#tip)"/>'
    )


if __name__ == "__main__":
    (DOCS / "architecture.svg").write_text(
        drawing((DOCS / "architecture.md").read_text(encoding="utf-8")), encoding="utf-8"
    )
