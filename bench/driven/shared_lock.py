"""A lock that several readers or one writer hold. Who must wait does so in the order of asking."""

from __future__ import annotations


class Refused(Exception):
    """The caller may not do this now."""


class SharedLock:
    """``readers`` and ``writer`` hold the lock."""

    def __init__(self) -> None:
        self.readers: set[str] = set()
        self.writer: str | None = None
        self.queue: list[tuple[str, bool]] = []

    def read(self, who: str) -> None:
        """Ask for the lock, to read."""
        self._must_be_new(who)
        self.queue.append((who, False))
        self._grant()

    def write(self, who: str) -> None:
        """Ask for the lock, to write."""
        self._must_be_new(who)
        self.queue.append((who, True))
        self._grant()

    def release(self, who: str) -> None:
        """Give it back."""
        if who == self.writer:
            self.writer = None
        elif who in self.readers:
            self.readers.remove(who)
        else:
            raise Refused
        self._grant()

    def leave(self, who: str) -> None:
        """Wait no more."""
        for place, (waiter, _) in enumerate(self.queue):
            if waiter == who:
                del self.queue[place]
                self._grant()
                return
        raise Refused

    def downgrade(self, who: str) -> None:
        """Go on as a reader."""
        if who != self.writer:
            raise Refused
        self.writer = None
        self.readers.add(who)
        self._grant()

    def _must_be_new(self, who: str) -> None:
        if who == self.writer or who in self.readers or any(who == waiter for waiter, _ in self.queue):
            raise Refused

    def _grant(self) -> None:
        while self.queue and self.writer is None:
            who, writes = self.queue[0]
            if writes:
                if self.readers:
                    return
                self.writer = who
            else:
                self.readers.add(who)
            self.queue.pop(0)
