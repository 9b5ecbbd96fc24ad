"""Long lists in little memory: their values are compressed, but for the last few."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar
from zlib import compress, decompress

T = TypeVar("T")

SHORT = 65_536
"""The most values at the end of a list that are not compressed, by default. So short lists cost no time."""

BLOCK = 256
"""The values that are compressed together."""

KEPT = 16
"""The blocks that are kept as they are after they were looked at, by default."""

_FAST = 1
"""The level of compression."""


class Packing(ABC, Generic[T]):
    """How values become bytes, and values again."""

    @staticmethod
    @abstractmethod
    def dump(values: list[T]) -> bytes:
        """Values as bytes. May raise anything: then they stay as they are."""

    @staticmethod
    @abstractmethod
    def load(data: bytes) -> list[T]:
        """The values again."""

    @staticmethod
    def plain(values: list[Any]) -> list[T]:
        """The values, from a block that could not be dumped."""
        return values


class Pickled(Packing[Any]):
    """Values that stay in this process."""

    @staticmethod
    def dump(values: list[Any]) -> bytes:
        """See :class:`Packing`."""
        return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def load(data: bytes) -> list[Any]:
        """See :class:`Packing`."""
        return pickle.loads(data)  # type: ignore[no-any-return]


class Packed(Sequence[T]):
    """A list that can only grow. ``kept``: how many blocks are kept as they are after they were looked at. It should be
    the number of places at which the list is read by turns. ``short``: how many values are not compressed.

    Values are made anew when they are looked at: equal ones, and not always the same.
    """

    def __init__(
        self, packing: type[Packing[T]], values: Iterable[T] = (), kept: int = KEPT, short: int = SHORT
    ) -> None:
        self._packing = packing
        self._kept = kept
        self._short = short
        self._blocks: list[bytes | list[T]] = []
        self._begins = array("q")
        """Of each block, the number of its first value; ``_end``: the number after its last."""
        self._end = 0
        self._last: list[T] = []
        """The values that are in no block yet."""
        self._looked_at: dict[int, list[T]] = {}
        """The values of blocks, by their numbers, the latest last."""
        for value in values:
            self.append(value)

    @classmethod
    def joined(cls, packing: type[Packing[T]], parts: Iterable[Packed[Any]], kept: int = KEPT) -> Packed[T]:
        """The values of several lists, one after another. ``packing``: its ``load`` gives the values."""
        whole = cls(packing, kept=kept)
        for part in parts:
            part._pack()
            whole._begins.extend([whole._end + begin for begin in part._begins])
            whole._blocks += part._blocks
            whole._end += part._end
        return whole

    def append(self, value: T) -> None:
        """Add a value."""
        self._last.append(value)
        if len(self._last) == self._short:
            self._pack()

    def _pack(self) -> None:
        for first in range(0, len(self._last), BLOCK):
            values = self._last[first : first + BLOCK]
            self._begins.append(self._end)
            self._end += len(values)
            try:
                self._blocks.append(compress(self._packing.dump(values), _FAST))
            except Exception:  # pickle and msgspec raise many things
                self._blocks.append(values)
        self._last.clear()

    def _values(self, block: bytes | list[T]) -> list[T]:
        return self._packing.load(decompress(block)) if isinstance(block, bytes) else self._packing.plain(block)

    def __len__(self) -> int:
        return self._end + len(self._last)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if place < 0:
            place += len(self)
        if place < 0:
            raise IndexError(place)
        if place >= self._end:
            return self._last[place - self._end]
        number = bisect_right(self._begins, place) - 1
        return self._look_at(number)[place - self._begins[number]]

    def _look_at(self, number: int) -> list[T]:
        values = self._looked_at.pop(number, None)
        if values is None:
            values = self._values(self._blocks[number])
            if len(self._looked_at) >= self._kept:
                del self._looked_at[next(iter(self._looked_at))]
        self._looked_at[number] = values
        return values

    def __iter__(self) -> Iterator[T]:
        return chain(chain.from_iterable(map(self._values, self._blocks)), self._last)

    def taken(self) -> Iterator[T]:
        """The values, which the list then lets go of, block by block."""
        blocks, last = self._blocks[::-1], self._last
        self._blocks, self._begins, self._end, self._last = [], array("q"), 0, []
        self._looked_at.clear()
        while blocks:
            yield from self._values(blocks.pop())
        yield from last


class Chosen(Sequence[T]):
    """The values of another sequence at some places."""

    def __init__(self, values: Sequence[T], places: Sequence[int]) -> None:
        self._of = values
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        chosen = self._places[place]
        return [self._of[each] for each in chosen] if isinstance(place, slice) else self._of[chosen]

    def __iter__(self) -> Iterator[T]:
        return map(self._of.__getitem__, self._places)
