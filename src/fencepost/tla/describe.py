"""A specification as text, for ``fencepost show``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from fencepost.tla.modules import Specification
from fencepost.tla.symbols import Defined

_LEVELS = ("Constant definitions", "State functions", "Actions", "Temporal formulas")


def described_specification(specification: Specification, width: int) -> str:
    """The constants, the variables and the definitions of a specification, with the comments above them."""
    sections = [specification.root.name]
    for title, names in (
        ("Constants", [each.name for each in specification.constants]),
        ("Variables", [each.name for each in specification.variables]),
    ):
        if names:
            sections.append("\n".join([title, *(f"  {name}" for name in names)]))
    own = [each for each in specification.definitions.values() if each.module == specification.root.name]
    for level, title in enumerate(_LEVELS):
        found = [each for each in own if each.level == level]
        if found:
            sections.append("\n".join([title, *_entries(found, width)]))
    return "\n\n".join(sections)


def _entries(definitions: Iterable[Defined], width: int) -> Iterable[str]:
    for each in definitions:
        parameters = ", ".join(parameter.name for parameter in each.parameters)
        yield f"  {each.name}({parameters})" if parameters else f"  {each.name}"
        if each.comment:
            yield from textwrap.wrap(each.comment, width, initial_indent="      ", subsequent_indent="      ")
