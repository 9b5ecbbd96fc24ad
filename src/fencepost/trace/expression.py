"""A Python expression evaluated in every state of a behaviour."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import CodeType, ModuleType
from typing import Any

from fencepost.errors import OptionError
from fencepost.spec.context import Disabled
from fencepost.spec.protocol import Protocol
from fencepost.spec.values import Map, ModelValue, NotAValue, Set, Value, freeze, show
from fencepost.step.state import State
from fencepost.trace.behaviour import Trace
from fencepost.trace.evidence import Reader

HARMLESS = (
    "abs all any ascii bin bool bytes callable chr dict divmod enumerate filter float format frozenset hash hex int isinstance "
    "issubclass iter len list map max min next oct ord pow range repr reversed round set slice sorted str sum tuple type zip"
).split()
"""The builtins that an expression may use: none that reads, writes or runs anything."""


@dataclass(frozen=True)
class Evaluated:
    """What an expression is in one state: ``value``, or, if it could not be told, ``error`` in one line."""

    value: Value = None
    error: str | None = None

    def __str__(self) -> str:
        return show(self.value) if self.error is None else f"({self.error})"


def evaluate(expression: str, trace: Trace) -> list[Evaluated]:
    """The value of ``expression`` in each state of ``trace``, the initial one first.

    It may name the protocol's variables and constants, the model values in them (``b1``), what the protocol's module defines
    (enums, records, functions), harmless builtins, and the state as ``self``: ``bookie[b1].fenced``, ``len(acks) >= ack_quorum``,
    ``self.no_entry_is_lost()``. An error in one state is its result there.

    Raises :class:`fencepost.OptionError` if it can not be read or names something unknown, with the column.
    """
    scope = _scope(trace.protocol)
    code = _compiled(expression, scope, trace.protocol)
    return [_in_state(code, scope, trace.protocol, state) for state in trace.states]


def _compiled(expression: str, scope: Mapping[str, Any], protocol: Protocol) -> CodeType:
    text = " ".join(expression.splitlines())
    indent = len(text) - len(text.lstrip())
    if not text.strip():
        raise OptionError(f"an expression is needed, for example: {next(iter(protocol.shapes), 'x')}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        _check_names(tree, {*scope, *protocol.shapes, "self"}, indent)
        return compile(tree, "<expression>", "eval")
    except SyntaxError as error:
        if error.offset:
            column, what = error.offset + indent, error.msg
        else:  # what is wrong is that it ends
            column, what = len(text.rstrip()) + 1, "something is missing at its end"
        raise OptionError(f"the expression can not be read at column {column}: {what}: {_excerpt(text)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        what = str(error) or "it is nested too deeply"
        raise OptionError(f"the expression can not be read at column {indent + 1}: {what}: {_excerpt(text)}") from None


def _excerpt(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _check_names(tree: ast.Expression, known: set[str], indent: int) -> None:
    """Every name must be known or bound by the expression itself."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in known | bound:
            near = get_close_matches(node.id, sorted(known), n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            column = node.col_offset + 1 + indent
            raise OptionError(f"the expression names something unknown at column {column}, {node.id}{hint}")


def _scope(protocol: Protocol) -> dict[str, Any]:
    """What an expression can name besides the variables; of two things with one name, the closer one to the protocol."""
    scope: dict[str, Any] = {name: getattr(builtins, name) for name in HARMLESS}
    module = sys.modules.get(type(protocol).__module__)
    for name, thing in vars(module).items() if module is not None else ():
        if not name.startswith("__") and not isinstance(thing, ModuleType):
            scope[name] = thing
    for value in protocol.constants.values():
        for member in value if isinstance(value, tuple) else ():
            if isinstance(member, ModelValue):
                scope[member.name] = member
    scope.update(protocol.constants)
    scope["__builtins__"] = {}
    return scope


def _in_state(code: CodeType, scope: Mapping[str, Any], protocol: Protocol, state: State) -> Evaluated:
    bound = protocol.bound_to(Reader(state))
    try:
        names = {**scope, "self": bound, **{name: getattr(bound, name) for name in protocol.shapes}}
        return Evaluated(_value(eval(code, names)))
    except Disabled:
        return Evaluated(error="require(...) was not satisfied")
    except NotAValue as error:
        return Evaluated(error=f"not a value: {error}")
    except Exception as error:
        text = str(error).strip().splitlines()
        return Evaluated(error=f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)


def _value(found: Any) -> Value:
    """What an expression came to as a value; lists, sets and dicts, which no state can hold, as their immutable kin."""
    if isinstance(found, (list, tuple)):
        return tuple(_value(element) for element in found)
    if isinstance(found, (set, frozenset)):
        return Set(_value(element) for element in found)
    if isinstance(found, dict):
        return Map({_value(key): _value(element) for key, element in found.items()})
    if isinstance(found, range):
        return tuple(found)
    return freeze(found)
