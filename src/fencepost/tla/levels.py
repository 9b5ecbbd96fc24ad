"""Levels of expressions, as SANY reckons them.

A constant has level 0, what reads the state 1, an action 2, a temporal formula 3. An operator bounds the levels of its
arguments: what is primed is at most of level 1, what is compared at most of level 2. Where an argument is made of
parameters, the bound passes to them, and so to the callers of the definition. Chapter 17.2 of *Specifying Systems* has
the rules; those for arguments that are operators are SANY's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fencepost.tla.symbols import Local

CONSTANT, STATE, ACTION, TEMPORAL = range(4)

NAMES = ("a constant", "a state function", "an action", "a temporal formula")
"""What has each level."""

Key = str | Local
"""A constant or a variable by its name, or a parameter."""

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class Level:
    """The level of an expression: ``own`` if all its names are constants. The levels of the names in ``free`` count,
    too. ``most`` bounds the levels of names.

    The operator that a name stands for must let its argument k have the level ``allowed[name, k]``, and that of each
    name for which ``(name, k, other)`` is in ``carried``.
    """

    own: int = CONSTANT
    free: frozenset[Key] = frozenset()
    most: Mapping[Key, int] = field(default_factory=dict)
    allowed: Mapping[tuple[Key, int], int] = field(default_factory=dict)
    carried: frozenset[tuple[Key, int, Key]] = frozenset()

    def without(self, names: Iterable[Key]) -> Level:
        """The level of what binds these names around the expression."""
        gone = frozenset(names)
        return Level(
            self.own,
            self.free - gone,
            {name: most for name, most in self.most.items() if name not in gone},
            {at: level for at, level in self.allowed.items() if at[0] not in gone},
            frozenset(each for each in self.carried if each[0] not in gone and each[2] not in gone),
        )

    def bounded(self, most: int) -> Level:
        """The level of an argument that is at most of a level."""
        if most == TEMPORAL or not self.free:
            return self
        return replace(self, most=_least(self.most, dict.fromkeys(self.free, most)))

    def uncounted(self) -> Level:
        """The level of an argument that does not count, because the operator has a level of its own."""
        return replace(self, own=CONSTANT, free=frozenset())

    def raised(self, own: int) -> Level:
        return self if own <= self.own else replace(self, own=own)


def join(levels: Iterable[Level]) -> Level:
    """The level of what has these parts."""
    joined = Level()
    for level in levels:
        joined = Level(
            max(joined.own, level.own),
            joined.free | level.free,
            _least(joined.most, level.most),
            _greatest(joined.allowed, level.allowed),
            joined.carried | level.carried,
        )
    return joined


def _least(first: Mapping[_K, int], second: Mapping[_K, int]) -> Mapping[_K, int]:
    if not first or not second:
        return first or second
    return {**first, **{key: min(level, first.get(key, level)) for key, level in second.items()}}


def _greatest(first: Mapping[_K, int], second: Mapping[_K, int]) -> Mapping[_K, int]:
    if not first or not second:
        return first or second
    return {**first, **{key: max(level, first.get(key, level)) for key, level in second.items()}}


@dataclass(frozen=True, slots=True)
class Signature:
    """The levels of an operator: that of its body with constants for parameters, and for each parameter, whether its
    level ``counts``, and what it is at ``most``.

    The operator that is argument i must let its argument k have the level ``allowed[i, k]``, and for each ``(i, k, j)``
    in ``carried`` that of argument j.
    """

    level: Level
    counts: tuple[bool, ...] = ()
    most: tuple[int, ...] = ()
    allowed: Mapping[tuple[int, int], int] = field(default_factory=dict)
    carried: frozenset[tuple[int, int, int]] = frozenset()


def signature(body: Level, parameters: Sequence[Local]) -> Signature:
    """The levels of a definition with this body."""
    index: dict[Key, int] = {each: i for i, each in enumerate(parameters)}
    return Signature(
        body.without(parameters),
        tuple(each in body.free for each in parameters),
        tuple(body.most.get(each, TEMPORAL) for each in parameters),
        {(index[name], k): level for (name, k), level in body.allowed.items() if name in index},
        frozenset((index[name], k, index[other]) for name, k, other in body.carried if {name, other} <= index.keys()),
    )


def plain(arity: int, most: int, counts: bool = True, own: int = CONSTANT) -> Signature:
    """The levels of an operator that treats all its arguments alike."""
    return Signature(Level(own), (counts,) * arity, (most,) * arity)


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument. If it is an operator, ``signature`` has its levels, or ``name`` is the name that it is."""

    level: Level
    signature: Signature | None = None
    name: Key | None = None


def applied(operator: Signature, operands: Sequence[Operand]) -> Level:
    """The level of an operator that is applied to arguments."""
    parts = [operator.level]
    for i, operand in enumerate(operands):
        part = operand.level.bounded(operator.most[i])
        parts.append(part if operator.counts[i] else part.uncounted())
        parts.append(_received(operator, i, operand, operands))
    return join(parts)


def _received(operator: Signature, i: int, operand: Operand, operands: Sequence[Operand]) -> Level:
    """What follows from an argument that is an operator: what it is applied to has a bound, or it must allow it."""
    given = [(k, operands[j].level) for at, k, j in operator.carried if at == i]
    if operand.signature is not None:
        most = operand.signature.most
        return join(level.bounded(most[k]).uncounted() for k, level in given)
    if operand.name is None:
        return Level()
    name = operand.name
    allowed: Mapping[tuple[Key, int], int] = {
        (name, k): level for (at, k), level in operator.allowed.items() if at == i
    }
    for k, level in given:
        allowed = _greatest(allowed, {(name, k): level.own})
    return Level(allowed=allowed, carried=frozenset((name, k, other) for k, level in given for other in level.free))


def received(name: Key, arguments: Sequence[Level]) -> Level:
    """The level of a parameter that is applied as an operator."""
    own = Level(
        free=frozenset({name}),
        allowed={(name, k): level.own for k, level in enumerate(arguments)},
        carried=frozenset((name, k, other) for k, level in enumerate(arguments) for other in level.free),
    )
    return join([own, *arguments])


def refusals(operator: Signature, operands: Sequence[Operand]) -> Iterable[tuple[int, int]]:
    """The arguments whose level is too high, by position, and what they may have at most."""
    for i, operand in enumerate(operands):
        if operand.level.own > operator.most[i]:
            yield i, operator.most[i]
        if operand.signature is not None:
            for at, k, j in operator.carried:
                if at == i and operands[j].level.own > operand.signature.most[k]:
                    yield j, operand.signature.most[k]


def refused_operators(operator: Signature, operands: Sequence[Operand]) -> Iterable[int]:
    """The arguments that are operators and would be applied to what they do not take, by position."""
    for i, operand in enumerate(operands):
        if operand.signature is not None and any(
            at == i and operand.signature.most[k] < level for (at, k), level in operator.allowed.items()
        ):
            yield i


def substituted(level: Level, values: Mapping[str, Operand]) -> Level:
    """The level after a substitution for the constants and variables of a module."""
    parts = [
        Level(
            level.own,
            frozenset(name for name in level.free if not isinstance(name, str)),
            allowed={at: least for at, least in level.allowed.items() if not isinstance(at[0], str)},
            carried=frozenset(each for each in level.carried if not isinstance(each[0], str)),
        )
    ]
    for name in level.free:
        if isinstance(name, str) and name in values:
            parts.append(values[name].level)
    for name, most in level.most.items():
        value = values[name].level if isinstance(name, str) and name in values else Level(free=frozenset({name}))
        parts.append(value.bounded(most).uncounted())
    return join(parts)
