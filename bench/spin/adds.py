"""Adds of BookKeeper beside a recovery that fences: the protocol that ``adds.pml`` says in Promela."""

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    action,
    constant,
    invariant,
    model_values,
    network,
    per_key,
    require,
    state,
)


class Add(Message):
    entry: int


class Added(Message):
    """The answer of a bookie; ``stored`` is false if it is fenced."""

    stored: bool


class Fence(Message):
    pass


class Fenced(Message):
    stored: int


class Bookie(Record):
    stored: int = 0
    fenced: bool = False


class Writer(Record):
    sent: int = 0
    stopped: bool = False


WRITER, RECOVERER = ModelValue("writer"), ModelValue("recoverer")


class Adds(Protocol):
    """A writer adds entries in order to three bookies; two must have an entry. A recoverer fences and closes."""

    bookies = model_values("b", 3)
    entries: int = constant(2, "entries that are written")

    bookie: PerKey[ModelValue, Bookie] = per_key(bookies, Bookie)
    writer: Writer = state(Writer)
    acks: PerKey[ModelValue, int] = per_key(bookies, 0)
    lac: int = state(0)
    fencing: bool = state(False)
    seen: PerKey[ModelValue, int] = per_key(bookies, -1)
    closed: int = state(-1)
    network: Network = network(
        {
            Add: (WRITER, bookies),
            Added: (bookies, WRITER),
            Fence: (RECOVERER, bookies),
            Fenced: (bookies, RECOVERER),
        },
        ordered=True,
        lossy=False,
        duplicates=True,
    )

    @action
    def add(self) -> None:
        require(not self.writer.stopped and self.writer.sent < self.entries)
        self.network.send_all([(Add(self.writer.sent), b) for b in self.bookies], WRITER)
        self.writer.sent += 1

    @action(b=bookies)
    def bookie_adds(self, b: ModelValue) -> None:
        add = self.network.receive(Add, to=b)
        if self.bookie[b].fenced:
            self.network.reply(add, Added(False))
        else:
            self.bookie[b].stored += 1
            self.network.reply(add, Added(True))

    @action(b=bookies)
    def writer_is_answered(self, b: ModelValue) -> None:
        if self.network.receive(Added, to=WRITER, source=b).message.stored:
            self.acks[b] += 1
            self.lac = sorted(self.acks[b] for b in self.bookies)[1]
        else:
            self.writer.stopped = True

    @action
    def recoverer_fences(self) -> None:
        require(not self.fencing)
        self.fencing = True
        self.network.send_all([(Fence(), b) for b in self.bookies], RECOVERER)

    @action(b=bookies)
    def bookie_fences(self, b: ModelValue) -> None:
        fence = self.network.receive(Fence, to=b)
        self.bookie[b].fenced = True
        self.network.reply(fence, Fenced(self.bookie[b].stored))

    @action(b=bookies)
    def recoverer_is_answered(self, b: ModelValue) -> None:
        self.seen[b] = self.network.receive(Fenced, to=RECOVERER, source=b).message.stored

    @action
    def recoverer_closes(self) -> None:
        require(self.closed < 0)
        seen = [self.seen[b] for b in self.bookies]
        require(sum(each >= 0 for each in seen) >= 2)
        self.closed = max(seen)

    @invariant
    def confirmed_entries_are_in_the_ledger(self) -> bool:
        return self.closed < 0 or self.lac <= self.closed

    @invariant
    def nothing_is_asked(self) -> bool:
        return True
