"""What is checked at each save: the configurations of a protocol, from the smallest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.errors import FencepostError
from fencepost.language.loading import Loadable, configured
from fencepost.language.protocol import Protocol
from fencepost.language.seam import Model
from fencepost.language.values import constant_text


@dataclass(frozen=True)
class Case:
    """A model to check. ``name``: of its configuration, None for the constants as they are declared."""

    name: str | None
    model: Model
    expect: str = "holds"

    @property
    def title(self) -> str:
        """What output calls it."""
        if self.name is not None:
            return os.path.basename(self.name)
        return "as declared" if isinstance(self.model, Protocol) else f"{self.model.name}.cfg"

    @property
    def constants(self) -> str:
        """Its constants as text."""
        return "  ".join(f"{name}={constant_text(value)}" for name, value in self.model.constants.items())


def cases(
    found: Loadable, config: str | None = None, definitions: Sequence[str] = (), known: Mapping[str, int] | None = None
) -> list[Case]:
    """The configurations of a protocol from the smallest, or the one called ``config``. ``known`` has their sizes,
    where an earlier check has told them, by title. Of the others, the one with the smaller constants comes first.

    The constants as they are declared are a case too, unless a configuration has the same ones, or they need a value.
    Raises as :func:`fencepost.language.loading.configured` does.
    """
    every = getattr(found, "configurations", {}) if config is None else {}
    made = [
        Case(name, configured(found, name, definitions), one.expect if not definitions else "holds")
        for name, one in every.items()
    ]
    if config is not None:
        model = configured(found, config, definitions)
        one = model.configurations.get(config)
        return [Case(config, model, one.expect if one is not None and not definitions else "holds")]
    try:
        declared = Case(None, configured(found, None, definitions))
    except FencepostError:
        if not made:
            raise
    else:
        if all(dict(declared.model.constants) != dict(each.model.constants) for each in made):
            made.insert(0, declared)
    sizes = known or {}
    return sorted(made, key=lambda each: (sizes.get(each.title, 0), weight(each.model.constants.values())))


def weight(values: Iterable[Any]) -> int:
    """How large constants are: the sum of their numbers and of the sizes of their collections."""
    return sum(_weight(value) for value in values)


def _weight(value: Any) -> int:
    if isinstance(value, bool | str | bytes) or value is None:
        return 0
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, Mapping):
        return len(value) + weight(value.values())
    return len(value) + weight(value) if isinstance(value, tuple | list | set | frozenset) else 0


def is_as_expected(expect: str, verdict: str, violated: Sequence[str], complete: bool) -> bool | None:
    """Whether a check ended as its configuration expects. None if it reached a limit before that is known."""
    if expect in (verdict, *violated) or (expect == "holds" and verdict in ("holds", "reached")):
        return True
    return False if violated or complete or verdict == "raised" else None
