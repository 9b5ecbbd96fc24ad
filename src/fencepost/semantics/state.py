"""States as rows of small integers: the slots, the values that each has held, and the hash of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

from fencepost.language.contents import classes_in
from fencepost.language.context import UNSET, Slot, Universe
from fencepost.language.network import NetworkShape
from fencepost.language.seam import Model
from fencepost.language.values import NotAValue, Value, encode, full_name, shared_names, show
from fencepost.text.notebook import table

SEED = 0xBB67AE8584CAA73B25742D7078B83B89
"""The fingerprint of the state in which every slot holds its default. Any constant would do."""

LOW = (1 << 64) - 1


MOST_MEMBERS = 1 << 12
"""The most slots of one universe. A search that needs more begins again without it."""


class Outgrown(BaseException):
    """A search has outgrown the layout of ``variable``, or of all if it is "", and has to begin again with another. It
    is a BaseException, so that evaluations do not catch it.
    """

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.variable = variable


class BeginAgain(BaseException):
    """A search has met most members late. It is faster to begin again, with slots for all of them from the start. It is
    a BaseException, so that evaluations do not catch it.
    """


class ValueTable:
    """The slots of a protocol, and the values seen in each, numbered from 0, the default.

    A fingerprint is the XOR of one hash per slot and value. The hash depends on content and not on numbering, so it is
    the same in every run and every process. Defaults hash to 0, so a slot that appears late changes no earlier
    fingerprint.
    """

    def __init__(self, protocol: Model) -> None:
        self.protocol = protocol
        self.slots: list[Slot] = []
        self.values: list[list[Value]] = []
        self.hashes: list[list[int]] = []
        self._index: dict[bytes, int] = {}
        self.numbered: dict[int, tuple[int, Slot]] = {}
        """The number of each slot by id, which is several times faster than by path. The slots are kept alive, so their
        ids stay unique.
        """
        self._ids: list[dict[bytes, int]] = []
        self.grown = 0
        """The number of slots that are in universes."""
        self._universes: dict[bytes, Universe] = {}
        self._universe_of: dict[int, tuple[Universe, tuple[Any, ...]]] = {}
        """The universes by the ids of their paths. The paths are kept alive."""
        self._in_universe: set[int] = set()
        self.markers: set[int] = set()
        """The numbers of the universes' markers."""
        self.visible: Callable[[tuple[Any, ...]], bool] = lambda path: True
        self._declare()

    def _declare(self) -> None:
        """Number the slots that exist in every state."""
        for name, shape in self.protocol.shapes.items():
            for slot in shape.slots((name,)):
                self.slot(slot)

    def show_only(self, visible: Callable[[tuple[Any, ...]], bool]) -> None:
        """Count only the slots with ``visible`` paths in fingerprints, for a view."""
        self.visible = visible
        for index, slot in enumerate(self.slots):
            self.hashes[index] = [self._hash(slot, value) for value in self.values[index]]

    def slot(self, slot: Slot) -> int:
        """The number of a slot. A new slot gets the next number, and every state holds its default there."""
        known = self.numbered.get(id(slot))
        if known is not None:
            return known[0]
        place = encode_path(slot.path)
        index = self._index.get(place)
        if index is None:
            # An interruption here does no harm: entries beyond the slots are overwritten.
            index = len(self.slots)
            ids, hashes, values = self._domain(slot)
            self._ids[index:], self.hashes[index:], self.values[index:] = [ids], [hashes], [values]
            self.slots.append(slot)
            self._index[place] = index
            self._grow(slot, index)
        elif shared_names:
            _refuse_namesakes(self.slots[index].path, slot.path)
        self.numbered[id(slot)] = (index, slot)
        return index

    def _domain(self, slot: Slot) -> tuple[dict[bytes, int], list[int], list[Value]]:
        """The numbers of a new slot's values by their encodings, and hashes and values by number."""
        return {encode(slot.default): 0}, [0], [slot.default]

    def _grow(self, slot: Slot, index: int) -> None:
        shape = self.protocol.shapes.get(slot.path[0])
        path = None if shape is None else shape.universe(slot.path)
        if path is not None:
            universe = self.universe(path)
            universe.slots.append(slot)
            universe.numbers.append(index)
            if len(universe.slots) > MOST_MEMBERS:
                raise Outgrown(slot.path[0])
            self._in_universe.add(index)
            self.grown += 1

    def universe(self, path: tuple[Any, ...]) -> Universe:
        """The universe with this path."""
        known = self._universe_of.get(id(path))
        if known is None:
            known = self._universe_of[id(path)] = self._universes.setdefault(encode_path(path), Universe()), path
        return known[0]

    def marker(self, universe: Universe, place: int) -> Slot:
        """The marker of a universe for a place in evaluations."""
        known = universe.markers.get(place)
        if known is None:
            # No variable has this name.
            known = universe.markers[place] = Slot(("universe()", len(self.markers)), None, constant=False)
            self.markers.add(self.slot(known))
        return known

    def is_shown_whole(self, slot: Slot) -> bool:
        """Whether people see the variable of a slot as one part."""
        shape = self.protocol.shapes.get(slot.path[0])
        return shape is not None and shape.is_shown_whole

    def is_about_universe(self, index: int) -> bool:
        """Whether a slot is in some universe, or a marker of one."""
        return index in self._in_universe or index in self.markers

    def index_of(self, path: tuple[Any, ...]) -> int | None:
        """The number of the slot at a path. None if no state has touched it."""
        return self._index.get(encode_path(path))

    def intern(self, index: int, value: Value) -> int:
        """The number of a frozen value in a slot. A new value gets the next number."""
        code = encode(value)
        number = self._ids[index].get(code)
        if number is None:
            number = len(self.values[index])
            self.hashes[index][number:] = [self._hash(self.slots[index], value)]
            self.values[index].append(value)
            self._ids[index][code] = number
        elif shared_names:
            _refuse_namesakes(self.values[index][number], value)
        return number

    def _hash(self, slot: Slot, value: Value) -> int:
        code = encode(value)
        if not self.visible(slot.path) or code == encode(slot.default):
            return 0
        return content_hash(slot.path, code)

    def fingerprint(self, ids: Sequence[int]) -> int:
        """The 128-bit fingerprint of a row. Its low 64 bits are the 64-bit fingerprint."""
        result = SEED
        for index, number in enumerate(ids):
            if number:
                result ^= self.hashes[index][number]
        return result

    def normal(self, ids: Sequence[int]) -> tuple[int, ...]:
        """A row without trailing defaults, so that rows made before and after a slot appeared compare equal."""
        end = len(ids)
        while end and not ids[end - 1]:
            end -= 1
        return tuple(int(i) for i in ids[:end])


def encode_path(path: tuple[Any, ...]) -> bytes:
    """The path of a slot as bytes, equal exactly when two paths are. A name would not do: the keys 1, True and "1"
    differ.
    """
    return b"".join([b"k" + full_name(p).encode() + b";" if isinstance(p, type) else encode(p) for p in path])


def content_hash(path: tuple[Any, ...], code: bytes) -> int:
    """A 128-bit hash of a slot's path and a value's encoding (:func:`encode`), and of nothing else."""
    return int.from_bytes(blake2b(encode_path(path) + b"\0" + code, digest_size=16).digest(), "little")


def _refuse_namesakes(known: Value, value: Value) -> None:
    """Raises if two different values have the same encoding: they hold objects of two classes with the same full
    name.
    """
    if known is not value and known != value:
        names = sorted({full_name(cls) for cls in classes_in(value)} & shared_names)
        raise NotAValue(
            f"two classes named {' or '.join(names)} cannot be told apart by name: give one of them a name of its own"
        )


class State:
    """One state of a protocol, for users and reports: its values by slot."""

    __slots__ = ("ids", "store")

    def __init__(self, store: ValueTable, ids: Sequence[int]) -> None:
        self.store = store
        self.ids = store.normal(ids)

    def __getitem__(self, index: int) -> Value:
        return self.store.values[index][self.ids[index] if index < len(self.ids) else 0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and other.store is self.store and other.ids == self.ids

    def __hash__(self) -> int:
        return hash(self.ids)

    def _repr_html_(self) -> str:
        """In a notebook: a table of its variables."""
        rows = [(name, show(value)) for name, value in self.variables().items()]
        return table(f"A state of {self.store.protocol.name}", rows)

    @property
    def fingerprint(self) -> int:
        """The 128-bit content fingerprint."""
        return self.store.fingerprint(self.ids)

    def slots(self) -> Iterator[tuple[Slot, Value]]:
        """Every part that is shown, with its value here, in order of declaration."""
        yield from ((slot, value) for slot, value in self._slots() if not self.store.is_shown_whole(slot))
        whole = [name for name, shape in self.store.protocol.shapes.items() if shape.is_shown_whole]
        if whole:
            values = self.variables()
            yield from ((variable(name), values[name]) for name in whole)

    def _slots(self) -> Iterator[tuple[Slot, Value]]:
        for index, slot in enumerate(self.store.slots):
            if index not in self.store.markers:
                yield slot, self[index]

    def touched(self) -> Iterator[tuple[Slot, Value]]:
        """The slots that do not hold their default, with their values, in order of declaration."""
        for index, number in enumerate(self.ids):
            if number:
                yield self.store.slots[index], self.store.values[index][number]

    def read(self, slot: Slot) -> Value:
        """The value of a slot here. Its default if no state has touched it."""
        index = self.store.index_of(slot.path)
        return slot.default if index is None else self[index]

    def variables(self) -> Mapping[str, Value]:
        """Every state variable as one immutable value: records as records, maps as :class:`fencepost.Map`."""
        result: dict[str, Value] = {}
        for name, shape in self.store.protocol.shapes.items():
            if isinstance(shape, NetworkShape) or shape.is_shown_whole:
                # Remembered messages, and members of sets, have slots that only states know.
                result[name] = shape.held((slot, value) for slot, value in self._slots() if slot.path[0] == name)
            else:
                result[name] = shape.value(self.read, (name,))
        return result

    def set_up(self) -> list[tuple[Slot, Value, Value]]:
        """The parts that differ from what is declared, as :meth:`changes` has them. A variable that is shown as one
        part has no declared value.
        """
        shapes = self.store.protocol.shapes
        differing = self.changes(State(self.store, ()))
        values = self.variables() if any(shape.is_shown_whole for shape in shapes.values()) else {}
        return [
            *(each for each in differing if not self.store.is_shown_whole(each[0])),
            *((variable(name), UNSET, values[name]) for name, shape in shapes.items() if shape.is_shown_whole),
        ]

    def changes(self, before: State) -> list[tuple[Slot, Value, Value]]:
        """The parts that differ from ``before``, each with its old and its new value."""
        store = self.store
        numbers = enumerate(zip_longest(before.ids, self.ids, fillvalue=0))
        found = [
            (store.slots[index], store.values[index][old], store.values[index][new])
            for index, (old, new) in numbers
            if old != new
        ]
        whole = dict.fromkeys(slot.path[0] for slot, _, _ in found if store.is_shown_whole(slot))
        if not whole:
            return found
        old_values, new_values = before.variables(), self.variables()
        names = [name for name in store.protocol.shapes if name in whole]
        return [
            *(each for each in found if each[0].path[0] not in whole),
            *((variable(name), old_values[name], new_values[name]) for name in names),
        ]


def variable(name: str) -> Slot:
    """A variable that is shown as one part, whatever its slots are."""
    return Slot((name,), UNSET)
