"""Temporal formulas: what must be true of every fair, endless behaviour.

The operators are those of TLA+: ``always`` is ``[]``, ``eventually`` is ``<>``. None of them can tell whether a
behaviour stays in a state for a while, so there is no "next". A formula about steps comes as :func:`every_step` or
:func:`some_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fencepost.errors import NotAProtocol
from fencepost.language.declarations import Declared
from fencepost.language.values import Value, freeze, same, show_parameters

DEEPEST = 100
"""The deepest nesting of a formula."""

Selects = Callable[[str, Mapping[str, Value]], bool]
"""Whether an action belongs to a set of actions, by its name and its parameters."""


class Formula:
    """A temporal formula. Combine formulas with ``&``, ``|``, ``~``, :meth:`implies`, :meth:`iff` and
    :meth:`leads_to`.

    Wherever one is expected, a function of the state may stand for it.
    """

    def __init__(self, *parts: Formula) -> None:
        self.parts = parts
        self.depth: int = 1 + max((part.depth for part in parts), default=0)
        if self.depth > DEEPEST:
            raise NotAProtocol(f"a temporal formula is nested more than {DEEPEST} deep")

    def __and__(self, other: Stated) -> Formula:
        return And(self, stated(other))

    def __or__(self, other: Stated) -> Formula:
        return Or(self, stated(other))

    def __invert__(self) -> Formula:
        return Not(self)

    def implies(self, other: Stated) -> Formula:
        """If this is true, then so is ``other`` (TLA+: ``=>``)."""
        return Or(Not(self), stated(other))

    def iff(self, other: Stated) -> Formula:
        """Both are true, or none (TLA+: ``<=>``)."""
        return And(self.implies(other), stated(other).implies(self))

    def leads_to(self, other: Stated) -> Formula:
        """Whenever this is true, ``other`` is true then or later (TLA+: ``~>``)."""
        return always(self.implies(eventually(other)))

    def __bool__(self) -> bool:
        raise NotAProtocol(
            "a temporal formula is neither true nor false here: combine formulas with &, |, ~ and .implies(...)"
        )

    def leaves(self) -> Iterator[Leaf]:
        """The functions and the actions that the formula is made of, from left to right."""
        if isinstance(self, Leaf):
            yield self
        for part in self.parts:
            yield from part.leaves()


class Truth(Formula):
    """True or false, always."""

    def __init__(self, value: bool) -> None:
        super().__init__()
        self.value = value


class Not(Formula):
    """The negation of its part."""


class And(Formula):
    """All parts are true."""


class Or(Formula):
    """Some part is true."""


class Always(Formula):
    """The part is true from now on."""


class Eventually(Formula):
    """The part is true now or later."""


class Leaf(Formula):
    """A part without temporal operators."""


class Now(Leaf):
    """A function of the state is true."""

    def __init__(self, function: Callable[[Any], bool]) -> None:
        super().__init__()
        self.function = function


class Step(Leaf):
    """The next step changes something, and a function of the states before and after it is true."""

    def __init__(self, function: Callable[[Any, Any], bool]) -> None:
        super().__init__()
        self.function = function


class Taken(Leaf):
    """The next step changes something, and is one of the actions that ``selects`` selects."""

    def __init__(self, selects: Selects) -> None:
        super().__init__()
        self.selects = selects


class Enabled(Leaf):
    """One of the actions that ``selects`` selects has a step that changes something."""

    def __init__(self, selects: Selects) -> None:
        super().__init__()
        self.selects = selects


Stated = Formula | bool | Callable[[Any], bool]
"""A formula, or a function of the state."""


def stated(what: Stated) -> Formula:
    """What stands for a formula, as one. Raises :class:`fencepost.NotAProtocol` if it is none."""
    if isinstance(what, Formula):
        return what
    if isinstance(what, bool):
        return Truth(what)
    if callable(what) and not isinstance(what, Declared):
        return Now(what)
    raise NotAProtocol(f"a temporal formula cannot have {what!r} as a part: give it a formula or a function of a state")


def now(function: Callable[[Any], bool]) -> Formula:
    """A function of the state is true now: ``now(lambda s: s.held)``."""
    return stated(function)


def always(what: Stated) -> Formula:
    """It is true now and from now on (TLA+: ``[]``)."""
    return Always(stated(what))


def eventually(what: Stated) -> Formula:
    """It is true now or later (TLA+: ``<>``)."""
    return Eventually(stated(what))


def every_step(function: Callable[[Any, Any], bool]) -> Formula:
    """From now on, a function of the states before and after is true of every step that changes something (TLA+:
    ``[][A]_v``).
    """
    return Always(Not(Step(lambda before, after: not function(before, after))))


def some_step(what: Callable[..., Any], **parameters: Any) -> Formula:
    """Now or later there is a step of an action, or one of which a function of the states before and after is true
    (TLA+: ``<><<A>>_v``). A step that changes nothing does not count.

    Without ``parameters`` any binding of the action's parameters will do.
    """
    if isinstance(what, Declared):
        return Eventually(Taken(selecting(what, parameters)))
    if parameters:
        raise NotAProtocol(f"some_step has the parameters {show_parameters(parameters)} of no action")
    return Eventually(Step(what))


def enabled(action: Callable[..., Any], **parameters: Any) -> Formula:
    """A step of an action is possible that changes something (TLA+: ``ENABLED <<A>>_v``). Parameters as for
    :func:`some_step`.
    """
    return Enabled(selecting(action, parameters))


def selecting(action: Any, parameters: Mapping[str, Any]) -> Selects:
    """Selects an action with some of its parameters bound. Raises :class:`fencepost.NotAProtocol` for what is none."""
    if not isinstance(action, Declared) or action.kind != "action":
        raise NotAProtocol(f"{action!r} is no action: name it by its class, as in Lock.enter")
    for name in parameters:
        if name not in action.domains:
            raise NotAProtocol(f"action {action.name} has no parameter {name}")
    wanted = {name: freeze(value) for name, value in parameters.items()}

    def selects(name: str, bound: Mapping[str, Value]) -> bool:
        return name == action.name and all(same(bound[key], value) for key, value in wanted.items())

    return selects
