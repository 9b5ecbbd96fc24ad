"""What an action says to whoever runs it: ``require``, ``one_of``, and the cursor through which it reads and writes the state.

The spec knows no engine. It knows a :class:`Cursor`, which `fencepost.step` provides: every read, write and choice of the
author's Python goes through one, and that is all that anything below needs to see of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fencepost.errors import FencepostError
from fencepost.spec.values import Value, canonical, show

T = TypeVar("T")

MAX_OPTIONS = 100_000
"""The most options one choice may have; more is taken for an infinite choice."""


class Disabled(BaseException):
    """The action is not enabled in this state. A BaseException, so that ``except Exception`` can not swallow it."""


@dataclass(frozen=True)
class Slot:
    """One part of a state that is read and written on its own.

    ``path`` names it (``("bookie", b1, "fenced")``); ``default`` is what it holds until something is written to it.
    ``constant`` slots exist in every state from the start; the others appear when first touched.
    """

    path: tuple[Any, ...]
    default: Value
    constant: bool = True

    @property
    def name(self) -> str:
        """The slot as a person reads it: ``bookie.b1.fenced``."""
        return slot_name(self.path)


def slot_name(path: tuple[Any, ...]) -> str:
    """``bookie.b1.fenced`` for ``("bookie", b1, "fenced")``; a channel reads ``network.AddEntry[w1→b1]``."""
    return ".".join(part if isinstance(part, str) else _key_name(part) for part in path)


def _key_name(key: Any) -> str:
    return show(key) if not isinstance(key, type) else key.__name__


@dataclass(frozen=True)
class Event:
    """Something an action told about itself for the reader of a trace; never part of a state.

    ``kind`` is ``send`` (``lost`` tells its fate), ``receive`` or ``timeout``; ``passed`` is what passed.
    """

    kind: str
    source: Value
    dest: Value
    passed: tuple[Value, ...]
    lost: bool = False

    @property
    def text(self) -> str:
        """What passed, as a person reads it."""
        return ", ".join(map(show, self.passed))


class Cursor(Protocol):
    """One state being read, and perhaps changed, by one evaluation of the author's Python."""

    def read(self, slot: Slot) -> Value: ...

    def write(self, slot: Slot, value: Value) -> None: ...

    def choose(self, options: Sequence[Value]) -> Value: ...

    def tell(self, event: Event) -> None: ...


current: ContextVar[Cursor | None] = ContextVar("fencepost_cursor", default=None)


def require(condition: object) -> None:
    """The enabling condition of an action: unless ``condition`` holds, the action can not be taken in this state."""
    if not condition:
        raise Disabled


def one_of(options: Iterable[T]) -> T:
    """A nondeterministic choice: the action is explored once for each option, in canonical order for sets.

    With no option the action is not enabled. Raises :class:`FencepostError` outside an action and for an infinite choice.
    """
    cursor = current.get()
    if cursor is None:
        raise FencepostError("one_of() can only be asked inside an action or the initial state")
    if isinstance(options, (set, frozenset)) or hasattr(options, "keys"):
        chosen: list[T] = canonical(options)
    else:
        chosen = []
        for option in options:
            chosen.append(option)
            if len(chosen) > MAX_OPTIONS:
                raise FencepostError(f"a choice has more than {MAX_OPTIONS:,} options: is it infinite?")
    if not chosen:
        raise Disabled
    result: T = chosen[0] if len(chosen) == 1 else cursor.choose(chosen)
    return result
