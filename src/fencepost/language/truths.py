"""Strict truth values for conditions. Python treats most objects as true, which hides mistakes: a generator without
``all``, a function that is not called, a tuple of a condition and a text.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterator, Mapping
from typing import Any

from fencepost.errors import Misbehaved
from fencepost.language.values import show


def truth(given: Any, where: str = "returned") -> bool:
    """``given`` if it is True or False, numpy's included. Raises :class:`Misbehaved` for anything else, with the likely
    mistake. ``where`` begins the message.
    """
    if given is True or given is False:
        return given
    if type(given).__module__ == "numpy" and type(given).__name__ in ("bool", "bool_"):
        return bool(given)
    if given is None and where == "returned":
        raise Misbehaved("returned nothing: a property returns true or false")
    what, instead = _mistake(given)
    raise Misbehaved(f"{where} {what}, which is neither true nor false: {instead}")


def _mistake(given: Any) -> tuple[str, str]:
    """What the condition is, and what to write instead."""
    kind = type(given).__name__
    if given is None:
        return "None", "a condition is a comparison, or what compares"
    if given is NotImplemented:
        return "NotImplemented", "compare with an operator, such as ==, and not with its method"
    if given is ...:
        return "...", "write the condition in its place"
    if isinstance(given, Coroutine):
        return "a coroutine", "write an ordinary method, without async"
    if isinstance(given, Iterator):
        what = f"a {kind}" if isinstance(given, Generator) else f"an iterator ({kind})"
        return what, "put all(...) or any(...) around it"
    if callable(given):
        name = getattr(given, "__name__", kind)
        return ("a lambda", "call it") if name == "<lambda>" else (f"{name} itself", f"call it, {name}(...)")
    if isinstance(given, (tuple, list)):
        return f"a {kind}", "give a condition alone, all(...) of several, or len(...) > 0"
    is_view = hasattr(type(given), "__value__")
    if is_view or isinstance(given, (str, bytes, set, frozenset, Mapping)):
        what = "a part of the state" if is_view else f"a {kind.lower()}"
        return what, "say what must be so of it, such as len(...) > 0 or x in ..."
    if isinstance(given, (int, float)):
        return f"the number {show(given)}", "compare it, as in n > 0"
    return f"a {kind}", "compare it, as in x is not None or x == y"
