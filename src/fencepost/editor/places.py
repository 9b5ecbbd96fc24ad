"""Where declarations and errors stand in the author's files. Lines and columns count from 1."""

from __future__ import annotations

import ast
import linecache
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any

from fencepost.language.declarations import Declared
from fencepost.language.protocol import Protocol
from fencepost.language.seam import Model
from fencepost.semantics.authors import is_authors


@dataclass(frozen=True)
class Place:
    """From the first character to the last, on one line. ``end`` 0 stands for the end of the line."""

    file: str
    line: int
    column: int = 1
    end: int = 0


def of_specification(at: Any) -> Place:
    """The place of a node of TLA+, which may take several lines: its first one."""
    return Place(os.path.abspath(at.file), at.line, at.column, at.end_column if at.end_line == at.line else 0)


@cache
def parsed(file: str) -> ast.Module | None:
    """The tree of a Python file as this process has read it. None if it cannot be parsed."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


@cache
def _named(file: str) -> dict[tuple[str, int], Place]:
    """The names of the functions and classes of a Python file, by name and by the line where Python says they begin."""
    found: dict[tuple[str, int], Place] = {}
    tree = parsed(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            begins = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            line = linecache.getline(file, node.lineno)
            column = line.find(node.name, node.col_offset) + 1
            place = Place(os.path.abspath(file), node.lineno, column, column + len(node.name) - 1)
            found[node.name, begins] = place
    return found


def of_function(function: Any) -> Place | None:
    """Where a Python function is defined: its name. None if it has no file."""
    code = getattr(function, "__code__", None)
    if code is None or not os.path.isfile(code.co_filename):
        return None
    whole = Place(os.path.abspath(code.co_filename), code.co_firstlineno)
    return _named(code.co_filename).get((code.co_name, code.co_firstlineno), whole)


def of_declaration(declared: Declared, model: Model) -> Place | None:
    """Where an action or a property is defined: its name, if it is near. None if that is in no file."""
    at = getattr(declared, "at", None)
    if at is None:
        return of_function(declared.function)
    name = re.split("[:#]", declared.name)[0]
    unit = next((each for each in units(model) if getattr(each, "name", "") == name), None)
    if unit is None or unit.place.file != at.file:
        return of_specification(at) if os.path.isfile(at.file) else None
    return Place(os.path.abspath(at.file), unit.place.line, unit.place.column, unit.place.column + len(name) - 1)


def units(model: Any) -> Sequence[Any]:
    """The definitions and declarations of a specification's own module. () for a protocol in Python."""
    setup = getattr(model, "setup", None)
    return () if isinstance(model, Protocol) or setup is None else setup.specification.root.units


def classes(protocol: type[Protocol], file: str) -> Iterator[ast.ClassDef]:
    """The classes that make a protocol, as far as they stand in this file: its own first."""
    tree = parsed(file)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] if tree is not None else []
    for owner in protocol.__mro__:
        yield from (node for node in nodes if node.name == owner.__qualname__.rpartition(".")[2])


def of_class(node: ast.ClassDef, file: str) -> Place:
    """The name of a class."""
    column = linecache.getline(file, node.lineno).find(node.name, node.col_offset) + 1
    return Place(os.path.abspath(file), node.lineno, column, column + len(node.name) - 1)


def of_node(node: Any, file: str) -> Place:
    """A node of a tree of Python."""
    return _spanned(file, node.lineno, node.col_offset, node.end_col_offset if node.end_lineno == node.lineno else None)


def _spanned(file: str, line: int, begin: int, end: int | None) -> Place:
    """A place by the offsets that Python counts, in bytes."""
    text = linecache.getline(file, line).encode()
    first = len(text[:begin].decode(errors="replace")) + 1
    return Place(os.path.abspath(file), line, first, 0 if end is None else len(text[:end].decode(errors="replace")))


def configurations(protocol: type[Protocol], file: str) -> dict[str, Place]:
    """The keys of the dict ``configurations`` of a protocol, where they are written as texts."""
    found: dict[str, Place] = {}
    for owner in classes(protocol, file):
        for statement in owner.body:
            given = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if not (isinstance(given, ast.Dict) and any(getattr(t, "id", "") == "configurations" for t in targets)):
                continue
            for key in given.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.setdefault(key.value, of_node(key, file))
    return found


# -- errors ------------------------------------------------------------------------------------------------------------


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it was made of, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def of_error(error: BaseException, file: str) -> list[Place]:
    """Where an error arose: first the place in this file, if there is one, and then where else it was raised."""
    found: list[Place] = []
    for one in _chain(error):
        at: Any = getattr(one, "place", None)
        if hasattr(at, "end_column") and os.path.isfile(at.file):
            found.append(of_specification(at))
        elif isinstance(one, SyntaxError) and one.filename and one.lineno:
            found.append(Place(os.path.abspath(one.filename), one.lineno, max(1, one.offset or 1)))
    for one in _chain(error):
        frames = [frame for frame in traceback.walk_tb(one.__traceback__) if is_authors(frame[0].f_code.co_filename)]
        for frame, line in reversed(frames):
            if os.path.isfile(frame.f_code.co_filename):
                found.append(_in_frame(frame.f_code, line, _last_instruction(one.__traceback__, frame)))
    found = list(dict.fromkeys(found))
    return sorted(found, key=lambda place: not _is(place.file, file))


def _last_instruction(trace: TracebackType | None, frame: Any) -> int:
    while trace is not None and trace.tb_frame is not frame:
        trace = trace.tb_next
    return -1 if trace is None else trace.tb_lasti


def _in_frame(code: Any, line: int, instruction: int) -> Place:
    positions = list(code.co_positions())
    first, last, column, end = positions[instruction // 2] if 0 <= instruction // 2 < len(positions) else (None,) * 4
    if first != line or column is None or end is None:
        return Place(os.path.abspath(code.co_filename), line)
    return _spanned(code.co_filename, line, column, end if last == line else None)


def _is(one: str, other: str) -> bool:
    return os.path.abspath(one) == os.path.abspath(other)
