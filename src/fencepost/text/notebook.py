"""HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

HEIGHT = 640
"""Height in pixels of a page within a notebook. A longer page scrolls."""


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and texts under a title."""
    left = "style='text-align:left'"
    lines = [
        f"<tr><th {left}>{escape(name)}</th><td {left}><code>{escape(text)}</code></td></tr>" for name, text in rows
    ]
    return f"<div><strong>{escape(title)}</strong><table>{''.join(lines)}</table></div>"


def framed(page: str) -> str:
    """A whole page in a frame, which isolates its styles and its script."""
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'
