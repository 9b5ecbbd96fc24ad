"""Protections of rules as constants of a protocol, which can be taken away one by one."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from fencepost.language.values import Record

R = TypeVar("R", bound=Record)


def switched_on(protocol: Any, kind: type[R], **others: bool) -> R:
    """The protections that are switched on: those that are constants of the protocol by their own name, and ``others``.
    The rest always are.
    """
    owner: Any = type(protocol)
    record: Any = kind
    given = [(name, getattr(protocol, name)) for name in switches(owner, record)]
    made: R = _made(record, (*given, *others.items()))
    return made


@cache
def switches(protocol: Any, kind: Any) -> tuple[str, ...]:
    """The protections that are constants of a protocol by their own name."""
    return tuple(name for name in kind._fields if hasattr(protocol, name))


@cache
def _made(kind: Any, given: tuple[tuple[str, bool], ...]) -> Any:
    return kind(**dict(given))
