"""What a configuration says about a specification: the values of constants, and the formulas that its sections name."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fencepost.errors import OptionError
from fencepost.files import regular
from fencepost.language.values import ModelValue
from fencepost.text.plain import meant
from fencepost.tla import ast, config, order, questions, syntax
from fencepost.tla.actions import ActionCompiler
from fencepost.tla.checks import hint
from fencepost.tla.config import Assigned, Config, Entry
from fencepost.tla.errors import ConfigurationError, SpecificationError
from fencepost.tla.facts import parameters_of
from fencepost.tla.held import Held
from fencepost.tla.interning import strings_of
from fencepost.tla.levels import ACTION, CONSTANT, NAMES, STATE, TEMPORAL
from fencepost.tla.modules import Replacements, Specification
from fencepost.tla.reading import Place, level, read_outside, reads_outside, refuse_unsupported, selected
from fencepost.tla.symbols import LEVEL, Constant, Defined, Local, Scope, Substituted
from fencepost.tla.temporal import Behaviour, Piece, behaviour
from fencepost.tla.values import EvaluationError, FunctionValue, Set, Value, members

COMMAND_LINE = "-D"
"""Where the text of a definition on the command line stands, in errors."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula that has a name. ``at``: where it is defined. ``comment``: the text above its definition."""

    name: str
    node: ast.Expression
    scope: Scope
    at: ast.Place
    comment: str = ""


@dataclass(frozen=True)
class Setup:
    """A specification with its constants, and the formulas of its configuration."""

    specification: Specification
    text: bytes
    config: Config
    constants: Mapping[Constant, Value]
    compiler: ActionCompiler
    behaviour: Behaviour
    invariants: tuple[Formula, ...]
    constraints: tuple[Formula, ...]
    action_constraints: tuple[Formula, ...]
    view: tuple[Formula, ...]
    assumptions: tuple[Formula, ...]
    alias: tuple[Formula, ...] = ()
    postconditions: tuple[Formula, ...] = ()
    properties: tuple[Formula, ...] = ()
    hidden: frozenset[str] = frozenset()
    """The variables that a view leaves out, if it only selects some. Then it is no ``view``. :data:`LEVEL` is one of
    them unless the view selects it.
    """
    asks_level: bool = False
    """Whether steps or properties ask for the level of a state, which is then kept in it."""
    outside: bytes = b""
    """A digest of what definitions read of files and of the environment. Empty if none does."""

    def comment(self, name: str) -> str:
        """The text above a definition."""
        found = self.specification.definitions.get(name)
        return "" if found is None else found.comment

    @cached_property
    def symmetric(self) -> Mapping[str, tuple[ModelValue, ...]]:
        """The sets of model values that ``SYMMETRY`` exchanges, each with the name of a constant that is this set, if
        there is one.

        Raises :class:`ConfigurationError` unless it has all permutations of some sets that have no common member.
        """
        if self.config.symmetry is None:
            return {}
        formula = _formula(self.specification, self.config.symmetry, "the symmetry")
        sets = _permuted_sets(self.compiler.expression(formula.node, formula.scope)(), self.config.symmetry)
        names = {_as_set(value): each.name for each, value in self.constants.items()}
        return {names.get(frozenset(each), f"{formula.name} {n}"): each for n, each in enumerate(sets, 1)}


def configuration_of(path: str, name: str | None) -> tuple[str, bytes]:
    """The name and the text of the file ``name``, or of the one beside a module. Raises :class:`fencepost.OptionError`
    if it cannot be read.
    """
    file = name if name is not None else str(Path(path).with_suffix(".cfg"))
    try:
        return file, regular.content(file)
    except FileNotFoundError:
        hint = f"there is no file {file}" if name else f"{path} has no configuration: write {file}, or name one with"
        raise OptionError(f"{hint} {{config}}" if not name else hint, "config") from None
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror or error}") from None


def setup(specification: Specification, file: str, text: bytes, definitions: Mapping[str, str]) -> Setup:
    """What a configuration says about a specification. ``definitions`` has the text of values that replace its own.

    Raises :class:`SpecificationError` if it does not suit the specification, or has what is not supported.
    """
    given = config.read(text, file)
    _refuse(given)
    _refuse_unknown(specification, definitions)
    configured = [value for each in given.constants for value in (each.arguments, each.value)]
    order.use(strings_of(specification, configured))
    assigned, expressions = _assigned(specification, given, definitions)
    replaced = [each for each in given.replacements if each.module or each.name not in definitions]
    specification = specification.with_replacements(
        Replacements(
            {each.name: each.by.name for each in replaced if not each.module},
            frozenset({each.name for each in assigned if not each.module} | set(expressions)),
            _by_module((each.module, each.name, each.by.name) for each in replaced if each.module),
            {
                module: frozenset(names)
                for module, names in _by_module((e.module, e.name, "") for e in assigned if e.module).items()
            },
            {each.name: each.place for each in replaced} | {each.name: each.place for each in assigned},
        )
    )
    variables = [each.name for each in specification.variables]
    constants = _values(specification, assigned)
    constants |= _evaluated(specification, expressions, ActionCompiler(constants, variables))
    _refuse_missing(specification, constants, given)
    refuse_unsupported([*_named(specification, given), *_assumed(specification)])
    asks_level = bool(_questions(specification, given))
    hidden = {LEVEL.name} if asks_level else set()
    view = _formulas(specification, () if given.view is None else (given.view,), "the view", STATE)
    seen = selected(view[0].node, view[0].scope) if view else None
    compiler = ActionCompiler(constants, variables)
    return Setup(
        specification,
        text,
        given,
        constants,
        compiler,
        _behaviour(specification, given, compiler),
        _formulas(specification, given.invariants, "the invariant", STATE),
        _formulas(specification, given.constraints, "the constraint", STATE),
        _formulas(specification, given.action_constraints, "the action constraint", ACTION),
        view if seen is None else (),
        tuple(
            Formula(
                each.name or f"{Path(place.file).name}:{place.line}:{place.column}", each.expression, each.scope, place
            )
            for each in specification.assumptions
            for place in [each.expression.place]
        ),
        _formulas(specification, () if given.alias is None else (given.alias,), "the alias"),
        _formulas(specification, given.postconditions, "the postcondition", CONSTANT),
        _formulas(specification, given.properties, "the property"),
        frozenset(hidden if seen is None else {*hidden, *variables} - seen),
        asks_level,
        _read_outside([*_named(specification, given), *_assumed(specification)], compiler),
    )


def _refuse(given: Config) -> None:
    """Raise for sections that are not supported."""
    for entries, section in (
        (given.possible, "_POSSIBLE"),
        (() if given.periodic is None else (given.periodic,), "_PERIODIC"),
        (() if given.reward is None else (given.reward,), "_RL_REWARD"),
    ):
        if entries:
            raise ConfigurationError(f"{section} is not supported", entries[0].place)


def _refuse_unknown(specification: Specification, definitions: Mapping[str, str]) -> None:
    for name in definitions:
        if name not in specification.loaded.names:
            known = [each.name for each in specification.constants]
            raise OptionError(f"{specification.root.name} has no constant {name}: {meant(name, known, 'there are')}")


def _by_module(triples: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for module, name, by in triples:
        found.setdefault(module, {})[name] = by
    return found


# -- constants ---------------------------------------------------------------------------------------------------------


def _assigned(
    specification: Specification, given: Config, definitions: Mapping[str, str]
) -> tuple[list[Assigned], dict[str, ast.Expression]]:
    """The values of the configuration and of the command line, and the expressions of the command line. As in TLC, a
    name that no module declares is left out.
    """
    known = specification.loaded.names
    assigned = [
        each for each in given.constants if each.module or (each.name in known and each.name not in definitions)
    ]
    expressions: dict[str, ast.Expression] = {}
    for name, text in definitions.items():
        value = _as_configuration(name, text)
        if value is None:
            expressions[name] = _parsed(name, text)
        else:
            assigned.append(value)
    return assigned, expressions


def unused(specification: Specification, given: Config) -> list[str]:
    """What to say of values for names that no module declares, but for ``v1 = v1``, which only names a model value."""
    known = specification.loaded.names
    return [
        f"{each.place}: {specification.root.name} declares no {each.name}, so its value is not used"
        f"{hint(each.name, known)}"
        for each in given.constants
        if not each.module and each.name not in known
        if not (isinstance(each.value, ModelValue) and each.value.name == each.name)
    ]


def _as_configuration(name: str, text: str) -> Assigned | None:
    """The value of a definition, if it is one that a configuration can have."""
    try:
        return config.read(f"CONSTANT {name} = {text}".encode(), COMMAND_LINE).constants[0]
    except (SpecificationError, IndexError):
        return None


def _parsed(name: str, text: str) -> ast.Expression:
    try:
        (module,) = syntax.parse(f"---- MODULE given ----\ngiven ==\n  {text}\n====".encode(), COMMAND_LINE)
        (unit,) = module.units
        assert isinstance(unit, ast.Operator)
        return unit.body
    except (SpecificationError, ValueError, AssertionError):
        as_set = f"{{{text}}}"
        hint = f": write {as_set}" if "," in text and _as_configuration(name, as_set) is not None else ""
        raise OptionError(f"-D {name}={text}: this is no expression of TLA+{hint}") from None


def expression_of(text: str, setup: Setup) -> Callable[[Any, Any], Value]:
    """A user's expression over a state, as a function of what reads the states before and after. Raises
    :class:`fencepost.OptionError` if it cannot be read.
    """
    try:
        (module,) = syntax.parse(f"---- MODULE given ----\ngiven == {text}\n====".encode(), COMMAND_LINE)
        (unit,) = module.units
        assert isinstance(unit, ast.Operator)
        _refuse_unknown_names(unit.body, setup.specification)
        return setup.compiler.expression(unit.body, setup.specification.scope)
    except (SpecificationError, ValueError, AssertionError) as error:
        raise OptionError(f"it cannot be read as TLA+: {str(error).splitlines()[0]}") from None


def _refuse_unknown_names(node: ast.Node, specification: Specification) -> None:
    """Raises :class:`SpecificationError` for a name that neither the specification nor the expression defines."""
    every, waiting = list[ast.Node](), [node]
    while waiting:
        every.append(waiting.pop())
        waiting += ast.parts_of(every[-1])
    own = {each.name for each in every if isinstance(each, ast.Parameter | ast.Operator | ast.Function)}
    for each in every:
        if isinstance(each, ast.Name) and each.text.isidentifier() and each.text not in own | _WORDS:
            specification.named(each.text, "the name")


_WORDS = {"TRUE", "FALSE", "BOOLEAN", "STRING", "DOMAIN", "SUBSET", "UNION", "ENABLED", "UNCHANGED"}


def _values(specification: Specification, assigned: Iterable[Assigned]) -> dict[Constant, Value]:
    given = {each.name: each for each in assigned}
    return {each: _value(given[each.name].value) for each in specification.constants if each.name in given}


def _value(value: config.Value) -> Value:
    return Set(map(_value, value)) if isinstance(value, tuple) else value


def _evaluated(
    specification: Specification, expressions: Mapping[str, ast.Expression], compiler: ActionCompiler
) -> dict[Constant, Value]:
    symbols = {each.name: each for each in specification.constants}
    found: dict[Constant, Value] = {}
    for name, node in expressions.items():
        try:
            found[symbols[name]] = compiler.expression(node, specification.scope)()
        except EvaluationError as error:
            raise OptionError(f"-D {name}: {error}") from None
    return found


def _refuse_missing(specification: Specification, constants: Mapping[Constant, Value], given: Config) -> None:
    for each in specification.constants:
        if each not in constants:
            raise ConfigurationError(
                f"the constant {each.name} has no value: give it one in {given.file}, as in CONSTANT {each.name} = ...",
                each.place,
            )
        if each.arity:
            raise ConfigurationError(
                f"the operator {each.name} has no definition: give it one in {given.file}, as in"
                f" CONSTANT {each.name} <- MyDefinition",
                each.place,
            )


def _read_outside(roots: Sequence[Place], compiler: ActionCompiler) -> bytes:
    """A digest of all that definitions read of files and of the environment, which this evaluates now. Empty if none
    does.
    """
    if not reads_outside(roots):
        return b""
    whole = hashlib.sha256()
    for node, scope in read_outside(roots):
        try:
            read = Held(compiler.expression(node, scope)()).encoded()
        except EvaluationError as error:  # raised again where the value is needed
            read = str(error).encode()
        whole.update(b"%d " % len(read) + read)
    return whole.digest()


# -- formulas ----------------------------------------------------------------------------------------------------------


def _assumed(specification: Specification) -> list[tuple[ast.Expression, Scope]]:
    return [(each.expression, each.scope) for each in specification.assumptions]


def _named(specification: Specification, given: Config) -> list[tuple[ast.Expression, Scope]]:
    """All expressions that the configuration names."""
    single = (given.specification, given.init, given.next, given.view, given.symmetry, given.alias)
    many = (
        given.invariants,
        given.properties,
        given.constraints,
        given.action_constraints,
        given.postconditions,
    )
    entries = [entry for entry in (*single, *itertools.chain(*many)) if entry is not None]
    return _places(specification, entries)


def _questions(specification: Specification, given: Config) -> set[str]:
    """What steps and properties ask about the run. Raises for a question that has no answer where it is asked."""
    alone = replace(given, alias=None, postconditions=(), properties=())
    places: list[tuple[Iterable[tuple[ast.Expression, Scope]], Iterable[str], str]] = [
        (_assumed(specification), questions.ASSUMED, "an assumption"),
        (_places(specification, given.postconditions), questions.COUNTED, "a postcondition"),
        (_places(specification, () if given.alias is None else (given.alias,)), questions.SHOWN, "the alias"),
    ]
    for roots, answered, where in places:
        questions.questions(roots, tuple(answered), where)
    promised = _places(specification, given.properties)
    return questions.questions(_named(specification, alone), questions.STEPPED, "a step or an invariant") | (
        questions.questions(promised, questions.PROMISED, "a temporal property")
    )


def _places(specification: Specification, entries: Iterable[Entry]) -> list[tuple[ast.Expression, Scope]]:
    return [(each.node, each.scope) for each in (_formula(specification, entry, "the name") for entry in entries)]


def _formulas(
    specification: Specification, entries: Iterable[Entry], what: str, most: int = TEMPORAL
) -> tuple[Formula, ...]:
    """The formulas of a section. ``most`` is the highest level that they may have."""
    found = tuple((each, _formula(specification, each, what)) for each in entries)
    for entry, formula in found:
        own = level(formula.node, formula.scope)
        if own > most:
            raise ConfigurationError(
                f"{what} {entry.name} is {NAMES[own]}, and can be at most {NAMES[most]}", entry.place
            )
    return tuple(formula for _, formula in found)


def _formula(specification: Specification, entry: Entry, what: str) -> Formula:
    symbol = specification.named(entry.name, what, entry.place)
    if isinstance(symbol, Substituted):
        return Formula(entry.name, symbol.value, symbol.scope, symbol.value.place)
    if isinstance(symbol, Constant) and not symbol.arity:
        return Formula(entry.name, ast.Name(entry.name, place=symbol.place), specification.scope, symbol.place)
    if not isinstance(symbol, Defined) or isinstance(symbol.body, ast.Function) or parameters_of(symbol):
        raise ConfigurationError(f"{what} {entry.name} must be a definition without parameters", entry.place)
    return Formula(entry.name, symbol.body, symbol.scope, symbol.place, symbol.comment)


def _behaviour(specification: Specification, given: Config, compiler: ActionCompiler) -> Behaviour:
    """What the configuration names: ``SPECIFICATION``, or ``INIT`` and ``NEXT``. Nothing, if it names none of them.
    Then only assumptions are judged.
    """
    if given.specification is not None:
        whole = _formula(specification, given.specification, "the specification")
        return behaviour(whole.node, whole.scope, compiler)
    if given.init is None and given.next is None and not (given.invariants or given.properties):
        return Behaviour((), None, ())
    if given.init is None or given.next is None:
        raise ConfigurationError(f"{given.file} names no SPECIFICATION, and not both INIT and NEXT")
    init = _formula(specification, given.init, "the initial predicate")
    step = _formula(specification, given.next, "the next-state action")
    return Behaviour((_piece(init),), _piece(step), ())


def _piece(formula: Formula) -> Piece:
    """The formula by its name, so that its actions are those of the definition."""
    return Piece(ast.Name(formula.name, place=formula.at), formula.scope)


def initial_predicates(setup: Setup) -> list[tuple[ast.Expression, Scope]]:
    """The initial predicates, in the order of the text, those of one scope as one. None of them for a specification
    that has only assumptions.
    """
    found: list[tuple[ast.Expression, Scope]] = []
    for scope, pieces in itertools.groupby(setup.behaviour.initial, lambda piece: piece.scope):
        nodes = tuple(piece.node for piece in pieces)
        found.append((nodes[0] if len(nodes) == 1 else ast.Junction("/\\", nodes, place=nodes[0].place), scope))
    return found


def initial_names(setup: Setup) -> dict[Local, Value]:
    """The values of the names around the initial predicates: ``Spec`` may be ``Behaviour(2)`` or ``I(2)!Spec``."""
    found: dict[Local, Value] = {}
    for piece in setup.behaviour.initial:
        if any(found.setdefault(name, value) != value for name, value in piece.names.items()):
            raise SpecificationError(
                "an initial predicate inside a temporal quantifier is not supported: write the quantifier in it",
                piece.node.place,
            )
    return found


# -- symmetry ----------------------------------------------------------------------------------------------------------


def _permuted_sets(value: Value, entry: Entry) -> list[tuple[ModelValue, ...]]:
    wrong = ConfigurationError(
        f"the symmetry {entry.name} is not a union of Permutations of sets of model values without common members",
        entry.place,
    )
    functions = [each.explicit() for each in members(value) if isinstance(each, FunctionValue)]
    domains: dict[frozenset[Value], int] = {}
    for each in functions:
        domain = frozenset(each.domain().members())
        domains[domain] = domains.get(domain, 0) + 1
    sets = [each for each in domains if each]
    if any(type(member) is not ModelValue for each in sets for member in each):
        raise wrong
    if any(domains[each] != math.factorial(len(each)) for each in sets):
        raise wrong
    if any(one & other for one, other in itertools.combinations(sets, 2)):
        raise wrong
    return [tuple(sorted(each, key=lambda member: (member.index, member.name))) for each in sets if len(each) > 1]


def _as_set(value: Value) -> frozenset[Value]:
    return value.items if isinstance(value, Set) else frozenset()
