"""The store as it runs: `store`, with the behaviour of a real network, real clocks and real clients.

Traces of running systems are validated with this protocol. The rules, the bookies, the clients and the properties are
those of `store`. The timing differs, and so does what a trace can show:

- Nobody knows that a message is lost. A client gives up on a bookie at any time, and its messages may still arrive.
- A message may be sent twice, and messages between two nodes may overtake each other, since a client may open a new
  connection.
- A write of metadata is sent, arrives or not, perhaps late, and is answered or not. Each is a step.
- A bookie fences the ledger when the request arrives, and answers later, with its last entry at that time.
- Bookies may fail without being replaced, and return to an ensemble that they have left.
- Any client may read, and gets the entry if the bookie has it.
- Readers follow the ledger while it is written: they learn LACs, read the metadata, and receive entries, or that there
  is none.
- With deferred sync, entries of the owner are confirmed before they are durable, and its LAC moves when it has forced
  them. A bookie that loses power may lose entries that were not forced.

So there are more behaviours than those of `store`, and the same properties are checked, within small bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Record,
    action,
    configuration,
    constant,
    constraint,
    invariant,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.language.declarations import varied
from fencepost.ledger.rules.adding import is_forced, lac_of_owner, outlives_connection
from fencepost.ledger.rules.boot import Mark, mark_of, may_leave_limbo
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.ensembles import fragment_of
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus, Next, end_of, ends_at, takes_update, to_close
from fencepost.ledger.rules.placement import Unplaced, chosen, replaced
from fencepost.ledger.rules.reading import is_readable, ordinary_read
from fencepost.ledger.rules.recovery import is_fenced_by_read
from fencepost.ledger.rules.replication import belonging
from fencepost.protocols.bookkeeper.current import ClientStatus, PendingAddOp, ReadRequest, ReadResponse, RecoveryPhase
from fencepost.protocols.bookkeeper.ledger import (
    Add,
    AddEntryRequest,
    AddEntryResponse,
    Bookies,
    Entry,
    FenceRequest,
    FenceResponse,
)
from fencepost.protocols.store.store import (
    READABLE,
    TWO_ENTRIES,
    UNPROTECTED,
    WRITING,
    Answer,
    Ensemble,
    LedgerOnBookie,
    Read,
    Status,
    Store,
    Update,
)


class MetadataWrite(Record):
    """A write of metadata in flight: it replaces those of a version."""

    metadata: LedgerMetadata
    version: int


class AddRequest(AddEntryRequest):
    """An add. A channel holds the requests of each entry separately: receiving one says nothing about the others."""

    topic: ClassVar[str] = "entry"
    connection: int = 0


class AddResponse(AddEntryResponse):
    """The answer to an add, by its entry."""

    topic: ClassVar[str] = "entry"


class EntryRead(ReadRequest):
    """A recovery read, by its entry."""

    topic: ClassVar[str] = "entry_id"


class EntryReadResponse(ReadResponse):
    """The answer to a recovery read, by its entry."""

    topic: ClassVar[str] = "entry_id"


class ForceLedgerRequest(Message):
    """Report when your whole part of the ledger is durable: the ``number``-th force of a client, on its ``connection``
    with that number.
    """

    topic: ClassVar[str] = "number"
    number: int
    connection: int


class ForceLedgerResponse(Message):
    """The force is done."""

    topic: ClassVar[str] = "number"
    number: int


class Force(Record):
    """A force in progress: its last entry, and the bookies that have done it."""

    entry_id: int
    forced: Bookies = frozenset()


class Follower(Record):
    """What a reader knows: the LAC, the metadata that it has read, and whether it has read them since a bookie last
    denied an entry.
    """

    lac: int = 0
    seen: LedgerMetadata | None = None
    has_looked: bool = False


class Denial(Record):
    """A bookie has answered a reader that it has no such entry."""

    bookie: ModelValue
    entry_id: int


class FailedRead(Record):
    """A recovery read that a bookie did not answer, or not usefully."""

    bookie: ModelValue
    entry_id: int


ONE_COPY: Mapping[str, Any] = {"write_quorum": 1, "ack_quorum": 1}
OWNER: Mapping[str, Any] = {**ONE_COPY, "versions": 3}
RECOVERED: Mapping[str, Any] = {**ONE_COPY, "clients": 2, "versions": 3}
DEFERRED: Mapping[str, Any] = {**ONE_COPY, "bookies": 1, "versions": 3, "deferred_sync": True, "power_losses": 1}
TWO_COPIES: Mapping[str, Any] = {"write_quorum": 2, "clients": 2, "failures": 0, "versions": 3}


class RunningStore(Store):
    """The life of one ledger in a running store."""

    name: ClassVar[str] = "running-store"

    bookies: tuple[ModelValue, ...] = model_values("b", 2, "the bookies that there are", symmetric=True)
    clients: tuple[ModelValue, ...] = model_values(
        "c", 1, "clients that create the ledger or recover it", symmetric=True
    )
    followers: tuple[ModelValue, ...] = model_values(
        "f", 0, "clients that read the ledger while it is written, and afterwards"
    )
    message_loss: bool = constant(False, "whether losses are decided when a message is sent")
    choose_ensembles: bool = constant(True, "whether any valid ensemble may be chosen")
    metadata_answers_lost: bool = constant(True, "whether the answer to a write of metadata can be lost")
    mark_answers_lost: bool = constant(True, "whether the answer to a recovery that marks the ledger can be lost")
    appends_while_changing: bool = constant(True, "whether the owner sends entries while the ensemble is being changed")
    crashes: int = constant(0, "how often a bookie loses its data, or leaves limbo; -1: no limit")
    failures: int = constant(1, "how often clients give up on a bookie, or ask it again; -1: no limit")
    deferred_sync: bool = constant(False, "whether entries of the owner are confirmed before they are durable")
    force_limit: int = constant(1, "with deferred sync: how often a client forces its entries to be durable")
    power_losses: int = constant(
        0, "with deferred sync: how often bookies lose power, and what is not durable; -1: no limit"
    )
    versions: int = constant(0, "versions of the metadata up to which behaviours are explored; 0: no limit")

    add_entry_request: ClassVar[type[AddEntryRequest]] = AddRequest
    add_entry_response: ClassVar[type[AddEntryResponse]] = AddResponse
    read_request: ClassVar[type[ReadRequest]] = EntryRead
    read_response: ClassVar[type[ReadResponse]] = EntryReadResponse

    stored: PerKey[ModelValue, PerKey[int, bool]] = per_key(
        bookies, per_key(lambda protocol: protocol.entry_ids, False)
    )
    pending: PerKey[ModelValue, PerKey[int, PendingAddOp | None]] = per_key(
        clients, per_key(lambda protocol: protocol.entry_ids, None)
    )
    failed: int = state(0)
    gave_up: PerKey[ModelValue, Bookies] = per_key(clients, frozenset())
    failed_reads: PerKey[ModelValue, frozenset[FailedRead]] = per_key(clients, frozenset())
    writes: PerKey[ModelValue, frozenset[MetadataWrite]] = per_key(clients, frozenset())
    had: PerKey[ModelValue, PerKey[int, bool]] = per_key(
        bookies,
        per_key(lambda protocol: protocol.entry_ids if protocol.crashes else (), False),
    )
    """The former entries of a bookie that may have lost some. It finds the remaining ones one by one."""
    without_power: int = state(0)
    period: PerKey[ModelValue, int] = per_key(bookies, 1)
    """The period of a bookie. A period ends when everything is durable, or when the bookie loses power;
    ``lost_periods``: those that ended with a loss of power.
    """
    lost_periods: PerKey[ModelValue, frozenset[int]] = per_key(bookies, frozenset())
    added_in: PerKey[ModelValue, PerKey[int, int]] = per_key(
        bookies,
        per_key(lambda protocol: protocol.entry_ids if protocol.deferred_sync else (), 0),
    )
    """The period in which a bookie has confirmed an entry that was not durable; 0: it is durable."""
    connection: PerKey[ModelValue, PerKey[ModelValue, int]] = per_key(clients, per_key(bookies, 0))
    """The number of the connection of a client to a bookie; ``served``: the last one that carried a request to the
    bookie; ``gone``: the last one that ended when the bookie lost power.
    """
    served: PerKey[ModelValue, PerKey[ModelValue, int]] = per_key(bookies, per_key(clients, -1))
    gone: PerKey[ModelValue, PerKey[ModelValue, int]] = per_key(bookies, per_key(clients, -1))
    forces: PerKey[ModelValue, int] = per_key(clients, 0)
    force: PerKey[ModelValue, PerKey[int, Force | None]] = per_key(
        clients, per_key(lambda protocol: protocol.force_numbers, None)
    )
    forced: PerKey[ModelValue, int] = per_key(clients, 0)
    """The last entry up to which an owner knows all to be durable."""
    done_adding: PerKey[ModelValue, bool] = per_key(clients, False)
    """Whether an owner has lost a connection on which it had sent entries that it has not forced: it can only close the
    ledger.
    """
    follower: PerKey[ModelValue, Follower] = per_key(followers, Follower)
    denials: PerKey[ModelValue, frozenset[Denial]] = per_key(followers, frozenset())
    read_up_to: PerKey[ModelValue, int] = per_key(followers, 0)
    misses: PerKey[ModelValue, bool] = per_key(followers, False)
    """Whether a reader got "no such entry" for an entry that it may consider committed."""
    shown: PerKey[ModelValue, PerKey[int, bool]] = per_key(
        bookies,
        per_key(lambda protocol: protocol.entry_ids if protocol.followers else (), False),
    )
    """Whether a bookie has ever sent an entry to a reader; ``denied``: whether it has said that it has none."""
    denied: PerKey[ModelValue, PerKey[int, bool]] = per_key(
        bookies,
        per_key(lambda protocol: protocol.entry_ids if protocol.followers else (), False),
    )
    network: Network = network(
        {
            AddRequest: (Store.clients, Store.bookies),
            AddResponse: (Store.bookies, Store.clients),
            FenceRequest: (Store.clients, Store.bookies),
            FenceResponse: (Store.bookies, Store.clients),
            EntryRead: (Store.clients, Store.bookies),
            EntryReadResponse: (Store.bookies, Store.clients),
            ForceLedgerRequest: (Store.clients, Store.bookies),
            ForceLedgerResponse: (Store.bookies, Store.clients),
        },
        duplicates=True,
    )

    configurations = {
        "default": configuration(
            **OWNER, doc="the owner alone, with one copy of each entry, and another bookie to change to"
        ),
        "two-entries": configuration(**OWNER, **TWO_ENTRIES, doc="the same with two entries in flight"),
        "one-bookie": configuration(**RECOVERED, bookies=1, doc="a recovery besides the owner, and one bookie"),
        "one-copy": configuration(**RECOVERED, doc="the same with another bookie to change to"),
        "two-copies": configuration(**TWO_COPIES, ack_quorum=1, doc="two copies of each entry, one of which is enough"),
        "both-copies": configuration(**TWO_COPIES, ack_quorum=2, doc="two copies of each entry, and both are needed"),
        "crash": configuration(
            **ONE_COPY,
            clients=2,
            bookies=1,
            failures=0,
            crashes=1,
            versions=3,
            doc="a bookie crashes, and comes back in limbo",
        ),
        "two-failures": configuration(**{**RECOVERED, "failures": 2}, doc="one copy, and bookies are given up twice"),
        "two-entries-recovered": configuration(
            **RECOVERED, **TWO_ENTRIES, doc="one copy of each of two entries, and a recovery"
        ),
        "two-recoveries": configuration(
            **{**RECOVERED, "clients": 3, "failures": 0, "versions": 4},
            **TWO_ENTRIES,
            bookies=1,
            doc="two entries on one bookie, and two recoveries besides the owner",
        ),
        "two-copies-crash": configuration(
            **TWO_COPIES, ack_quorum=1, crashes=1, doc="two copies, one of which is enough, and a bookie crashes"
        ),
        "both-copies-crash": configuration(
            **TWO_COPIES, ack_quorum=2, crashes=1, doc="two copies, both of which are needed, and a bookie crashes"
        ),
        "deferred-sync": configuration(
            **DEFERRED, **TWO_ENTRIES, doc="entries are confirmed before they are durable, and a bookie loses power"
        ),
        "deferred-sync-recovered": configuration(**DEFERRED, clients=2, doc="the same with a recovery"),
        "reader": configuration(
            **OWNER, followers=1, doc="a client reads while the owner writes, and changes the ensemble"
        ),
        "reader-recovered": configuration(
            **RECOVERED,
            bookies=1,
            failures=0,
            followers=1,
            doc="a client reads while the ledger is written and recovered",
        ),
        **varied(
            UNPROTECTED,
            {
                "fenced-bookies-add": {**RECOVERED, "bookies": 1},
                "one-bookie-fenced": {**TWO_COPIES, "ack_quorum": 1},
                "reads-without-fencing": {**TWO_COPIES, "ack_quorum": 2, "doc": "recovery reads do not fence"},
                "starts-at-the-lac": {**RECOVERED, "doc": "recovery trusts the LAC of a bookie that joined late"},
                "reads-move-on": {**RECOVERED, **TWO_ENTRIES},
                "fragments-at-once": RECOVERED,
                "hasty-negatives": {**TWO_COPIES, "ack_quorum": 1},
                "closes-before-writing-back": {
                    **RECOVERED,
                    "bookies": 1,
                    "doc": "recovery closes before entries are written back",
                },
                "unconditional-updates": {
                    **OWNER,
                    **TWO_ENTRIES,
                    "doc": "a write of the owner that it has given up arrives late",
                },
                "confirmations-kept": {**OWNER, **TWO_ENTRIES, "expect": READABLE},
                "confirmed-out-of-order": {**OWNER, **TWO_ENTRIES},
                "lac-runs-ahead": {**OWNER, **TWO_ENTRIES},
                "limbo-denies": {**TWO_COPIES, "failures": 1, "ack_quorum": 1, "crashes": 1},
            },
        ),
    }

    @constraint
    def metadata_have_few_versions(self) -> bool:
        """A write whose answer is lost can be resent forever, each time making another version, so their number is
        limited.
        """
        return not self.versions or self.meta.version <= self.versions

    # -- what a trace does not show at once ----------------------------------------------------------------------------

    def _next_add(
        self,
        kind: type[Add],
        source: ModelValue,
        to: ModelValue,
        where: Callable[[Add], bool] = lambda add: True,
    ) -> Add:
        entry_id = one_of(self.entry_ids)
        entry = Entry(entry_id, entry_id)
        return self.network.receive(kind, source=source, to=to, topic=entry, where=where).message

    def _next_read(
        self,
        kind: type[Read],
        source: ModelValue,
        to: ModelValue,
        where: Callable[[Read], bool] = lambda read: True,
    ) -> Read:
        entry_id = one_of(self.readable_ids)
        return self.network.receive(kind, source=source, to=to, topic=entry_id, where=where).message

    def _store(self, b: ModelValue, c: ModelValue, add: AddEntryRequest) -> None:
        assert isinstance(add, AddRequest)
        entry_id = add.entry.id
        if self.deferred_sync and not add.recovery:
            self._serve(b, c, add.connection)
            if not self._is_durable(b, entry_id):
                self.added_in[b][entry_id] = self.period[b]
        elif self.deferred_sync:
            self.added_in[b][entry_id] = 0
        self.stored[b][entry_id] = True

    def _is_durable(self, b: ModelValue, entry_id: int) -> bool:
        """Whether a bookie keeps an entry when it loses power."""
        period = self.added_in[b][entry_id]
        return self.stored[b][entry_id] and period != self.period[b] and period not in self.lost_periods[b]

    def _serve(self, b: ModelValue, c: ModelValue, connection: int) -> None:
        """Receive a request on a connection. A connection that ended when the bookie lost power cannot carry one."""
        require(connection > self.gone[b][c])
        if connection > self.served[b][c]:
            self.served[b][c] = connection

    def _stored(self, b: ModelValue, entry_id: int) -> Entry | None:
        return Entry(entry_id, entry_id) if entry_id in self.entry_ids and self.stored[b][entry_id] else None

    def _stores_any(self, b: ModelValue) -> bool:
        return any(self.stored[b][entry_id] for entry_id in self.entry_ids)

    def _lac_of_last(self, b: ModelValue) -> int:
        # The last entry was looked up before the bookie answers. Its LAC is at most the highest that the bookie has
        # received.
        return one_of(range(self.bookie[b].lac + 1))

    @property
    def force_numbers(self) -> range:
        """The numbers of the forces of a client."""
        return range(1, self.force_limit + 1) if self.deferred_sync else range(1, 1)

    def _add_request(self, c: ModelValue, b: ModelValue, entry: Entry, lac: int, recovery: bool) -> AddEntryRequest:
        require(recovery or not self.done_adding[c])
        connection = self.connection[c][b] if self.deferred_sync and not recovery else 0
        return AddRequest(entry, lac, recovery, connection)

    def _lac(self, c: ModelValue) -> int:
        is_owner = self.client[c].recovery_phase is RecoveryPhase.NOT_STARTED
        return lac_of_owner(self.client[c].lac, self.forced[c], self.deferred_sync and is_owner)

    def _pending_add_ops(self, c: ModelValue) -> list[PendingAddOp]:
        client, pending = self.client[c], self.pending[c]
        ops = (pending[entry_id] for entry_id in range(client.lac + 1, client.lap + 1))
        return [op for op in ops if op is not None]

    def _add_pending(self, c: ModelValue, op: PendingAddOp) -> None:
        self.pending[c][op.entry.id] = op

    def _replace_pending(self, c: ModelValue, op: PendingAddOp, other: PendingAddOp) -> None:
        self.pending[c][other.entry.id] = other

    def _forget_pending(self, c: ModelValue, reached: int) -> None:
        for entry_id in range(self.client[c].lac + 1, reached + 1):
            self.pending[c][entry_id] = None

    def _lose_everything(self, b: ModelValue, limbo: bool) -> None:
        self.bookie[b] = LedgerOnBookie(fenced=limbo, limbo=limbo)
        for entry_id in self.entry_ids:
            self.stored[b][entry_id] = False

    def _crash(self) -> None:
        if self.crashes >= 0:
            require(self.crashed < self.crashes)
            self.crashed += 1

    def _fail(self) -> None:
        if self.failures >= 0:
            require(self.failed < self.failures)
            self.failed += 1

    # -- ensembles: a client may take the bookies of the list in any order --------------------------------------------

    def _some(self, number: int, others: Collection[ModelValue]) -> Ensemble:
        """A number of consecutive bookies, leaving out some others."""
        some: list[ModelValue] = []
        for _ in range(number):
            some.append(one_of([b for b in self.bookies if b not in others and b not in some]))
        return tuple(some)

    def _first_ensemble(self) -> Ensemble:
        ensemble = chosen(self._some(self.bookies_of_an_ensemble, ()), self.bookies_of_an_ensemble)
        assert not isinstance(ensemble, Unplaced)
        return ensemble

    def _ensemble_without(self, current: Ensemble, failed: Bookies) -> Ensemble:
        ensemble = replaced(current, failed, self._some(len(failed), current))
        assert not isinstance(ensemble, Unplaced)
        return ensemble

    def _write_timed_out(self, c: ModelValue, b: ModelValue) -> bool:
        return b in self.gave_up[c]

    def _read_timed_out(self, c: ModelValue, b: ModelValue, entry_id: int) -> bool:
        return FailedRead(b, entry_id) in self.failed_reads[c]

    def _is_leaving(self, c: ModelValue, b: ModelValue) -> bool:
        # A client learns only from the answer that its ensemble change was made.
        return False

    def _lac_of_response(self, response: FenceResponse) -> int:
        # The entry that carries the LAC may be damaged.
        return one_of([*dict.fromkeys((response.lac, 0))])

    def _go_on_with(self, c: ModelValue, metadata: LedgerMetadata, version: int | None) -> None:
        super()._go_on_with(c, metadata, version)
        self.gave_up[c] = frozenset()

    @action(c=Store.clients, b=Store.bookies)
    def client_gives_up_on_add(self, c: ModelValue, b: ModelValue) -> None:
        """A bookie has not confirmed an add in time, or cannot."""
        client = self.client[c]
        recovery = client.status is Status.IN_RECOVERY
        require(recovery or client.status in (Status.OPEN, Status.CHANGING_ENSEMBLE))
        require(len(client.written_back) > 0 if recovery else client.lap != 0)
        require(b in self.client_ensemble(c))
        require(b not in self.gave_up[c])
        self._fail()
        self.gave_up[c] |= {b}

    @action(c=Store.clients, b=Store.bookies)
    def client_finds_bookie_working(self, c: ModelValue, b: ModelValue) -> None:
        """A bookie that a client has given up and has not replaced has confirmed a later message: it no longer counts
        as failed.
        """
        require(b in self.gave_up[c])
        self.gave_up[c] -= {b}

    @action(c=Store.clients, b=Store.bookies)
    def client_sends_add_again(self, c: ModelValue, b: ModelValue) -> None:
        """A client resends an uncommitted entry to a bookie that should have it, since that works again."""
        client = self.client[c]
        recovery = client.status is Status.IN_RECOVERY
        require(recovery or client.status in (Status.OPEN, Status.CHANGING_ENSEMBLE))
        op = one_of(self._pending_add_ops(c))
        require(b in self.write_set(op.entry.id, self.client_ensemble(c)) and b not in client.confirmed[op.entry.id])
        self._fail()
        self._send_add(c, op, (b,), recovery)

    @action(c=Store.clients, b=Store.bookies)
    def client_gives_up_on_read(self, c: ModelValue, b: ModelValue) -> None:
        """A bookie has not answered a recovery read in time, or not usefully. This may decide the reads of several
        entries.
        """
        client = self.client[c]
        require(client.status is Status.IN_RECOVERY and client.last_read > client.lap)
        self._fail()
        failed = FailedRead(b, one_of(range(client.lap + 1, client.last_read + 1)))
        require(failed not in self.failed_reads[c])
        self.failed_reads[c] |= {failed}
        while client.last_read > client.lap and self._is_decided(c, client.lap + 1):
            pass

    def _may_change_ensemble(self, c: ModelValue) -> bool:
        return not self.deferred_sync and self._may_write(c)

    def _may_write(self, c: ModelValue) -> bool:
        """Whether an owner may write metadata: if it changes the ensemble, that has no answer yet."""
        client = self.client[c]
        unheard = client.update is None or client.update.answer is Answer.LOST
        return client.status is Status.OPEN or (client.status is Status.CHANGING_ENSEMBLE and unheard)

    def _end_change(self, c: ModelValue) -> None:
        """The owner resends what the new ensemble needs, and perhaps changes it again, before the LAC goes on."""

    @action(c=Store.clients)
    def client_goes_on(self, c: ModelValue) -> None:
        """No bookie remains to be replaced, and no change that was given up can arrive any more: the LAC goes on."""
        client = self.client[c]
        require(client.status is Status.CHANGING_ENSEMBLE and client.update is None)
        seen = self.seen(c)
        require(not any(self._is_behind(op, seen) for op in self._pending_add_ops(c)))
        require(not any(write.version == client.version for write in self.writes[c]))
        super()._end_change(c)

    @action(c=Store.clients)
    def client_keeps_ensemble(self, c: ModelValue) -> None:
        """The owner cannot replace a bookie any more, and writes the metadata unchanged, so that a change that it has
        given up cannot arrive.
        """
        require(self.client[c].status is Status.CHANGING_ENSEMBLE and self._may_write(c))
        self._write(c, self.seen(c))

    @action(c=Store.clients)
    def client_closes_ledger(self, c: ModelValue) -> None:
        """The owner starts to close the ledger at its LAC, even while an ensemble change that it has given up may still
        arrive: one of the two comes first, and the other is refused.
        """
        require(self._may_write(c))
        self._close(c)

    # -- deferred sync -----------------------------------------------------------------------------------------------

    @action(c=Store.clients)
    def client_forces_ledger(self, c: ModelValue) -> None:
        """The owner asks all bookies to make durable what they have confirmed."""
        client = self.client[c]
        require(self.deferred_sync and client.status is Status.OPEN and not self.done_adding[c])
        require(client.lac > self._lac(c))
        number = self.forces[c] + 1
        require(number <= self.force_limit)
        self.forces[c] = number
        self.force[c][number] = Force(client.lac)
        self.network.send_all(
            [(ForceLedgerRequest(number, self.connection[c][b]), b) for b in self.client_ensemble(c)], c
        )

    @action(b=Store.bookies, c=Store.clients, by="b")
    def bookie_forces_ledger(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie has made durable all that it has confirmed, and says so."""
        require(self.deferred_sync)
        number = one_of(self.force_numbers)
        force = self.network.receive(ForceLedgerRequest, source=c, to=b, topic=number).message
        self._serve(b, c, force.connection)
        self.period[b] += 1
        self.network.send(ForceLedgerResponse(number), b, c)

    @action(c=Store.clients, b=Store.bookies)
    def client_receives_force_response(self, c: ModelValue, b: ModelValue) -> None:
        """Once every bookie says so, everything that was confirmed before the force is durable, and the LAC of the
        owner goes on. An answer that arrives while it closes the ledger changes nothing.
        """
        status = self.client[c].status
        require(self.deferred_sync and status in (Status.OPEN, Status.CLOSING) and not self.done_adding[c])
        number = one_of(self.force_numbers)
        self.network.receive(ForceLedgerResponse, source=b, to=c, topic=number)
        force = self.force[c][number]
        require(force is not None)
        assert force is not None
        force = force.replace(forced=force.forced | {b})
        self.force[c][number] = force
        is_done = is_forced(force.forced, self.client_ensemble(c))
        if is_done and force.entry_id > self.forced[c] and status is Status.OPEN:
            self.forced[c] = force.entry_id

    @action(c=Store.clients, b=Store.bookies)
    def client_loses_connection(self, c: ModelValue, b: ModelValue) -> None:
        """A connection is lost, and perhaps entries that the bookie had confirmed: a force on the next connection would
        not show that.
        """
        client = self.client[c]
        require(self.deferred_sync and client.status is not None and client.recovery_phase is RecoveryPhase.NOT_STARTED)
        self._fail()
        self.connection[c][b] += 1
        if client.status is Status.OPEN and b in self.client_ensemble(c):
            if not outlives_connection(client.lap, self.forced[c], self.deferred_sync):
                self.done_adding[c] = True

    @action(b=Store.bookies)
    def bookie_loses_power(self, b: ModelValue) -> None:
        """A bookie loses power, and restarts. What was not durable may be lost, and all connections to it are."""
        require(self.deferred_sync)
        if self.power_losses >= 0:
            require(self.without_power < self.power_losses)
            self.without_power += 1
        self.lost_periods[b] |= {self.period[b]}
        self.period[b] += 1
        for c in self.clients:
            self.gone[b][c] = self.served[b][c]

    @action(b=Store.bookies)
    def bookie_loses_entry(self, b: ModelValue) -> None:
        """An entry that was not durable when a bookie lost power is gone, and has been sent to nobody since."""
        require(self.deferred_sync)
        entry_id = one_of(self.entry_ids)
        require(self.stored[b][entry_id] and self.added_in[b][entry_id] in self.lost_periods[b])
        self.stored[b][entry_id] = False

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _write(self, c: ModelValue, metadata: LedgerMetadata, failed: Bookies = frozenset()) -> None:
        version = self.client[c].version
        assert version is not None, "a client writes what it has changed of what it has seen"
        self.writes[c] |= {MetadataWrite(metadata, version)}

    @action(c=Store.clients, by="zk")
    def metadata_written(self, c: ModelValue) -> None:
        """A write of metadata arrives, and the version is still the one that it replaces. The client may not learn of
        it.
        """
        write = one_of(self.writes[c])
        require(takes_update(write.version, self.meta.version, self.protections))
        self.writes[c] -= {write}
        self.meta.metadata = write.metadata
        self.meta.version += 1
        self.client[c].update = Update(write.metadata, self.meta.version, one_of((Answer.WRITTEN, Answer.LOST)))

    @action(c=Store.clients)
    def client_adopts_ledger(self, c: ModelValue) -> None:
        """A client has created the ledger for another owner, and does nothing more with it. The owner adopts it by a
        write that changes nothing else. If several want to be the owner, one succeeds.
        """
        client = self.client[c]
        require(client.status is None and self.meta.metadata is not None)
        metadata = self.metadata
        require(metadata.status is LedgerStatus.OPEN and self.meta.version == 1)
        for other in self.clients:
            if self.client[other].status not in (None, Status.ADOPTING, Status.MARKING):
                require(self.client[other].status in (Status.OPEN, Status.WITHDRAWN))
                require(not self.client[other].lap and not self.writes[other] and not self.gave_up[other])
                self.client[other].status = Status.WITHDRAWN
        client.status = Status.ADOPTING
        client.seen, client.version = metadata, self.meta.version
        self._write(c, metadata)

    def _receive_metadata(self, c: ModelValue) -> None:
        client = self.client[c]
        update, metadata = client.update, self.meta.metadata
        if update is None or metadata is None or client.status not in (Status.ADOPTING, Status.CLOSING):
            super()._receive_metadata(c)
            return
        written = update.answer is Answer.WRITTEN
        seen, version = (update.metadata, update.version) if written else (metadata, self.meta.version)
        if client.status is Status.CLOSING and to_close(seen.status, ends_at(seen, self._lac(c), 0)) is not Next.WRITE:
            super()._receive_metadata(c)
            return
        client.update = None
        if client.status is Status.CLOSING:
            # An ensemble change that it had given up came first. It closes the ledger as that change has left it.
            self._go_on_with(c, seen, version)
            client.status = Status.OPEN
            return
        client.seen, client.version = seen, version
        is_owner = update.answer is not Answer.REFUSED and client.seen.status is LedgerStatus.OPEN
        client.status = Status.OPEN if is_owner else Status.WITHDRAWN

    @action(c=Store.clients)
    def client_receives_metadata(self, c: ModelValue) -> None:
        """The answer to a write arrives. Or the write was refused or not answered, and the client has read the current
        metadata.
        """
        client = self.client[c]
        require(client.status in WRITING)
        if client.update is not None:
            self._receive_metadata(c)
            return
        require(any(write.version == client.version for write in self.writes[c]))
        if self.meta.version == client.version:
            # The write may still arrive. So the client goes on only when another write has replaced it.
            if client.status is Status.TELLING_FRAGMENTS:
                client.status = Status.IN_RECOVERY
        else:
            client.update = Update(self.metadata, self.meta.version, Answer.REFUSED)
            self._receive_metadata(c)

    def published_status(self, c: ModelValue) -> ClientStatus | None:
        """The status of a client in `bookkeeper`. The client has closed the ledger if one of its writes has, even one
        that it has given up.
        """
        taken = self._taken(c)
        is_closed = taken is not None and taken.status is LedgerStatus.CLOSED
        return ClientStatus.CLOSED if is_closed else super().published_status(c)

    # -- bookies -----------------------------------------------------------------------------------------------------

    @action(b=Store.bookies, c=Store.clients, by="b")
    def bookie_is_fenced(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie fences the ledger when it is asked, and answers later."""
        require(not self.bookie[b].fenced)
        entry_id = one_of(range(self.readable_ids.stop))  # 0 stands for the last entry
        of_last = not entry_id
        asked = (
            self.network.in_flight(FenceRequest, c, b)
            if of_last
            else [read for read in self.network.in_flight(EntryRead, c, b, topic=entry_id) if read.fence]
        )
        require(len(asked) > 0)
        require(is_fenced_by_read(True, is_of_last_entry=of_last, protections=self.protections))
        self.bookie[b].fenced = True

    def _show(self, b: ModelValue, entry_id: int) -> None:
        """A bookie sends an entry, once that is durable."""
        if self.deferred_sync:
            self.added_in[b][entry_id] = 0

    @action(b=Store.bookies)
    def bookie_answers_read(self, b: ModelValue) -> None:
        """A client with no other part in the protocol reads, and gets the entry if the bookie has it."""
        self._answer_read(b)

    def _answer_read(self, b: ModelValue) -> tuple[int, bool]:
        """Which entry is read, and whether the bookie has it. In limbo it does not say that it has none."""
        entry_id = one_of(self.entry_ids)
        found = one_of((True, False))
        require(found == self.stored[b][entry_id])
        require(found or not (self.bookie[b].limbo and self.protections.limbo_is_unknown))
        if found:
            self._show(b, entry_id)
        return entry_id, found

    # -- readers -----------------------------------------------------------------------------------------------------

    def _end_seen(self, f: ModelValue) -> int | None:
        seen = self.follower[f].seen
        return None if seen is None else end_of(seen)

    def _may_read(self, f: ModelValue, entry_id: int) -> bool:
        """Whether a reader may consider an entry committed."""
        follower = self.follower[f]
        return follower.seen is not None and is_readable(entry_id, follower.lac, self._end_seen(f))

    @action(f=followers)
    def reader_reads_metadata(self, f: ModelValue) -> None:
        """A reader reads the current metadata."""
        require(self.meta.metadata is not None)
        self.follower[f].seen = self.meta.metadata
        self.follower[f].has_looked = True

    @action(f=followers)
    def reader_learns_lac(self, f: ModelValue) -> None:
        """A reader learns a higher LAC. It can only come from the owner of the ledger: other writers send LACs that the
        owner has sent.
        """
        follower = self.follower[f]
        require(follower.seen is not None)
        lac = one_of(self.entry_ids)
        require(lac > follower.lac)
        require(
            any(self._lac(c) >= lac for c in self.clients if self.client[c].recovery_phase is RecoveryPhase.NOT_STARTED)
        )
        follower.lac = lac

    @action(b=Store.bookies)
    def bookie_answers_reader(self, b: ModelValue) -> None:
        """A bookie answers a reader. Readers ask only for entries that they may consider committed."""
        require(len(self.followers) > 0)
        entry_id, found = self._answer_read(b)
        if found:
            self.shown[b][entry_id] = True
        else:
            require(any(self._may_read(f, entry_id) for f in self.followers))
            self.denied[b][entry_id] = True

    @action(f=followers, b=Store.bookies)
    def reader_receives_entry(self, f: ModelValue, b: ModelValue) -> None:
        """A reader receives an entry that it has asked for."""
        entry_id = one_of(self.entry_ids)
        require(self._may_read(f, entry_id))
        require(self.shown[b][entry_id])
        if entry_id > self.read_up_to[f]:
            self.read_up_to[f] = entry_id

    @action(f=followers, b=Store.bookies)
    def reader_receives_no_entry(self, f: ModelValue, b: ModelValue) -> None:
        """A reader receives the answer of a bookie that it lacks an entry."""
        entry_id = one_of(self.entry_ids)
        require(self._may_read(f, entry_id))
        require(self.denied[b][entry_id])
        self.denials[f] |= {Denial(b, entry_id)}
        self.follower[f].has_looked = False

    @action(f=followers)
    def reader_finds_no_entry(self, f: ModelValue) -> None:
        """All bookies that should have an entry have denied it, according to the metadata that the reader has read
        since. So there is none.
        """
        entry_id = one_of(self.entry_ids)
        seen = self.follower[f].seen
        require(seen is not None and self.follower[f].has_looked)
        assert seen is not None
        write_set = self.write_set(entry_id, tuple(fragment_of(seen.fragments, entry_id).ensemble))
        negative = frozenset(denial.bookie for denial in self.denials[f] if denial.entry_id == entry_id)
        require(ordinary_read(False, negative, (), write_set) is Verdict.NEGATIVE)
        self.misses[f] = True

    @action(f=followers)
    def reader_finds_end(self, f: ModelValue) -> None:
        """A reader that waits for an entry learns that the ledger has ended before it."""
        entry_id = one_of(self.readable_ids)
        require(self._end_seen(f) is not None and not self._may_read(f, entry_id))

    @invariant(f=followers, when=lambda protocol: not protocol.crashes)
    def readers_find_what_is_committed(self, f: ModelValue) -> bool:
        """No reader is answered that a committed entry does not exist, unless a bookie loses durable entries."""
        return not self.misses[f]

    @invariant(f=followers)
    def nobody_has_read_what_is_cut_off(self, f: ModelValue) -> bool:
        """An entry that a reader has read is not cut off when the ledger is closed."""
        metadata = self.meta.metadata
        end = None if metadata is None else end_of(metadata)
        return end is None or self.read_up_to[f] <= end

    # -- bookies that lose data ----------------------------------------------------------------------------------------

    @action(b=Store.bookies)
    def bookie_crashes(self, b: ModelValue) -> None:
        """A bookie comes back without any data, in limbo. Messages to it may still arrive."""
        self._crash()
        self._lose_everything(b, limbo=True)

    @action(b=Store.bookies)
    def bookie_is_wiped(self, b: ModelValue) -> None:
        """A bookie comes back without any data, and is not in limbo, since it is not in the metadata."""
        metadata = self.meta.metadata
        require(metadata is None or not any(b in fragment.ensemble for fragment in metadata.fragments))
        self._crash()
        self._lose_everything(b, limbo=False)

    @action(b=Store.bookies, mark=tuple(Mark), fenced=(False, True), limbo=(False, True))
    def bookie_may_lack_entries(self, b: ModelValue, mark: Mark, fenced: bool, limbo: bool) -> None:
        """A bookie that may have lost entries comes back, and marks the ledger before it answers any request: then the
        ledger is fenced and in limbo, or not. It may have read metadata in which the ledger is not closed, or the
        bookie has entries of it, before that changed. A bookie that left limbo is in it again if it lost that, too.
        """
        require(self.meta.metadata is not None)
        due = mark_of(self.metadata, b, self.protections)
        bookie = self.bookie[b]
        require(mark is due or mark is Mark.LIMBO)
        require(fenced if mark is not Mark.NOTHING else bookie.fenced or not fenced)
        require(limbo if mark is Mark.LIMBO else bookie.limbo or fenced or not limbo)
        self._crash()
        for entry_id in self.entry_ids:
            if self.stored[b][entry_id]:
                self.had[b][entry_id] = True
                self.stored[b][entry_id] = False
        bookie.fenced, bookie.limbo = fenced, limbo

    @action(b=Store.bookies)
    def bookie_finds_entry(self, b: ModelValue) -> None:
        """A bookie finds that an entry is still there."""
        entry_id = one_of(self.entry_ids)
        require(self.crashes != 0 and self.had[b][entry_id])
        self.had[b][entry_id] = False
        self.stored[b][entry_id] = True

    @action(b=Store.bookies)
    def bookie_copies_entry(self, b: ModelValue) -> None:
        """A bookie that repairs itself copies an entry of a closed ledger from another one, which may have lost it
        since.
        """
        entry_id = one_of(self.entry_ids)
        require(self.crashes != 0 and not self.stored[b][entry_id] and entry_id in self._belonging(b))
        require(any(self.stored[other][entry_id] or self.had[other][entry_id] for other in self.bookies if other != b))
        self.stored[b][entry_id] = True

    def _belonging(self, b: ModelValue) -> Collection[int]:
        metadata = self.meta.metadata
        return belonging(metadata, b) if metadata is not None and metadata.status is LedgerStatus.CLOSED else ()

    @action(b=Store.bookies)
    def bookie_leaves_limbo(self, b: ModelValue) -> None:
        """The ledger is closed, and the bookie has all its entries; or the ledger is deleted."""
        require(self.bookie[b].limbo)
        metadata = self.meta.metadata
        lacking = sum(not self.stored[b][entry_id] for entry_id in self._belonging(b))
        require(metadata is None or may_leave_limbo(metadata.status, lacking))
        self.bookie[b].limbo = False
