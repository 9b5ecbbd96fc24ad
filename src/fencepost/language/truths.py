"""Strict truth values for conditions. Python treats most objects as true, which hides mistakes: a generator without
``all``, a function that is not called, a tuple of a condition and a text.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterator, Mapping
from typing import Any

from fencepost.errors import Misbehaved
from fencepost.language.values import show


def truth(condition: Any, where: str = "returned") -> bool:
    """``condition`` if it is True or False, numpy's included. Raises :class:`Misbehaved` for anything else, with the
    likely mistake. ``where`` begins the message.
    """
    if condition is True or condition is False:
        return condition
    if type(condition).__module__ == "numpy" and type(condition).__name__ in ("bool", "bool_"):
        return bool(condition)
    if condition is None and where == "returned":
        raise Misbehaved("returned nothing: a property returns true or false")
    what, instead = _mistake(condition)
    raise Misbehaved(f"{where} {what}, which is neither true nor false: {instead}")


def _mistake(condition: Any) -> tuple[str, str]:
    """What the condition is, and what to write instead."""
    kind = type(condition).__name__
    if condition is None:
        return "None", "a condition is a comparison, or what compares"
    if condition is NotImplemented:
        return "NotImplemented", "compare with an operator, such as ==, and not with its method"
    if condition is ...:
        return "...", "write the condition in its place"
    if isinstance(condition, Coroutine):
        return "a coroutine", "write an ordinary method, without async"
    if isinstance(condition, Iterator):
        what = f"a {kind}" if isinstance(condition, Generator) else f"an iterator ({kind})"
        return what, "put all(...) or any(...) around it"
    if callable(condition):
        name = getattr(condition, "__name__", kind)
        return ("a lambda", "call it") if name == "<lambda>" else (f"{name} itself", f"call it, {name}(...)")
    if isinstance(condition, (tuple, list)):
        return f"a {kind}", "give a condition alone, all(...) of several, or len(...) > 0"
    is_view = hasattr(type(condition), "__value__")
    if is_view or isinstance(condition, (str, bytes, set, frozenset, Mapping)):
        what = "a part of the state" if is_view else f"a {kind.lower()}"
        return what, "say what must be so of it, such as len(...) > 0 or x in ..."
    if isinstance(condition, (int, float)):
        return f"the number {show(condition)}", "compare it, as in n > 0"
    return f"a {kind}", "compare it, as in x is not None or x == y"
