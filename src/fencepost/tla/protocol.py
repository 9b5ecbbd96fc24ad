"""A TLA+ specification with its configuration, as what the engine explores.

Each action of ``Next`` is an action of the model, and each variable is laid out by its shape. Compiled formulas read
and write states only through :class:`Reader` and :class:`Writer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, cast

from fencepost.behaviours.evidence import StateReader
from fencepost.errors import Explained
from fencepost.language.context import Branching, Cursor, Disabled, GrowingCursor
from fencepost.language.declarations import POSTCONDITION, Declared, Fairness
from fencepost.language.loading import missing_is_an_error
from fencepost.language.protocol import cursor_of
from fencepost.language.seam import Model
from fencepost.language.temporal import Formula as TemporalFormula
from fencepost.language.values import ModelValue
from fencepost.semantics import State
from fencepost.tla import ast, questions, roots, splitting
from fencepost.tla.actions import Action, ActionCompiler
from fencepost.tla.ast import Place
from fencepost.tla.configured import Formula, Setup, configuration_of, initial_names, initial_predicates, setup
from fencepost.tla.describe import described_specification
from fencepost.tla.errors import SpecificationError, excerpt_of
from fencepost.tla.held import Held
from fencepost.tla.modules import load
from fencepost.tla.places import Blank, Reader, Variable, Writer, numbered, whole
from fencepost.tla.reading import gives
from fencepost.tla.runtime import PlacedError
from fencepost.tla.starts import Combinations, Start, Starts, combinations
from fencepost.tla.stored import Candidates
from fencepost.tla.suppositions import attempt, reads
from fencepost.tla.symbols import LEVEL, Scope
from fencepost.tla.temporal import properties
from fencepost.tla.values import EvaluationError, Value, described


def find(path: str, libraries: Sequence[str] = ()) -> SpecificationFile:
    """The specification in a file. Raises :class:`fencepost.tla.errors.SpecificationError` if it is not TLA+."""
    return SpecificationFile(path, libraries)


class SpecificationFile:
    """A specification that a user has named. ``libraries``: more folders with modules."""

    def __init__(self, path: str, libraries: Sequence[str] = ()) -> None:
        self.path = path
        self.libraries = tuple(libraries)
        with missing_is_an_error(path):
            self.specification = load(path, libraries)

    @property
    def name(self) -> str:
        return self.specification.root.name

    def description(self, width: int) -> str:
        """The declarations of the specification, with the comments above them."""
        return described_specification(self.specification, width)

    def configured(self, configuration: str | None = None, /, **constants: str) -> TlaModel:
        """The model with a configuration: the file of that name, or the one beside the module. ``constants`` replace
        its values.

        Raises :class:`fencepost.OptionError` if there is no such file, and
        :class:`fencepost.tla.errors.SpecificationError` if it does not suit the specification.
        """
        text = configuration_of(self.path, configuration)
        return TlaModel(self, configuration, setup(self.specification, *text, constants), constants)


class TlaModel(Model):
    """A specification with a configuration. ``definitions``: what replaces values of the configuration."""

    __language__: ClassVar[str] = "fencepost.tla.language:TLA"

    def __init__(
        self,
        file: SpecificationFile,
        configuration: str | None,
        setup: Setup,
        definitions: Mapping[str, str],
    ) -> None:
        self.file = file
        self.configuration = configuration
        self.setup = setup
        self.definitions = dict(definitions)
        self.name = file.name  # type: ignore[misc]
        self._shapes = {each.name: whole(each.name) for each in setup.specification.variables}
        self._constants = {each.name: Held(value) for each, value in setup.constants.items()}
        self._declared = [*_declarations(setup)]
        self.whole = self
        """The model with each variable in one slot."""
        self.coarse: frozenset[str] = frozenset()
        """The variables in which sets and maps are not taken apart. "" stands for all."""
        self.fairness = [*_fairness(setup, self._declared)]  # type: ignore[misc]

    @property
    def constants(self) -> Mapping[str, Held]:
        return self._constants

    @property
    def shapes(self) -> Mapping[str, Variable]:
        return self._shapes

    def declared(self, kind: str, /) -> list[Declared]:
        return [each for each in self._declared if each.kind == kind]

    @cached_property
    def alias(self) -> Callable[[State, State, int], Value] | None:
        """What ``ALIAS`` makes of a state, the one after it, and its number in the behaviour, from 1."""
        if not self.setup.alias:
            return None
        (formula,) = self.setup.alias
        made = self.setup.compiler.expression(formula.node, formula.scope)

        def shown(state: State, after: State, number: int) -> Value:
            with questions.answering(questions.constant(self.setup.config)):
                return made(
                    *(
                        questions.Numbered(self.bound_to(StateReader(each)).reader, level)
                        for each, level in ((state, number), (after, number + 1))
                    )
                )

        return shown

    def with_declarations(self, more: Sequence[TlaDeclared], instead: str = "") -> TlaModel:
        """The model with more declarations, in place of those of the kind ``instead``."""
        made = copy(self)
        made._declared = [*(each for each in self._declared if each.kind != instead), *more]
        made.whole = made if self.whole is self else self.whole.with_declarations(more, instead)
        return made

    def coarser(self, variable: str) -> TlaModel:
        """The model with each variable in one slot. ``variable`` ("": all) has outgrown another layout."""
        made = copy(self.whole)
        made.whole = made
        made.coarse = self.coarse | {variable}
        return made

    def laid_out(self, variables: Mapping[str, Variable]) -> TlaModel:
        """The model with another layout of its variables, and its invariants in parts that suit it."""
        made = copy(self)
        made.whole = self.whole
        made._shapes = dict(variables)
        example = Reader(numbered(variables), Blank())
        made._declared = [each.laid_out(self.setup.compiler, example) for each in made._declared]
        return made

    @property
    def every_declaration(self) -> Sequence[TlaDeclared]:
        """All actions and properties."""
        return self._declared

    def bound_to(self, cursor: Cursor) -> Bound:
        return Bound(self, cast("GrowingCursor", cursor))


class Bound:
    """A model bound to one state."""

    def __init__(self, model: TlaModel, cursor: GrowingCursor) -> None:
        self._cursor = cursor  # where every language has it
        self.shapes = numbered(model.shapes)
        self.has_level = model.setup.asks_level

    @property
    def reader(self) -> Reader:
        """The state, for compiled formulas."""
        return Reader(self.shapes, self._cursor)

    def writer(self, prime: str) -> Writer:
        """The state that an action gives values to."""
        return Writer(self.shapes, self._cursor, prime)


# -- declarations ------------------------------------------------------------------------------------------------------


class TlaDeclared(Declared):
    """An action or a property of a specification. ``at`` is where it is defined, and ``comment`` stands above it."""

    def __init__(self, kind: str, name: str, function: Callable[..., Any], at: Place | None, comment: str = "") -> None:
        super().__init__(kind, function, name=name)
        self.at = at
        self.comment = comment

    @property
    def doc(self) -> str:
        return self.comment

    @property
    def place(self) -> str:
        return "" if self.at is None else f"{Path(self.at.file).name}:{self.at.line}"

    @property
    def source(self) -> tuple[str, int] | None:
        return None if self.at is None else (self.at.file, self.at.line)

    @property
    def excerpt(self) -> tuple[str, ...]:
        return () if self.at is None else tuple(excerpt_of(self.at).splitlines())

    def laid_out(self, compiler: ActionCompiler, example: Reader) -> TlaDeclared:
        """The same for another layout. ``example`` is a state that has it."""
        return self

    def check_call(self, states: int) -> None:
        return None

    def parameters(self, protocol: Any) -> list[dict[str, Any]]:
        return [{}]


class TlaAction(TlaDeclared):
    """Actions with one name and one place, by their arguments. ``names``: those of the parameters in its source."""

    def __init__(
        self, name: str, names: tuple[str, ...], of: Mapping[tuple[Held, ...], roots.Root], comment: str
    ) -> None:
        super().__init__("action", name, self._run, next(iter(of.values())).place, comment)
        self.of = of
        self.names = names
        self.by = None if all(type(each.value) is ModelValue for arguments in of for each in arguments[:1]) else ""

    def parameters(self, protocol: Any) -> list[dict[str, Any]]:
        return [{str(n): each for n, each in enumerate(arguments, 1)} for arguments in self.of]

    def shown(self, parameters: Mapping[str, Any]) -> str:
        return ", ".join(each.shown() for each in parameters.values())

    def refuses(self, bound: Bound, parameters: Mapping[str, Held], compiler: ActionCompiler) -> Place | None:
        """The first conjunct that is false in a state, whatever the next one is. None if there is none."""
        root = self.of[tuple(parameters.values())]
        for node, scope in roots.conjuncts(root.node, root.scope):
            facts = compiler.analysis.of(node, scope)
            if not facts.reads_next and not facts.primed and facts.used <= {*root.names}:
                with suppress(EvaluationError, SpecificationError):
                    if compiler.expression(node, scope, root.names)(bound.reader, None, *root.values) is False:
                        return node.place
        return None

    def _run(self, bound: Bound, **parameters: Held) -> None:
        root = self.of[tuple(parameters.values())]
        with explained(f"while evaluating {self.title(parameters)}"):
            then = bound.writer("'")
            if root.action.asks_next_level:
                _count_level(bound, then)
            if not attempt(lambda: root(bound.reader, then, chooser(cursor_of(bound)))):
                raise Disabled
            if bound.has_level and not root.action.asks_next_level:
                _count_level(bound, then)
            _finish(then, root.action.variables, [(root.node, root.scope)], "'")


def _count_level(bound: Bound, then: Writer) -> None:
    then.assign(LEVEL.index, bound.reader[LEVEL.index] + 1)


class Conjuncts(TlaDeclared):
    """Conjuncts that are judged of a state. ``whose``: what they belong to, in errors."""

    def __init__(self, kind: str, name: str, of: Sequence[Formula], whose: str, compiler: ActionCompiler) -> None:
        super().__init__(kind, name, self._hold, of[0].at, of[0].comment)
        self.whose = whose
        self._of = of
        self._rules = [compiler.expression(each.node, each.scope) for each in of]

    def _hold(self, bound: Bound) -> bool:
        with explained(f"while evaluating {self.whose}"):
            return all(truth(rule(bound.reader, None), each) for rule, each in zip(self._rules, self._of, strict=True))

    def laid_out(self, compiler: ActionCompiler, example: Reader) -> TlaDeclared:
        return InParts(self, splitting.parts([(each.node, each.scope) for each in self._of], compiler, example))


class InParts(TlaDeclared):
    """Conjuncts in parts, which are judged one by one."""

    def __init__(self, of: Conjuncts, rules: Sequence[splitting.Rule]) -> None:
        super().__init__(of.kind, of.name, self._holds, of.at, of.comment)
        self._whose = of.whose
        self._rules = rules

    def parameters(self, protocol: Any) -> list[dict[str, Any]]:
        return [{"part": number} for number in range(len(self._rules))]

    def title(self, parameters: Mapping[str, Any]) -> str:
        return self.name

    def _holds(self, bound: Bound, part: int) -> bool:
        with explained(f"while evaluating {self._whose}"):
            return self._rules[part](bound.reader, None)


def _declarations(setup: Setup) -> list[TlaDeclared]:
    compiler = setup.compiler
    found = _initial(setup)
    found += _actions(setup)
    found += [_judged(compiler, "invariant", each) for each in setup.invariants]
    found += [_judged(compiler, "constraint", each) for each in setup.constraints]
    found += [_step(compiler, each) for each in setup.action_constraints]
    found += [part for each in setup.properties for part in _property(setup, each)]
    found += [_view(compiler, each) for each in setup.view]
    found += [_assumption(setup, each) for each in setup.assumptions]
    found += [_postcondition(setup, each) for each in setup.postconditions]
    return found


def _initial(setup: Setup) -> list[TlaDeclared]:
    predicates = initial_predicates(setup)
    if not predicates:
        return [TlaDeclared("initial", "nothing", _no_state, None)]
    name = name_of_formula(predicates[0][0], "Init")
    names = initial_names(setup)
    *first, last = [setup.compiler.initial(node, scope, name, names) for node, scope in predicates]

    def function(bound: Bound) -> None:
        with explained("while evaluating the initial states"):
            now, choose = bound.writer(""), chooser(cursor_of(bound))
            if bound.has_level:
                now.assign(LEVEL.index, 0)
            if not (all(each.partly(now, None, choose) for each in first) and last(now, None, choose)):
                raise Disabled
            if bound.has_level:
                now.assign(LEVEL.index, 1)
            _finish(now, setup.compiler.variables, predicates, "")

    made = TlaDeclared("initial", name, function, predicates[0][0].place, setup.comment(name))
    if setup.asks_level:
        return [made]
    made.starts = _starts(setup, predicates, name, last)
    if names:
        return [made]
    combined = combinations(setup.compiler, predicates, len(setup.specification.variables))
    if combined is None:
        return [made]
    made.factors = _factors(combined)
    conditions = [Formula(name, *each, each[0].place) for each in combined.conditions]
    return [made, *([Conjuncts("start", name, conditions, "the initial states", setup.compiler)] if conditions else [])]


def _factors(combined: Combinations) -> Callable[[Bound], Iterator[list[Branching]]]:
    """Writes the values of each variable."""

    def factors(bound: Bound) -> Iterator[list[Branching]]:
        with explained("while evaluating the initial states"):
            for group in combined.groups(bound.shapes, cast("Branching", cursor_of(bound))):
                yield [start.written() for start in group]

    return factors


def _starts(
    setup: Setup, predicates: Sequence[tuple[ast.Expression, Scope]], name: str, whole: Action
) -> Callable[[Bound], Iterator[Branching]]:
    """Goes through all initial states."""
    compiled = cache(lambda: Starts(setup.compiler, predicates, name, whole))

    def starts(bound: Bound) -> Iterator[Branching]:
        cursor = cast("Branching", cursor_of(bound))
        with explained("while evaluating the initial states"):
            for found in compiled().after(Start(bound.shapes, cursor)):
                _finish(found, setup.compiler.variables, predicates, "")
                yield found.written()

    return starts


def _finish(writer: Writer, names: Sequence[str], formulas: Sequence[tuple[ast.Expression, Scope]], prime: str) -> None:
    """Give the state its values. Raises :class:`PlacedError` for one that no state can have, as one that is infinite,
    at the place that gives it to its variable.
    """
    try:
        writer.finish()
    except EvaluationError:
        for number, name in enumerate(names):
            try:
                Held(writer[number])
            except EvaluationError as error:
                given = [place for each in formulas if (place := gives(*each, number)) is not None]
                raise PlacedError(f"{name}{prime}: {error}", given[0] if given else formulas[0][0].place) from None
        raise


def name_of_formula(node: ast.Expression, otherwise: str) -> str:
    """The name of the definition that a formula names."""
    return node.text if isinstance(node, ast.Name | ast.Qualified) else otherwise


def _no_state(bound: Bound) -> None:
    raise Disabled


def _actions(setup: Setup) -> list[TlaDeclared]:
    step = setup.behaviour.next
    if step is None:
        return []
    named: dict[str, dict[Place, list[roots.Root]]] = {}
    name = name_of_formula(step.node, "Next")
    for root in roots.actions(step.node, step.scope, name, setup.compiler, step.names):
        named.setdefault(root.name, {}).setdefault(root.place, []).append(root)
    found: list[TlaDeclared] = []
    for name, places in named.items():
        comment = setup.comment(name)
        for place, several in places.items():
            found += _distinct(name if len(places) == 1 else f"{name}:{place.line}:{place.column}", several, comment)
    return found


def _distinct(name: str, of: list[roots.Root], comment: str) -> list[TlaDeclared]:
    """The action of some formula, with a binding for each of its arguments. If these do not tell all of them apart,
    they are the values of all names around the formula. The same action twice has two names.
    """
    names, by_arguments = of[0].parameters, [tuple(map(Held, each.arguments)) for each in of]
    if len(set(by_arguments)) < len(of):
        names, by_arguments = tuple(each.name for each in of[0].names), [tuple(map(Held, each.values)) for each in of]
    rounds: list[dict[tuple[Held, ...], roots.Root]] = []
    for arguments, root in zip(by_arguments, of, strict=True):
        free = next((each for each in rounds if arguments not in each), None)
        if free is None:
            rounds.append(free := {})
        free[arguments] = root
    titles = [name, *(f"{name}#{number}" for number in range(2, len(rounds) + 1))]
    return [TlaAction(title, names, each, comment) for title, each in zip(titles, rounds, strict=True)]


def _property(setup: Setup, formula: Formula) -> Iterator[TlaDeclared]:
    """The parts of a property. All but the first have their place in their name, and those of one place a number."""
    seen: Counter[str] = Counter()
    parts = properties(formula.name, formula.node, formula.scope, setup.compiler, setup.behaviour.assumed)
    for number, each in enumerate(parts):
        name = formula.name if not number else f"{formula.name}:{each.place.line}:{each.place.column}"
        seen[name] += 1
        name += f"#{seen[name]}" if seen[name] > 1 else ""
        if each.formula is not None:
            yield TlaDeclared(each.kind, name, partial(_formula_of, each.formula), each.place, formula.comment)
        else:
            assert each.function is not None
            yield TlaDeclared(each.kind, name, each.function, each.place, formula.comment)


def _formula_of(formula: TemporalFormula, model: TlaModel) -> TemporalFormula:
    return formula


def _fairness(setup: Setup, actions: Iterable[Declared]) -> Iterator[Fairness]:
    """The fairness of a specification: of actions of ``Next`` where it comes to that, since these are judged faster."""
    keys = {
        (action.name, arguments): root.key
        for action in actions
        if isinstance(action, TlaAction)
        for arguments, root in action.of.items()
    }
    for fair in setup.behaviour.fairness:
        of = fair.actions
        if of is not None and of <= {*keys.values()}:
            selects = partial(_is_one_of, frozenset(named for named, key in keys.items() if key in of))
            yield replace(fair.steps, step=None, enabled=None, selects=selects)
        else:
            yield fair.steps


def _is_one_of(actions: frozenset[tuple[str, tuple[Held, ...]]], name: str, parameters: Mapping[str, Held]) -> bool:
    return (name, tuple(parameters.values())) in actions


def _judged(compiler: ActionCompiler, kind: str, formula: Formula) -> TlaDeclared:
    return Conjuncts(kind, formula.name, [formula], f"{kind} {formula.name}", compiler)


def _step(compiler: ActionCompiler, formula: Formula) -> TlaDeclared:
    holds = compiler.expression(formula.node, formula.scope)

    def function(before: Bound, after: Bound) -> bool:
        with explained(f"while evaluating action constraint {formula.name}"):
            return truth(holds(before.reader, after.reader), formula)

    return TlaDeclared("step_constraint", formula.name, function, formula.at, formula.comment)


def _view(compiler: ActionCompiler, formula: Formula) -> TlaDeclared:
    seen = compiler.expression(formula.node, formula.scope)

    def function(bound: Bound) -> Held:
        with explained(f"while evaluating view {formula.name}"):
            return Held(seen(bound.reader, None))

    return TlaDeclared("view", formula.name, function, formula.at, formula.comment)


def _assumption(setup: Setup, formula: Formula) -> TlaDeclared:
    holds = setup.compiler.expression(formula.node, formula.scope)

    def function(model: TlaModel) -> bool:
        with (
            explained(f"while evaluating assumption {formula.name}"),
            questions.answering(questions.constant(setup.config)),
        ):
            return truth(holds(questions.NO_STATE, None), formula)

    return TlaDeclared("assumption", formula.name, function, formula.at, formula.comment)


def _postcondition(setup: Setup, formula: Formula) -> TlaDeclared:
    holds = setup.compiler.expression(formula.node, formula.scope)

    def function(model: TlaModel, found: Any) -> bool:
        with (
            explained(f"while evaluating postcondition {formula.name}"),
            questions.answering(questions.counted(setup.config, found)),
        ):
            return truth(holds(questions.NO_STATE, None), formula)

    return TlaDeclared(POSTCONDITION, formula.name, function, formula.at, formula.comment)


def truth(value: Value, formula: Formula) -> bool:
    """The value of a formula. Raises :class:`EvaluationError` if it is neither TRUE nor FALSE."""
    if value is True or value is False:
        return value
    raise EvaluationError(f"{formula.at}: {formula.name} is {described(value)}, which is neither TRUE nor FALSE")


@contextmanager
def explained(where: str) -> Any:
    """Turn an error of an evaluation into one that the engine shows as it is."""
    try:
        yield
    except EvaluationError as error:
        raise Explained(f"{error}\n  {where}") from error


# -- choices -----------------------------------------------------------------------------------------------------------


LONGEST_CHAIN = 100
"""The most choices between what appeared late and what appeared later. Engines go through them by recursion."""


def chooser(cursor: Cursor) -> Callable[[Sequence[Any]], Any]:
    """What compiled actions choose with. A tuple of numbers is the disjuncts of an action, a list the members of a
    set.
    """
    every_choice = getattr(cursor, "every_choice", False)

    def choose(options: Sequence[Any]) -> Any:
        if isinstance(options, Candidates):
            return of_candidates(options)
        if len(options) == 1 and not every_choice:
            return options[0]
        reads()
        return options[cursor.choose(Options(options)).number]

    def of_candidates(options: Candidates) -> Any:
        # A member that appears later may be what is read next, so what is supposed is asked on both sides of it.
        reads()
        if options.settled:
            chosen = cursor.choose(Options(options.settled, others=True))
            if chosen.number < len(options.settled):
                return options.take(options.settled[chosen.number])
        for number in range(1, LONGEST_CHAIN + 1):
            late = options.late(number)
            if late is None:
                raise Disabled
            if not cursor.choose(Options([late], others=True)).number:
                return options.take(late)
        present = options.present(LONGEST_CHAIN)
        if not present:
            raise Disabled
        return present[cursor.choose(Options(present)).number]

    return choose


class Chosen(Held):
    """A member of a set that an action chose: the option with this number."""

    def __init__(self, option: Value, number: int) -> None:
        super().__init__(option)
        self.number = number


class Way(Chosen):
    """A disjunct that an action chose. It is not shown, since the changes say enough."""

    def shown(self) -> str:
        return ""


class Options(Sequence[Chosen]):
    """The options of a choice. Each is worked out when it is taken. ``others``: with a way to more of them."""

    def __init__(self, options: Sequence[Any], others: bool = False) -> None:
        self._options = options
        self._others = others
        self._kind = Way if isinstance(options, tuple) else Chosen

    def __len__(self) -> int:
        return len(self._options) + self._others

    def __getitem__(self, number: Any) -> Any:
        if self._others and number == len(self._options):
            return _others(number)
        return self._kind(self._options[number], number)


@cache
def _others(number: int) -> Way:
    return Way(number, number)
