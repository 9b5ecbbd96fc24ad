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


class Expression:
    """A Python expression over one state, read once and evaluated in as many states as needed.

    It may name the protocol's variables and constants, the model values in them (``b1``), what the protocol's module defines
    (enums, records, functions), harmless builtins, and the state as ``self``: ``bookie[b1].fenced``, ``len(acks) >= ack_quorum``,
    ``self.no_entry_is_lost()``.

    Raises :class:`fencepost.OptionError` if it can not be read or names something unknown, with the column.
    """

    def __init__(self, text: str, protocol: Protocol) -> None:
        self.text = text
        self._scope = _scope(protocol)
        self._code = _compiled(text, self._scope, protocol)

    def of(self, bound: Protocol) -> Any:
        """What it comes to in the state that a protocol is bound to; it reads what it names and nothing else.

        Raises whatever the expression raises.
        """
        return eval(self._code, {**self._scope, "self": bound})

    def at(self, state: State) -> Evaluated:
        """What it is in ``state``; an error is its result there."""
        try:
            return Evaluated(_value(self.of(state.store.protocol.bound_to(Reader(state)))))
        except Disabled:
            return Evaluated(error="require(...) was not satisfied")
        except NotAValue as error:
            return Evaluated(error=f"not a value: {error}")
        except MemoryError:
            return Evaluated(error="out of memory")
        except Exception as error:
            text = str(error).strip().splitlines()
            return Evaluated(error=f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)


def evaluate(expression: str, trace: Trace) -> list[Evaluated]:
    """The value of ``expression`` (see :class:`Expression`) in each state of ``trace``, the initial one first.

    Raises :class:`fencepost.OptionError` if it can not be read or names something unknown, with the column.
    """
    read = Expression(expression, trace.protocol)
    return [read.at(state) for state in trace.states]


def _compiled(expression: str, scope: Mapping[str, Any], protocol: Protocol) -> CodeType:
    text = " ".join(expression.splitlines())
    indent = len(text) - len(text.lstrip())
    if not text.strip():
        raise OptionError(f"an expression is needed, for example: {next(iter(protocol.shapes), 'x')}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        own = _check_names(tree, {*scope, *protocol.shapes, "self"}, indent)
        return compile(_Variables(set(protocol.shapes) - own).visit(tree), "<expression>", "eval")
    except SyntaxError as error:
        if error.offset:
            column, what = error.offset + indent, error.msg
        else:  # what is wrong is that it ends
            column, what = len(text.rstrip()) + 1, "something is missing at its end"
        raise OptionError(f"the expression can not be read at column {column}: {what}: {_excerpt(text)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        what = str(error) or "it is nested too deeply"
        raise OptionError(f"the expression can not be read at column {indent + 1}: {what}: {_excerpt(text)}") from None


class _Variables(ast.NodeTransformer):
    """Makes ``x`` of a variable ``self.x``, so that a variable is read only where and when it is named."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            return node
        state = ast.copy_location(ast.Name("self", ast.Load()), node)
        return ast.copy_location(ast.Attribute(state, node.id, node.ctx), node)


INSIDE = ("__", "gi_", "cr_", "ag_")
"""How attributes begin that lead out of the state into Python's own insides."""


def _excerpt(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _check_names(tree: ast.Expression, known: set[str], indent: int) -> set[str]:
    """Every name must be known or bound by the expression itself; the names that it binds."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith(INSIDE):
            column = node.col_offset + 1 + indent
            raise OptionError(f"the expression reaches into Python itself at column {column}, {node.attr}, which is not for it")
        if isinstance(node, ast.Name) and node.id not in known | bound:
            near = get_close_matches(node.id, sorted(known), n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            column = node.col_offset + 1 + indent
            raise OptionError(f"the expression names something unknown at column {column}, {node.id}{hint}")
    return bound


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
