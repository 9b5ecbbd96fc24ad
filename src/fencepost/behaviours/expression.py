"""A Python expression evaluated in every state of a behaviour."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import CodeType, MappingProxyType
from typing import Any

from fencepost.behaviours.behaviour import Trace
from fencepost.behaviours.evidence import StateReader
from fencepost.behaviours.sandbox import FUNCTIONS, OPERATORS, SOURCE, Refused, Scope, bound, value_of
from fencepost.errors import FencepostError, OptionError
from fencepost.language.context import Disabled
from fencepost.language.seam import Model, language_of
from fencepost.language.values import ModelValue, NotAValue, Value, show
from fencepost.semantics.state import State


@dataclass(frozen=True)
class Evaluated:
    """The outcome of an expression in one state: its ``value``, or the ``error`` in one line."""

    value: Value = None
    error: str | None = None

    def __str__(self) -> str:
        return show(self.value) if self.error is None else f"({self.error})"


class Expression:
    """An expression over one state, parsed once and evaluated in any number of states. It is written in the language of
    the protocol.

    In Python it may name the protocol's variables and constants, their model values (``b1``), definitions in the
    author's modules (enums, records, functions), harmless builtins, and the state as ``self``: ``bookie[b1].fenced``,
    ``len(acks) >= ack_quorum``, ``self.no_entry_is_lost()``. It cannot change or reach anything else: see
    :mod:`fencepost.behaviours.sandbox`. ``given``: the values of more names, in a protocol in Python.

    Raises :class:`fencepost.OptionError` if it cannot be read or names something unknown, with the column.
    """

    def __init__(self, text: str, protocol: Model, given: Mapping[str, Value] = MappingProxyType({})) -> None:
        self.text = text
        self.of = language_of(protocol).expression(text, protocol) or _python(text, protocol, given)
        """Its value in the state of a bound protocol. It reads only the parts that it names, and raises any exception
        of the expression.
        """

    def at(self, state: State) -> Evaluated:
        """Its outcome in ``state``, which may be an error."""
        try:
            return Evaluated(value_of(self.of(state.store.protocol.bound_to(StateReader(state)))))
        except Disabled:
            return Evaluated(error="require(...) was not satisfied")
        except NotAValue as error:
            return Evaluated(error=f"not a value: {error}")
        except FencepostError as error:
            return Evaluated(error=str(error))
        except MemoryError:
            return Evaluated(error="out of memory")
        except Exception as error:
            text = str(error).strip().splitlines()
            return Evaluated(error=f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)


def _python(text: str, protocol: Model, given: Mapping[str, Value]) -> Callable[[Any], Any]:
    """A Python expression as a function of a bound protocol."""
    scope = Scope(type(protocol))
    code, names = _compiled(text, protocol, {**_known(protocol, scope), **given}, {*protocol.shapes, "self"} - {*given})
    known = {"__builtins__": {}, **bound(scope), **names}
    return lambda state: eval(code, {**known, STATE: state})


def evaluate(expression: str, trace: Trace) -> list[Evaluated]:
    """The value of ``expression`` (see :class:`Expression`) in each state of ``trace``, the initial one first.

    Raises :class:`fencepost.OptionError` if it cannot be read or names something unknown, with the column.
    """
    read = Expression(expression, trace.protocol)
    return [read.at(state) for state in trace.states]


MAX_LENGTH = 10_000
"""The most characters of an expression."""

MAX_DEPTH = 100
"""How deeply an expression may be nested."""

STATE = " state"
"""The name of the state in the code of an expression. Users cannot type it."""


def _compiled(
    expression: str, protocol: Model, known: Mapping[str, Any], state: set[str]
) -> tuple[CodeType, dict[str, Any]]:
    """The code of an expression, and the names that it uses besides those of the ``state``."""
    text = " ".join(expression.splitlines())
    indent = len(text) - len(text.lstrip())
    if not text.strip():
        raise OptionError(f"an expression is needed, for example: {next(iter(protocol.shapes), 'x')}")
    if len(text) > MAX_LENGTH:
        raise OptionError(f"the expression is longer than {MAX_LENGTH:,} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        _check_depth(tree)
        _check_nodes(tree, indent)
        own, used = _names(tree, {*known, *state}, indent)
        code = compile(ast.fix_missing_locations(_Guards(state - own).visit(tree)), SOURCE, "eval")
        return code, {name: known[name] for name in used if name in known}
    except SyntaxError as error:
        if error.offset:
            column, what = error.offset + indent, error.msg
        else:  # it ends too early
            column, what = len(text.rstrip()) + 1, "something is missing at its end"
        raise OptionError(f"the expression cannot be read at column {column}: {what}: {_excerpt(text)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        what = str(error) or "it is nested too deeply"
        raise OptionError(f"the expression cannot be read at column {indent + 1}: {what}: {_excerpt(text)}") from None


def _excerpt(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.expr_context, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop,
    ast.BinOp, ast.operator,
    ast.Compare, ast.cmpop, ast.IfExp, ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred,
    ast.Tuple, ast.List,
    ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Lambda,
    ast.arguments, ast.arg,
    ast.NamedExpr,
)  # fmt: skip
"""The syntax that an expression may use. Formatted text, ``await`` and ``yield`` are not allowed."""

_NOT_FOR_IT = {ast.JoinedStr: "a formatted text", ast.FormattedValue: "a formatted text"}


def _check_depth(tree: ast.AST) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ValueError("it is nested too deeply")


def _check_nodes(tree: ast.AST, indent: int) -> None:
    """Allow only the listed syntax, assignments only to names, and no names of Python internals."""
    for node in ast.walk(tree):
        column = getattr(node, "col_offset", 0) + 1 + indent
        if not isinstance(node, _NODES) or (isinstance(node, ast.comprehension) and node.is_async):
            what = _NOT_FOR_IT.get(type(node), type(node).__name__.lower())
            raise OptionError(f"the expression has {what} at column {column}, which is not for it")
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            raise OptionError(
                f"the expression assigns to something that is no name at column {column}, which is not for it"
            )
        for name in (getattr(node, field, None) for field in ("id", "attr", "arg")):
            if isinstance(name, str) and name.startswith("__"):
                raise OptionError(
                    f"the expression reaches into Python itself at column {column}, {name}, which is not for it"
                )


def _names(tree: ast.AST, known: set[str], indent: int) -> tuple[set[str], set[str]]:
    """The names that the expression binds, and those that it uses, which must be known or bound."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in names:
        if node.id not in known | bound:
            near = get_close_matches(node.id, sorted(known), n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            column = node.col_offset + 1 + indent
            raise OptionError(f"the expression names something unknown at column {column}, {node.id}{hint}")
    return bound, {node.id for node in names}


class _Guards(ast.NodeTransformer):
    """Routes every attribute, call and large operator through its check, and replaces a variable ``x`` with ``self.x``,
    so that a variable is read only when its name is evaluated.
    """

    def __init__(self, variables: set[str]) -> None:
        self.variables = variables

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.variables:
            return node
        state = ast.Name(STATE, ast.Load())
        return ast.copy_location(state if node.id == "self" else ast.Attribute(state, node.id, node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return _called(" attribute", node, self.visit(node.value), ast.Constant(node.attr))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.args, node.func = [node.func, *node.args], ast.Name(" call", ast.Load())
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = f" {type(node.op).__name__}"
        return _called(name, node, node.left, node.right) if name in OPERATORS else node


def _called(name: str, where: ast.expr, *arguments: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), where)


def _known(protocol: Model, scope: Scope) -> dict[str, Any]:
    """The names that an expression can use besides the variables. If two objects share a name, the one closer to the
    protocol wins.
    """
    known: dict[str, Any] = dict(FUNCTIONS)
    module = sys.modules.get(type(protocol).__module__)
    for name, obj in vars(module).items() if module is not None else ():
        if not name.startswith("__") and name not in protocol.constants:
            with contextlib.suppress(Refused):
                known[name] = scope.handed_out(obj)
    for value in protocol.constants.values():
        for member in value if isinstance(value, tuple) else ():
            if isinstance(member, ModelValue):
                known[member.name] = member
    return {**known, **protocol.constants}
