"""The syntax tree of a TLA+ module.

:mod:`fencepost.tla.syntax` builds it from the parser's tree, and nothing behind that module knows the parser. Every
node has its ``place``. Nodes are equal by identity: two occurrences of ``x`` are two nodes.

An operator of the language is applied like a user's: ``a + b`` is ``Apply(Name("+"), (a, b))``, ``x'`` is
``Apply(Name("'"), (x,))``. Each has one name, its ASCII form, whichever way the file spells it (see `operators`).
Negation of a number is ``-.``. Parentheses leave no node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands: from its first character to its last. Lines and columns count from 1. ``file`` is the path
    as the user gave it, or the name of a module that ships with Fencepost.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """A part of a module."""

    place: Place


# -- expressions -------------------------------------------------------------------------------------------------------


class Expression(Node):
    """What has a value, or is an operator that is passed as an argument."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Number(Expression):
    """A natural number, in any base."""

    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Decimal(Expression):
    """A number with a decimal point. TLC does not evaluate it."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class String(Expression):
    """A string, with its escapes resolved."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Name(Expression):
    """An identifier or an operator's symbol, such as ``x``, ``TRUE``, ``Nat`` or ``\\cup``."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Step(Node):
    """One step of a qualified name: ``I(x)!``."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Qualified(Expression):
    """``I!Op`` or ``I(x)!J!Op``: a definition of an instance. Its own arguments are in an :class:`Apply` around it."""

    steps: tuple[Step, ...]
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Part(Expression):
    """``Op!2!<<``, ``Op(x)!:``, ``Op!lab(y)``: a part of the definition ``of``, by selectors.

    A selector is an ``int`` (an operand), ``"<<"``, ``">>"``, ``"@"``, ``":"``, a tuple of expressions (arguments for
    bound names), or a :class:`Step` (a label with its arguments).
    """

    of: Expression
    selectors: tuple[int | str | tuple[Expression, ...] | Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Expression):
    """An operator with its arguments: prefix, infix, postfix or ``Op(a, b)``. ``operator`` is a :class:`Name`, a
    :class:`Qualified`, or a :class:`Part`.
    """

    operator: Expression
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Junction(Expression):
    """A list with bullets. ``operator`` is ``/\\`` or ``\\/``."""

    operator: str
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lambda(Expression):
    """``LAMBDA x, y : body``."""

    parameters: tuple[Parameter, ...]
    body: Expression


@dataclass(frozen=True, slots=True, eq=False)
class If(Expression):
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Arm(Node):
    """``condition -> result`` of a ``CASE``."""

    condition: Expression
    result: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Case(Expression):
    arms: tuple[Arm, ...]
    other: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Let(Expression):
    definitions: tuple[Unit, ...]
    body: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Bound(Node):
    """``x, y \\in S`` or ``<<x, y>> \\in S`` (``is_tuple``). ``domain`` is None in an unbounded ``CHOOSE``."""

    names: tuple[Parameter, ...]
    domain: Expression | None
    is_tuple: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Quantified(Expression):
    """``\\A`` or ``\\E`` over bounds."""

    quantifier: str
    bounds: tuple[Bound, ...]
    body: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Unbounded(Expression):
    """``\\A``, ``\\E``, ``\\AA`` or ``\\EE`` over names without a set."""

    quantifier: str
    names: tuple[Parameter, ...]
    body: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Choose(Expression):
    bound: Bound
    body: Expression


@dataclass(frozen=True, slots=True, eq=False)
class SetOf(Expression):
    """``{a, b}``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Expression):
    """``{x \\in S : condition}``."""

    bound: Bound
    condition: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Collect(Expression):
    """``{result : x \\in S, y \\in T}``."""

    result: Expression
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Product(Expression):
    """``A \\X B \\X C``, without parentheses inside."""

    factors: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tuple(Expression):
    """``<<a, b>>``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FieldValue(Node):
    """``name |-> value`` or ``name : set``."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Record(Expression):
    """``[a |-> 1, b |-> 2]``."""

    fields: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RecordSet(Expression):
    """``[a : S, b : T]``."""

    fields: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionOf(Expression):
    """``[x \\in S, y \\in T |-> body]``."""

    bounds: tuple[Bound, ...]
    body: Expression


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSet(Expression):
    """``[domain -> range]``."""

    domain: Expression
    range: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Index(Expression):
    """``f[a, b]``."""

    function: Expression
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Field(Expression):
    """``r.name``."""

    record: Expression
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Update(Node):
    """``![a, b].c = value``. A step of the path is a field's name, or the arguments between brackets."""

    path: tuple[str | tuple[Expression, ...], ...]
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Except(Expression):
    """``[f EXCEPT ![a] = 1, !.b = 2]``."""

    function: Expression
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True, eq=False)
class At(Expression):
    """``@``: in an update, the old value."""


@dataclass(frozen=True, slots=True, eq=False)
class Square(Expression):
    """``[action]_subscript``."""

    action: Expression
    subscript: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Angle(Expression):
    """``<<action>>_subscript``."""

    action: Expression
    subscript: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Fairness(Expression):
    """``WF_subscript(action)`` or ``SF_subscript(action)``. ``kind`` is ``WF`` or ``SF``."""

    kind: str
    subscript: Expression
    action: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Label(Expression):
    """``name(x) :: body``. Only parts of definitions use it."""

    name: str
    parameters: tuple[str, ...]
    body: Expression


# -- units of a module -------------------------------------------------------------------------------------------------


class Unit(Node):
    """A declaration, a definition, or another line of a module or a ``LET``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Parameter(Node):
    """A declared or bound name. ``arity`` counts the arguments of an operator: 0 for a plain name, 2 for ``Op(_, _)``
    and ``_ + _``.
    """

    name: str
    arity: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Constants(Unit):
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Variables(Unit):
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Recursive(Unit):
    """``RECURSIVE Op(_)``: the definition follows."""

    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Operator(Unit):
    """``Op(x, F(_)) == body``, also ``x \\prec y == body``. ``comment`` is the text of the comment above it, if any."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Expression
    is_local: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Function(Unit):
    """``f[x \\in S] == body``. The body may use ``f``."""

    name: str
    bounds: tuple[Bound, ...]
    body: Expression
    is_local: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Substitution(Node):
    """``name <- value`` after ``WITH``."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Instance(Unit):
    """``INSTANCE M WITH ...``, or with a ``name``: ``I(x) == INSTANCE M WITH ...``."""

    name: str
    parameters: tuple[Parameter, ...]
    module: str
    substitutions: tuple[Substitution, ...]
    is_local: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Assumption(Unit):
    """``ASSUME`` or ``AXIOM``, which TLC does not judge. ``name`` is ``""`` if it has none."""

    name: str
    body: Expression
    is_judged: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Theorem(Unit):
    """``THEOREM``. Its proof is skipped. ``body`` is None for an ``ASSUME ... PROVE``. TLC does not judge it."""

    name: str
    body: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Extended(Node):
    """A module's name after ``EXTENDS``."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Module(Unit):
    """A module, at the top of a file or inside another module."""

    name: str
    extends: tuple[Extended, ...]
    units: tuple[Unit, ...]


def parts_of(node: Node) -> Iterator[Node]:
    """The nodes directly inside a node, in the order of the text."""
    for field in fields(node):
        if field.name != "place":
            yield from _nodes(getattr(node, field.name))


def _nodes(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _nodes(each)
