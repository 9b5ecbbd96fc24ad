"""The rooms of the package and their floors. ``python tests/house.py`` draws ``docs/images/house.svg``."""

from __future__ import annotations

import ast
import functools
import re
from html import escape
from pathlib import Path

import fencepost

SOURCE = Path(fencepost.__file__).parent
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "house.svg"

FLOORS = (
    ("errors", "version"),
    ("files", "text"),
    ("connections", "monitoring"),
    ("language",),
    ("semantics",),
    ("behaviours",),
    ("checker",),
    ("states",),
    ("traces",),
    ("report",),
    ("simulation",),
    ("ledger",),
    ("log", "quorum"),
    ("metadata", "protocols", "tla"),
    ("api",),
    ("testing",),
    ("spark", "world"),
    ("editor", "explorer"),
    ("cli",),
)
"""The rooms, from the foundations up to the user's interface. A room imports only from floors below its own."""

FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

PRODUCTS = {
    "Check": ("language", "semantics", "behaviours", "checker", "states", "editor", "explorer", "protocols", "tla"),
    "Run": ("ledger", "log", "quorum", "metadata", "simulation", "world", "monitoring"),
    "Hold": ("traces", "testing"),
}
"""The product that each room serves. The other rooms serve all three."""

COLOURS = {"Check": "#dbe9fb", "Run": "#dff2e0", "Hold": "#fde9cf", "": "#eeeeee"}


def name_of(path: Path) -> str:
    """The module of a file."""
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The room of a module: its folder or file at the top of the package."""
    return module.removeprefix("fencepost").strip(".").partition(".")[0]


@functools.cache
def arrows() -> dict[str, set[str]]:
    """Which files import which, wherever they do, by the names of their modules."""
    modules = {name_of(path): path for path in SOURCE.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        given = {(str(node.module), alias.name) for node in imports for alias in node.names}
        found[name] = {f"{module}.{each}" if f"{module}.{each}" in modules else module for module, each in given}
        found[name] = found[name] & {*modules} - {name}
    return found


def purpose(room: str) -> str:
    """What a room is for: the beginning of the first sentence of its docstring."""
    path = SOURCE / room / "__init__.py"
    docstring = ast.get_docstring(ast.parse((path if path.exists() else SOURCE / f"{room}.py").read_text())) or ""
    first = " ".join(docstring.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return re.sub(r":\w+:|`", "", first)


def picture() -> str:
    """The floors as an SVG, what a user asks for at the top."""
    width, height, gap = 880, 40, 6
    lines = []
    for place, rooms in enumerate(reversed(FLOORS)):
        y, share = 40 + place * (height + gap), (width - gap * (len(rooms) - 1)) / len(rooms)
        for number, room in enumerate(rooms):
            product = next((name for name, own in PRODUCTS.items() if room in own), "")
            x, fits = number * (share + gap), int(share / 6.3) - 4
            said = purpose(room)
            said = said if len(said) <= fits else said[: said.rindex(" ", 0, fits)] + " ..."
            lines += [
                f'<rect x="{x:.0f}" y="{y}" width="{share:.0f}" height="{height}" rx="4" fill="{COLOURS[product]}"/>',
                f'<text x="{x + 10:.0f}" y="{y + 17}" font-weight="bold">{room}</text>',
                f'<text x="{x + 10:.0f}" y="{y + 33}" font-size="11">{escape(said)}</text>',
            ]
    legend = "".join(
        f'<rect x="{120 * number}" y="8" width="16" height="16" fill="{colour}"/>'
        f'<text x="{120 * number + 24}" y="21">{name or "for all three"}</text>'
        for number, (name, colour) in enumerate(COLOURS.items())
    )
    tall = 40 + len(FLOORS) * (height + gap)
    style = 'font-family="sans-serif" font-size="13" fill="#222"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" width="{width}" height="{tall}">\n'
        f'<rect width="{width}" height="{tall}" fill="#ffffff"/>\n<g {style}>\n{legend}\n'
        + "\n".join(lines)
        + "\n</g>\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())
