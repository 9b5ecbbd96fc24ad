"""Temporal properties with their parameters bound, and the roots that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.errors import FencepostError, NotAProtocol
from fencepost.language.declarations import Declared
from fencepost.language.seam import Model
from fencepost.language.temporal import Formula, Leaf, stated
from fencepost.language.values import Value
from fencepost.semantics.authors import brief
from fencepost.semantics.roots import Root

Leaves = Mapping[Leaf, "Root | frozenset[int]"]
"""For each function in a formula its root; for each action the numbers of its roots."""


@dataclass(frozen=True)
class Promise:
    """A temporal property with its parameters bound. It has one or two ``parts``, roots that are true or false in a
    state. Or it is of the kind ``temporal``, and has a ``formula`` with ``leaves``.
    """

    declared: Declared
    parameters: dict[str, Value]
    parts: tuple[Root, ...] = ()
    formula: Formula | None = None
    leaves: Leaves | None = None

    @property
    def kind(self) -> str:
        """The kind of the property."""
        return self.declared.kind

    @property
    def name(self) -> str:
        """The property's name."""
        return self.declared.name

    @property
    def title(self) -> str:
        """The name with its parameters."""
        return self.declared.title(self.parameters)


def formula_of(declared: Declared, protocol: Model, parameters: Mapping[str, Value]) -> Formula:
    """The formula that a temporal property states. Raises :class:`fencepost.NotAProtocol` if there is none."""
    try:
        return stated(declared.function(protocol, **parameters))
    except FencepostError as error:
        raise NotAProtocol(f"temporal property {declared.name}: {error}") from None
    except Exception as error:
        raise NotAProtocol(
            f"temporal property {declared.name} states no formula: {brief(error)}; it may read constants, and the state"
            " only in functions, as in always(lambda s: ...)"
        ) from error
