"""Tables of rows as aligned text, CSV and JSON, such as the answers to queries of state spaces."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

WIDEST = 60
"""The most characters of a value that are shown."""


def aligned(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows under column names, as text. Numbers are right-aligned."""
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(names)]
    right = [
        bool(rows) and all(isinstance(row[i], (int, float)) and not isinstance(row[i], bool) for row in rows)
        for i in range(len(names))
    ]

    def line(cells: Sequence[str]) -> str:
        placed = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "  ".join(placed).rstrip()

    return "\n".join([line(names), line(["─" * width for width in widths]), *map(line, texts)])


def _text(value: Any) -> str:
    text = "" if value is None else _shown(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _shown(value: Any) -> str:
    """A value as readable text: ``[b1, b2]``, ``{id: 1, data: 1}``."""
    value = _plain(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(part)}' for key, part in value.items())}}}"
    return str(value)


def _plain(value: Any) -> Any:
    """A value as JSON data: a Spark struct as a dict, the keys of a map as text."""
    fields = getattr(value, "asDict", None)
    if fields is not None:
        value = fields()
    if isinstance(value, dict):
        return {_shown(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def as_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of CSV, the column names first; null is empty."""
    yield _csv(names)
    for row in rows:
        yield _csv(row)


def _csv(row: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(["" if value is None else _shown(value) for value in row])
    return line.getvalue()


def as_json(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A JSON list of one object per row, row by row."""
    before = "[\n"
    for row in rows:
        yield before + json.dumps(dict(zip(names, map(_plain, row), strict=True)), default=str)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"
