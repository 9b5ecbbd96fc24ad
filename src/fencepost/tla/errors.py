"""Errors in a specification or in its configuration, each with its place."""

from __future__ import annotations

import linecache

from fencepost.errors import WRONG_OPTIONS, NotAProtocol
from fencepost.tla.ast import Place


class SpecificationError(NotAProtocol):
    """A module or a configuration that cannot be read, or that breaks a rule of TLA+.

    The message is one line, ``Spec.tla:31:5: what is wrong``. Below it stands the line of the file, with carets.
    """

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(pointed(message, place))
        self.place = place


class ConfigurationError(SpecificationError):
    """A configuration that cannot be read, or that does not suit its module."""

    exit_code = WRONG_OPTIONS


def pointed(message: str, place: Place | None) -> str:
    """A message with its place before it, and the line of the file below it if the file can be read."""
    if place is None:
        return message
    excerpt = excerpt_of(place)
    return f"{place}: {message}" + (f"\n{excerpt}" if excerpt else "")


def excerpt_of(place: Place) -> str:
    """The line of a place, and a line with carets below what stands there. Empty if there is no such line."""
    line = linecache.getline(place.file, place.line).rstrip("\n")
    if not line.strip():
        return ""
    number = str(place.line)
    return f"  {number} | {line}\n  {' ' * len(number)} | {_carets(line, place)}"


def text_of(place: Place) -> str:
    """What stands at a place, as far as its first line."""
    line = linecache.getline(place.file, place.line).rstrip("\n")
    return line[place.column - 1 : place.end_column if place.end_line == place.line else None]


def _carets(line: str, place: Place) -> str:
    """Tabs stay tabs, so that the carets stand below what they point at."""
    indent = "".join("\t" if character == "\t" else " " for character in line[: place.column - 1])
    last = place.end_column if place.end_line == place.line else len(line)
    return indent + "^" * max(1, min(last, len(line)) - place.column + 1)
