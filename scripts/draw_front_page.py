"""Draws docs/penstock.svg, the picture of the README: `python scripts/draw_front_page.py`.

A topology above, and below it the machines that it runs on. The text that follows is the whole picture.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
#: Operators with what is written below their names, and their colours.
OPERATORS = (
    ("sentences", "source", "#cfe3f7"),
    ("split", "Arrow function", "#cdeccd"),
    ("count", "keyed state", "#fbdcc4"),
    ("out", "sink", "#e4dcf5"),
)
#: What runs on each machine: (operator, what is on it); the last machine joins while the stream flows.
MACHINES = (
    (
        "machine 1",
        (("sentences", "1 instance"), ("split", "1 instance"), ("count", "tasks 0 1 2"), ("out", "1 instance")),
    ),
    ("machine 2", (("split", "1 instance"), ("count", "tasks 3 4 5"))),
    ("machine 3, added by scale-out", (("split", "1 instance"), ("count", "tasks 6 7, with their state"))),
)
WIDTH = 820


def drawing() -> str:
    colours = {name: colour for name, _, colour in OPERATORS}
    parts = []
    for index, (name, what, colour) in enumerate(OPERATORS):
        x = 20 + 210 * index
        parts.append(f'<rect x="{x}" y="36" width="140" height="46" rx="8" fill="{colour}" stroke="#777"/>')
        parts.append(f'<text x="{x + 70}" y="56" class="name">{escape(name)}</text>')
        parts.append(f'<text x="{x + 70}" y="73" class="what">{escape(what)}</text>')
        if index:
            parts.append(f'<path d="M{x - 66} 59H{x - 4}" stroke="#555" stroke-width="2" marker-end="url(#tip)"/>')
            parts.append(f'<text x="{x - 36}" y="52" class="what">channel</text>')
    for index, (machine, bundles) in enumerate(MACHINES):
        x = 20 + 262 * index
        dashed = ' stroke-dasharray="6 4"' if index + 1 == len(MACHINES) else ""
        parts.append(f'<rect x="{x}" y="138" width="246" height="176" rx="8" fill="#fafafa" stroke="#777"{dashed}/>')
        parts.append(f'<text x="{x + 10}" y="157" class="left">{escape(machine)}</text>')
        for row, (operator, what) in enumerate(bundles):
            y = 166 + 36 * row
            parts.append(f'<rect x="{x + 10}" y="{y}" width="226" height="30" rx="5" fill="{colours[operator]}"/>')
            parts.append(f'<text x="{x + 18}" y="{y + 19}" class="left">{escape(f"{operator}: {what}")}</text>')
    style = (
        "text{font-family:sans-serif;fill:#222}.title{font-size:13px;fill:#555}.left{font-size:12px}"
        ".name{font-size:14px;font-weight:bold;text-anchor:middle}.what{font-size:11px;text-anchor:middle;fill:#444}"
    )
    marker = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 330" width="{WIDTH}" height="330">',
            "<!-- Drawn by scripts/draw_front_page.py. Do not edit. -->",
            f"<style>{style}</style>",
            f"<defs>{marker}</defs>",
            f'<rect width="{WIDTH}" height="330" fill="#fff"/>',
            '<text x="20" y="22" class="title">The topology that you declare</text>',
            '<text x="20" y="124" class="title">Where Penstock runs it on Spark, and moves it while rows flow</text>',
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    (DOCS / "penstock.svg").write_text(drawing(), encoding="utf-8")
