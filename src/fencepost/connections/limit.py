"""Places for connections of one kind: there are so many, and who says nothing loses its place to who comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class ConnectionLimit(Generic[C]):
    """At most ``limit`` connections. For one more, the one that has been silent for the longest time gives its place
    up: ``close`` is called with it. So connections that only wait keep nobody out."""

    def __init__(self, limit: int, close: Callable[[C], object]) -> None:
        self.limit = limit
        self._close = close
        self._by_silence: dict[C, None] = {}

    def __len__(self) -> int:
        return len(self._by_silence)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._by_silence))

    def admit(self, connection: C) -> None:
        """A connection comes."""
        while len(self._by_silence) >= self.limit:
            silent = next(iter(self._by_silence))
            del self._by_silence[silent]
            self._close(silent)
        self._by_silence[connection] = None

    def touch(self, connection: C) -> None:
        """Something came over a connection that has a place."""
        if connection in self._by_silence:
            del self._by_silence[connection]
            self._by_silence[connection] = None

    def remove(self, connection: C) -> None:
        """A connection is gone, if it had a place."""
        self._by_silence.pop(connection, None)
