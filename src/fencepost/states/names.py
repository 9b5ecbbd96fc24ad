"""The names of tables and columns in a query, for either engine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from fencepost.errors import OptionError
from fencepost.states.manifest import EDGES, StateSpace

_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|\w+|.""", re.DOTALL)
"""The tokens of SQL, for finding names of columns outside of strings, quoted names and comments."""


def quoted(sql: str, columns: Iterable[str]) -> str:
    """Quote the parts of the state in SQL for Spark. ``bookie.b1.fenced`` is one column and needs no quotes. Quotes of
    standard SQL, ``"bookie.b1.fenced"``, and of Spark are accepted too.
    """
    names = sorted((name for name in columns if not re.fullmatch(r"\w+", name)), key=len, reverse=True)
    pieces, at = [], 0
    while at < len(sql):
        name = next((n for n in names if sql.startswith(n, at) and not re.match(r"\w", sql[at + len(n) :])), None)
        if name is not None:
            pieces.append(_backquoted(name))
            at += len(name)
            continue
        token = _TOKEN.match(sql, at)
        assert token is not None
        pieces.append(
            _backquoted(token[0][1:-1].replace('""', '"')) if len(token[0]) > 1 and token[0][0] == '"' else token[0]
        )
        at = token.end()
    return "".join(pieces)


def _backquoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def no_column(space: StateSpace, name: str) -> OptionError:
    """The error for an unknown column in a query."""
    known = [*space.manifest.columns, *(EDGES if space.manifest.edges is not None else ())]
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    instead = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known[:12])} and others"
    return OptionError(f"there is no column {name}: {instead}")


def no_table(space: StateSpace, name: str) -> OptionError:
    """The error for an unknown table in a query."""
    if name == "edges":
        return OptionError(f"{space.directory} holds no steps: write them with fencepost check --states DIR --edges")
    return OptionError(f"there is no table {name}: there are states and edges")
