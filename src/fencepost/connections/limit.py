"""A limit on connections of one kind. A new connection takes the place of the one that has been silent longest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class ConnectionLimit(Generic[C]):
    """At most ``limit`` connections. One more evicts the connection that has been silent longest: ``close`` is called
    with it. So idle connections cannot lock others out."""

    def __init__(self, limit: int, close: Callable[[C], object]) -> None:
        self.limit = limit
        self._close = close
        self._by_silence: dict[C, None] = {}

    def __len__(self) -> int:
        return len(self._by_silence)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._by_silence))

    def admit(self, connection: C) -> None:
        """Add a new connection. Evicts another if the limit is reached."""
        while len(self._by_silence) >= self.limit:
            silent = next(iter(self._by_silence))
            del self._by_silence[silent]
            self._close(silent)
        self._by_silence[connection] = None

    def touch(self, connection: C) -> None:
        """Record that a connection has sent something."""
        if connection in self._by_silence:
            del self._by_silence[connection]
            self._by_silence[connection] = None

    def remove(self, connection: C) -> None:
        """Remove a closed connection, if it was not evicted."""
        self._by_silence.pop(connection, None)
