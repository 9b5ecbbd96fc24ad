"""What names mean: symbols, and the scopes that resolve them.

A :class:`Scope` belongs to an expression. It gives every name in the expression its symbol. Scopes are chains: a
parameter, a bound name or a ``LET`` makes an inner scope with :meth:`Scope.inner`, and a name is looked up from the
inside out. TLA+ lets no name hide another, so a look-up is never ambiguous.

**Instances.** ``INSTANCE M WITH c <- e`` makes a scope of its own for the definitions of M. Its constants and
variables that are replaced are :class:`Substituted`: the expression ``e``, in the scope of the ``INSTANCE``. Each
instance has its own :class:`Defined` symbols, whose bodies belong to its scope. So the evaluator needs no notion of an
instance: it evaluates a body in its scope, and a substituted name as an expression in another scope. With
``I(x) == INSTANCE M``, the definition ``Op(y)`` of M is the symbol ``I!Op`` with the parameters ``x`` and ``y``. Inside
M its neighbours take ``x`` implicitly: they are symbols with ``implied`` parameters, which stand for themselves.

Two look-ups of one name in one scope give the same symbol, so what is made for a symbol can be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fencepost.tla import ast


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant of the root module, or of a module that it extends. The configuration gives its value."""

    name: str
    arity: int
    place: ast.Place


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A variable of the root module, or of a module that it extends. ``index`` counts in order of declaration."""

    name: str
    index: int
    place: ast.Place


LEVEL = Variable('TLCGet("level")', -1, ast.Place("", 0, 0, 0, 0))
"""Stands for ``TLCGet("level")``, the number of a state in the behaviour that led to it, from 1. It follows the last
variable, and no variable can have its name.
"""

QUEUE = Variable('TLCGet("queue")', LEVEL.index, ast.Place("", 0, 0, 0, 0))
"""Stands for ``TLCGet("queue")`` in a temporal property, which depends on the level of a state."""


@dataclass(frozen=True, slots=True, eq=False)
class BuiltIn:
    """An operator of the language (``module`` is ``""``) or of a module in the library."""

    name: str
    module: str
    arity: int


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A parameter or a bound name. ``arity`` is 0 for a value."""

    name: str
    arity: int
    place: ast.Place


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """A definition: an operator, or a function, which is an operator without parameters.

    ``body`` belongs to ``scope``, in which ``implied`` and ``parameters`` are already bound. ``implied`` come first
    among the arguments of a call, and each is the :class:`Local` of the same name where the call stands. ``name`` is
    the name in its module, without an instance's. ``level`` is 0 for a constant, 1 for what reads the state, 2 for an
    action, 3 for a temporal formula, if its arguments are constants.
    """

    name: str
    module: str
    parameters: tuple[Local, ...]
    body: ast.Expression | ast.Function
    scope: Scope
    level: int
    place: ast.Place
    implied: tuple[Local, ...] = ()
    is_recursive: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Substituted:
    """A declared name of an instantiated module, or a constant that the configuration replaces: ``value`` means what it
    means in ``scope``. If ``value`` names an operator, it is one. ``is_variable``: it is a variable of the instantiated
    module.
    """

    name: str
    value: ast.Expression
    scope: Scope
    is_variable: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Instantiated:
    """A named instance: ``I`` of ``I!Op``."""

    name: str
    parameters: tuple[Local, ...]
    module: str
    place: ast.Place


Symbol = Constant | Variable | BuiltIn | Local | Defined | Substituted | Instantiated


class Scope(Protocol):
    """Gives names their symbols."""

    def symbol(self, name: ast.Name | ast.Qualified) -> Symbol:
        """The symbol of a name in an expression of this scope. Every name of a loaded specification has one.

        For ``I(x)!J!Op`` it is a :class:`Defined` that takes ``x`` first. The arguments of its steps are in the node.
        """
        ...

    def inner(self, symbols: Mapping[str, Symbol]) -> Scope:
        """A scope in which these names are known as well."""
        ...

    def let(self, node: ast.Let) -> Scope:
        """The scope of the body of a ``LET``. The same for each call with the same node."""
        ...
