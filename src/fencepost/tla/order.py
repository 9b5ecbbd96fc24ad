"""TLC's order of strings and model values.

TLC numbers each string when it first meets it, in a specification, in a configuration or among its own names, and
sorts strings and model values by these numbers. So ``CHOOSE x \\in {"b", "a"} : TRUE`` depends on which of the two
stands first in the files. `UniqueString` and `InternTable` of TLC's source are where the rule comes from.
"""

from __future__ import annotations

from collections.abc import Iterable

_numbers: dict[str, int] = {}


def use(strings: Iterable[str]) -> None:
    """From now on, sort by this order, in this process. Later repetitions of a string do not count.

    Values keep the order in which they were sorted. So call it before any are made.
    """
    _numbers.clear()
    for text in strings:
        _numbers.setdefault(text, len(_numbers))


def known() -> tuple[str, ...]:
    """The strings in the order that is in use."""
    return tuple(_numbers)


def key(text: str) -> bytes:
    """Sorts a string or the name of a model value. Strings that no file has come last, by their text."""
    number = _numbers.get(text)
    return b"\1" + text.encode("utf-8", "surrogatepass") if number is None else b"\0%08x" % number
