"""The steps of a protocol, as a conformance says them."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from fencepost.language.values import Record, Value, kind_of, same, show

Message: TypeAlias = Hashable
"""The name of a message, the same for its sender and its receiver. Messages of the same name are received in the order
in which they were sent.
"""

Version: TypeAlias = tuple[Hashable, int]
"""One version of an object that is replaced as a whole: the object's name and the version number."""

_ABSENT = object()
"""What a record has in place of a field that it lacks. It is no value, so nothing is the same: None is not."""


class Matcher:
    """What a conformance says of a value in place of the value itself."""

    __slots__ = ()

    def matches(self, value: Any) -> bool:
        """Whether a value is one of those that are meant."""
        raise NotImplementedError

    @property
    def code(self) -> Hashable:
        """Distinguishes what Python takes for equal."""
        raise NotImplementedError


class Like(Matcher, msgspec.Struct, frozen=True):
    """Matches records by some of their fields: pairs of a path, such as ``entry.id``, and a value."""

    fields: tuple[tuple[str, Value], ...]

    def matches(self, value: Any) -> bool:
        """Whether a value is a record with these fields."""
        for path, wanted in self.fields:
            found = value
            for name in path.split("."):
                if not isinstance(found, Record):
                    return False
                found = getattr(found, name, _ABSENT)
            if not same(found, wanted) and (found is _ABSENT or wanted is not ANY):
                return False
        return True

    @property
    def code(self) -> Hashable:
        return tuple([kind_of(value) for _, value in self.fields])

    def __hash__(self) -> int:
        return hash(self.fields)

    def __str__(self) -> str:
        return " and ".join(f"{path}={show(value)}" for path, value in self.fields)


class Has(Matcher, msgspec.Struct, frozen=True):
    """Matches sets that contain a value."""

    value: Value

    def matches(self, value: Any) -> bool:
        """Whether ``value`` is a set that contains the value."""
        held = frozenset.__iter__(value) if isinstance(value, frozenset) and self.value in value else ()
        return any(same(each, self.value) for each in held)

    @property
    def code(self) -> Hashable:
        return kind_of(self.value)

    def __str__(self) -> str:
        return f"it has {show(self.value)}"


def like(**fields: Value) -> Like:
    """Matches the record with these fields; ``entry__id`` names the field ``id`` of ``entry``. :data:`ANY`: any
    value.
    """
    return Like(tuple([(_path(name), fields[name]) for name in sorted(fields)]))


@cache
def _path(name: str) -> str:
    return name.replace("__", ".")


class _Unsaid(Enum):
    """What stands for a value that the trace does not say."""

    ANY = "any"

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


ANY: Any = _Unsaid.ANY
"""Any action, any value of a parameter, or any one option of a choice."""

Pick: TypeAlias = Hashable
"""The option that a choice must take: a value, or what matches it, as :class:`Like` does records. :data:`ANY`: any
option. At the end of the picks, ``...``: any options of all choices that follow.
"""

Parameters: TypeAlias = tuple[tuple[str, Value], ...]
"""The names of an action's parameters, with their values."""

_LISTS = ("parameters", "picks", "sends", "after", "before", "tells")
_lists = attrgetter(*_LISTS)

Way: TypeAlias = tuple[str, Parameters, tuple[Pick, ...]]
"""An action with its parameters and picks."""


def _is_pair(pair: Any, kind: type, place: int) -> bool:
    """Whether this is a pair that has a value of this type at a place."""
    return type(pair) is tuple and len(pair) == 2 and type(pair[place]) is kind


class Step(msgspec.Struct, gc=False):
    """One step of the protocol that an event reports.

    ``action``: its name; :data:`ANY` for any. ``parameters``: of the action; :data:`ANY` for a value that the trace
    does not say. ``picks``: the options that its choices take, in order; :data:`ANY` for one option that it does
    not say, ``...`` at the end for all that follow. Whether a message is lost need not be said. ``receives``,
    ``sends``: messages; a receipt comes after its send. ``writes``, ``reads``: versions; a version is written after
    all reads of the version before it. ``after``: values that parts of the state, named by their paths, must have
    after the step; ``before``: values just before it. ``to``: all receivers of its messages. ``tells``: for a kind
    of message event (``send``, ``receive``), the fields that a message of the step must have. ``may_skip``: the
    system may have ignored the step, so it is skipped where it is not enabled. ``wrong``: how the event contradicts
    the rest of the trace; such a step is refused. Without ``action``: the event takes part in the order, and
    ``after`` must hold.
    """

    action: str | None
    parameters: tuple[tuple[str, Value], ...] = ()
    picks: tuple[Pick, ...] = ()
    receives: Message | None = None
    sends: tuple[Message, ...] = ()
    reads: Version | None = None
    writes: Version | None = None
    after: tuple[tuple[tuple[Any, ...], Value | Has], ...] = ()
    before: tuple[tuple[tuple[Any, ...], Value | Has], ...] = ()
    to: frozenset[Value] | None = None
    tells: tuple[tuple[str, Like], ...] = ()
    may_skip: bool = False
    wrong: str = ""

    def __post_init__(self) -> None:
        if type(self.action) is not str and not isinstance(self.action, str | _Unsaid | None):
            raise TypeError(f"the action of a step is {self.action!r}, and no name")
        if set(map(type, _lists(self))) != {tuple}:
            for name, held in zip(_LISTS, _lists(self), strict=True):
                if not isinstance(held, (list, tuple)):
                    raise TypeError(f"{name} of {self.action} is {held!r}, and no tuple")
                setattr(self, name, tuple(held))
        if len(self.picks) > 1:
            for pick in self.picks[:-1]:
                if pick is ...:
                    raise ValueError(f"picks of {self.action} has ... before another pick")
        if type(self.may_skip) is not bool or type(self.wrong) is not str:
            for name, value, kind in (("may_skip", self.may_skip, int), ("wrong", self.wrong, str)):
                if value is not None and not isinstance(value, kind):
                    what = "text" if kind is str else "truth value"
                    raise TypeError(f"{name} of {self.action} is {value!r}, and no {what}")
        for pair in self.parameters:
            if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str:
                raise TypeError(f"parameters of {self.action} has {pair!r}, and no pair of a name and a value")
        if self.after or self.before or self.tells:
            self._look_at_what_is_compared()
        if self.reads is not None or self.writes is not None:
            for name, version in (("reads", self.reads), ("writes", self.writes)):
                if version is not None and not _is_pair(version, int, 1):
                    raise TypeError(f"{name} of {self.action} is {version!r}, and no pair of a name and a number")
        if self.sends or self.receives is not None or self.reads is not None or self.writes is not None:
            try:
                hash((self.receives, self.sends, self.reads, self.writes))
            except TypeError as error:
                raise TypeError(f"a name of a message or a version of {self.action} is no key: {error}") from None
        if self.to is not None and not isinstance(self.to, (frozenset, set)):
            raise TypeError(f"to of {self.action} is {self.to!r}, and no frozenset")

    def _look_at_what_is_compared(self) -> None:
        for name, parts in (("before", self.before), ("after", self.after)):
            for part in parts:
                if not _is_pair(part, tuple, 0) or not part[0]:
                    raise TypeError(
                        f"{name} of {self.action} has {part!r}, and no pair of a path, a tuple, and a value"
                    )
        for told in self.tells:
            if not _is_pair(told, str, 0):
                raise TypeError(f"tells of {self.action} has {told!r}, and no pair of a kind and like(...)")
            if not isinstance(told[1], Matcher):
                raise TypeError(f"tells of {self.action} has {told[1]!r}, and no like(...)")
            if told[0] not in ("send", "receive", "timeout"):
                raise ValueError(f"tells of {self.action} has {told[0]!r}, and none of send, receive and timeout")

    @property
    def title(self) -> str:
        """The action with its parameters."""
        bound = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.action}({bound})" if self.action else "no step"
