"""A refinement as a protocol declares it: the other protocol, its constants, and what its variables are in a state of
this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.errors import NotAProtocol
from fencepost.language.declarations import Declared
from fencepost.language.protocol import Protocol


@dataclass
class Refinement(Declared):
    """A declaration by :func:`refines`. ``other``: the protocol of which every step is one."""

    other: type[Protocol] = Protocol
    constants: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""

    @property
    def doc(self) -> str:
        """The author's text, or else one that fits any refinement."""
        return self.said or f"Every step is a step of {self.other.name}, or one that changes nothing of it."


def refines(
    other: type[Protocol],
    mapping: Mapping[str, Any] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    when: Callable[[Any], bool] | None = None,
    doc: str = "",
) -> Any:
    """Every step of this protocol is, seen through ``mapping``, a step of ``other`` or one that changes nothing of it;
    and every initial state is an initial state of ``other``. TLA+: ``Spec => Other!Spec``, without its fairness.

    ``mapping`` says what a variable of ``other`` is in a state of this protocol. One that it does not name is the
    variable of the same name here, part by part. For the others it gives, by ``"variable"`` or ``"variable.field"``:

    - a function of the state, and of the keys on the way there, that returns the value: ``"client.lac": lambda self, c:
      ...``;
    - the name of a variable or a field here that holds the same: ``"holder": "leader"``;
    - for a network, a dictionary with what each kind of message here is there: another kind with the same fields,
      ``(Kind, function)`` where the function returns a message of that kind or None, a list of such, or None.  Where
      the other network remembers messages, a third function leads back: ``(Kind, function, back)``.

    ``constants`` are those of ``other``, by name: a value, a constant of this protocol, or a function of the protocol;
    by default the constant of the same name here, or else its own default. ``when`` turns it off by default, as for
    :func:`invariant`.

    The constraints of ``other`` are not obeyed, and its properties are not checked.
    """
    if not (isinstance(other, type) and issubclass(other, Protocol) and other is not Protocol):
        raise NotAProtocol(f"refines(...) is given {other!r}: give it the class of the other protocol")
    return Refinement(
        "refinement", _judged, when=when, other=other, constants=constants or {}, mapping=mapping or {}, said=doc
    )


def _judged(*_: Any) -> bool:
    raise NotAProtocol("a refinement is judged by the checker: it cannot be called")
