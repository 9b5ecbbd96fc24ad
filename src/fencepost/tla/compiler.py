"""Compiles TLA+ expressions to Python functions.

Each definition becomes one Python function, ``(now, then, captured..., parameters...)``: ``now[i]`` is the value of
variable i, and ``then[i]`` that of the primed one. The instructions keep the places of the ``.tla`` file, so that a
traceback gives the place of the operation that failed. Sub-expressions are evaluated from left to right.

How an argument is passed is decided by what the definition does with it (:mod:`fencepost.tla.facts`): as a value if the
definition needs the value in any case; lazily if it may do without; by name, as a function of the two states, if it is
primed there. Operators are passed as functions of the two states and of their arguments' values. A definition without
parameters that reads no state is evaluated once.
"""

from __future__ import annotations

import ast as py
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, ClassVar

from fencepost.language.values import ModelValue
from fencepost.tla import ast, facts, library, python, runtime, sets, suppositions, values
from fencepost.tla.errors import SpecificationError
from fencepost.tla.facts import AT, Analysis, Call, Facts, Itself, called, let_values, parameters_of, unlabelled
from fencepost.tla.python import call, constant, function, name, tuple_of
from fencepost.tla.stored import same
from fencepost.tla.symbols import QUEUE, BuiltIn, Constant, Defined, Local, Scope, Substituted, Symbol, Variable
from fencepost.tla.values import EvaluationError, Interval, Set, Value, settled

# -- what names stand for ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """A name that is a Python variable. ``how`` says what the variable holds: ``value``, ``lazy`` (a function without
    arguments), ``named`` (a function of the two states) or ``operator``.
    """

    variable: str
    how: str = "value"


@dataclass(frozen=True, slots=True)
class Inline:
    """A name that stands for an expression, or for an operator, to be put in its place."""

    node: ast.Expression
    scope: Scope
    names: Mapping[Symbol, Entry]


Entry = Held | Inline


@dataclass(frozen=True, slots=True)
class Frame:
    """Where an expression stands: its scope, what names stand for, and the Python variables of the two states.
    ``is_initial``: it describes initial states, and gives values to variables that are not primed. ``is_primed``: it is
    evaluated in the later state. ``is_enabled``: it is inside ``ENABLED``.
    """

    scope: Scope
    names: Mapping[Symbol, Entry]
    now: str = "now"
    then: str = "then"
    is_initial: bool = False
    is_primed: bool = False
    is_enabled: bool = False

    @property
    def target(self) -> str:
        """The Python variable of the state that gets values."""
        return self.now if self.is_initial else self.then

    def within(self, scope: Scope) -> Frame:
        return replace(self, scope=scope)

    def bind(self, names: Mapping[Symbol, Entry]) -> Frame:
        return replace(self, names={**self.names, **names})

    def primed(self) -> Frame:
        return replace(self, now=self.then, then="nothing", is_primed=True)

    def fresh(self) -> Frame:
        """The same, inside a function of the two states."""
        return replace(self, now="now", then="then")


Argument = tuple[ast.Expression, Frame]

# -- operators of the language -----------------------------------------------------------------------------------------


def _unequal(one: Value, other: Value) -> bool:
    return not same(one, other)


def _not_member(one: Value, other: Value) -> bool:
    return not values.member(one, other)


_OPERATIONS: dict[str, Callable[..., Value]] = {
    "=": same,
    "/=": _unequal,
    "\\in": values.member,
    "\\notin": _not_member,
    "\\subseteq": sets.subset,
    "\\cup": sets.union,
    "\\cap": sets.intersection,
    "\\": sets.difference,
    "SUBSET": runtime.subsets,
    "DOMAIN": values.domain,
}
_CONSTANTS: dict[str, Value] = {"TRUE": True, "FALSE": False, "BOOLEAN": values.BOOLEANS, "STRING": sets.STRING}
_TRUTHS = frozenset("= /= \\in \\notin \\subseteq /\\ \\/ => <=> ~ ENABLED UNCHANGED TRUE FALSE".split())
_OF_STATES = frozenset("' ENABLED UNCHANGED \\cdot [] <> ~> -+->".split())

_RUNTIME: dict[str, Value] = {
    **{each: getattr(runtime, each) for each in "Lazy truth fail field products subsets functions records".split()},
    **{each: getattr(runtime, each) for each in "functional recursive spread ways chosen no_case applied only".split()},
    **{
        each: getattr(runtime, each)
        for each in "sifted in_set some every some_way every_way unknown queue_after".split()
    },
    **{each: getattr(values, each) for each in "Set Sequence Function apply apply_rule updated members".split()},
    "same": same,
    "filtered": sets.filtered,
    "all_of": suppositions.all_of,
    "big_union": sets.big_union,
    "starmap": itertools.starmap,
    "nothing": None,
}

_NOT_IN_NAMES = re.compile(r"\W", re.ASCII)

# -- the compiler ------------------------------------------------------------------------------------------------------


class Compiled:
    """A compiled expression: ``(now, then, *arguments)`` gives its value. Raises :class:`EvaluationError` with the
    place of what failed.
    """

    __slots__ = ("_compiler", "function")

    def __init__(self, compiler: Compiler, function: Callable[..., Value]) -> None:
        self._compiler = compiler
        self.function = function

    def __call__(self, now: Any = None, then: Any = None, *arguments: Any) -> Value:
        try:
            return self.function(now, then, *arguments)
        except (EvaluationError, RecursionError) as error:
            raise self._compiler.placed(error) from None


class Once:
    """A definition without parameters that reads no state, if its value could not be had at once."""

    def __init__(self, rule: Callable[[Any, Any], Value]) -> None:
        self._rule = rule
        self._known: tuple[Value, ...] = ()

    def __call__(self, now: Any, then: Any) -> Value:
        if not self._known:
            self._known = (self._rule(now, then),)
        return self._known[0]


class Kept:
    """A definition without parameters that reads one state, with its value in the state that is read at the moment."""

    def __init__(self, rule: Callable[[Any, Any], Value]) -> None:
        self._rule = rule

    def __call__(self, now: Any, then: Any) -> Value:
        kept = getattr(now, "kept", None)
        if kept is None:
            return self._rule(now, then)
        if self in kept:
            suppositions.reads()
            return kept[self]
        value = self._rule(now, then)
        if suppositions.is_read(value):
            kept[self] = value
        return value


class Remembered:
    """A definition that reads no state, with its values for up to :data:`MOST_REMEMBERED` different arguments. It is
    evaluated each time for arguments that read the state when they are compared.
    """

    def __init__(self, rule: Callable[..., Value]) -> None:
        self._rule = rule
        self._known: dict[tuple[Value | type, ...], Value] = {}

    def __call__(self, now: Any, then: Any, *arguments: Value) -> Value:
        key = _compared(arguments)
        if key is None:
            return self._rule(now, then, *arguments)
        value = self._known.get(key)
        if value is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = value = self._rule(None, None, *key[1::2])
        else:
            sets.write_out(value)
        return value


def _compared(arguments: Iterable[Value]) -> tuple[Value | type, ...] | None:
    """Arguments with their types, as 1 and TRUE are one key in Python. None if comparing them may read the state."""
    key: list[Value | type] = []
    for each in arguments:
        kind = type(each)
        if kind not in _READ_FREE:
            return None
        try:
            key += (kind, each if kind is not Set else settled(each))
        except EvaluationError:  # an infinite member
            return None
    return tuple(key)


MOST_REMEMBERED = 4_096
"""Values of one definition that are kept."""

_READ_FREE = frozenset({bool, int, str, ModelValue, Interval, Set})
"""Values that are compared without reading the state. A set is one if it is settled."""

Rule = Callable[["Writer"], list[py.stmt]]
"""Writes the body of a Python function."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A Python function to be written. ``names`` are its parameters, after the two states and those of ``first``."""

    title: str
    place: ast.Place
    names: tuple[Symbol, ...]
    write: Rule
    first: tuple[str, ...]


class Compiler:
    """Compiles the expressions of one specification. ``constants`` has the value of each constant that needs one.

    What it compiles, it compiles once: definitions, and constant values, are shared by all expressions.
    """

    writer: ClassVar[type[Writer]]

    def __init__(self, constants: Mapping[Constant, Value]) -> None:
        self.constants = constants
        self.analysis = Analysis(library.is_impure)
        self.globals: dict[str, Any] = dict(_RUNTIME)
        self._files: list[str] = []
        self._waiting: list[_Unit] = []
        self._titles: dict[Any, str] = {}
        self._kept: dict[Substituted, str | None] = {}
        self._constants: dict[Any, py.expr] = {}
        self._plain: dict[Any, bool] = {}
        self._truths: dict[Any, bool] = {}
        self._numbers: dict[str, int] = {}

    def expression(self, node: ast.Expression, scope: Scope, names: Iterable[Local] = ()) -> Compiled:
        """Compile an expression. ``names`` are free in it: their values follow the two states in a call.

        Raises :class:`fencepost.tla.errors.SpecificationError` for what cannot be evaluated at all.
        """
        local = tuple(names)

        def write(writer: Writer) -> list[py.stmt]:
            frame = Frame(scope, {each: Held(writer.held[each]) for each in local})
            return writer.body(node, frame)

        return self._compiled(self.unit("expression", node.place, local, write))

    def _compiled(self, title: str) -> Compiled:
        self.link()
        return Compiled(self, self.globals[title])

    # -- units --------------------------------------------------------------------------------------------------------

    def fresh(self, text: str) -> str:
        """A new name for a global. It ends in an underscore, and that of a variable in a digit."""
        plain = _NOT_IN_NAMES.sub("_", text)
        number = self._numbers[plain] = self._numbers.get(plain, 0) + 1
        return f"{plain}_{number}_"

    def unit(
        self, text: str, place: ast.Place, names: Iterable[Symbol], write: Rule, first: tuple[str, ...] = ()
    ) -> str:
        """A new function, to be written when everything is linked. Gives the name of its global."""
        title = self.fresh(text)
        self._waiting.append(_Unit(title, place, tuple(names), write, first))
        return title

    def link(self) -> None:
        """Write all functions that wait."""
        while self._waiting:
            unit = self._waiting.pop()
            writer = self.writer(self, unit.place)
            try:
                self._load(writer.whole(unit.title, unit.names, unit.write, unit.first), unit.place.file)
            except RecursionError:
                # Constants are evaluated while functions are written, which writes more functions, and so on. From
                # some depth on, constants are left for later (see `_value_now`), and this function waits again.
                self._waiting.append(unit)
                raise

    def _load(self, statements: list[py.stmt], file: str) -> None:
        module = py.fix_missing_locations(py.Module(statements, []))
        exec(compile(module, file, "exec"), self.globals)

    def definition(self, symbol: Defined, captured: tuple[tuple[Symbol, str], ...]) -> str:
        """The global of a definition. ``captured`` are the names that it uses from where it stands, each with how it is
        held.
        """
        key = (symbol, captured)
        if key not in self._titles:
            write = self._in_frame(symbol, captured, lambda writer, frame: writer.of_definition(symbol, frame))
            title = self.unit(symbol.name, symbol.place, self._parameters(symbol, captured), write)
            if self._is_worth_remembering(symbol):
                title = self._wrapped(title, "remembered", Remembered)
            elif not captured and self._is_worth_keeping(symbol):
                title = self._wrapped(title, "kept", Kept)
            self._titles[key] = title
        return self._titles[key]

    def _wrapped(self, title: str, text: str, wrapper: Callable[[Callable[..., Value]], Callable[..., Value]]) -> str:
        known = self.fresh(text)
        self.globals[known] = wrapper(lambda now, then, *arguments: self._function(title)(now, then, *arguments))
        return known

    def _is_worth_keeping(self, symbol: Defined) -> bool:
        """Whether the value of a definition depends on one state alone, and takes long."""
        is_value = not parameters_of(symbol) and isinstance(symbol.body, ast.Expression)
        return is_value and self._takes_long(symbol.body, self.analysis.definition(symbol))

    def _takes_long(self, node: ast.Expression | ast.Function, found: Facts) -> bool:
        is_of_state = not (found.is_constant or found.reads_next or found.is_impure)
        return is_of_state and _has_loop(node, (*_LOOPS, ast.FunctionOf))

    def kept(self, symbol: Substituted) -> str | None:
        """The global of what stands for a variable of an instance, if it is worth keeping."""
        if symbol not in self._kept:
            found = self.analysis.of(symbol.value, symbol.scope)
            self._kept[symbol] = None
            if not found.used and self._takes_long(symbol.value, found):
                frame = Frame(symbol.scope, {})
                title = self.unit(symbol.name, symbol.value.place, (), lambda writer: writer.body(symbol.value, frame))
                self._kept[symbol] = self._wrapped(title, "kept", Kept)
        return self._kept[symbol]

    def _is_worth_remembering(self, symbol: Defined) -> bool:
        """Whether the values of a definition depend on those of its parameters alone, and take long."""
        found = self.analysis.definition(symbol)
        parameters = parameters_of(symbol)
        return (
            bool(parameters)
            and found.is_constant
            and not symbol.is_recursive  # each call would take two frames of Python's
            and found.used <= set(parameters)
            and all(not each.arity and self.passing(symbol, each) == "value" for each in parameters)
            and isinstance(symbol.body, ast.Expression)
            and _has_loop(symbol.body)
        )

    def _parameters(self, symbol: Defined, captured: tuple[tuple[Symbol, str], ...]) -> tuple[Symbol, ...]:
        return (*(each for each, _ in captured), *parameters_of(symbol))

    def _in_frame(
        self,
        symbol: Defined,
        captured: tuple[tuple[Symbol, str], ...],
        body: Callable[[Writer, Frame], list[py.stmt]],
    ) -> Rule:
        """Writes the function of a definition by ``body``, which is given what its names stand for."""

        def write(writer: Writer) -> list[py.stmt]:
            names: dict[Symbol, Entry] = {each: Held(writer.held[each], how) for each, how in captured}
            names |= {each: Held(writer.held[each], self.passing(symbol, each)) for each in parameters_of(symbol)}
            return body(writer, Frame(symbol.scope, names))

        return write

    def passing(self, symbol: Defined, parameter: Local) -> str:
        """How an argument is passed: one of the ways of :class:`Held`, or ``unused``."""
        if parameter.arity:
            return "operator"
        return held(self.analysis.definition(symbol), parameter)

    def captured(self, symbol: Defined) -> list[Symbol]:
        """The names that a definition uses from where it stands, in a fixed order."""
        used = self.analysis.definition(symbol).used.difference(parameters_of(symbol))
        return sorted(used, key=_order)

    # -- constants ----------------------------------------------------------------------------------------------------

    def constant(self, symbol: Defined) -> py.expr:
        """A definition without parameters that reads no state: its value, evaluated now if it can be."""
        if symbol not in self._constants:
            title = self.definition(symbol, ())
            self._constants[symbol] = call(title, name("now"), name("then"))
            self._constants[symbol] = self._value_now(title)
        return copy(self._constants[symbol])

    def _value_now(self, title: str) -> py.expr:
        try:
            self.link()
            return self.embedded(self._function(title)(None, None))
        except (EvaluationError, RecursionError, NameError):
            return self._value_later(title)

    def _value_later(self, title: str) -> py.expr:
        once = self.fresh("once")
        self.globals[once] = Once(lambda now, then: self._function(title)(now, then))
        return call(once, name("now"), name("then"))

    def _function(self, title: str) -> Callable[..., Value]:
        """A function that is written. Like Python, raises NameError for one that is still being written."""
        if title not in self.globals:
            raise NameError(title)
        return self.globals[title]  # type: ignore[no-any-return]

    def embedded(self, value: Value) -> py.expr:
        """An expression with this value."""
        if type(value) in (bool, int, str):
            return constant(value)
        title = self.fresh("value")
        self.globals[title] = value
        return name(title)

    def embedded_function(self, text: str, what: Callable[..., Any]) -> str:
        """The global of a Python function."""
        key = ("function", what)
        if key not in self._titles:
            self._titles[key] = self.fresh(text)
            self.globals[self._titles[key]] = what
        return self._titles[key]

    def hoisted(self, node: ast.Expression, frame: Frame) -> py.expr | None:
        """The value of an expression that is the same everywhere, evaluated once: at once if it is written with
        constants alone, or else when it is first used.
        """
        key = (node, frame.scope)
        if key not in self._constants:
            if self._is_plain(node, frame.scope):
                self._constants[key] = self._value_now(self._unit_of(node, frame.scope))
            elif self.is_closed(node, frame.scope):
                self._constants[key] = self._value_later(self._unit_of(node, frame.scope))
        return copy(self._constants.get(key))

    def _unit_of(self, node: ast.Expression, scope: Scope) -> str:
        return self.unit("constant", node.place, (), lambda writer: writer.written(node, Frame(scope, {})))

    def is_closed(self, node: ast.Expression, scope: Scope) -> bool:
        """Whether an expression is the same in every state, whatever is around it."""
        found = self.analysis.of(node, scope)
        return found.is_constant and not found.used

    def _is_plain(self, node: ast.Expression, scope: Scope) -> bool:
        key = (node, scope)
        if key not in self._plain:
            self._plain[key] = self._is_written_plainly(node, scope)
        return self._plain[key]

    def _is_written_plainly(self, node: ast.Expression, scope: Scope) -> bool:
        if isinstance(node, ast.Number | ast.String):
            return True
        if isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
            return self._is_plain_call(called(node, scope))
        if not isinstance(node, _WRITTEN):
            return False
        return all(self._is_plain(each, scope) for each in _expressions_in(node))

    def _is_plain_call(self, found: Call) -> bool:
        symbol = found.symbol
        if isinstance(symbol, Defined):
            return not parameters_of(symbol) and symbol in self._constants
        if isinstance(symbol, Constant):
            return symbol.arity == 0
        if not isinstance(symbol, BuiltIn) or symbol.name in _OF_STATES or library.is_impure(symbol):
            return False
        return not self._operator_parameters(symbol) and all(self._is_plain(*each) for each in found.arguments)

    def _operator_parameters(self, symbol: BuiltIn) -> bool:
        return bool(symbol.module) and any(library.parameters(symbol))

    def makes_function(self, node: ast.Expression, scope: Scope) -> bool:
        """Whether an expression is a function by its rule, through names, operators, ``LET`` and ``IF``."""
        while True:
            node = unlabelled(node)
            if isinstance(node, ast.Let):
                scope, node = scope.let(node), node.body
            elif isinstance(node, ast.Index):
                node = node.function
            elif isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
                symbol = called(node, scope).symbol
                if isinstance(symbol, Defined) and not symbol.is_recursive:
                    if isinstance(symbol.body, ast.Function):
                        return True
                    node, scope = symbol.body, symbol.scope
                elif isinstance(symbol, Substituted):
                    node, scope = symbol.value, symbol.scope
                else:
                    return False
            elif isinstance(node, ast.If):
                return self.makes_function(node.then, scope) or self.makes_function(node.otherwise, scope)
            else:
                return isinstance(node, ast.FunctionOf)

    # -- truths -------------------------------------------------------------------------------------------------------

    def is_truth(self, node: ast.Expression, scope: Scope) -> bool:
        """Whether a value of the expression surely is a Boolean."""
        node = unlabelled(node)
        if isinstance(node, ast.Junction | ast.Quantified | ast.Unbounded | ast.Square | ast.Angle):
            return True
        if isinstance(node, ast.If):
            return self.is_truth(node.then, scope) and self.is_truth(node.otherwise, scope)
        if isinstance(node, ast.Let):
            return self.is_truth(node.body, scope.let(node))
        if isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
            return self._is_true_call(called(node, scope).symbol)
        return False

    def _is_true_call(self, symbol: Symbol | ast.Lambda) -> bool:
        if isinstance(symbol, BuiltIn):
            return symbol.name in _TRUTHS if not symbol.module else library.is_truth(symbol)
        if not isinstance(symbol, Defined) or isinstance(symbol.body, ast.Function):
            return False
        if symbol not in self._truths:
            self._truths[symbol] = True
            self._truths[symbol] = self.is_truth(symbol.body, symbol.scope)
        return self._truths[symbol]

    # -- places -------------------------------------------------------------------------------------------------------

    def first_line(self, place: ast.Place, file: str) -> int:
        """What the lines of a place are counted from, in a code object of ``file``."""
        if place.file == file:
            return 0
        if place.file not in self._files:
            self._files.append(place.file)
        return python.LINES * (self._files.index(place.file) + 1)

    def placed(self, error: EvaluationError | RecursionError) -> EvaluationError:
        """The error, with the place of the operation that raised it."""
        if isinstance(error, runtime.PlacedError):
            return error
        message = str(error)
        if isinstance(error, RecursionError):
            message = f"this is nested too deeply: {sys.getrecursionlimit():,} calls"
        place = self._place_of(error.__traceback__)
        return EvaluationError(message) if place is None else runtime.PlacedError(message, place)

    def _place_of(self, trace: TracebackType | None) -> ast.Place | None:
        found = None
        while trace is not None:
            if trace.tb_frame.f_globals is self.globals:
                found = self._instruction(trace) or found
            trace = trace.tb_next
        return found

    def _instruction(self, trace: TracebackType) -> ast.Place | None:
        code = trace.tb_frame.f_code
        line, end_line, column, end_column = list(code.co_positions())[trace.tb_lasti // 2]
        if line is None or end_line is None or column is None or end_column is None:
            return None
        number, line = divmod(line, python.LINES)
        file = self._files[number - 1] if number else code.co_filename
        return ast.Place(file, line, column + 1, end_line % python.LINES, end_column)


def held(found: facts.Facts, symbol: Symbol) -> str:
    """How a name is held where these are the facts of its uses."""
    if symbol not in found.used:
        return "unused"
    if symbol in found.primed:
        return "named"
    return "value" if found.is_strict(symbol) else "lazy"


def _order(symbol: Symbol) -> tuple[str, int, int]:
    assert isinstance(symbol, Local | Defined)
    return (symbol.name, symbol.place.line, symbol.place.column)


_WRITTEN = (ast.SetOf, ast.Tuple, ast.Record, ast.RecordSet, ast.FunctionSet, ast.Product)


_SIMPLE = (Itself, ast.Name, ast.Qualified, ast.Number, ast.String, ast.Decimal, ast.Label, ast.At, ast.Unbounded)
"""What is not worth keeping, or is kept otherwise."""


_LOOPS = (ast.Quantified, ast.Filter, ast.Collect, ast.Choose)


def _has_loop(node: ast.Node, loops: tuple[type[ast.Node], ...] = _LOOPS) -> bool:
    """Whether an expression goes through the members of a set, besides what it calls."""
    return isinstance(node, loops) or any(_has_loop(each, loops) for each in ast.parts_of(node))


def _expressions_in(node: ast.Node) -> list[ast.Expression]:
    found: list[ast.Expression] = []
    for each in ast.parts_of(node):
        found += [each] if isinstance(each, ast.Expression) else _expressions_in(each)
    return found


# -- writing Python ----------------------------------------------------------------------------------------------------

_MOST_NESTED = 40
"""The deepest expression that is written in one piece. Python's own compiler is recursive."""


class Writer:
    """Writes one Python function."""

    def __init__(self, compiler: Compiler, place: ast.Place) -> None:
        self.compiler = compiler
        self.analysis = compiler.analysis
        self.place = place
        self.held: dict[Symbol, str] = {}
        self.parts: list[py.stmt] = []
        self._variables: set[str] = set()
        self._height = 0
        self._is_patient = False
        """Whether a conjunction tries all of its conjuncts, since one that needs no state may be FALSE."""

    def whole(self, title: str, names: Iterable[Symbol], write: Rule, first: tuple[str, ...]) -> list[py.stmt]:
        """The function, and those that it had to be cut into."""
        variables = [self.held.setdefault(each, self.variable(_name_of(each))) for each in names]
        body = write(self)
        made = python.definition(title, ["now", "then", *first, *variables], body)
        return [*self.parts, self.at(made, self.place)]

    def variable(self, text: str) -> str:
        """A new name for a Python variable."""
        found = f"{_NOT_IN_NAMES.sub('_', text)}_{len(self._variables)}"
        self._variables.add(found)
        return found

    def at(self, piece: python.P, place: ast.Place) -> python.P:
        return python.placed(piece, place, self.compiler.first_line(place, self.place.file))

    # -- expressions --------------------------------------------------------------------------------------------------

    def body(self, node: ast.Expression, frame: Frame) -> list[py.stmt]:
        """Statements that return the value of an expression."""
        return [self.at(py.Return(self.value(node, frame)), node.place)]

    def written(self, node: ast.Expression, frame: Frame) -> list[py.stmt]:
        """The same for a constant that is being worked out, and so is not known yet."""
        return [self.at(py.Return(self.at(_WRITERS[type(node)](self, node, frame), node.place)), node.place)]

    def of_definition(self, symbol: Defined, frame: Frame) -> list[py.stmt]:
        if isinstance(symbol.body, ast.Function):
            return [self.at(py.Return(self.defined_function(symbol, frame)), symbol.place)]
        return self.body(symbol.body, frame)

    def value(self, node: ast.Expression, frame: Frame) -> py.expr:
        """A Python expression that gives the value of a TLA+ expression."""
        above, self._height = self._height, 0
        made = self.at(self._made(node, frame), node.place)
        if self._height >= _MOST_NESTED:
            made, self._height = self._cut(made, node.place), 0
        self._height = max(above, self._height + 1)
        return made

    def _made(self, node: ast.Expression, frame: Frame) -> py.expr:
        if not isinstance(node, _SIMPLE):
            hoisted = self.compiler.hoisted(node, frame)
            if hoisted is not None:
                return hoisted
        return _WRITERS[type(node)](self, node, frame)

    def _cut(self, made: py.expr, place: ast.Place) -> py.expr:
        """Move a piece into a function of its own."""
        title = self.compiler.fresh("part")
        free = python.free_names([made], {*self._variables, "now", "then", "choose"})
        self.parts.append(self.at(python.definition(title, free, [self.at(py.Return(made), place)]), place))
        return self.at(call(title, *map(name, free)), place)

    def truth(self, node: ast.Expression, frame: Frame, what: str) -> py.expr:
        """The same for an expression that has to be a Boolean."""
        made = self.value(node, frame)
        if self.compiler.is_truth(node, frame.scope):
            return made
        return self.at(call("truth", made, constant(what)), node.place)

    def values(self, nodes: Iterable[ast.Expression], frame: Frame) -> list[py.expr]:
        return [self.value(each, frame) for each in nodes]

    def _number(self, node: ast.Number, frame: Frame) -> py.expr:
        return constant(node.value)

    def _string(self, node: ast.String, frame: Frame) -> py.expr:
        return constant(node.value)

    def _decimal(self, node: ast.Decimal, frame: Frame) -> py.expr:
        return call("fail", constant(f"{node.text} is a decimal number, which cannot be evaluated"))

    def _label(self, node: ast.Label, frame: Frame) -> py.expr:
        return self.value(node.body, frame)

    def _if(self, node: ast.If, frame: Frame) -> py.expr:
        condition = self.truth(node.condition, frame, "the condition of IF")
        return py.IfExp(condition, self.value(node.then, frame), self.value(node.otherwise, frame))

    def _case(self, node: ast.Case, frame: Frame) -> py.expr:
        made = call("no_case") if node.other is None else self.value(node.other, frame)
        for arm in reversed(node.arms):
            condition = self.truth(arm.condition, frame, "the condition of CASE")
            made = self.at(py.IfExp(condition, self.value(arm.result, frame), self.at(made, node.place)), node.place)
        return made

    def _junction(self, node: ast.Junction, frame: Frame) -> py.expr:
        if self._is_patient and node.operator == "/\\":
            return self.all_of(_conjuncts(node, frame.scope), frame)
        what = "this conjunct" if node.operator == "/\\" else "this disjunct"
        parts = [self.truth(each, frame, what) for each in node.items]
        if node.operator == "\\/":
            return python.either(parts)
        return python.every([*self.tested_first([(each, frame) for each in node.items]), *parts])

    def tested_first(self, conjuncts: list[Argument]) -> list[py.expr]:
        """Conditions that are true where a conjunction is, and take less to find out."""
        return []

    def _set_of(self, node: ast.SetOf, frame: Frame) -> py.expr:
        return call("Set", tuple_of(self.values(node.items, frame)))

    def _tuple(self, node: ast.Tuple, frame: Frame) -> py.expr:
        return call("Sequence", tuple_of(self.values(node.items, frame)))

    def _record(self, node: ast.Record, frame: Frame) -> py.expr:
        names = [constant(each.name) for each in node.fields]
        return call("Function", py.Dict(list(names), self.values([each.value for each in node.fields], frame)))

    def _record_set(self, node: ast.RecordSet, frame: Frame) -> py.expr:
        return call(
            "records", *(tuple_of([constant(each.name), self.value(each.value, frame)]) for each in node.fields)
        )

    def _function_set(self, node: ast.FunctionSet, frame: Frame) -> py.expr:
        return call("functions", self.value(node.domain, frame), self.value(node.range, frame))

    def _product(self, node: ast.Product, frame: Frame) -> py.expr:
        return call("products", *self.values(node.factors, frame))

    def _index(self, node: ast.Index, frame: Frame) -> py.expr:
        of, arguments = self.value(node.function, frame), self.values(node.arguments, frame)
        if not isinstance(of, py.Name) and self.compiler.makes_function(node.function, frame.scope):
            argument = arguments[0] if len(arguments) == 1 else call("Sequence", tuple_of(arguments))
            return call("apply_rule", function([], of), argument)
        return call("apply" if len(arguments) == 1 else "applied", of, *arguments)

    def _field(self, node: ast.Field, frame: Frame) -> py.expr:
        return call("field", self.value(node.record, frame), constant(node.name))

    def _except(self, node: ast.Except, frame: Frame) -> py.expr:
        made = self.value(node.function, frame)
        for update in node.updates:
            old = self.variable("old")
            change = function([old], self.value(update.value, frame.bind({AT: Held(old, "lazy")})))
            path = tuple_of(self._step(step, frame) for step in update.path)
            made = self.at(call("updated", made, path, change), update.place)
        return made

    def _step(self, step: str | tuple[ast.Expression, ...], frame: Frame) -> py.expr:
        if isinstance(step, str):
            return constant(step)
        parts = self.values(step, frame)
        return parts[0] if len(parts) == 1 else call("Sequence", tuple_of(parts))

    def _at(self, node: ast.At, frame: Frame) -> py.expr:
        return self._of_entry(frame.names[AT], (), frame)

    # -- bound names --------------------------------------------------------------------------------------------------

    def _rule(self, names: Iterable[Local], frame: Frame, write: Callable[[Frame], py.expr]) -> py.expr:
        """A Python function of the values of bound names."""
        variables = {each: self.variable(each.name) for each in names}
        return function(variables.values(), write(frame.bind({each: Held(v) for each, v in variables.items()})))

    def _bound(
        self, node: ast.Node, bounds: tuple[ast.Bound, ...], frame: Frame, write: Callable[[Frame], py.expr]
    ) -> tuple[py.expr, list[py.expr], list[py.expr]]:
        """The function of the bound names, the shape of what they are bound to, and the sets."""
        inner = self.analysis.bound(node, bounds, frame.scope)
        domains = [self.value(each.domain, frame) for each in bounds if each.domain is not None]
        rule = self._rule(inner.locals, frame.within(inner.scope), write)
        shape, sets_of_names = [], []
        for bound, domain in zip(bounds, domains, strict=False):
            parts = [len(bound.names)] if bound.is_tuple else [0] * len(bound.names)
            shape += [constant(each) for each in parts]
            sets_of_names += [domain] * len(parts)
        return rule, list(shape), sets_of_names

    def _outcomes(
        self, node: ast.Node, bounds: tuple[ast.Bound, ...], frame: Frame, write: Callable[[Frame], py.expr]
    ) -> py.expr:
        """An iterator of what the function gives for each combination of members."""
        rule, shape, sets_of_names = self._bound(node, bounds, frame, write)
        if _is_simple(shape):
            return call("map", rule, self._members(sets_of_names[0], bounds[0]))
        return call("starmap", rule, self.at(call("ways", tuple_of(shape), *sets_of_names), bounds[0].place))

    def _members(self, of: py.expr, bound: ast.Bound) -> py.expr:
        return self.at(call("members", of), bound.place)

    def _of_one(
        self, node: ast.Node, bounds: tuple[ast.Bound, ...], frame: Frame, write: Callable[[Frame], py.expr]
    ) -> tuple[py.expr, list[py.expr]]:
        """The function of one value, which may be a tuple of several, and the sets."""
        rule, shape, sets_of_names = self._bound(node, bounds, frame, write)
        return (rule if _is_simple(shape) else call("spread", rule, *shape)), sets_of_names

    def _quantified(self, node: ast.Quantified, frame: Frame) -> py.expr:
        what = f"the body of {node.quantifier}"
        rule, shape, sets_of_names = self._bound(
            node, node.bounds, frame, lambda inside: self.truth(node.body, inside, what)
        )
        exists = node.quantifier == "\\E"
        if _is_simple(shape):
            of = self.at(call("in_set", sets_of_names[0]), node.bounds[0].place)
            return call("some", of, rule, *self._sifting(node, node.body, frame)) if exists else call("every", of, rule)
        return call("some_way" if exists else "every_way", rule, tuple_of(shape), *sets_of_names)

    def _sifting(
        self, node: ast.Quantified | ast.Filter | ast.Choose, body: ast.Expression, frame: Frame
    ) -> list[py.expr]:
        """The function that sorts out members by those conjuncts that need no state, wherever they stand."""
        bounds = node.bounds if isinstance(node, ast.Quantified) else (node.bound,)
        inner = self.analysis.bound(node, bounds, frame.scope)
        items = _conjuncts(body, inner.scope)
        if len(items) == 1 or bounds[0].is_tuple:
            return []
        return [self._rule(inner.locals, frame.within(inner.scope), lambda inside: self.all_of(items, inside))]

    def all_of(self, conjuncts: Iterable[ast.Expression], frame: Frame) -> py.expr:
        """The conjunction for :meth:`_sifting`. What goes through sets itself is not tried."""
        written = [
            name("unknown") if is_nested(each) else function([], self.truth(each, frame, "this conjunct"))
            for each in conjuncts
        ]
        return call("all_of", *written)

    def _unbounded(self, node: ast.Unbounded, frame: Frame) -> py.expr:
        return call("fail", constant(f"{node.quantifier} without a set cannot be evaluated"))

    def _collect(self, node: ast.Collect, frame: Frame) -> py.expr:
        return call("Set", self._outcomes(node, node.bounds, frame, lambda inside: self.value(node.result, inside)))

    def _filter(self, node: ast.Filter, frame: Frame) -> py.expr:
        what = "the condition of {x \\in S : ...}"
        rule, (of,) = self._of_one(node, (node.bound,), frame, lambda inside: self.truth(node.condition, inside, what))
        return call("filtered", of, rule, *self._sifting(node, node.condition, frame))

    def _choose(self, node: ast.Choose, frame: Frame) -> py.expr:
        if node.bound.domain is None:
            return call("fail", constant("CHOOSE without a set cannot be evaluated"))
        what = "the condition of CHOOSE"
        rule, (of,) = self._of_one(node, (node.bound,), frame, lambda inside: self.truth(node.body, inside, what))
        return call("chosen", of, rule, *self._sifting(node, node.body, frame))

    def _function_of(self, node: ast.FunctionOf, frame: Frame) -> py.expr:
        rule, sets_of_names = self._of_one(node, node.bounds, frame, lambda inside: self.value(node.body, inside))
        inner = self.analysis.bound(node, node.bounds, frame.scope).scope
        if not (len(sets_of_names) == 1 and _is_by_conjunctions(node.body, inner) and not node.bounds[0].is_tuple):
            return call("functional", rule, *sets_of_names)
        self._is_patient, before = True, self._is_patient
        sifting, _ = self._of_one(node, node.bounds, frame, lambda inside: self.value(node.body, inside))
        self._is_patient = before
        return call("sifted", rule, sifting, *sets_of_names)

    def defined_function(self, symbol: Defined, frame: Frame) -> py.expr:
        """The function that a definition ``f[x \\in S] == e`` makes."""
        node = symbol.body
        assert isinstance(node, ast.Function)
        itself, named = self.variable(symbol.name), facts.inside(symbol)
        inside = frame.within(symbol.scope).bind({named: Held(itself)})
        rule, sets_of_names = self._of_one(node, node.bounds, inside, lambda within: self.value(node.body, within))
        if named in self.analysis.function(symbol).used:
            return self.at(call("recursive", function([itself], rule), *sets_of_names), symbol.place)
        return self.at(call("functional", rule, *sets_of_names), symbol.place)

    # -- LET ----------------------------------------------------------------------------------------------------------

    def _let(self, node: ast.Let, frame: Frame) -> py.expr:
        symbols = let_values(node, frame.scope)
        ways = self.let_ways(node, symbols, frame)
        inside = frame.within(frame.scope.let(node))
        variables, made = [], []
        for symbol in symbols:
            if ways[symbol] != "unused":
                made.append(self.let_value(symbol, ways[symbol], inside))
                variables.append(self.variable(symbol.name))
                inside = inside.bind({symbol: Held(variables[-1], ways[symbol])})
        result = self.value(node.body, inside)
        for variable, value in zip(reversed(variables), reversed(made), strict=True):
            result = self.at(call(function([variable], result), value), node.place)
        return result

    def let_ways(self, node: ast.Let, symbols: list[Defined], frame: Frame) -> dict[Symbol, str]:
        """How the value of each definition is held."""
        self.analysis.of(node, frame.scope)
        found = self.analysis.of(node.body, frame.scope.let(node))
        ways: dict[Symbol, str] = {}
        for symbol in reversed(symbols):
            way = held(found, symbol)
            is_rule = isinstance(symbol.body, ast.Function) or isinstance(unlabelled(symbol.body), ast.FunctionOf)
            ways[symbol] = "lazy" if way == "value" and is_rule else way
            found = self.analysis.with_argument(found, symbol, self.analysis.definition(symbol))
        return ways

    def let_value(self, symbol: Defined, way: str, frame: Frame) -> py.expr:
        """What the variable of a definition holds."""
        if way == "value":
            return self._definition_value(symbol, frame)
        if way == "lazy":
            return call("Lazy", function([], self._definition_value(symbol, frame)))
        return function(["now", "then"], self._definition_value(symbol, frame.fresh()))

    def _definition_value(self, symbol: Defined, frame: Frame) -> py.expr:
        if isinstance(symbol.body, ast.Function):
            return self.defined_function(symbol, frame)
        return self.value(symbol.body, frame.within(symbol.scope))

    # -- names and operators ------------------------------------------------------------------------------------------

    def _application(self, node: ast.Expression, frame: Frame) -> py.expr:
        found = called(node, frame.scope)
        arguments = tuple((each, frame.within(scope)) for each, scope in found.arguments)
        return self.call(found.symbol, found.scope, arguments, frame, node.place)

    def call(
        self,
        symbol: Symbol | ast.Lambda,
        scope: Scope,
        arguments: tuple[Argument, ...],
        frame: Frame,
        place: ast.Place,
    ) -> py.expr:
        """What a symbol gives for arguments. ``scope`` is where the symbol was found."""
        if isinstance(symbol, Local | Defined) and symbol in frame.names:
            return self._of_entry(frame.names[symbol], arguments, frame)
        if isinstance(symbol, Defined):
            return self._of_definition(symbol, arguments, frame)
        if isinstance(symbol, BuiltIn):
            return self._built_in(symbol, arguments, frame, place)
        if isinstance(symbol, Variable):
            value = python.item(name(frame.now), symbol.index)
            return call("queue_after", value) if symbol is QUEUE else value
        if isinstance(symbol, Constant):
            return self._constant(symbol, place)
        if isinstance(symbol, Substituted):
            variable = self.free_variable(symbol, frame) if frame.is_primed else None
            if variable is not None:
                return python.item(name(frame.now), variable.index)
            kept = None if frame.is_enabled else self.compiler.kept(symbol)
            if kept is not None:
                return call(kept, name(frame.now), name(frame.then))
            return self.value(symbol.value, frame.within(symbol.scope))
        if isinstance(symbol, ast.Lambda):
            return self._of_lambda(symbol, arguments, frame.within(scope))
        raise SpecificationError(f"{symbol.name} has no value", place)

    def free_variable(self, symbol: Substituted, frame: Frame) -> Variable | None:
        """What stands for a primed variable of an instance inside ``ENABLED``, if an expression is its value.

        ``ENABLED`` asks for some next value of the instance's own variables: what is put in their place says what they
        are before the step, and not after it (*Specifying Systems*, section 17.8).
        """
        return None

    def _constant(self, symbol: Constant, place: ast.Place) -> py.expr:
        if symbol not in self.compiler.constants:
            raise SpecificationError(
                f"the constant {symbol.name} has no value: give it one in the configuration", place
            )
        return self.compiler.embedded(self.compiler.constants[symbol])

    def _of_entry(self, entry: Entry, arguments: tuple[Argument, ...], frame: Frame) -> py.expr:
        if isinstance(entry, Inline):
            return self._of_inline(entry, arguments, frame)
        variable = name(entry.variable)
        if entry.how == "value":
            return variable
        if entry.how == "lazy":
            return call(variable)
        states = (name(frame.now), name(frame.then))
        return call(variable, *states, *(self.value(*each) for each in arguments))

    def _of_inline(self, entry: Inline, arguments: tuple[Argument, ...], frame: Frame) -> py.expr:
        inside = replace(frame, scope=entry.scope, names=entry.names)
        if not arguments:
            return self.value(entry.node, inside)
        symbol, scope, every = self.inline_call(entry, arguments, inside)
        return self.call(symbol, scope, every, inside, entry.node.place)

    def inline_call(
        self, entry: Inline, arguments: tuple[Argument, ...], inside: Frame
    ) -> tuple[Symbol | ast.Lambda, Scope, tuple[Argument, ...]]:
        """What an operator that is put in its place is called with."""
        if isinstance(entry.node, ast.Lambda):
            return entry.node, entry.scope, arguments
        found = called(entry.node, entry.scope)
        first = tuple((each, inside.within(scope)) for each, scope in found.arguments)
        return found.symbol, found.scope, (*first, *arguments)

    def _of_lambda(self, node: ast.Lambda, arguments: tuple[Argument, ...], frame: Frame) -> py.expr:
        inner = self.analysis.inner(node, node.parameters, frame.scope)
        found = self.analysis.of(node.body, inner.scope)
        names: dict[Symbol, Entry] = {}
        given = []
        for parameter, argument in zip(inner.locals, arguments, strict=True):
            way = "operator" if parameter.arity else held(found, parameter)
            names[parameter] = Held(self.variable(parameter.name), way)
            given.append(self.passed(argument, parameter.arity, way))
        body = self.value(node.body, frame.within(inner.scope).bind(names))
        return call(function([each.variable for each in names.values() if isinstance(each, Held)], body), *given)

    def _of_definition(self, symbol: Defined, arguments: tuple[Argument, ...], frame: Frame) -> py.expr:
        captured = self.compiler.captured(symbol)
        parameters = parameters_of(symbol)
        if frame.is_enabled and frame.is_primed and not parameters and isinstance(symbol.body, ast.Expression):
            return self.value(symbol.body, frame.within(symbol.scope))
        if not parameters and not captured and self.analysis.definition(symbol).is_constant:
            return self.compiler.constant(symbol)
        title = self.compiler.definition(symbol, self.captured(symbol, frame))
        given = [
            self.passed(argument, parameter.arity, self.compiler.passing(symbol, parameter))
            for parameter, argument in zip(parameters, arguments, strict=True)
        ]
        values_of_captured = [self.captured_value(each, frame)[0] for each in captured]
        return call(title, name(frame.now), name(frame.then), *values_of_captured, *given)

    def captured(self, symbol: Defined, frame: Frame) -> tuple[tuple[Symbol, str], ...]:
        """The names that a definition uses from where it stands, and how each is held there."""
        return tuple((each, self.captured_value(each, frame)[1]) for each in self.compiler.captured(symbol))

    def captured_value(self, symbol: Symbol, frame: Frame) -> tuple[py.expr, str]:
        """What is passed for a name that a definition uses from where it stands."""
        entry = frame.names[symbol]
        if isinstance(entry, Held):
            return name(entry.variable), entry.how
        if isinstance(symbol, Local) and symbol.arity:
            inside = replace(frame, scope=entry.scope, names=entry.names)
            return self.operator(entry.node, symbol.arity, inside), "operator"
        return function(["now", "then"], self._of_inline(entry, (), frame.fresh())), "named"

    def passed(self, argument: Argument, arity: int, way: str) -> py.expr:
        """An argument, as it is passed."""
        node, frame = argument
        if way == "operator":
            return self.operator(node, arity, frame)
        if way == "value":
            return self.value(node, frame)
        if way == "named":
            return function(["now", "then"], self.value(node, frame.fresh()))
        return self._lazy(node, frame) if way == "lazy" else constant(None)

    def _lazy(self, node: ast.Expression, frame: Frame) -> py.expr:
        made = self.value(node, frame)
        if isinstance(made, py.Call) and isinstance(made.func, py.Name) and not made.args and not made.keywords:
            return made.func  # it is lazy already
        rule = function([], made)
        return rule if isinstance(made, py.Name | py.Constant | py.Subscript) else call("Lazy", rule)

    def operator(self, node: ast.Expression, arity: int, frame: Frame) -> py.expr:
        """An operator as a Python function of the two states and of its arguments' values."""
        if isinstance(node, ast.Lambda):
            return self._lambda_operator(node, frame)
        found = called(node, frame.scope)
        if isinstance(found.symbol, ast.Lambda):
            return self._lambda_operator(found.symbol, frame.within(found.scope))
        entry = frame.names.get(found.symbol)
        if isinstance(entry, Held):
            return name(entry.variable)
        if isinstance(entry, Inline):
            return self.operator(entry.node, arity, replace(frame, scope=entry.scope, names=entry.names))
        if isinstance(found.symbol, Defined):
            self._refuse_primed(self.analysis.definition(found.symbol), found.symbol.parameters, node)
        return self._named_operator(node, found, arity, frame)

    def _named_operator(self, node: ast.Expression, found: Call, arity: int, frame: Frame) -> py.expr:
        names = [Local(f"argument {number}", 0, node.place) for number in range(arity)]
        scope = frame.scope.inner({each.name: each for each in names})
        variables = {each: self.variable("argument") for each in names}
        inside = frame.fresh().bind({each: Held(variable) for each, variable in variables.items()})
        first = tuple((each, inside.within(where)) for each, where in found.arguments)
        own = tuple((ast.Name(place=node.place, text=each.name), inside.within(scope)) for each in names)
        made = self.call(found.symbol, found.scope, (*first, *own), inside, node.place)
        return function(["now", "then", *variables.values()], self.at(made, node.place))

    def _lambda_operator(self, node: ast.Lambda, frame: Frame) -> py.expr:
        inner = self.analysis.inner(node, node.parameters, frame.scope)
        self._refuse_primed(self.analysis.of(node.body, inner.scope), inner.locals, node)
        variables: dict[Symbol, str] = {each: self.variable(each.name) for each in inner.locals}
        inside = frame.fresh().within(inner.scope).bind({each: Held(v) for each, v in variables.items()})
        return function(["now", "then", *variables.values()], self.value(node.body, inside))

    def _refuse_primed(self, found: facts.Facts, names: Iterable[Local], node: ast.Expression) -> None:
        for each in names:
            if each in found.primed:
                raise SpecificationError(
                    f"this operator primes its parameter {each.name}: it cannot be passed as an argument here",
                    node.place,
                )

    def _built_in(self, symbol: BuiltIn, arguments: tuple[Argument, ...], frame: Frame, place: ast.Place) -> py.expr:
        if symbol.module:
            return self._library(symbol, arguments, frame)
        if symbol.name in _CONSTANTS:
            return self.compiler.embedded(_CONSTANTS[symbol.name])
        if symbol.name in _OPERATIONS:
            title = self.compiler.embedded_function("operation", _OPERATIONS[symbol.name])
            return call(title, *(self.value(*each) for each in arguments))
        if symbol.name in _SPECIAL:
            return _SPECIAL[symbol.name](self, *arguments)
        raise SpecificationError(f"{symbol.name} is temporal: it has no value in a state", place)

    def _library(self, symbol: BuiltIn, arguments: tuple[Argument, ...], frame: Frame) -> py.expr:
        title = self.compiler.embedded_function(symbol.name, library.operation(symbol))
        given = [
            self._library_operator(*each, arity) if arity else self.value(*each)
            for each, arity in zip(arguments, library.parameters(symbol), strict=True)
        ]
        return call(title, *given)

    def _library_operator(self, node: ast.Expression, frame: Frame, arity: int) -> py.expr:
        """An operator as the library takes it: a function of values."""
        variables = [self.variable("argument") for _ in range(arity)]
        made = self.operator(node, arity, frame)
        return function(variables, call(made, name(frame.now), name(frame.then), *map(name, variables)))

    # -- logic and states ---------------------------------------------------------------------------------------------

    def _and(self, one: Argument, other: Argument) -> py.expr:
        if self._is_patient and one[1] == other[1]:
            return self.all_of([*_conjuncts(one[0], one[1].scope), *_conjuncts(other[0], other[1].scope)], one[1])
        parts = [self.truth(*one, "the left side of /\\"), self.truth(*other, "the right side of /\\")]
        return python.every([*self.tested_first([one, other]), *parts])

    def _or(self, one: Argument, other: Argument) -> py.expr:
        return python.either([self.truth(*one, "the left side of \\/"), self.truth(*other, "the right side of \\/")])

    def _implies(self, one: Argument, other: Argument) -> py.expr:
        left = self.truth(*one, "the left side of =>")
        return python.either([python.negated(left), self.truth(*other, "the right side of =>")])

    def _equivalent(self, one: Argument, other: Argument) -> py.expr:
        return python.same(self.truth(*one, "the left side of <=>"), self.truth(*other, "the right side of <=>"))

    def _not(self, one: Argument) -> py.expr:
        return python.negated(self.truth(*one, "what ~ negates"))

    def enabled(self, one: Argument) -> py.expr:
        raise SpecificationError("ENABLED needs a compiler of actions", one[0].place)

    def composed(self, one: Argument, other: Argument) -> py.expr:
        raise SpecificationError("\\cdot needs a compiler of actions", one[0].place)

    def variables_of_function(self) -> set[str]:
        """The Python variables that were made so far."""
        return self._variables

    def _union(self, one: Argument) -> py.expr:
        """``UNION {S}`` is S, which may be infinite: no set of it is made."""
        node, frame = unlabelled(one[0]), one[1]
        if isinstance(node, ast.SetOf) and len(node.items) == 1:
            return call("only", self.value(node.items[0], frame))
        return call("big_union", self.value(node, frame))

    def _prime(self, one: Argument) -> py.expr:
        node, frame = one
        return self.value(node, frame.primed())

    def unchanged(self, one: Argument) -> py.expr:
        """Whether an expression has the same value in both states."""
        node, frame = one
        return self.at(call("same", self.value(node, frame), self.value(node, frame.primed())), node.place)

    def square(self, node: ast.Square, frame: Frame) -> py.expr:
        """``[A]_v``, as a test."""
        action = self.truth(node.action, frame, "the action")
        return python.either([action, self.unchanged((node.subscript, frame))])

    def _angle(self, node: ast.Angle, frame: Frame) -> py.expr:
        action = self.truth(node.action, frame, "the action")
        return python.every([action, python.negated(self.unchanged((node.subscript, frame)))])

    def _temporal(self, node: ast.Fairness, frame: Frame) -> py.expr:
        raise SpecificationError(f"{node.kind}_ is temporal: it has no value in a state", node.place)


def is_nested(node: ast.Node) -> bool:
    """Whether a condition is too long to be written twice."""
    return isinstance(node, ast.Quantified | ast.Filter | ast.Choose | ast.Let | ast.Collect) or any(
        map(is_nested, ast.parts_of(node))
    )


def _is_by_conjunctions(node: ast.Expression, scope: Scope) -> bool:
    """Whether conjunctions decide what a function gives, and it is short enough to be written twice."""
    node = unlabelled(node)
    if not isinstance(node, ast.If) or is_nested(node):
        return False
    return len(_conjuncts(node.condition, scope)) > 1 or any(
        _is_by_conjunctions(each, scope) for each in (node.then, node.otherwise)
    )


def _conjuncts(node: ast.Expression, scope: Scope) -> list[ast.Expression]:
    """What ``/\\`` joins, as a list or between two."""
    node = unlabelled(node)
    if isinstance(node, ast.Junction) and node.operator == "/\\":
        parts: Iterable[ast.Expression] = node.items
    elif isinstance(node, ast.Apply) and _is_and(called(node, scope).symbol):
        parts = [each for each, _ in called(node, scope).arguments]
    else:
        return [node]
    return [conjunct for each in parts for conjunct in _conjuncts(each, scope)]


def _is_and(symbol: object) -> bool:
    return isinstance(symbol, BuiltIn) and not symbol.module and symbol.name == "/\\"


def _is_simple(shape: list[py.expr]) -> bool:
    return len(shape) == 1 and isinstance(shape[0], py.Constant) and shape[0].value == 0


def _name_of(symbol: Symbol) -> str:
    return "at" if symbol is AT else symbol.name


_SPECIAL: dict[str, Callable[..., py.expr]] = {
    "/\\": Writer._and,
    "\\/": Writer._or,
    "=>": Writer._implies,
    "<=>": Writer._equivalent,
    "~": Writer._not,
    "'": Writer._prime,
    "UNCHANGED": lambda writer, one: writer.unchanged(one),
    "ENABLED": lambda writer, one: writer.enabled(one),
    "\\cdot": lambda writer, one, other: writer.composed(one, other),
    "UNION": Writer._union,
}

_WRITERS: dict[type, Callable[[Writer, Any, Frame], py.expr]] = {
    ast.Number: Writer._number,
    ast.Decimal: Writer._decimal,
    ast.String: Writer._string,
    Itself: Writer._application,
    ast.Name: Writer._application,
    ast.Qualified: Writer._application,
    ast.Apply: Writer._application,
    ast.Part: Writer._application,
    ast.Junction: Writer._junction,
    ast.If: Writer._if,
    ast.Case: Writer._case,
    ast.Let: Writer._let,
    ast.Quantified: Writer._quantified,
    ast.Unbounded: Writer._unbounded,
    ast.Choose: Writer._choose,
    ast.SetOf: Writer._set_of,
    ast.Filter: Writer._filter,
    ast.Collect: Writer._collect,
    ast.Product: Writer._product,
    ast.Tuple: Writer._tuple,
    ast.Record: Writer._record,
    ast.RecordSet: Writer._record_set,
    ast.FunctionOf: Writer._function_of,
    ast.FunctionSet: Writer._function_set,
    ast.Index: Writer._index,
    ast.Field: Writer._field,
    ast.Except: Writer._except,
    ast.At: Writer._at,
    ast.Square: lambda writer, node, frame: writer.square(node, frame),
    ast.Angle: Writer._angle,
    ast.Fairness: Writer._temporal,
    ast.Label: Writer._label,
}

Compiler.writer = Writer
