"""The plots of docs/check/questions.md, from the files that the commands of that page write.

    python docs/images/plots.py FOLDER

FOLDER holds those files. Each plot is one SVG with nothing but shapes and text, on paper of its own, so that it can be
read on a light page and on a dark one.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 760, 330
LEFT, RIGHT, TOP, BOTTOM = 74, 22, 66, 52

STYLE = """
svg { --paper: #ffffff; --ink: #1c2330; --quiet: #5c667a; --rule: #dde1e9; --one: #2f55d4; --two: #e08a1e; --three: #9aa4b8; }
@media (prefers-color-scheme: dark) {
svg { --paper: #12161e; --ink: #e4e8f0; --quiet: #98a2b5; --rule: #2a3240; --one: #7f9dff; --two: #f0b458; --three: #667085; } }
text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--quiet); }
.title { font-size: 15px; font-weight: 600; fill: var(--ink); } .name { fill: var(--ink); }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.rule { stroke: var(--rule); } .axis { stroke: var(--quiet); }
.one { fill: var(--one); } .two { fill: var(--two); } .three { fill: var(--three); }
"""  # noqa: E501

Rows = list[dict[str, str]]


def drawn(folder: Path) -> dict[str, str]:
    """Every plot by the name of its file."""

    def table(name: str) -> Rows:
        with open(folder / name, newline="") as file:
            return list(csv.DictReader(file))

    depths, hope = table("depths.csv"), table("fixed-by-depth.csv")
    shares = {name: shares_of_hope(table(f"{name}-by-message.csv")) for name in ("fixed", "one-ack")}
    return {
        "states-per-depth.svg": stacked(
            "States at each depth, by the status of the ledger", "depth", "states",
            by_depth(depths, "status", "states"),
            {"IN_RECOVERY": "in recovery", "CLOSED": "closed", "OPEN": "open"},
        ),
        "hope.svg": stacked(
            "States at each depth, by whether the ledger can still be closed", "depth", "states",
            {int(row["depth"]): {name: int(row[name]) for name in ("True", "False")} for row in hope},
            {"True": "it is closed, or can be", "False": "too late"},
        ),
        "lost-messages.svg": bars(
            "Where a message of this kind is lost, how often can the ledger still be closed?",
            "of the states in which one is lost",
            shares, {"fixed": "ack quorum 2", "one-ack": "ack quorum 1"},
        ),
    }  # fmt: skip


def by_depth(rows: Rows, series: str, value: str) -> dict[int, dict[str, int]]:
    """The values of each series at each depth."""
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        found.setdefault(int(row["depth"]), {})[row[series]] = int(row[value])
    return found


def shares_of_hope(rows: Rows) -> dict[str, float]:
    """For each kind of message the share of states with hope."""
    return {row["message"]: int(row["hope"]) / int(row["states"]) for row in rows}


# -- two kinds of plots
# -------------------------------------------------------------------------------------------------


def stacked(
    title: str, x_label: str, y_label: str, columns: Mapping[int, Mapping[str, int]], series: Mapping[str, str]
) -> str:
    """A column for each number, cut into series, the first at the bottom."""
    first, last = min(columns), max(columns)
    top, step = scale(max(sum(column.values()) for column in columns.values()))
    wide, tall = (WIDTH - LEFT - RIGHT) / (last - first + 1), HEIGHT - TOP - BOTTOM
    floor = HEIGHT - BOTTOM
    body = legend(series.values())
    for value in range(0, top + 1, step):
        y = floor - tall * value / top
        body += line(LEFT, y, WIDTH - RIGHT, y, "axis" if value == 0 else "rule") + text(
            LEFT - 8, y + 4, f"{value:,}", "end"
        )
    for number, column in sorted(columns.items()):
        x, y = LEFT + wide * (number - first), float(floor)
        for kind, name in zip(KINDS, series, strict=False):
            high = tall * column.get(name, 0) / top
            y -= high
            body += rect(x + wide * 0.08, y, wide * 0.84, high, kind) if high else ""
        if (number - first) % 2 == 0:
            body += text(x + wide / 2, floor + 18, str(number), "middle")
    body += text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, "middle")
    body += (
        f'<text class="middle" transform="translate(16 {n((TOP + floor) / 2)}) rotate(-90)">{escape(y_label)}</text>'
    )
    return picture(title, body, HEIGHT)


def bars(title: str, x_label: str, groups: Mapping[str, Mapping[str, float]], series: Mapping[str, str]) -> str:
    """For each name a bar of each series, from 0 to 100 per cent."""
    names = sorted({name for group in groups.values() for name in group})
    left, row, thick = 190, 40, 13
    floor = TOP + row * len(names)
    body = legend(series.values())
    for share in range(0, 101, 25):
        x = left + (WIDTH - RIGHT - 34 - left) * share / 100
        body += line(x, TOP, x, floor, "axis" if share == 0 else "rule") + text(x, floor + 18, f"{share} %", "middle")
    for place, name in enumerate(names):
        y = TOP + row * place + (row - 2 * thick) / 2
        body += text(left - 10, y + thick + 4, name, "end name")
        for kind, group in zip(KINDS, series, strict=False):
            share = groups[group][name]
            long = (WIDTH - RIGHT - 34 - left) * share
            body += (rect(left, y + 1, long, thick - 2, kind) if share else "") + text(
                left + long + 6, y + thick - 2, f"{share:.0%}" if share else "never", ""
            )
            y += thick
    return picture(title, body + text((left + WIDTH - RIGHT - 34) / 2, floor + 40, x_label, "middle"), floor + 54)


KINDS = ("one", "two", "three")
"""The classes of the series, in their order."""


def scale(most: int) -> tuple[int, int]:
    """Where an axis ends that has to hold ``most``, and how far apart its lines are: three to seven of them."""
    step = next(m * 10**e for e in range(12) for m in (1, 2, 5) if most <= 7 * m * 10**e)
    return -(-most // step) * step, step


# -- SVG
# ----------------------------------------------------------------------------------------------------------------


def picture(title: str, body: str, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {n(height)}" width="{WIDTH}"'
        f' height="{n(height)}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{n(height)}" rx="8" style="fill: var(--paper)"/>\n'
        f"{text(18, 28, title, 'title')}{body}</svg>\n"
    )


def legend(names: Iterable[str]) -> str:
    x, found = 18.0, ""
    for kind, name in zip(KINDS, names, strict=False):
        found += rect(x, 41, 11, 11, kind) + text(x + 17, 51, name, "")
        x += 17 + 6.6 * len(name) + 18
    return found


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{n(x1)}" y1="{n(y1)}" x2="{n(x2)}" y2="{n(y2)}"/>\n'


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}"/>\n'


def text(x: float, y: float, words: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{n(x)}" y="{n(y)}">{escape(words)}</text>\n'


def n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


if __name__ == "__main__":
    for name, plot in drawn(Path(sys.argv[1])).items():
        (Path(__file__).parent / name).write_text(plot)
