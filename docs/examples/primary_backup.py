"""A primary that copies its log to backups over ordered connections that can be cut: the examples of language.md."""

from collections.abc import Iterable

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    Table,
    action,
    assumption,
    canonical,
    configuration,
    constant,
    initial,
    invariant,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    step_invariant,
    subsets,
    table,
)


class Entry(Record):
    """An immutable value, stored as a whole."""

    index: int
    data: str


class Position(Record):
    end: int = 0
    committed: int = 0


class Replica(Record):
    """The type of a state variable: every field is a separate part of the state."""

    log: tuple[Entry, ...] = ()
    position: Position = Position()
    acked: PerKey[ModelValue, int] = per_key(lambda p: p.replicas, 0)

    def holds(self, index: int) -> bool:
        return any(entry.index == index for entry in self.log)


class Append(Message):
    entry: Entry


class Appended(Message):
    index: int


def connections(protocol: "PrimaryBackup") -> Iterable[frozenset[ModelValue]]:
    """Every pair of replicas."""
    return subsets(protocol.replicas, 2)


class PrimaryBackup(Protocol):
    """A primary commits an entry when a majority holds it."""

    name = "primary-backup"
    configurations = {
        "default": configuration(),
        "cut": configuration(cuts_allowed=1, doc="one connection may break"),
        "hasty": configuration(majority=1, expect="committed_entries_are_held_by_a_majority"),
    }

    replicas = model_values("r", 3, "the primary and its backups", symmetric=True)
    data: frozenset[str] = constant(frozenset({"x", "y"}), "what a client may write")
    max_entries: int = constant(1)
    majority: int = constant(2, "replicas that must hold an entry before it is committed")
    cuts_allowed: int = constant(0)

    primary: ModelValue | None = state(None)
    replica: PerKey[ModelValue, Replica] = per_key(replicas, Replica)
    committed: Table[int, Entry] = table()
    cuts: int = state(0)
    network: Network = network(
        {Append: (replicas, replicas), Appended: (replicas, replicas)},
        ordered=True,
        can_be_cut=True,
    )

    @assumption
    def a_majority_is_some_of_the_replicas(self) -> bool:
        return 1 <= self.majority <= len(self.replicas)

    @initial
    def anyone_is_primary(self) -> None:
        self.primary = one_of(self.replicas)

    @action(r=replicas, by="r")
    def primary_appends(self, r: ModelValue) -> None:
        require(r == self.primary)
        me = self.replica[r]
        require(me.position.end < self.max_entries)
        entry = Entry(index=me.position.end + 1, data=one_of(self.data))
        self.append(r, entry)
        for backup in self.replicas:
            if backup != r:
                self.network.send(Append(entry), r, backup)

    @action(r=replicas)
    def backup_appends(self, r: ModelValue) -> None:
        append = self.network.receive(Append, to=r)
        require(append.message.entry.index == self.replica[r].position.end + 1)
        self.append(r, append.message.entry)
        self.network.reply(append, Appended(append.message.entry.index))

    def append(self, r: ModelValue, entry: Entry) -> None:
        self.replica[r].log += (entry,)
        self.replica[r].position.end = entry.index

    @action(r=replicas)
    def primary_counts(self, r: ModelValue) -> None:
        appended = self.network.receive(Appended, to=r)
        self.replica[r].acked[appended.source] = appended.message.index

    @action(r=replicas)
    def primary_commits(self, r: ModelValue) -> None:
        me = self.replica[r]
        index = me.position.committed + 1
        require(me.holds(index))
        require(1 + sum(me.acked[backup] >= index for backup in self.replicas) >= self.majority)
        me.position.committed = index
        self.committed[index] = me.log[index - 1]

    @action(pair=connections, by="the network")
    def connection_breaks(self, pair: frozenset[ModelValue]) -> None:
        one, other = canonical(pair)
        require(self.cuts < self.cuts_allowed and self.network.connected(one, other))
        self.cuts += 1
        self.network.cut(one, other)

    @action(pair=connections, by="the network")
    def connection_heals(self, pair: frozenset[ModelValue]) -> None:
        one, other = canonical(pair)
        require(not self.network.connected(one, other))
        self.network.heal(one, other)

    @invariant(when=lambda p: len(p.replicas) > 1)
    def committed_entries_are_held_by_a_majority(self) -> bool:
        return all(
            2 * sum(self.replica[r].holds(index) for r in self.replicas) > len(self.replicas)
            for index in self.committed
        )

    @step_invariant
    def committed_entries_stay(self, after: "PrimaryBackup") -> bool:
        return all(after.committed.get(index) == entry for index, entry in self.committed.items())
