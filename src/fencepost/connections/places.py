"""Places for connections of one kind: there are so many, and who says nothing loses its place to who comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class Places(Generic[C]):
    """At most ``limit`` connections. For one more, the one that has been silent for the longest time gives its place
    up: ``close`` is called with it. So connections that only wait keep nobody out."""

    def __init__(self, limit: int, close: Callable[[C], object]) -> None:
        self.limit = limit
        self._close = close
        self._taken: dict[C, None] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._taken))

    def take(self, connection: C) -> None:
        """A connection comes."""
        while len(self._taken) >= self.limit:
            silent = next(iter(self._taken))
            del self._taken[silent]
            self._close(silent)
        self._taken[connection] = None

    def heard(self, connection: C) -> None:
        """Something came over a connection that has a place."""
        if connection in self._taken:
            del self._taken[connection]
            self._taken[connection] = None

    def leave(self, connection: C) -> None:
        """A connection is gone, if it had a place."""
        self._taken.pop(connection, None)
