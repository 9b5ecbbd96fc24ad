"""The protocol of the lock, and the calls that its actions are."""

from __future__ import annotations

from typing import Any

from bench.driven.shared_lock import Refused, SharedLock
from fencepost import ModelValue, Protocol, action, model_values, require, state
from fencepost.testing import drive


class Sharing(Protocol):
    """Several readers or one writer hold a lock, in the order of asking."""

    clients = model_values("c", 3)
    readers: frozenset[ModelValue] = state(frozenset())
    writer: ModelValue | None = state(None)
    queue: tuple[tuple[ModelValue, bool], ...] = state(())

    @action(who=clients, writes=(False, True))
    def asks(self, who: ModelValue, writes: bool) -> None:
        require(who != self.writer and who not in self.readers and who not in [waiter for waiter, _ in self.queue])
        self.grant((*self.queue, (who, writes)))

    @action(who=clients)
    def releases(self, who: ModelValue) -> None:
        require(who == self.writer or who in self.readers)
        self.writer, self.readers = None, self.readers - {who}
        self.grant(self.queue)

    @action(who=clients)
    def leaves(self, who: ModelValue) -> None:
        require(who in [waiter for waiter, _ in self.queue])
        self.grant(tuple(each for each in self.queue if each[0] != who))

    @action(who=clients)
    def downgrades(self, who: ModelValue) -> None:
        require(who == self.writer)
        self.writer, self.readers = None, frozenset({who})
        self.grant(self.queue)

    def grant(self, queue: Any) -> None:
        while queue and self.writer is None and not (queue[0][1] and self.readers):
            (who, writes), *queue = queue
            if writes:
                self.writer = who
            else:
                self.readers |= {who}
        self.queue = tuple(queue)


class Calls:
    """What the actions are in the system."""

    refuses = dict.fromkeys(("asks", "releases", "leaves", "downgrades"), Refused)
    kind = SharedLock

    def __init__(self) -> None:
        self.lock = self.kind()

    def asks(self, who: Any, writes: bool) -> None:
        (self.lock.write if writes else self.lock.read)(str(who))

    def releases(self, who: Any) -> None:
        self.lock.release(str(who))

    def leaves(self, who: Any) -> None:
        self.lock.leave(str(who))

    def downgrades(self, who: Any) -> None:
        self.lock.downgrade(str(who))

    def observe(self) -> dict[str, Any]:
        return {"readers": self.lock.readers, "writer": self.lock.writer}


def run(kind: type[SharedLock], **options: Any) -> tuple[int, int]:
    """Drive a lock. Returns the steps of the behaviour that shows a difference, 0 if none does, and all that were
    taken.
    """
    driven = drive(Sharing, type("Calls", (Calls,), {"kind": kind}), **options)
    steps = driven.steps + driven.refusals
    return (0 if driven.shown is None else max(1, len(driven.shown.moves))), steps
