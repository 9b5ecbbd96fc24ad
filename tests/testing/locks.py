"""A lock of three clients, a system that follows it, and faults of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost import ModelValue, Protocol, action, model_values, require, state


class Lock(Protocol):
    """A lock that clients hold in the order in which they asked."""

    clients = model_values("c", 3)

    holder: ModelValue | None = state(None)
    waiting: tuple[ModelValue, ...] = state(())

    @action(c=clients)
    def acquires(self, c: ModelValue) -> None:
        require(c != self.holder and c not in self.waiting)
        if self.holder is None:
            self.holder = c
        else:
            self.waiting += (c,)

    @action(c=clients)
    def releases(self, c: ModelValue) -> None:
        require(c == self.holder)
        self.holder = self.waiting[0] if self.waiting else None
        self.waiting = self.waiting[1:]

    @action(c=clients)
    def hangs_up(self, c: ModelValue) -> None:
        require(c in self.waiting)
        self.waiting = tuple(other for other in self.waiting if other != c)


class Refused(Exception):
    """The call is not allowed."""


class Calls:
    """The same in plain Python. ``log``: each call with the state before it."""

    refuses: Any = {"acquires": Refused, "releases": Refused, "hangs_up": Refused}
    log: list[tuple[Any, ...]] = []

    def __init__(self) -> None:
        self.holder: str | None = None
        self.waiting: list[str] = []
        self.log.append(("begin",))

    def note(self, name: str, c: Any) -> str:
        self.log.append((self.holder, tuple(self.waiting), name, str(c)))
        return str(c)

    def acquires(self, c: Any) -> None:
        who = self.note("acquires", c)
        if who == self.holder or who in self.waiting:
            raise Refused
        if self.holder is None:
            self.holder = who
        else:
            self.waiting.append(who)

    def releases(self, c: Any) -> None:
        if self.note("releases", c) != self.holder:
            raise Refused
        self.holder = self.waiting.pop(0) if self.waiting else None

    def hangs_up(self, c: Any) -> None:
        who = self.note("hangs_up", c)
        if who not in self.waiting:
            raise Refused
        self.waiting.remove(who)

    def observe(self) -> dict[str, Any]:
        return {"holder": self.holder, "waiting": self.waiting}


class LastWaiter(Calls):
    """The last waiter leaves, also if another one hangs up."""

    def hangs_up(self, c: Any) -> None:
        if self.note("hangs_up", c) not in self.waiting:
            raise Refused
        self.waiting.pop()


class NewestFirst(Calls):
    """The newest waiter is next."""

    def releases(self, c: Any) -> None:
        if self.note("releases", c) != self.holder:
            raise Refused
        self.holder = self.waiting.pop() if self.waiting else None


class AnyoneReleases(Calls):
    """Also who does not hold the lock can release it."""

    def releases(self, c: Any) -> None:
        self.note("releases", c)
        self.holder = self.waiting.pop(0) if self.waiting else None


class Remembers(Calls):
    """A refused release is remembered, and the next acquisition fails. Nothing observed shows it before."""

    spoilt = False

    def releases(self, c: Any) -> None:
        try:
            super().releases(c)
        except Refused:
            self.spoilt = bool(self.waiting)
            raise

    def acquires(self, c: Any) -> None:
        super().acquires(c)
        if self.spoilt:
            self.waiting.clear()


class ThirdTime(Calls):
    """The third acquisition by one client is lost: hidden state that no shortest way to a transition shows."""

    def __init__(self) -> None:
        super().__init__()
        self.times = dict.fromkeys(("c1", "c2", "c3"), 0)

    def acquires(self, c: Any) -> None:
        super().acquires(c)
        self.times[str(c)] += 1
        if self.times[str(c)] == 3:
            self.holder = None


FAULTS: list[Callable[[], Calls]] = [LastWaiter, NewestFirst, AnyoneReleases, Remembers, ThirdTime]
