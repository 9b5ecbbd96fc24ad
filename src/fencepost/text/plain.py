"""Text for people: what a terminal can show, and whole numbers of any length."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches

MOST_DIGITS = 100
"""A whole number of at most this many digits is shown in full."""


def printable(text: str) -> str:
    """The text with control characters, line ends and marks of writing direction escaped, so that it is safe on a
    terminal.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def abbreviated(number: int) -> str:
    """A whole number in digits. Beyond :data:`MOST_DIGITS` digits: the first and the last of them, and their number."""
    if number.bit_length() < 3 * MOST_DIGITS:
        return repr(number)
    count, ends = _digits(number), MOST_DIGITS // 5
    if count <= MOST_DIGITS:
        return repr(number)
    first, last = abs(number) // 10 ** (count - ends), abs(number) % 10**ends
    return f"{'-' * (number < 0)}{first}…{last:0{ends}} ({count:,} digits)"


def _digits(number: int) -> int:
    """The number of decimal digits of a number, computed without writing it out."""
    number = abs(number)
    count = int(number.bit_length() * math.log10(2)) + 1
    return count if number >= 10 ** (count - 1) else count - 1


_SAFE = 600
"""``str`` and ``int`` accept this many digits under any limit: Python's limit cannot be set below 640."""


def decimal(number: int) -> str:
    """All the digits of a whole number of any length. (``str`` refuses more than some thousands.)"""
    if number.bit_length() < 3 * _SAFE:
        return str(number)
    half = _digits(number) // 2
    high, low = divmod(abs(number), 10**half)
    return f"{'-' * (number < 0)}{decimal(high)}{decimal(low).zfill(half)}"


def whole_number(text: str) -> int:
    """The whole number that ``text`` writes in decimal digits, of any length. Raises ValueError for other text."""
    if len(text) <= _SAFE:
        return int(text)
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError("this is not a whole number")
    half = len(digits) // 2
    number: int = whole_number(digits[:-half]) * 10**half + whole_number(digits[-half:])
    return -number if sign == "-" else number


def meant(name: str, known: Iterable[str], otherwise: str = "it has") -> str:
    """``did you mean workers?`` if one of the ``known`` names is close to ``name``; otherwise a list of the known
    names.
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"{otherwise} {', '.join(names) or 'none'}"
