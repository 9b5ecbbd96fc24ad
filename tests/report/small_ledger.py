"""A ledger of one entry: small enough to explore in a second, and it loses data unless recovery reads fence."""

import enum

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    Table,
    action,
    constant,
    invariant,
    model_values,
    network,
    per_key,
    require,
    state,
    step_invariant,
    table,
)


class Status(enum.Enum):
    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"


class Metadata(Record):
    status: Status = Status.OPEN
    last_entry: int | None = None


class Bookie(Record):
    fenced: bool = False
    entries: frozenset[int] = frozenset()


class Recovery(Record):
    fenced: frozenset[ModelValue] = frozenset()
    reading: bool = False
    answers: tuple[tuple[ModelValue, bool], ...] = ()


class AddEntry(Message):
    entry: int


class Added(Message):
    entry: int


class Fence(Message):
    pass


class Fenced(Message):
    pass


class ReadEntry(Message):
    entry: int
    fence: bool


class ReadAnswer(Message):
    entry: int
    found: bool


class SmallLedger(Protocol):
    """One writer, one recovering client, a few bookies and a metadata store."""

    name = "small-ledger"

    bookies: tuple[ModelValue, ...] = model_values("b", 2)
    writer: tuple[ModelValue, ...] = model_values("w", ["w1"])
    recoverer: tuple[ModelValue, ...] = model_values("w", ["w2"])
    ack_quorum: int = constant(1)
    recovery_reads_fence: bool = constant(False)
    lossy: bool = constant(False)

    meta: Metadata = state(Metadata, held_by="metadata store")
    bookie: PerKey[ModelValue, Bookie] = per_key(bookies, Bookie)
    acks: Table[int, frozenset[ModelValue]] = table()
    committed: int = state(0)
    recovery: Recovery = state(Recovery)
    network: Network = network(
        {
            AddEntry: (writer, bookies),
            Added: (bookies, writer),
            Fence: (recoverer, bookies),
            Fenced: (bookies, recoverer),
            ReadEntry: (recoverer, bookies),
            ReadAnswer: (bookies, recoverer),
        },
        lossy=lossy,
        once=True,
        remember=True,
    )

    @action(by="w1")
    def writer_adds_the_entry(self) -> None:
        self.network.send_all([(AddEntry(1), b) for b in self.bookies], self.writer[0])
        self.acks[1] = frozenset()

    @action(b=bookies)
    def bookie_adds_the_entry(self, b: ModelValue) -> None:
        add = self.network.receive(AddEntry, to=b)
        require(not self.bookie[b].fenced)
        self.bookie[b].entries |= {add.message.entry}
        self.network.reply(add, Added(add.message.entry))

    @action(w=writer)
    def writer_hears_of_an_add(self, w: ModelValue) -> None:
        added = self.network.receive(Added, to=w)
        self.acks[1] |= {added.source}
        if len(self.acks[1]) >= self.ack_quorum:
            self.committed = 1

    @action(w=recoverer)
    def recoverer_starts(self, w: ModelValue) -> None:
        require(self.meta.status == Status.OPEN)
        self.meta.status = Status.IN_RECOVERY
        self.network.send_all([(Fence(), b) for b in self.bookies], w)

    @action(b=bookies)
    def bookie_is_fenced(self, b: ModelValue) -> None:
        fence = self.network.receive(Fence, to=b)
        self.bookie[b].fenced = True
        self.network.reply(fence, Fenced())

    @action(w=recoverer)
    def recoverer_hears_of_a_fence(self, w: ModelValue) -> None:
        fenced = self.network.receive(Fenced, to=w)
        self.recovery.fenced |= {fenced.source}

    @action(w=recoverer)
    def recoverer_reads(self, w: ModelValue) -> None:
        require(len(self.recovery.fenced) > len(self.bookies) - self.ack_quorum - 1 and not self.recovery.reading)
        self.recovery.reading = True
        self.network.send_all([(ReadEntry(1, self.recovery_reads_fence), b) for b in self.bookies], w)

    @action(b=bookies)
    def bookie_answers_a_read(self, b: ModelValue) -> None:
        read = self.network.receive(ReadEntry, to=b)
        if read.message.fence:
            self.bookie[b].fenced = True
        self.network.reply(read, ReadAnswer(1, 1 in self.bookie[b].entries))

    @action(w=recoverer)
    def recoverer_hears_an_answer(self, w: ModelValue) -> None:
        answer = self.network.receive(ReadAnswer, to=w)
        self.recovery.answers += ((answer.source, answer.message.found),)

    @action(w=recoverer)
    def recoverer_closes_the_ledger(self, w: ModelValue) -> None:
        require(self.meta.status == Status.IN_RECOVERY and len(self.recovery.answers) == len(self.bookies))
        self.meta.status = Status.CLOSED
        self.meta.last_entry = 1 if any(found for _, found in self.recovery.answers) else 0

    @action(w=recoverer, b=bookies)
    def recoverer_times_out(self, w: ModelValue, b: ModelValue) -> None:
        require(len(self.network.lost(Fence, w, b)) > 0)
        self.network.forget_lost(Fence, w, b)

    @action(by="operator")
    def someone_reopens(self) -> None:
        require(self.meta.status == Status.CLOSED and self.meta.last_entry is None)
        self.meta.status = Status.OPEN

    @invariant
    def no_committed_entry_is_lost(self) -> bool:
        """A closed ledger ends at or after the last entry that the writer told its client is safe."""
        return self.meta.status != Status.CLOSED or self.committed <= (self.meta.last_entry or 0)

    @step_invariant
    def fenced_stays(self, after: "SmallLedger") -> bool:
        """No bookie is ever unfenced."""
        return all(after.bookie[b].fenced or not self.bookie[b].fenced for b in self.bookies)
