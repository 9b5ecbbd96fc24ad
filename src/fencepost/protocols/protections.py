"""Protections of rules as constants of a protocol, so that a check can switch each one off."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from fencepost.language.values import Record

R = TypeVar("R", bound=Record)


def switched_on(protocol: Any, kind: type[R], **others: bool) -> R:
    """Return the protections that are on. A protocol may switch off those that it has a constant of the same name for.
    ``others`` sets more. The rest are on.
    """
    owner: Any = type(protocol)
    record: Any = kind
    names = switches(owner, record)
    made: R = _made(record, names, tuple(map(protocol.constants.__getitem__, names)), tuple(others.items()))
    return made


@cache
def switches(protocol: Any, kind: Any) -> tuple[str, ...]:
    """The protections that the protocol has a constant of the same name for."""
    return tuple(name for name in kind._fields if hasattr(protocol, name))


@cache
def _made(kind: Any, names: tuple[str, ...], values: tuple[bool, ...], others: tuple[tuple[str, bool], ...]) -> Any:
    return kind(**dict([*zip(names, values, strict=True), *others]))
