"""What things show of themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

HEIGHT = 640
"""Pixels of a page within a notebook; the rest of it scrolls."""


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A title, and below it names with what they stand for."""
    left = "style='text-align:left'"
    lines = [
        f"<tr><th {left}>{escape(name)}</th><td {left}><code>{escape(text)}</code></td></tr>" for name, text in rows
    ]
    return f"<div><strong>{escape(title)}</strong><table>{''.join(lines)}</table></div>"


def framed(page: str) -> str:
    """A whole page, in a frame: its styles and its script are its own."""
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'
