"""The context of an action: ``require``, ``one_of``, and the cursor through which it reads and writes the state.

The spec knows no engine. It knows a :class:`Cursor`, which `fencepost.semantics` provides: every read, write and choice
of the author's Python goes through one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar, overload

from fencepost.errors import FencepostError
from fencepost.language.truths import truth
from fencepost.language.values import Map, NotAValue, Set, Value, canonical, show
from fencepost.text.plain import printable

T = TypeVar("T")

MAX_WAYS = 1 << 15
"""The most ways through its choices that one action may have in one state, and so the most options of one choice: more
is taken for an infinite choice. Compiled loops keep a stack of so many branches.
"""


class Disabled(BaseException):
    """The action is not enabled in this state. A BaseException, so that ``except Exception`` cannot swallow it."""


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
    return ".".join(printable(part) if isinstance(part, str) else _key_name(part) for part in path)


def _key_name(key: Any) -> str:
    return show(key) if not isinstance(key, type) else key.__name__


@dataclass(frozen=True, slots=True)
class Event:
    """Something that an action did, for the reader of a trace; never part of a state.

    ``kind`` is ``send`` (``lost``: it never arrives), ``receive`` or ``timeout``; ``passed`` has the messages.
    """

    kind: str
    source: Value
    dest: Value
    passed: tuple[Value, ...]
    lost: bool = False

    @property
    def text(self) -> str:
        """The messages, as a person reads them."""
        return ", ".join(map(show, self.passed))


class Cursor(Protocol):
    """One state being read, and perhaps changed, by one evaluation of the author's Python.

    ``disabled``: the evaluation asked for something that is not so, and must end with :class:`Disabled`. A cursor with
    ``every_choice`` is asked to choose even where there is one option.
    """

    disabled: bool

    def read(self, slot: Slot) -> Value: ...

    def write(self, slot: Slot, value: Value) -> None: ...

    def choose(self, options: Sequence[Value]) -> Value: ...

    def emit(self, event: Event) -> None: ...


class Looking:
    """A cursor with which nothing can be done but read."""

    disabled = False

    def write(self, slot: Slot, value: Value) -> None:
        raise NotAValue(f"{slot.name} cannot be assigned here: this state is only looked at")

    def choose(self, options: Sequence[Value]) -> Value:
        raise NotAValue("nothing can be chosen here: this state is only looked at")

    def emit(self, event: Event) -> None:
        raise NotAValue("nothing can be sent here: this state is only looked at")


current: ContextVar[Cursor | None] = ContextVar("fencepost_cursor", default=None)


def require(condition: bool) -> None:
    """The enabling condition of an action: unless ``condition`` holds, the action cannot be taken in this state.

    It is true or false, and anything else a mistake.
    """
    if condition is not True and not truth(condition, "asked require(...) of"):
        # A cursor that looks for the reasons why an action is not enabled goes on to the next one.
        forgive = getattr(current.get(), "forgive", None)
        if forgive is None:
            raise _disabled()
        forgive()


def _disabled() -> Disabled:
    cursor = current.get()
    if cursor is not None:  # what ``except:`` and ``finally: return`` catch is known all the same
        cursor.disabled = True
    return Disabled()


def one_of(options: Iterable[T]) -> T:
    """A nondeterministic choice: the action is explored once for each option, in canonical order for sets.

    With no option the action is not enabled. Raises :class:`FencepostError` outside an action and for an infinite
    choice.
    """
    cursor = current.get()
    if cursor is None:
        raise FencepostError("one_of() can only be asked inside an action or the initial state")
    listed: Sequence[T]
    is_told = getattr(cursor, "every_choice", False)  # which option to take, so that nobody goes all ways
    if isinstance(options, range):
        listed = options if is_told else options[: MAX_WAYS + 1]  # type: ignore[assignment]
    elif isinstance(options, (list, tuple, str)):
        listed = options
    elif type(options) in _UNORDERED:
        listed = InOrder(options)  # type: ignore[arg-type]
    elif isinstance(options, (set, frozenset)) or hasattr(options, "keys"):
        listed = canonical(options)
    else:
        listed = list(islice(options, MAX_WAYS + 1))
    if len(listed) > MAX_WAYS and not (is_told and isinstance(options, range)):
        raise FencepostError(f"a choice has more than {MAX_WAYS:,} options: is it infinite?")
    if not listed:
        raise _disabled()
    if len(listed) == 1 and not is_told:
        return listed[0]
    result: T = cursor.choose(listed)
    return result


_UNORDERED = (set, frozenset, Set, dict, Map)
"""Collections of which one has to know the order before one can take an option by its number."""


class InOrder(Sequence[T]):
    """The members of a collection in canonical order. They are sorted when the first one is asked for, and only
    then.
    """

    def __init__(self, members: Collection[T]) -> None:
        self._members = members
        self._sorted: list[T] | None = None

    def __len__(self) -> int:
        return len(self._members)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if self._sorted is None:
            self._sorted = canonical(self._members)
        return self._sorted[at]
