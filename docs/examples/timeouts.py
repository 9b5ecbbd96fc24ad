"""The messages of from-tla.md in Fencepost: Timeouts.tla, with the same number of states."""

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    action,
    constant,
    invariant,
    model_values,
    network,
    per_key,
    require,
    state,
)

WRITER = ModelValue("w")


class Add(Message):
    entry: int


class Added(Message):
    entry: int


class Timeouts(Protocol):
    """A writer pushes entries to bookies, and gives up on a bookie when a message to or from it was lost."""

    bookies = model_values("b", 2)
    max_entry: int = constant(1)

    pushed: int = state(0)
    stored: PerKey[ModelValue, frozenset[int]] = per_key(bookies, frozenset())
    acked: PerKey[ModelValue, frozenset[int]] = per_key(bookies, frozenset())
    failed: frozenset[ModelValue] = state(frozenset())
    network: Network = network(
        {Add: (WRITER, bookies), Added: (bookies, WRITER)},
        lossy=True,
        once=True,
        remember=True,
    )

    @action
    def push(self) -> None:
        require(self.pushed < self.max_entry)
        self.pushed += 1
        self.network.send_all([(Add(self.pushed), b) for b in self.bookies if b not in self.failed], WRITER)

    @action(b=bookies)
    def store(self, b: ModelValue) -> None:
        add = self.network.receive(Add, to=b)
        self.stored[b] |= {add.message.entry}
        self.network.reply(add, Added(add.message.entry))

    @action(b=bookies)
    def confirm(self, b: ModelValue) -> None:
        require(b not in self.failed)
        added = self.network.receive(Added, to=WRITER, source=b)
        self.acked[b] |= {added.message.entry}

    @action(b=bookies)
    def time_out(self, b: ModelValue) -> None:
        require(b not in self.failed)
        require(len(self.network.lost(Add, WRITER, b) | self.network.lost(Added, b, WRITER)) > 0)
        self.failed |= {b}
        self.network.forget_lost(Add, WRITER, b)
        self.network.forget_lost(Added, b, WRITER)

    @invariant(b=bookies)
    def acks_are_true(self, b: ModelValue) -> bool:
        return self.acked[b] <= self.stored[b]
