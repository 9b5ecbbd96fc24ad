"""The constants of a protocol: their types, and the conversion of a user's text to a value."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from fencepost.errors import OptionError
from fencepost.language.values import ModelValue, NotAValue, Set, Value, canonical, freeze, show
from fencepost.text.plain import whole_number

T = TypeVar("T")

Symmetric = bool | Callable[[Any], str]
"""Whether members of a constant may be exchanged. A function of the protocol returns "" for yes, or the reason why not.
"""


class Constant:
    """A constant of a protocol: its default, its type, and the conversion of a user's text to its value."""

    def __init__(self, default: Any, doc: str = "", prefix: str | None = None, symmetric: Symmetric = False) -> None:
        self.prefix = prefix
        self.symmetric = symmetric
        self.doc = doc
        self.name = ""
        self.default = default
        self.__constant_name__ = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.__constant_name__ = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__["_constants"][self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is a constant: actions can only assign state variables")

    @property
    def kind(self) -> str:
        """The type, in words for the user."""
        if self.prefix is not None:
            return "set of model values"
        if isinstance(self.default, enum.Enum):
            return "one of " + ", ".join(type(self.default).__members__)
        if isinstance(self.default, (frozenset, tuple)):
            return "set" if isinstance(self.default, frozenset) else "sequence"
        return {bool: "true or false", int: "a whole number", str: "text", float: "a number"}.get(
            type(self.default), type(self.default).__name__
        )

    def _wrong(self, argument: Any) -> OptionError:
        if self.prefix is not None:
            hint = f", for example {self.name}=3 or {self.name}={self.prefix}1,{self.prefix}2"
        else:
            values = self.default if isinstance(self.default, (frozenset, tuple)) else (self.default,)
            hint = f", for example {self.name}={','.join(v if isinstance(v, str) else show(v).lower() for v in values)}"
        kind = f"a {self.kind}" if self.kind.startswith(("set", "sequence")) else self.kind
        return OptionError(f"constant {self.name} is {kind}, not {argument!r}{hint}")

    def convert(self, argument: Any) -> Value:
        """``argument`` (from Python or, as text, from a command line), converted to a value of this constant.

        Raises :class:`OptionError` if it has another type.
        """
        if self.prefix is not None:
            return self._model_values(argument)
        default = self.default
        if type(argument) is str and type(default) is not str:
            return self._parse_like(default, argument)
        if isinstance(default, frozenset) and isinstance(argument, (set, frozenset, list, tuple)):
            return Set(self._frozen(tuple(argument)))
        if isinstance(default, tuple) and isinstance(argument, (list, tuple)):
            return self._frozen(tuple(argument))
        if default is not None and type(argument) is not type(default):
            raise self._wrong(argument)
        return self._frozen(argument)

    def _frozen(self, argument: Any) -> Value:
        try:
            return freeze(argument)
        except NotAValue as error:
            raise OptionError(f"constant {self.name} cannot be {error}") from None

    def _parse_like(self, default: Value, text: str) -> Value:
        if type(default) is str:
            return text
        if isinstance(default, bool):
            if text.lower() in ("true", "yes", "on"):
                return True
            if text.lower() in ("false", "no", "off"):
                return False
            raise self._wrong(text)
        if isinstance(default, enum.Enum):
            for member in type(default):
                if member.name.lower() == text.lower():
                    return member
            raise self._wrong(text)
        if isinstance(default, (int, float)):
            try:
                return self._frozen(whole_number(text) if isinstance(default, int) else float(text))
            except ValueError:
                raise self._wrong(text) from None
        if isinstance(default, (frozenset, tuple)):
            element = next(iter(default), "")
            parts = [p.strip() for p in text.strip("{}()").split(",") if p.strip()]
            parsed = [self._parse_like(element, p) for p in parts]
            return Set(parsed) if isinstance(default, frozenset) else tuple(parsed)
        raise self._wrong(text)

    def _model_values(self, argument: Any) -> tuple[ModelValue, ...]:
        if isinstance(argument, bool):
            raise self._wrong(argument)
        if isinstance(argument, str):
            try:
                argument = int(argument)
            except ValueError:
                argument = [name.strip() for name in argument.strip("{}").split(",")]
        if isinstance(argument, int):
            least = 1 if self.default else 0
            if not least <= argument <= 1000:
                raise OptionError(f"constant {self.name} needs between {least} and 1000 model values, not {argument}")
            return tuple(ModelValue(f"{self.prefix}{i + 1}", i) for i in range(argument))
        if not isinstance(argument, (list, tuple, set, frozenset)):
            raise self._wrong(argument)
        ordered = canonical(argument) if isinstance(argument, (set, frozenset)) else list(argument)
        names = [v.name if isinstance(v, ModelValue) else v for v in ordered]
        for name in names:
            if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
                raise self._wrong(name)
        if len(set(names)) != len(names):
            raise OptionError(f"constant {self.name} names a model value twice: {', '.join(names)}")
        if not names and self.default:
            raise self._wrong("")
        return tuple(ModelValue(name, i) for i, name in enumerate(names))


def constant(default: T, doc: str = "") -> T:
    """A constant: a number, a boolean, text, an enum member, a frozenset or a tuple. Its type is that of its
    default.
    """
    return cast(T, Constant(default, doc))


def model_values(
    prefix: str, count: int | Iterable[str], doc: str = "", *, symmetric: Symmetric = False
) -> tuple[ModelValue, ...]:
    """A constant set of model values, in declaration order: ``count`` of them (``b1``, ``b2``, ...) or the given names.

    The set may be empty only if it is empty by default (a ``count`` of 0). Without members nothing acts, and properties
    hold for no reason.

    ``symmetric`` declares that no action and no property distinguishes the members. Then ``--symmetry`` may treat
    states that differ only by an exchange of members as one state. If that depends on the constants, ``symmetric`` is a
    function of the protocol that returns "" for yes, or the reason why not.
    """
    members = count if isinstance(count, int) else tuple(count)
    return cast("tuple[ModelValue, ...]", Constant(members, doc, prefix, symmetric))
