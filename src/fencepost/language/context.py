"""The context of an action: ``require``, ``one_of``, and the cursor that reads and writes the state.

The language depends on no engine. Every read, write and choice of the author's Python goes through a :class:`Cursor`,
which :mod:`fencepost.semantics` implements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from fencepost.errors import FencepostError
from fencepost.language.truths import truth
from fencepost.language.values import Foreign, Map, ModelValue, NotAValue, Set, Value, canonical, framed, show
from fencepost.text.plain import printable

T = TypeVar("T")

MAX_WAYS = 1 << 15
"""The most combinations of choices of one action in one state, and so the most options of one choice. More counts as an
infinite choice. Compiled loops keep a stack of this many branches.
"""


class Disabled(BaseException):
    """The action is not enabled in this state. It is a BaseException, so that ``except Exception`` does not catch
    it.
    """


class Unset(Foreign):
    """What a slot holds before an initial state gives it a value, if nothing is declared for it."""

    __slots__ = ()

    def encoded(self) -> bytes:
        return framed(b"")

    def order(self) -> Any:
        return ()

    def shown(self) -> str:
        return "unset"

    def permuted(self, swap: Mapping[ModelValue, ModelValue]) -> Value:
        return self

    def python(self) -> Value:
        return None

    def __reduce__(self) -> str:
        return "UNSET"


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class Slot:
    """One part of a state, read and written separately.

    ``path`` names it (``("bookie", b1, "fenced")``); ``default`` is its content until the first write. ``constant``
    slots exist in every state from the start. The others appear on first use.
    """

    path: tuple[Any, ...]
    default: Value
    constant: bool = True

    @property
    def name(self) -> str:
        """The slot's name for people: ``bookie.b1.fenced``."""
        return slot_name(self.path)


def slot_name(path: tuple[Any, ...]) -> str:
    """``bookie.b1.fenced`` for ``("bookie", b1, "fenced")``. A channel is ``network.AddEntry[w1→b1]``."""
    return ".".join(printable(part) if isinstance(part, str) else _key_name(part) for part in path)


def _key_name(key: Any) -> str:
    return show(key) if not isinstance(key, type) else key.__name__


FROM_HERE, THROUGHOUT = 0, -1
"""What of an evaluation relies on a universe."""


class Universe:
    """The slots of a universe that are known to one search, in the order in which they appeared, and their numbers.

    ``markers`` are slots that never hold anything, by place (:meth:`GrowingCursor.universe`). An evaluation reads one
    where it begins to rely on the universe. If there are none, evaluations rely on it throughout.
    """

    __slots__ = ("markers", "numbers", "slots")

    def __init__(self) -> None:
        self.markers: dict[int, Slot] = {}
        self.slots: list[Slot] = []
        self.numbers: list[int] = []


@dataclass(frozen=True, slots=True)
class Sieve:
    """Tells which slots of a universe may matter to an evaluation. Two with one ``key`` tell the same. ``is_known``:
    whether another one can have this key.
    """

    key: Any
    matters: Callable[[Slot], bool] = field(compare=False)
    is_known: bool = field(compare=False, default=True)


MOST_SIEVES = 256
"""The most sieves that are kept for one root and one universe. Beyond, every slot matters to it."""


@dataclass(slots=True)
class Reliance:
    """What a root relies on, from where it has read a marker of the universe: that the slots of the universe hold
    their default from number ``first`` on, if they matter. ``sieves``: None if all do.
    """

    universe: Universe
    first: int
    sieves: dict[Any, Sieve] | None

    def add(self, sieves: dict[Any, Sieve] | None) -> None:
        """Rely on what these let through, too; on everything for None."""
        if self.sieves is not None:
            self.sieves = None if sieves is None else self.sieves | sieves
            if self.sieves is not None and len(self.sieves) > MOST_SIEVES:
                self.sieves = None

    def grown(self) -> list[int]:
        """The numbers of the slots that have appeared, and matter. Each is reported once."""
        appeared = range(self.first, len(self.universe.slots))
        self.first = len(self.universe.slots)
        return [self.universe.numbers[each] for each in appeared if self._matters(self.universe.slots[each])]

    def _matters(self, slot: Slot) -> bool:
        return self.sieves is None or any(each.matters(slot) for each in self.sieves.values())


class Event(NamedTuple):
    """Something that an action did, shown in traces. It is never part of a state.

    ``kind`` is ``send`` (``lost``: it never arrives), ``receive`` or ``timeout``. ``passed`` holds the messages.
    """

    kind: str
    source: Value
    dest: Value
    passed: tuple[Value, ...]
    lost: bool = False

    @property
    def text(self) -> str:
        """The messages, as text for people."""
        return ", ".join(map(show, self.passed))


class Cursor(Protocol):
    """The access of one evaluation of the author's Python to one state, which it reads and may change.

    ``disabled``: a ``require`` failed or a choice was empty, so the evaluation must end with :class:`Disabled`. A
    cursor with ``every_choice`` is asked to choose even if there is only one option.
    """

    disabled: bool

    def read(self, slot: Slot) -> Value: ...

    def write(self, slot: Slot, value: Value) -> None: ...

    def choose(self, options: Sequence[Value]) -> Value: ...

    def emit(self, event: Event) -> None: ...


class GrowingCursor(Cursor, Protocol):
    """A cursor for variables that are laid out in universes (:meth:`fencepost.language.fields.Shape.universe`)."""

    def universe(self, path: tuple[Any, ...], sieve: Sieve | None = None, place: int = FROM_HERE) -> Sequence[Slot]:
        """The slots of a universe that are known, in the order in which they appeared. The evaluation relies on all
        others: what appears later holds its default in this state, unless the ``sieve`` says that it does not matter.
        Engines see to it.

        ``place``: what relies on them is what follows, for :data:`FROM_HERE`; all of the evaluation, for
        :data:`THROUGHOUT`; or only that there is no ``place``-th slot that matters and could be chosen, which disables
        an action.
        """
        ...


def slots_changed(after: Cursor, before: Cursor | None, path: tuple[Any, ...]) -> Sequence[Slot] | None:
    """The slots below a path that a step changes, if that is known without reading. ``after`` and ``before`` are
    cursors over the states after the step and before it. None for ``before`` stands for the one that belongs to
    ``after``.
    """
    knows = getattr(after, "slots_changed", None)
    found: Sequence[Slot] | None = None if knows is None else knows(before, path)
    return found


class Branching(GrowingCursor, Protocol):
    """A cursor over an initial state that is being set up."""

    def branch(self) -> Branching:
        """Another cursor that has been given the same values so far."""
        ...


class Looking:
    """A read-only cursor."""

    disabled = False

    def write(self, slot: Slot, value: Value) -> None:
        raise NotAValue(f"{slot.name} cannot be assigned here: this state is only looked at")

    def choose(self, options: Sequence[Value]) -> Value:
        raise NotAValue("nothing can be chosen here: this state is only looked at")

    def emit(self, event: Event) -> None:
        raise NotAValue("nothing can be sent here: this state is only looked at")


current: ContextVar[Cursor | None] = ContextVar("fencepost_cursor", default=None)


def require(condition: bool) -> None:
    """The enabling condition of an action: the action can be taken in this state only if ``condition`` holds.

    Raises :class:`fencepost.errors.Misbehaved` if ``condition`` is neither true nor false.
    """
    if condition is not True and not truth(condition, "asked require(...) of"):
        # A cursor that collects the reasons why an action is not enabled goes on to the next condition.
        forgive = getattr(current.get(), "forgive", None)
        if forgive is None:
            raise _disabled()
        forgive()


def _disabled() -> Disabled:
    cursor = current.get()
    if cursor is not None:  # survives ``except:`` and ``finally: return``
        cursor.disabled = True
    return Disabled()


def one_of(options: Iterable[T]) -> T:
    """A nondeterministic choice: the action is explored once for each option. Sets are in canonical order.

    Without options the action is not enabled. Raises :class:`FencepostError` outside an action, and for an infinite
    choice.
    """
    cursor = current.get()
    if cursor is None:
        raise FencepostError("one_of() can only be asked inside an action or the initial state")
    listed: Sequence[T]
    every_choice = getattr(cursor, "every_choice", False)  # the cursor knows its option, so a range need not be finite
    if isinstance(options, range):
        listed = options if every_choice else options[: MAX_WAYS + 1]  # type: ignore[assignment]
    elif isinstance(options, (list, tuple, str)):
        listed = options
    elif type(options) in _UNORDERED:
        listed = InOrder(options)  # type: ignore[arg-type]
    elif isinstance(options, (set, frozenset)) or hasattr(options, "keys"):
        listed = canonical(options)
    else:
        listed = list(islice(options, MAX_WAYS + 1))
    if len(listed) > MAX_WAYS and not (every_choice and isinstance(options, range)):
        raise FencepostError(f"a choice has more than {MAX_WAYS:,} options: is it infinite?")
    if not listed:
        raise _disabled()
    if len(listed) == 1 and not every_choice:
        return listed[0]
    result: T = cursor.choose(listed)
    return result


_UNORDERED = (set, frozenset, Set, dict, Map)
"""Collections that must be sorted before an option can be taken by its number."""


class InOrder(Sequence[T]):
    """The members of a collection in canonical order, sorted on first access."""

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
