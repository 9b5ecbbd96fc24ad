"""States and values as TLC prints them, with its line breaks (`tlc2.pprint.Format`)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.tla import values
from fencepost.tla.values import Function, FunctionValue, SetValue, Value, is_name, show

WIDTH = 80
"""The columns that a value has. What stands before it in its line does not count."""


def state(variables: Sequence[tuple[str, Value]]) -> str:
    """A state, as TLC prints it in a counterexample: ``/\\ x = 1`` in a line for each variable, or ``x = 1``."""
    bullet = "/\\ " if len(variables) > 1 else ""
    return "\n".join(f"{bullet}{name} = {broken(value)}" for name, value in variables)


def broken(value: Value, width: int = WIDTH) -> str:
    """A value on one line if it fits in ``width``, and otherwise on several."""
    return _broken(value, width, 0, "")


def _broken(value: Value, width: int, trailer: int, padding: str) -> str:
    """``trailer``: how many characters follow in the last line. ``padding`` begins every line but the first."""
    whole = show(value)
    if len(whole) <= width - trailer:
        return whole
    if isinstance(value, SetValue):
        return _list("{ ", " }", list(value.members()), width, trailer, padding)
    if isinstance(value, FunctionValue):
        return _function(value.explicit(), width, trailer, padding)
    return whole


def _function(value: values.Sequence | Function, width: int, trailer: int, padding: str) -> str:
    if isinstance(value, values.Sequence):
        return _list("<< ", " >>", value.values, width, trailer, padding)
    if all(map(is_name, value.mapping)):
        return "[ " + _pairs(value, " |->", ",", width - 2, trailer + 2, padding + "  ") + " ]"
    return "( " + _pairs(value, " :>", " @@", width - 2, trailer + 2, padding + "  ") + " )"


def _list(opening: str, closing: str, parts: Sequence[Value], width: int, trailer: int, padding: str) -> str:
    inner = padding + " " * len(opening)
    room, after = width - len(opening), trailer + len(closing)
    trailers = [1] * (len(parts) - 1) + [after]
    lines = [_broken(part, room, each, inner) for part, each in zip(parts, trailers, strict=True)]
    return opening + f",\n{inner}".join(lines) + closing


def _pairs(value: Function, arrow: str, separator: str, width: int, trailer: int, padding: str) -> str:
    """Arguments with their values. What does not fit in a line with its argument stands in the next, indented."""
    lines = []
    for number, (argument, part) in enumerate(value.items(), 1):
        after = trailer if number == value.size() else len(separator)
        label = str(argument) if arrow == " |->" else show(argument)
        if len(label) + len(arrow) > width:
            label = _broken(argument, width, trailer + len(arrow), padding)
        lines.append(_pair(label + arrow, part, width, after, padding))
    return f"{separator}\n{padding}".join(lines)


def _pair(label: str, value: Value, width: int, trailer: int, padding: str) -> str:
    if len(label) + 1 + len(show(value)) + trailer <= width:
        return f"{label} {show(value)}"
    inner = padding + "    "
    return f"{label}\n{inner}{_broken(value, width - 4, trailer, inner)}"
