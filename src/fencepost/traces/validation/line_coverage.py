"""The lines of a protocol that the steps of traces have run, and the options that its choices have taken.

Each path through an action that traces took is run once more under :func:`sys.settrace`. The lines of an action are
those of its function and of all functions that it names, in the protocol and in the modules beside it.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, TypeAlias

from fencepost.language.declarations import Declared
from fencepost.language.protocol import Protocol
from fencepost.language.values import show
from fencepost.traces.validation.replay import LANGUAGE, PACKAGE, Evaluation, Replayer, short
from fencepost.traces.validation.steps import Step

MOST_OPTIONS = 64
"""The most options of a choice that are reported even if no step took them. Of a larger choice only taken ones are."""

Choice: TypeAlias = tuple[str, str, bool]
"""One option of a choice: the line, the option, and whether it was taken."""


class Line(NamedTuple):
    """A statement of the author: its first and last line (of a compound statement, of its header), its text, and
    whether it calls ``require``.
    """

    file: str
    first: int
    last: int
    text: str
    is_require: bool


def lines_of(protocol: type[Protocol]) -> dict[str, list[Line]]:
    """The statements of each action, with those of all functions that it may call and that can be found by name."""
    return {
        declared.name: [line for code in _codes(protocol, declared.function) for line in _lines(code)]
        for declared in protocol.declared("action")
    }


def place(protocol: type[Protocol], file: str, line: int) -> str:
    """A line to display, the same in every process: ``ledger/rules/adding.py:12: require(...)``."""
    folders = os.path.dirname(PACKAGE), os.path.dirname(os.path.abspath(inspect.getfile(protocol)))
    return f"{short(file, folders)}:{line}: {linecache.getline(file, line).strip()}"


# -- statements of actions --------------------------------------------------------------------------------------------


def _codes(protocol: type[Protocol], function: Any) -> list[CodeType]:
    found: dict[CodeType, None] = {}
    left = [function]
    while left:
        one = inspect.unwrap(left.pop())
        if not isinstance(one, FunctionType) or one.__code__ in found or not _is_authors(one.__code__.co_filename):
            continue
        found[one.__code__] = None
        for name in _names(one.__code__):
            beside = inspect.getattr_static(protocol, name, None)
            if isinstance(beside, property):
                beside = beside.fget
            if isinstance(beside, (staticmethod, classmethod)):
                beside = beside.__func__
            left += [each for each in (beside, one.__globals__.get(name)) if isinstance(each, FunctionType)]
    return list(found)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _is_authors(file: str) -> bool:
    """Whether a file is the author's: not part of the language, of Python or of a library."""
    if file.startswith(os.path.join(PACKAGE, "")):
        return not file.startswith(LANGUAGE)
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not file.startswith("<") and not any(file.startswith(os.path.join(path, "")) for path in paths)


@cache
def _lines(code: CodeType) -> tuple[Line, ...]:
    file = code.co_filename
    for node in ast.walk(_parsed(file)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            if min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) == code.co_firstlineno:
                return tuple(_statements(file, node.body))
    return ()


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(file)))


def _statements(file: str, body: Sequence[ast.stmt]) -> Iterator[Line]:
    for node in body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not text and not isinstance(node, (ast.Pass, ast.Global, ast.Nonlocal, ast.Try, ast.Import, ast.ImportFrom)):
            within = [statement.lineno for part in _parts(node) for statement in part]
            last = max(node.lineno, min(within) - 1) if within else node.end_lineno or node.lineno
            called = {call.func.id for call in _calls(node) if isinstance(call.func, ast.Name)}
            yield Line(file, node.lineno, last, linecache.getline(file, node.lineno).strip(), "require" in called)
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for part in _parts(node):
                yield from _statements(file, part)


def _parts(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The bodies within a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        part = getattr(node, name, None)
        if isinstance(part, list) and part:
            yield part
    for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield inner.body


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls of a statement, without those of statements within it."""
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _calls(child)


# -- executed statements ----------------------------------------------------------------------------------------------


def executed_by(
    replayer: Replayer, row: list[int], step: Step
) -> tuple[set[tuple[str, int]], list[tuple[str, int, Any, Sequence[Any]]]]:
    """The lines that a step runs in a state, and its choices: file, line, the option taken, and all options."""
    assert step.action is not None
    ran: set[tuple[str, int]] = set()
    chosen: list[tuple[str, int, Any, Sequence[Any]]] = []

    def entered(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is Evaluation.choose.__code__:
            return _choice(frame, chosen)
        if not _is_authors(frame.f_code.co_filename):
            return None
        file = frame.f_code.co_filename

        def line(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                ran.add((file, frame.f_lineno))
            return line

        return line

    declared: Declared = replayer.actions[step.action]
    before = sys.gettrace()
    sys.settrace(entered)
    try:
        replayer.evaluate(declared, list(row), dict(step.parameters), step.picks)
    finally:
        sys.settrace(before)
    return ran, chosen


def _choice(frame: FrameType, chosen: list[tuple[str, int, Any, Sequence[Any]]]) -> Callable[..., Any]:
    """A tracer that records the option that a choice returns, and the author's line that makes the choice."""
    at = frame.f_back
    while at is not None and not _is_authors(at.f_code.co_filename):
        at = at.f_back
    options: Sequence[Any] = frame.f_locals["options"]
    where = (at.f_code.co_filename, at.f_lineno) if at is not None else ("", 0)

    def returned(_: FrameType, event: str, value: Any) -> Any:
        if event == "return":
            chosen.append((*where, value, options if len(options) <= MOST_OPTIONS else (value,)))
        return returned

    return returned


class LineTracer:
    """Runs steps under a tracer, and reports lines as :func:`place` shows them."""

    def __init__(self, protocol: type[Protocol]) -> None:
        self.protocol = protocol
        self._lines = {name: self._by_line(lines) for name, lines in lines_of(protocol).items()}

    def _by_line(self, lines: Sequence[Line]) -> dict[tuple[str, int], str]:
        return {(line.file, at): self.place(line) for line in lines for at in range(line.first, line.last + 1)}

    def place(self, line: Line) -> str:
        """The file, line and text of a statement."""
        return place(self.protocol, line.file, line.first)

    def by(self, replayer: Replayer, row: list[int], step: Step) -> tuple[list[str], list[Choice]]:
        """The statements that a step runs, and the options of its choices."""
        ran, chosen = executed_by(replayer, row, step)
        known = self._lines[step.action or ""]
        statements = {known[line] for line in ran if line in known}
        options = [
            (known.get((file, line)) or place(self.protocol, file, line), show(option), option == value)
            for file, line, value, all_of in chosen
            for option in all_of
        ]
        return sorted(statements), options
