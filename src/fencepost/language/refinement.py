"""The declaration of a refinement: the other protocol, its constants, and the mapping of states to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.errors import NotAProtocol
from fencepost.language.declarations import Declared
from fencepost.language.protocol import Protocol


@dataclass
class Refinement(Declared):
    """A declaration by :func:`refines`. ``other``: the refined protocol."""

    other: type[Protocol] = Protocol
    constants: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""

    @property
    def doc(self) -> str:
        """The author's text, or a default one."""
        return self.said or f"Every step is a step of {self.other.name}, or one that changes nothing of it."

    @property
    def source(self) -> None:
        """Not known: it has no method of its own."""
        return


def refines(
    other: type[Protocol],
    mapping: Mapping[str, Any] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    when: Callable[[Any], bool] | None = None,
    doc: str = "",
) -> Any:
    """A refinement: under ``mapping``, every initial state is an initial state of ``other``, and every step is a step
    of ``other`` or leaves its state unchanged. TLA+: ``Spec => Other!Spec``, without its fairness.

    ``mapping`` gives the variables of ``other`` in a state of this protocol. A variable that it does not name is the
    one of the same name here, part by part. For the others it has, under ``"variable"`` or ``"variable.field"``:

    - a function of the state, and of the keys on the path, that returns the value: ``"client.lac": lambda self, c:
      ...``;
    - the name of a variable or a field here that holds the same value: ``"holder": "leader"``;
    - for a network, a dictionary from each kind of message here to another kind with the same fields, or to ``(Kind,
      function)``, a list of these, or None. The function returns a message of that kind or None. If the other network
      remembers messages, a third function maps back: ``(Kind, function, back)``.

    ``constants`` sets those of ``other``, by name: a value, a constant of this protocol, or a function of the protocol.
    The default is the constant of the same name here, or else its own default. ``when`` turns the refinement off by
    default, as for :func:`invariant`.

    The constraints and the properties of ``other`` are ignored.
    """
    if not (isinstance(other, type) and issubclass(other, Protocol) and other is not Protocol):
        raise NotAProtocol(f"refines(...) is given {other!r}: give it the class of the other protocol")
    return Refinement(
        "refinement", _judged, when=when, other=other, constants=constants or {}, mapping=mapping or {}, said=doc
    )


def _judged(*_: Any) -> bool:
    raise NotAProtocol("a refinement is judged by the checker: it cannot be called")
