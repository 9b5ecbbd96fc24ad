"""Declarations in the body of a protocol: actions, properties, fairness and configurations."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, overload

from fencepost.errors import Misbehaved, NotAProtocol
from fencepost.language.fields import resolve
from fencepost.language.truths import truth
from fencepost.language.values import MAX_MEMBERS, Value, canonical, finite, freeze

F = TypeVar("F", bound=Callable[..., Any])
When = Callable[[Any], bool] | None
Condition = TypeVar("Condition", bound=Callable[..., bool])
Pair = TypeVar("Pair", bound=Callable[..., tuple[bool, bool]])


@dataclass
class Declared:
    """A method of a protocol that Fencepost runs: an action or a property."""

    kind: str
    function: Callable[..., Any]
    domains: Mapping[str, Any] = field(default_factory=dict)
    by: Any = None
    when: When = None
    name: str = ""

    @property
    def doc(self) -> str:
        """The docstring, tidied; empty if there is none."""
        return inspect.getdoc(self.function) or ""

    def parameters(self, protocol: Any) -> list[dict[str, Value]]:
        """Every binding of the parameters to members of their domains, in canonical order; one empty binding if
        none.
        """
        names = list(self.domains)
        domains: list[list[Any]] = []
        for name in names:
            domain = resolve(self.domains[name], protocol)
            members = finite(domain, f"the domain of parameter {name} of {self.kind.replace('_', ' ')} {self.name}")
            if isinstance(domain, (set, frozenset)):
                members = canonical(members)
            domains.append([freeze(v) for v in members])
        bindings = math.prod(map(len, domains))
        if bindings > MAX_MEMBERS:
            raise NotAProtocol(
                f"{self.kind.replace('_', ' ')} {self.name} has {bindings:,} bindings of its parameters, and at most"
                f" {MAX_MEMBERS:,} are possible: choose the rest with one_of(...)"
            )
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*domains)]

    def is_on(self, protocol: Any) -> bool:
        """Whether a check judges it by default: what its ``when`` says of the protocol. Raises
        :class:`fencepost.NotAProtocol` if that cannot be told.
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
    """A method as a declaration, or the decorator that makes one, if only its details are given."""
    if function is not None:
        return Declared(kind, function)
    return lambda f: Declared(kind, f, **details)


@overload
def action(function: F, /) -> F: ...
@overload
def action(*, by: Any = None, **domains: Any) -> Callable[[F], F]: ...
def action(function: Any = None, /, *, by: Any = None, **domains: Any) -> Any:
    """An action: it asks ``require(...)`` for what enables it, and assigns to the state.

    Each parameter of the method is drawn from the domain given for its name: ``@action(b=bookies)``, a constant, any
    iterable, or a function of the protocol. ``by`` tells who acts, for the reader of a trace: a name, or a parameter's
    name.
    """
    return _decorated("action", function, domains=domains, by=by)


@overload
def invariant(function: Condition, /) -> Condition: ...
@overload
def invariant(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def invariant(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A state invariant: it must be true in every state, for every binding of its parameters (declared as an action's
    are).

    The parts that it reads together are remembered together, so an invariant over all bookies is best written over
    each: ``@invariant(b=bookies)``. ``when`` (a function of the protocol's constants) turns it off by default.
    """
    return _decorated("invariant", function, when=when, domains=domains)


@overload
def step_invariant(function: Condition, /) -> Condition: ...
@overload
def step_invariant(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def step_invariant(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A step invariant: ``def fenced_stays(self, after)`` must be true of every state and each of its successors, for
    every binding of its further parameters. ``when`` turns it off by default, as for :func:`invariant`.
    """
    return _decorated("step_invariant", function, when=when, domains=domains)


@overload
def sometimes(function: Condition, /) -> Condition: ...
@overload
def sometimes(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def sometimes(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A state that can be reached: it must be true in some reachable state, for every binding of its parameters in one
    of its own.

    The check tells the shortest behaviour that leads there, a witness, and goes on; it is violated if every state was
    explored and it was true in none. Stateright calls it ``sometimes``; in TLA+ one asks TLC for it by the invariant
    that it is never so. ``when`` turns it off by default, as for :func:`invariant`.
    """
    return _decorated("sometimes", function, when=when, domains=domains)


TEMPORAL = ("always_eventually", "eventually_always", "leads_to")
"""The kinds of temporal properties: what must be true of every fair, endless behaviour."""

JUDGED = ("invariant", "step_invariant", "refinement", "sometimes", *TEMPORAL)
"""The kinds of properties that a check judges, and that can be picked by name."""


@overload
def always_eventually(function: Condition, /) -> Condition: ...
@overload
def always_eventually(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def always_eventually(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Always eventually (TLA+: ``[]<>``): in every fair behaviour it is true again and again, for every binding of its
    parameters.

    ``when`` turns it off by default, as for :func:`invariant`. Fair: see :attr:`Protocol.fairness`.
    """
    return _decorated("always_eventually", function, when=when, domains=domains)


@overload
def eventually_always(function: Condition, /) -> Condition: ...
@overload
def eventually_always(*, when: When = None, **domains: Any) -> Callable[[Condition], Condition]: ...
def eventually_always(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Eventually always (TLA+: ``<>[]``): in every fair behaviour it becomes true at some point and stays true from
    there on.
    """
    return _decorated("eventually_always", function, when=when, domains=domains)


@overload
def leads_to(function: Pair, /) -> Pair: ...
@overload
def leads_to(*, when: When = None, **domains: Any) -> Callable[[Pair], Pair]: ...
def leads_to(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Leads to (TLA+: ``~>``): the method returns a pair of truths, and whenever the first holds the second holds then
    or later.
    """
    return _decorated("leads_to", function, when=when, domains=domains)


def constraint(function: Condition, /) -> Condition:
    """A state constraint: states in which it is false are checked but neither counted nor explored further."""
    return cast(Condition, Declared("constraint", function))


def step_constraint(function: Condition, /) -> Condition:
    """A step constraint: ``def f(self, after)``; steps of which it is false are not taken."""
    return cast(Condition, Declared("step_constraint", function))


def assumption(function: Condition, /) -> Condition:
    """An assumption about the constants, checked before anything is explored."""
    return cast(Condition, Declared("assumption", function))


def initial(function: F, /) -> F:
    """Sets up the initial state, starting from the declared values; with ``one_of`` there is a set of them."""
    return cast(F, Declared("initial", function))


def view(function: F, /) -> F:
    """A view: two states for which it returns equal values count as one state."""
    return cast(F, Declared("view", function))


# -- fairness ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fairness:
    """A declaration by :func:`weak` or :func:`strong`; no ``actions`` stands for all of them."""

    strong: bool
    actions: tuple[str, ...]
    per: tuple[str, ...] | None


def weak(*actions: Callable[..., Any], per: Sequence[str] | None = None) -> Fairness:
    """Weak fairness (TLA+: ``WF``): what stays enabled is taken at last. Part of :attr:`Protocol.fairness`.

    By default each of the actions is fair by itself, for each binding of its parameters. ``per`` names parameters: then
    the actions are fair together, one condition for each value of those (PlusCal's fair process: ``per=("p",)``).
    Without actions it means all of them, so ``weak(per=())`` only says that the protocol does not stop while a step is
    possible.
    """
    return _fairness(False, actions, per)


def strong(*actions: Callable[..., Any], per: Sequence[str] | None = None) -> Fairness:
    """Strong fairness (TLA+: ``SF``): what is enabled again and again is taken at last. Arguments as for
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
    """Named values for the constants, with the verdict that is expected: ``holds``, ``deadlock`` or the name of what is
    violated.
    """

    constants: Mapping[str, Any]
    expect: str = "holds"
    doc: str = ""


NO_VERDICT = ("action", "constraint", "step_constraint", "initial", "view")
"""The kinds of declarations that are no properties: a check has no verdict about them."""


def configuration(expect: str = "holds", doc: str = "", **constants: Any) -> Configuration:
    """A named configuration of a protocol, for ``--config``; see :attr:`Protocol.configurations`.

    ``expect`` is the verdict that a check is to have: ``holds``, the name of a property that is violated, or
    ``deadlock``, for which the check then looks too.
    """
    return Configuration(constants, expect, doc)


def varied(known: Mapping[str, Configuration], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Configuration]:
    """Those of the ``known`` configurations that are named, with more constants, or another ``expect`` or ``doc``."""
    return {
        name: configuration(**{"expect": known[name].expect, "doc": known[name].doc, **change, **known[name].constants})
        for name, change in changes.items()
    }
