"""Declarations in the body of a protocol: actions, properties, fairness and configurations."""

from __future__ import annotations

import inspect
import itertools
import linecache
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, overload

from fencepost.errors import Misbehaved, NotAProtocol
from fencepost.language.fields import resolve
from fencepost.language.truths import truth
from fencepost.language.values import MAX_MEMBERS, Value, canonical, finite, freeze, show_parameters

F = TypeVar("F", bound=Callable[..., Any])
When = Callable[[Any], bool] | None
Condition = TypeVar("Condition", bound=Callable[..., bool])
Pair = TypeVar("Pair", bound=Callable[..., tuple[bool, bool]])

MOST_DECORATORS = 20
"""The most lines of decorators above a method's name."""


@dataclass
class Declared:
    """A method of a protocol that Fencepost calls: an action or a property."""

    kind: str
    function: Callable[..., Any]
    domains: Mapping[str, Any] = field(default_factory=dict)
    by: Any = None
    when: When = None
    name: str = ""
    starts: Callable[[Any], Iterator[Any]] | None = None
    """Gives a recorder for each initial state, in the order of the choices. None: the function is run for each."""
    factors: Callable[[Any], Iterator[Sequence[Any]]] | None = None
    """For an initial predicate of very many combinations: gives recorders in groups. An initial state has the writes of
    one recorder of each group, if all declarations of the kind ``start`` are true of it.
    """

    @property
    def doc(self) -> str:
        """The cleaned docstring, or ""."""
        return inspect.getdoc(self.function) or ""

    @property
    def place(self) -> str:
        """Where it stands in its source, for reports: ``Spec.tla:112``. "" if the name says enough."""
        return ""

    @property
    def source(self) -> tuple[str, int] | None:
        """The file and the line that define it. None if that is not known."""
        function = inspect.unwrap(self.function)
        if not inspect.isfunction(function):
            return None
        file, first = function.__code__.co_filename, function.__code__.co_firstlineno
        linecache.checkcache(file)
        # A decorated function begins with its decorators.
        below = ((number, linecache.getline(file, number).lstrip()) for number in range(first, first + MOST_DECORATORS))
        return file, next((number for number, text in below if text.startswith("def ")), first)

    @property
    def excerpt(self) -> tuple[str, ...]:
        """The lines of its source that show it, each with a blank before it. () if the name says enough."""
        return ()

    def title(self, parameters: Mapping[str, Value]) -> str:
        """Its name with its parameters: ``bookie_confirms_add(b=b1)``."""
        return f"{self.name}({self.shown(parameters)})" if parameters else self.name

    def shown(self, parameters: Mapping[str, Value]) -> str:
        """Its parameters as text: ``b=b1, e=2``."""
        return show_parameters(parameters)

    def check_call(self, states: int) -> None:
        """Raises TypeError if its function cannot be called with this number of states and its parameters."""
        inspect.signature(self.function).bind(*[None] * states, **dict.fromkeys(self.domains))

    def parameters(self, protocol: Any) -> list[dict[str, Value]]:
        """Every binding of the parameters to members of their domains, in canonical order. Without parameters: one
        empty binding.
        """
        members = self.members(protocol)
        bindings = math.prod(map(len, members.values()))
        if bindings > MAX_MEMBERS:
            raise NotAProtocol(
                f"{self.kind.replace('_', ' ')} {self.name} has {bindings:,} bindings of its parameters, and at most"
                f" {MAX_MEMBERS:,} are possible: choose the rest with one_of(...)"
            )
        return [dict(zip(members, values, strict=True)) for values in itertools.product(*members.values())]

    def members(self, protocol: Any) -> dict[str, list[Value]]:
        """The members of each parameter's domain, in canonical order."""
        found: dict[str, list[Value]] = {}
        for name, declared in self.domains.items():
            domain = resolve(declared, protocol)
            members = finite(domain, f"the domain of parameter {name} of {self.kind.replace('_', ' ')} {self.name}")
            if isinstance(domain, (set, frozenset)):
                members = canonical(members)
            found[name] = [freeze(v) for v in members]
        return found

    def is_on(self, protocol: Any) -> bool:
        """Whether a check judges it by default: the result of its ``when``. Raises :class:`fencepost.NotAProtocol` if
        ``when`` fails.
        """
        whose = f"{self.kind.replace('_', ' ')} {self.name} has a when that"
        try:
            return self.when is None or truth(self.when(protocol))
        except Misbehaved as error:
            raise NotAProtocol(f"{whose} {error}") from error
        except Exception as error:
            raise NotAProtocol(f"{whose} raised {type(error).__name__}: {error}") from error

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.function.__get__(instance)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def _decorated(kind: str, function: Any, **details: Any) -> Any:
    """A method as a declaration. Without a method: the decorator that makes one."""
    if function is not None:
        return Declared(kind, function)
    return lambda f: Declared(kind, f, **details)


@overload
def action(function: F, /) -> F: ...
@overload
def action(*, by: Any = None, **domains: Any) -> Callable[[F], F]: ...
def action(function: Any = None, /, *, by: Any = None, **domains: Any) -> Any:
    """An action: it states its enabling conditions with ``require(...)``, and assigns to the state.

    Each parameter of the method has a domain, given by name: ``@action(b=bookies)``. A domain is a constant, any
    iterable, or a function of the protocol. ``by`` is the actor that traces show: a name, or a parameter's name.
    """
    return _decorated("action", function, domains=domains, by=by)


@overload
def invariant(function: Condition, /) -> Condition: ...
@overload
def invariant(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def invariant(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A state invariant: it must be true in every state, for every binding of its parameters. They are declared as for
    :func:`action`.

    Results are cached by the parts that one call reads, so write an invariant over all bookies as one over each:
    ``@invariant(b=bookies)``. ``when`` (a function of the protocol's constants) turns it off by default.
    """
    return _decorated("invariant", function, when=when, domains=domains)


@overload
def step_invariant(function: Condition, /) -> Condition: ...
@overload
def step_invariant(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def step_invariant(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A step invariant: ``def fenced_stays(self, after)`` must be true for every state and each of its successors, and
    for every binding of further parameters. ``when`` turns it off by default, as for :func:`invariant`.
    """
    return _decorated("step_invariant", function, when=when, domains=domains)


@overload
def sometimes(function: Condition, /) -> Condition: ...
@overload
def sometimes(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def sometimes(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Reachability: for every binding of its parameters, it must be true in some reachable state.

    The check reports the shortest behaviour that leads there, a witness, and goes on. The property is violated if the
    whole state space was explored and it was true in no state. Stateright also calls it ``sometimes``. In TLA+, one
    gives TLC the negation as an invariant. ``when`` turns it off by default, as for :func:`invariant`.
    """
    return _decorated("sometimes", function, when=when, domains=domains)


TEMPORAL = ("always_eventually", "eventually_always", "leads_to", "temporal")
"""The kinds of temporal properties, which must hold for every fair, endless behaviour."""

INITIALLY = "initially"
"""The kind of conditions that only initial states must satisfy, which some language has."""

JUDGED = ("invariant", INITIALLY, "step_invariant", "refinement", "sometimes", *TEMPORAL)
"""The kinds of properties that a check judges and that a user can select by name."""

POSTCONDITION = "postcondition"
"""The kind of conditions on a whole search, which some language has. Their functions take the model and the
:class:`fencepost.checker.findings.Findings`, and are called when everything else holds.
"""


@overload
def always_eventually(function: Condition, /) -> Condition: ...
@overload
def always_eventually(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def always_eventually(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Always eventually (TLA+: ``[]<>``): in every fair behaviour it is true infinitely often, for every binding of its
    parameters.

    ``when`` turns it off by default, as for :func:`invariant`. For fairness see :attr:`Protocol.fairness`.
    """
    return _decorated("always_eventually", function, when=when, domains=domains)


@overload
def eventually_always(function: Condition, /) -> Condition: ...
@overload
def eventually_always(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def eventually_always(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Eventually always (TLA+: ``<>[]``): in every fair behaviour it becomes true at some point and then stays true."""
    return _decorated("eventually_always", function, when=when, domains=domains)


@overload
def leads_to(function: Pair, /) -> Pair: ...
@overload
def leads_to(*, when: When = None, **domains: Any) -> Callable[[Pair], Pair]: ...
def leads_to(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Leads to (TLA+: ``~>``): the method returns a pair of booleans. Whenever the first holds, the second holds then
    or later.
    """
    return _decorated("leads_to", function, when=when, domains=domains)


@overload
def temporal(function: F, /) -> F: ...
@overload
def temporal(*, when: When = None, **domains: Any) -> Callable[[F], F]: ...
def temporal(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A temporal formula, which is true of every fair behaviour, for every binding of its parameters.

    The method is called once for each binding, with the protocol's constants, and returns a formula of functions of the
    state: ``return always(eventually(lambda s: not s.held))``. For what formulas are made of, see
    `fencepost.language.temporal`.
    """
    return _decorated("temporal", function, when=when, domains=domains)


def constraint(function: Condition, /) -> Condition:
    """A state constraint: states in which it is false are checked, but neither counted nor explored further."""
    return cast(Condition, Declared("constraint", function))


def step_constraint(function: Condition, /) -> Condition:
    """A step constraint, ``def f(self, after)``: steps for which it is false are not taken."""
    return cast(Condition, Declared("step_constraint", function))


def assumption(function: Condition, /) -> Condition:
    """An assumption about the constants, checked before anything is explored."""
    return cast(Condition, Declared("assumption", function))


def initial(function: F, /) -> F:
    """Sets up the initial state, starting from the declared values. With ``one_of`` there are several initial
    states.
    """
    return cast(F, Declared("initial", function))


def view(function: F, /) -> F:
    """A view: two states for which it returns equal values count as one state."""
    return cast(F, Declared("view", function))


# -- fairness ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fairness:
    """A declaration by :func:`weak` or :func:`strong`. No ``actions`` means all of them."""

    strong: bool
    actions: tuple[str, ...] = ()
    per: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FairSteps(Fairness):
    """Weak or ``strong`` fairness of some steps, as one condition with a ``title``.

    They are the steps of the actions that ``selects`` selects, by name and parameters. Or the function
    ``step`` of the states before and after tells them, and the function ``enabled`` of the state tells where one is
    possible. In both cases a step that changes nothing does not count.
    """

    title: str = ""
    selects: Callable[[str, Mapping[str, Value]], bool] | None = None
    step: Callable[[Any, Any], bool] | None = None
    enabled: Callable[[Any], bool] | None = None


def weak(*actions: Callable[..., Any], per: Sequence[str] | None = None) -> Fairness:
    """Weak fairness (TLA+: ``WF``): an action that stays enabled is taken eventually. Part of
    :attr:`Protocol.fairness`.

    By default there is one condition for each action and each binding of its parameters. ``per`` names parameters: then
    there is one condition for each value of those, and it covers all the actions (PlusCal's fair process:
    ``per=("p",)``). Without actions it covers all of them, so ``weak(per=())`` only says that the protocol does not
    stop while a step is possible.
    """
    return _fairness(False, actions, per)


def strong(*actions: Callable[..., Any], per: Sequence[str] | None = None) -> Fairness:
    """Strong fairness (TLA+: ``SF``): an action that is enabled infinitely often is taken eventually. Arguments as for
    :func:`weak`.
    """
    return _fairness(True, actions, per)


def _fairness(strong: bool, actions: Sequence[Any], per: Sequence[str] | None) -> Fairness:
    for one in actions:
        if not isinstance(one, Declared) or one.kind != "action":
            raise NotAProtocol(
                f"{'strong' if strong else 'weak'}(...) is given {one!r}: give it actions, as the methods themselves"
            )
    return Fairness(strong, tuple(a.name or a.function.__name__ for a in actions), None if per is None else tuple(per))


# -- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configuration:
    """Named values for the constants, with the expected verdict: ``holds``, ``deadlock`` or the name of the violated
    property.
    """

    constants: Mapping[str, Any]
    expect: str = "holds"
    doc: str = ""


NO_VERDICT = ("action", "constraint", "step_constraint", "initial", "view")
"""The kinds of declarations that are not properties: a check gives no verdict on them."""


def configuration(expect: str = "holds", doc: str = "", **constants: Any) -> Configuration:
    """A named configuration of a protocol, for ``--config``; see :attr:`Protocol.configurations`.

    ``expect`` is the expected verdict: ``holds``, the name of a violated property, or ``deadlock``, which makes the
    check look for deadlocks.
    """
    return Configuration(constants, expect, doc)


def varied(known: Mapping[str, Configuration], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Configuration]:
    """The ``known`` configurations that ``changes`` names, with its constants, ``expect`` or ``doc`` applied."""
    return {
        name: configuration(**{"expect": known[name].expect, "doc": known[name].doc, **change, **known[name].constants})
        for name, change in changes.items()
    }
