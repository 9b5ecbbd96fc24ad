from collections.abc import Iterable

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
    configuration,
    constant,
    invariant,
    model_values,
    per_key,
    require,
    state,
)
from fencepost.language.linearizability import History, Register, history

WRITER = ModelValue("writer")


class Read(Record):
    """A read in progress: the replicas that it has asked, and the newest value among the answers."""

    asked: frozenset[ModelValue] = frozenset()
    newest: int = 0


class QuorumRegister(Protocol):
    """A register on several replicas. One client writes 1, 2, ..., each to a majority; others ask a majority and take
    the newest.

    Attiya, Bar-Noy and Dolev, "Sharing memory robustly in message-passing systems" (1995).
    """

    configurations = {
        "default": configuration(),
        "hasty": configuration(write_back=False, expect="linearizable"),
    }

    replicas = model_values("r", 3, symmetric=True)
    readers = model_values("c", 2, symmetric=True)
    writes: int = constant(1, "how many values are written")
    write_back: bool = constant(True, "a reader writes what it read to a majority before it returns")

    stored: PerKey[ModelValue, int] = per_key(replicas, 0)
    written: int = state(0)
    read: PerKey[ModelValue, Read | None] = per_key(readers, None)
    history: History = history(Register(0))

    @action(by=WRITER)
    def write_begins(self) -> None:
        require(self.written < self.writes and WRITER not in self.history.calls)
        self.written += 1
        self.history.invoke(WRITER, "write", self.written)

    @action(r=replicas, by=WRITER)
    def write_reaches(self, r: ModelValue) -> None:
        require(WRITER in self.history.calls and self.stored[r] < self.written)
        self.stored[r] = self.written

    @action(by=WRITER)
    def write_ends(self) -> None:
        require(
            WRITER in self.history.calls
            and self.is_majority(r for r in self.replicas if self.stored[r] >= self.written)
        )
        self.history.respond(WRITER, None)

    @action(c=readers)
    def read_begins(self, c: ModelValue) -> None:
        require(self.read[c] is None)
        self.read[c] = Read()
        self.history.invoke(c, "read")

    @action(c=readers, r=replicas)
    def read_asks(self, c: ModelValue, r: ModelValue) -> None:
        read = self.under_way(c)
        require(r not in read.asked)
        self.read[c] = Read(read.asked | {r}, max(read.newest, self.stored[r]))

    @action(c=readers, r=replicas)
    def read_writes_back(self, c: ModelValue, r: ModelValue) -> None:
        read = self.under_way(c)
        require(self.write_back and self.is_majority(read.asked) and self.stored[r] < read.newest)
        self.stored[r] = read.newest

    @action(c=readers)
    def read_ends(self, c: ModelValue) -> None:
        read = self.under_way(c)
        require(self.is_majority(read.asked))
        require(not self.write_back or self.is_majority(r for r in self.replicas if self.stored[r] >= read.newest))
        self.history.respond(c, read.newest)
        self.read[c] = None

    def under_way(self, c: ModelValue) -> Read:
        require(self.read[c] is not None)
        return self.read[c] or Read()

    def is_majority(self, some: Iterable[ModelValue]) -> bool:
        return 2 * len(set(some)) > len(self.replicas)

    @invariant
    def linearizable(self) -> bool:
        """What clients saw can be explained by a single register."""
        return self.history.is_linearizable
