"""The replication protocol of Apache BookKeeper today: the life of one ledger, from creation to closing.

Any number of clients know the ledger. The client that creates it owns it and sends each entry to the bookies of the
current ensemble. An entry is committed once an ack quorum has confirmed it. When a bookie does not answer, the owner
goes on with another ensemble. Every other client may start recovery at any time, even while the owner is alive. It
marks the ledger as in recovery, fences the bookies, and reads forward from the highest last add confirmed (LAC) that a
bookie reports. It writes back what it reads while it reads on, and closes the ledger. Several clients can recover the
ledger at once.

Variables, actions and enabling conditions are those of ``BookKeeperProtocol.tla`` and ``MessagePassing.tla`` (Jack
Vanlightly, 2020 to 2023). So are the names and the number of states. Entry ids start at 1; a LAC of 0 means that
nothing is confirmed.

Additions to the original are off by default: ensembles larger than the write quorum, readers, and a free choice of the
ensemble. Each protection of the ledger is a constant, on by default, so that a check can show what happens without it.
The last constants correct the original or bring it closer to a real client; their defaults are the original.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Record,
    action,
    assumption,
    canonical,
    configuration,
    constant,
    invariant,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    step_invariant,
)
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper import ledger
from fencepost.protocols.bookkeeper.ledger import (
    LEDGER_TYPES,
    AddEntryRequest,
    AddEntryResponse,
    Bookies,
    Ensemble,
    Entry,
    FenceRequest,
    FenceResponse,
    Fragment,
    LedgerMetadata,
    SingleLedger,
    changed_fragments,
    clear_timeout,
    covers,
    earliest_add,
    fragment_of,
    has_timed_out,
    is_pending,
    lac_after,
    newly_asked,
    one_to_resend,
    write_set,
)
from fencepost.protocols.types import Types, at_least, each, or_none, typed

NOT_KNOWN = -1


class ClientStatus(enum.Enum):
    """What a client of the ledger is doing."""

    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"
    CLIENT_WITHDRAWN = "withdrawn"
    RECOVERY_ABORTED = "recovery aborted"


OWNERS = (ClientStatus.OPEN, ClientStatus.CLOSED, ClientStatus.CLIENT_WITHDRAWN)
"""The statuses of a client that owns the ledger or has closed it. Invariants compare the end of the ledger with its
LAC.
"""


class RecoveryPhase(enum.Enum):
    """The phase of a recovery. Recovery reads and recovery writes run concurrently, so they are one phase."""

    NOT_STARTED = 0
    FENCING = 1
    READ_WRITE = 2


class ReadResult(enum.Enum):
    """The result of a read."""

    OK = "ok"
    NO_SUCH_ENTRY = "no such entry"
    UNKNOWN = "unknown"


class PendingAddOp(ledger.PendingAddOp):
    """``lac``: the LAC that it was first sent with, if it is resent with that."""

    lac: int = 0


class LedgerOnBookie(ledger.LedgerOnBookie):
    """``lac_of_last``: the LAC that came with the last entry, if a fenced bookie reports that one."""

    lac_of_last: int = 0

    def is_last(self, entry_id: int) -> bool:
        """Whether the bookie has no entry after this one."""
        return all(entry.id <= entry_id for entry in self.entries)


class Client(Record):
    """A client: its LAC, the last add it pushed (LAP), and which bookies have confirmed each entry.

    If it recovers the ledger, also the fenced bookies, the ensemble that it reads from, and the LAC that it began with
    (if frozen). Of the entry being read: its id (0 if none) and the bookies that lack it. And the entries that it has
    sent to any bookie.
    """

    meta_version: int | None = None
    status: ClientStatus | None = None
    fragments: tuple[Fragment, ...] = ()
    curr_fragment: Fragment = Fragment()
    pending_add_ops: frozenset[PendingAddOp] = frozenset()
    lap: int = 0
    lac: int = 0
    confirmed: PerKey[int, Bookies] = per_key(lambda protocol: protocol.entry_ids, frozenset())
    fenced: Bookies = frozenset()
    recovery_phase: RecoveryPhase = RecoveryPhase.NOT_STARTED
    recovery_ensemble: Ensemble = frozenset()
    recovery_lac: int = 0
    curr_read_entry: int = 0
    no_such_entry: Bookies = frozenset()
    last_recoverable_entry: int = NOT_KNOWN
    written_back: frozenset[int] = frozenset()


class Reader(Record):
    """One ordinary read: its entry, the bookies that have not answered, and the result."""

    entry_id: int | None = None
    asked: Bookies = frozenset()
    result: ReadResult | None = None


class ReadRequest(Message):
    """A read of one entry. A recovery read fences the ledger."""

    entry_id: int
    fence: bool


class ReadResponse(Message):
    """The requested entry, or None if there is no such entry."""

    entry_id: int
    entry: Entry | None
    fence: bool


TWO_AT_ONCE: Mapping[str, Any] = {"write_quorum": 1, "ack_quorum": 1, "send_limit": 2, "inflight_limit": 2}
ONE_COPY: Mapping[str, Any] = {"write_quorum": 1, "ack_quorum": 1}
"""Constants that several configurations share."""

ADD = (AddEntryRequest, AddEntryResponse)


def _clients_and_readers(protocol: BookKeeper) -> Iterable[ModelValue]:
    return (*protocol.clients, *protocol.readers)


def _why_bookies_differ(protocol: Any) -> str:
    """The reason why bookies are not symmetric, where their declared order decides which of them store an entry."""
    if protocol.bookies_of_an_ensemble > protocol.write_quorum:
        return "entries are striped over an ensemble in the order of its bookies"
    if len(protocol.bookies) > protocol.write_quorum and not protocol.choose_ensembles:
        return (
            "the first ensemble is chosen where there are more bookies than the write quorum; choose_ensembles"
            " takes any"
        )
    return ""


class BookKeeper(SingleLedger):
    """The life of one ledger: clients that write and recover it, bookies, readers and a metadata store."""

    name: ClassVar[str] = "bookkeeper"

    bookies: tuple[ModelValue, ...] = model_values(
        "b", 4, "the bookies that are available", symmetric=_why_bookies_differ
    )
    clients: tuple[ModelValue, ...] = model_values(
        "c", 2, "clients that may create the ledger or recover it", symmetric=True
    )
    readers: tuple[ModelValue, ...] = model_values("r", 0, "clients that read one entry", symmetric=True)
    write_quorum: int = constant(3, "bookies that an entry is sent to")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is committed")
    ensemble_size: int = constant(0, "bookies that entries are striped over; 0: the write quorum")
    send_limit: int = constant(1, "entries that the owner sends")
    inflight_limit: int = constant(1, "entries that the owner sends before the first of them is committed")
    message_loss: bool = constant(True, "whether messages can be lost, not only delayed")
    choose_ensembles: bool = constant(False, "whether any valid ensemble may be chosen, not only the first")
    recovery_waits_needlessly: bool = constant(
        True, "whether recovery may wait for messages that never come, as in the original"
    )
    recovery_reads_fence: bool = constant(True, "whether recovery reads fence the ledger too")
    strict_negative_reads: bool = constant(
        True, "whether an entry is given up only if enough bookies lack it that it cannot be committed"
    )
    recovery_reads_stay: bool = constant(True, "whether all recovery reads go to the ensemble that recovery began with")
    recovery_keeps_fragments: bool = constant(
        True, "whether recovery does not publish new fragments before it closes the ledger"
    )
    recovery_freezes_lac: bool = constant(False, "whether recovery writes carry the LAC that recovery began with")
    recovery_marks_first: bool = constant(
        False, "whether recovery marks the ledger in one step and fences it in the next; in the original it is one"
    )
    recovery_watches_metadata: bool = constant(
        True, "whether recovery changes the ensemble only while nobody has closed the ledger, as in the original"
    )
    bookies_keep_highest_lac: bool = constant(
        False, "whether a bookie keeps the highest LAC that it received, or the last one, as in the original"
    )
    bookies_tell_lac_of_last: bool = constant(
        False, "whether a fenced bookie reports the LAC that came with its last entry, or its own, as in the original"
    )
    adds_keep_lac: bool = constant(
        False,
        "whether a resent entry carries the LAC that it was first sent with, or the current one, as in the original",
    )

    meta: LedgerMetadata = state(LedgerMetadata, held_by="zk")
    bookie: PerKey[ModelValue, LedgerOnBookie] = per_key(bookies, LedgerOnBookie)
    client: PerKey[ModelValue, Client] = per_key(clients, Client)
    reader: PerKey[ModelValue, Reader] = per_key(readers, Reader)
    network: Network = network(
        {
            AddEntryRequest: (clients, bookies),
            AddEntryResponse: (bookies, clients),
            FenceRequest: (clients, bookies),
            FenceResponse: (bookies, clients),
            ReadRequest: ((clients, readers), bookies),
            ReadResponse: (bookies, (clients, readers)),
        },
        lossy=message_loss,
        once=True,
        remember=True,
    )

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie stores an entry and the LAC sent with it. A fenced bookie accepts recovery adds only."""
        add = earliest_add(self.network, AddEntryRequest, c, b)
        require(add.recovery or not self.bookie[b].fenced)
        bookie = self.bookie[b]
        bookie.entries |= {add.entry}
        bookie.lac = max(bookie.lac, add.lac) if self.bookies_keep_highest_lac else add.lac
        if self.bookies_tell_lac_of_last and bookie.is_last(add.entry.id):
            bookie.lac_of_last = add.lac
        self.network.send(AddEntryResponse(add.entry, add.recovery, success=True), b, c)

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_add_fenced_response(self, b: ModelValue, c: ModelValue) -> None:
        """A fenced bookie refuses an entry of the owner."""
        add = earliest_add(self.network, AddEntryRequest, c, b)
        require(not add.recovery and self.bookie[b].fenced)
        self.network.send(AddEntryResponse(add.entry, add.recovery, success=False), b, c)

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_fencing_read_lac_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie fences the ledger and answers with its LAC. It may not have known the ledger before."""
        self.network.receive(FenceRequest, source=c, to=b)
        bookie = self.bookie[b]
        bookie.fenced = True
        self.network.send(FenceResponse(bookie.lac_of_last if self.bookies_tell_lac_of_last else bookie.lac), b, c)

    @action(b=bookies, c=_clients_and_readers, by="b")
    def bookie_sends_read_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie answers a read with the entry or with none. A recovery read fences the ledger."""
        read = self.network.receive(ReadRequest, source=c, to=b).message
        if read.fence:
            self.bookie[b].fenced = True
        entry = self.bookie[b].entry(read.entry_id)
        self.network.send(ReadResponse(read.entry_id, entry, read.fence), b, c)

    # -- the owner of the ledger ---------------------------------------------------------------------------------------

    @action(c=clients)
    def client_creates_ledger(self, c: ModelValue) -> None:
        """A client creates the ledger, and owns it."""
        require(self.meta.status is None)
        client = self.client[c]
        require(client.meta_version is None)
        fragment = self._create_ledger(self._select_ensemble())
        client.status = ClientStatus.OPEN
        client.meta_version = self.meta.version
        client.fragments = (fragment,)
        client.curr_fragment = fragment

    @action(c=clients)
    def client_sends_add_entry_requests(self, c: ModelValue) -> None:
        """The owner sends the next entry to the bookies of its write set."""
        client = self.client[c]
        require(client.status is ClientStatus.OPEN)
        require(client.lap < self.send_limit)
        require(client.lap - client.lac < self.inflight_limit)
        entry = Entry(id=client.lap + 1, data=client.lap + 1)
        op = self._push(c, entry, recovery=False)
        self._send_add(c, op, to=self._write_set(entry.id, op.ensemble), recovery=False)
        client.lap = entry.id

    @action(c=clients, b=bookies)
    def client_receives_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that a bookie has stored an entry."""
        require(self.client[c].status is ClientStatus.OPEN)
        self._receive_add_confirmed_response(c, b)

    @action(c=clients, b=bookies)
    def client_receives_add_fenced_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that its ledger is fenced, so in recovery, and stops."""
        client = self.client[c]
        require(client.status is ClientStatus.OPEN)
        add = earliest_add(self.network, AddEntryResponse, b, c, where=lambda add: not add.success)
        require(b in self._write_set(add.entry.id, client.curr_fragment.ensemble))
        client.status = ClientStatus.CLIENT_WITHDRAWN

    @action(c=clients)
    def client_changes_ensemble(self, c: ModelValue) -> None:
        """The owner replaces all the bookies that did not answer."""
        require(self.client[c].status is ClientStatus.OPEN)
        require(self.meta.status is LedgerStatus.OPEN)
        self._change_ensemble(c, in_metadata=True)

    @action(c=clients)
    def client_resends_pending_add_op(self, c: ModelValue) -> None:
        """The owner sends an uncommitted entry to the bookies that are new in its write set."""
        require(self.client[c].status is ClientStatus.OPEN)
        self._resend_pending_add_op(c, recovery=False)

    @action(c=clients)
    def client_closes_ledger_success(self, c: ModelValue) -> None:
        """The owner closes the ledger at its LAC. It may do so at any time while the metadata store has the ledger as
        open.
        """
        client = self.client[c]
        require(client.status is ClientStatus.OPEN)
        require(self.meta.status is LedgerStatus.OPEN)
        self._close(c, last_entry=client.lac)

    @action(c=clients)
    def client_closes_ledger_fail(self, c: ModelValue) -> None:
        """The owner tries to close the ledger, but somebody is recovering it or has closed it. The owner stops."""
        client = self.client[c]
        require(client.status is ClientStatus.OPEN)
        require(self.meta.status is not LedgerStatus.OPEN)
        client.status = ClientStatus.CLIENT_WITHDRAWN
        client.meta_version = None

    # -- recovery ------------------------------------------------------------------------------------------------------

    @action(c=clients)
    def client_starts_recovery(self, c: ModelValue) -> None:
        """A client marks the ledger as in recovery, which it may be already, and asks every bookie of the last ensemble
        to fence it. This is one step, or two.
        """
        client = self.client[c]
        require(client.status is None)
        if self.recovery_marks_first and client.meta_version is not None:
            self._fence(c)
            return
        require(self.meta.status in (LedgerStatus.OPEN, LedgerStatus.IN_RECOVERY))
        self.meta.status = LedgerStatus.IN_RECOVERY
        self.meta.version += 1
        client.meta_version = self.meta.version
        client.fragments = self.meta.fragments
        client.curr_fragment = self.meta.fragments[-1]
        if not self.recovery_marks_first:
            self._fence(c)

    def _fence(self, c: ModelValue) -> None:
        client = self.client[c]
        ensemble = client.curr_fragment.ensemble
        client.status = ClientStatus.IN_RECOVERY
        client.recovery_phase = RecoveryPhase.FENCING
        client.recovery_ensemble = ensemble
        self.network.send_all([(FenceRequest(), b) for b in ensemble], c)

    @action(c=clients, b=bookies)
    def client_receives_fencing_read_lac_response(self, c: ModelValue, b: ModelValue) -> None:
        """A bookie reports that it is fenced. Recovery starts from the highest LAC reported, but not before the current
        fragment, since all older entries are committed. A LAC that arrives after reading has begun is ignored.
        """
        client = self.client[c]
        require(client.recovery_phase is RecoveryPhase.FENCING)
        response = self.network.receive(FenceResponse, source=b, to=c).message
        lac = max(response.lac, client.curr_fragment.first_entry_id - 1)
        client.fenced |= {b}
        if lac > client.lac:
            client.lac = lac
            if self.recovery_freezes_lac:
                client.recovery_lac = lac
        if lac > client.lap:
            client.lap = lac

    @action(c=clients)
    def client_sends_recovery_read_requests(self, c: ModelValue) -> None:
        """Recovery reads the next entry. The first read waits until every ack quorum of the ensemble has a fenced
        bookie.
        """
        client = self.client[c]
        require(client.status is ClientStatus.IN_RECOVERY)
        if client.recovery_phase is RecoveryPhase.FENCING:
            require(self._covers(client.fenced, client.recovery_ensemble))
        else:
            require(client.last_recoverable_entry == NOT_KNOWN and not client.curr_read_entry)
        entry_id = client.lap + 1
        client.recovery_phase = RecoveryPhase.READ_WRITE
        client.curr_read_entry = entry_id
        client.fenced = frozenset()
        request = ReadRequest(entry_id, fence=self.recovery_reads_fence)
        self.network.send_all([(request, b) for b in self._write_set(entry_id, client.recovery_ensemble)], c)

    @action(c=clients, b=bookies)
    def client_receives_recovery_read_response(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery receives a response to the current read, which may decide it. One bookie that has the entry is
        enough to write it back. Reading ends only if enough bookies lack the entry that it cannot be committed. If all
        have answered or timed out and neither holds, the recovery is aborted.
        """
        client = self.client[c]
        require(client.status is ClientStatus.IN_RECOVERY)
        entry_id = client.curr_read_entry
        require(entry_id > 0)
        response = self.network.receive(ReadResponse, source=b, to=c, where=lambda r: r.entry_id == entry_id).message
        no_such_entry = client.no_such_entry | {b}
        if response.entry is not None:
            self._end_read(c)
            client.lap += 1
            self._push(c, Entry(client.lap, response.entry.data), recovery=True)
        elif self._is_negative(c, no_such_entry):
            self._end_read(c)
            client.recovery_ensemble = frozenset()
            client.last_recoverable_entry = entry_id - 1
        elif self._is_unknown(c, no_such_entry):
            self._end_read(c)
            client.recovery_ensemble = frozenset()
            client.status = ClientStatus.RECOVERY_ABORTED
        else:
            client.no_such_entry = no_such_entry

    def _is_negative(self, c: ModelValue, no_such_entry: Bookies) -> bool:
        return not self.strict_negative_reads or self._covers(no_such_entry, self._asked(c))

    def _is_unknown(self, c: ModelValue, no_such_entry: Bookies) -> bool:
        """Whether answers and timeouts add up to the write quorum. The original also counts the timeouts of earlier
        reads.
        """
        asked = self._asked(c)
        entry_id = None if self.recovery_waits_needlessly else self.client[c].curr_read_entry
        timed_out = sum(self._read_timed_out(c, b, entry_id) for b in asked)
        return len(no_such_entry) + timed_out == self.write_quorum

    def _asked(self, c: ModelValue) -> Bookies:
        """The bookies that were asked for the entry being read."""
        return self._write_set(self.client[c].curr_read_entry, self.client[c].recovery_ensemble)

    def _end_read(self, c: ModelValue) -> None:
        """End a read that is decided. In the original, this waits until no other bookie may still answer. Later answers
        are never received.
        """
        client = self.client[c]
        if self.recovery_waits_needlessly:
            require(not any(self._may_still_be_answered(c, b) for b in self._asked(c)))
        client.curr_read_entry = 0
        client.no_such_entry = frozenset()

    @action(c=clients)
    def client_writes_back_entry(self, c: ModelValue) -> None:
        """Recovery writes the first entry that it has not sent yet to the current ensemble, wherever it was read
        from.
        """
        client = self.client[c]
        require(client.status is ClientStatus.IN_RECOVERY)
        unsent = [op for op in client.pending_add_ops if op.entry.id not in client.written_back]
        require(len(unsent) > 0)
        op = min(unsent, key=lambda op: op.entry.id)
        self._send_add(c, op, to=self._write_set(op.entry.id, client.curr_fragment.ensemble), recovery=True)
        client.written_back |= {op.entry.id}

    @action(c=clients, b=bookies)
    def recovery_client_receives_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery learns that a bookie has stored an entry."""
        require(self.client[c].status is ClientStatus.IN_RECOVERY)
        self._receive_add_confirmed_response(c, b)

    @action(c=clients)
    def recovery_client_changes_ensemble(self, c: ModelValue) -> None:
        """Recovery replaces all the bookies that did not answer a write. It does not publish the change before it
        closes the ledger.
        """
        require(self.client[c].status is ClientStatus.IN_RECOVERY)
        if self.recovery_watches_metadata:
            require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self._change_ensemble(c, in_metadata=not self.recovery_keeps_fragments)
        if not self.recovery_reads_stay:
            self.client[c].recovery_ensemble = self.client[c].curr_fragment.ensemble

    @action(c=clients)
    def recovery_client_sends_pending_add_op(self, c: ModelValue) -> None:
        """Recovery sends an entry that is not written back yet to the bookies that are new in its write set."""
        require(self.client[c].status is ClientStatus.IN_RECOVERY)
        self._resend_pending_add_op(c, recovery=True)

    @action(c=clients)
    def recovery_client_closes_ledger(self, c: ModelValue) -> None:
        """Recovery has read and written back everything. It closes the ledger, with its fragments, at the last entry
        read.
        """
        client = self.client[c]
        require(client.status is ClientStatus.IN_RECOVERY)
        require(client.last_recoverable_entry != NOT_KNOWN)
        require(not client.pending_add_ops)
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self._close(c, last_entry=client.last_recoverable_entry)
        self.meta.fragments = client.fragments

    # -- what the owner and recovery share -----------------------------------------------------------------------------

    def _receive_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """Count a confirmation. The LAC moves to the last entry for which it and all entries before it have an ack
        quorum. The original counts from the first entry, so a recovery that began later never counts any.
        """
        client = self.client[c]
        add = earliest_add(self.network, AddEntryResponse, b, c, where=lambda add: add.success)
        require(b in self._write_set(add.entry.id, client.curr_fragment.ensemble))
        client.confirmed[add.entry.id] |= {b}
        counted = 0 if self.recovery_waits_needlessly else client.lac
        reached = lac_after(counted, self.send_limit, client.confirmed, self.ack_quorum)
        if reached > client.lac:
            client.lac = reached
        if reached:
            client.pending_add_ops = frozenset(op for op in client.pending_add_ops if op.entry.id > reached)

    def _change_ensemble(self, c: ModelValue, in_metadata: bool) -> None:
        """Start a fragment after the LAC, with other bookies in place of those that have not answered.

        It replaces the current fragment if that has nothing committed. Confirmations by replaced bookies of uncommitted
        entries no longer count, so an entry beyond the LAC can lose its ack quorum. All entries of the last ensemble
        change must have been resent.
        """
        client = self.client[c]
        fragment = client.curr_fragment
        failed = frozenset(b for b in fragment.ensemble if has_timed_out(self.network, ADD, c, b))
        require(len(failed) > 0)
        require(not any(op.is_behind(fragment) for op in client.pending_add_ops))
        ensemble = self._select_ensemble(fragment.ensemble, failed)
        first_entry_id = client.lac + 1
        fragments = changed_fragments(client.fragments, ensemble, first_entry_id)
        client.fragments = fragments
        client.curr_fragment = fragments[-1]
        self._discount(client.confirmed, first_entry_id, failed)
        for b in failed:
            clear_timeout(self.network, ADD, c, b)
        if in_metadata:
            require(client.meta_version == self.meta.version)
            self.meta.fragments = fragments
            self.meta.version += 1
            client.meta_version = self.meta.version

    def _resend_pending_add_op(self, c: ModelValue, recovery: bool) -> None:
        """Resend the first of the adds that were last sent to one earlier ensemble, to the bookies that are new."""
        client = self.client[c]
        fragment = client.curr_fragment
        op = one_to_resend(client.pending_add_ops, fragment)
        new = newly_asked(op.entry.id, op.ensemble, fragment.ensemble, self.write_quorum)
        self._send_add(c, op, to=new, recovery=recovery)
        sent = op.replace(fragment_id=fragment.id, ensemble=fragment.ensemble)
        client.pending_add_ops = client.pending_add_ops - {op} | {sent}
        if recovery:
            client.written_back |= {op.entry.id}

    def _close(self, c: ModelValue, last_entry: int) -> None:
        """Close the ledger, unless somebody has changed its metadata since the client last read them."""
        client = self.client[c]
        require(client.meta_version == self.meta.version)
        self._close_ledger(last_entry)
        client.status = ClientStatus.CLOSED
        client.meta_version = self.meta.version

    # -- ordinary reads ------------------------------------------------------------------------------------------------

    @action(r=readers, entry_id=lambda protocol: protocol.entry_ids)
    def reader_sends_read_requests(self, r: ModelValue, entry_id: int) -> None:
        """A reader asks for an entry that it may consider committed: a closed ledger has it, or a bookie's LAC covers
        it.
        """
        reader = self.reader[r]
        require(reader.entry_id is None)
        require(self.meta.status is not None)
        if self.meta.status is LedgerStatus.CLOSED:
            require(entry_id <= self.meta.last_entry)
        else:
            require(any(self.bookie[b].lac >= entry_id for b in self.meta.fragments[-1].ensemble))
        asked = self._write_set_of(entry_id)
        reader.entry_id = entry_id
        reader.asked = asked
        self.network.send_all([(ReadRequest(entry_id, fence=False), b) for b in asked], r)

    @action(r=readers, b=bookies)
    def reader_receives_read_response(self, r: ModelValue, b: ModelValue) -> None:
        """One bookie that has the entry is enough. The result is "no such entry" only if all say so."""
        reader = self.reader[r]
        require(reader.result is None and b in reader.asked)
        response = self.network.receive(ReadResponse, source=b, to=r).message
        reader.asked -= {b}
        if response.entry is not None:
            reader.result = ReadResult.OK
        elif not reader.asked:
            reader.result = ReadResult.NO_SUCH_ENTRY

    @action(r=readers)
    def reader_gives_up(self, r: ModelValue) -> None:
        """Every bookie that has not answered has timed out, and no bookie had the entry."""
        reader = self.reader[r]
        require(reader.result is None and len(reader.asked) > 0)
        require(all(self._read_timed_out(r, b) for b in reader.asked))
        reader.result = ReadResult.UNKNOWN

    # -- fragments, ensembles and quorums ------------------------------------------------------------------------------

    def _write_set(self, entry_id: int, ensemble: Ensemble) -> Bookies:
        """The bookies of an ensemble that an entry is sent to: ``write_quorum`` bookies, starting one further on for
        each entry.
        """
        return frozenset(write_set(entry_id, ensemble, self.write_quorum))

    def _write_set_of(self, entry_id: int) -> Bookies:
        """The bookies that have an entry according to the metadata."""
        return self._write_set(entry_id, fragment_of(self.meta.fragments, entry_id).ensemble)

    def _select_ensemble(self, current: Ensemble = frozenset(), failed: Bookies = frozenset()) -> Ensemble:
        """The first ensemble, in the declared order of bookies, that replaces exactly those that failed, and is not yet
        the ensemble of a fragment. With ``choose_ensembles``, any such ensemble. If there is none, the action is not
        enabled.

        Where the order counts, each new bookie takes the position of one that failed, so the others keep their entries.
        """
        kept = frozenset(current) - failed
        available = self._available_ensembles(kept, failed)
        members = one_of(available) if self.choose_ensembles else available[0]
        if self.bookies_of_an_ensemble == self.write_quorum:
            return members
        added = iter(canonical(members - kept))
        return tuple(b if b in kept else next(added) for b in current or (None,) * len(members))

    def _covers(self, bookies: Bookies, cohort: Ensemble) -> bool:
        """Whether the bookies of a cohort outside a set are too few for an ack quorum.

        The cohort of a read is the write set of its entry (quorum coverage). The cohort of fencing is the ensemble,
        since later entries are striped over all of it (ensemble coverage).
        """
        return covers(bookies, cohort, self.ack_quorum)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _push(self, c: ModelValue, entry: Entry, recovery: bool) -> PendingAddOp:
        """Add an entry to those that wait to be committed."""
        client = self.client[c]
        lac = self._lac_to_carry(c, recovery) if self.adds_keep_lac else 0
        op = PendingAddOp(entry, client.curr_fragment.id, client.curr_fragment.ensemble, lac)
        client.pending_add_ops |= {op}
        return op

    def _lac_to_carry(self, c: ModelValue, recovery: bool) -> int:
        return self.client[c].recovery_lac if recovery and self.recovery_freezes_lac else self.client[c].lac

    def _send_add(self, c: ModelValue, op: PendingAddOp, to: Iterable[ModelValue], recovery: bool) -> None:
        lac = op.lac if self.adds_keep_lac else self._lac_to_carry(c, recovery)
        self.network.send_all([(AddEntryRequest(op.entry, lac, recovery), b) for b in to], c)

    def _read_timed_out(self, c: ModelValue, b: ModelValue, entry_id: int | None = None) -> bool:
        """Whether a read of this bookie (of one entry, or of any), or the answer to it, was lost."""
        reads = (read.entry_id for read in self.network.lost(ReadRequest, c, b))
        answers = (answer.entry_id for answer in self.network.lost(ReadResponse, b, c))
        return any(entry_id in (lost, None) for lost in (*reads, *answers))

    def _may_still_be_answered(self, c: ModelValue, b: ModelValue) -> bool:
        """Whether a read of this bookie, or the answer to it, is in flight."""
        return bool(self.network.in_flight(ReadResponse, b, c) or self.network.in_flight(ReadRequest, c, b))

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: TYPES, "meta", "bookie")

    @invariant
    def no_divergence_between_client_and_meta_data(self) -> bool:
        """No committed entry is lost: a closed ledger was closed by exactly one client, at its LAC, and includes every
        entry that its owner considers committed. A recovery that did not close it may have got further; nobody will
        read those entries.
        """
        if self.meta.status is not LedgerStatus.CLOSED:
            return True
        last_entry = self.meta.last_entry
        owners = [client for client in self.client.values() if client.status in OWNERS]
        closers = [client for client in owners if client.status is ClientStatus.CLOSED and client.lac == last_entry]
        return len(closers) == 1 and all(client.lac <= last_entry for client in owners)

    @invariant(c=clients, entry_id=lambda protocol: protocol.entry_ids)
    def all_acked_entries_are_readable(self, c: ModelValue, entry_id: int) -> bool:
        """Every entry that the owner, or the client that closed the ledger, considers committed is stored by a bookie
        of its ensemble.
        """
        client = self.client[c]
        if client.status not in (ClientStatus.OPEN, ClientStatus.CLOSED) or client.lac < entry_id:
            return True
        return any(self._stores(b, entry_id) for b in self._write_set_of(entry_id))

    @invariant(entry_id=lambda protocol: protocol.entry_ids)
    def all_committed_entries_reach_ack_quorum(self, entry_id: int) -> bool:
        """Every entry of a closed ledger is stored by an ack quorum of its write set. Bookies lose no data in this
        model.
        """
        if self.meta.status is not LedgerStatus.CLOSED or self.meta.last_entry < entry_id:
            return True
        return sum(self._stores(b, entry_id) for b in self._write_set_of(entry_id)) >= self.ack_quorum

    def _stores(self, b: ModelValue, entry_id: int) -> bool:
        return self.bookie[b].entry(entry_id) is not None

    @invariant
    def who_closes_the_ledger_tells_its_fragments(self) -> bool:
        """A closed ledger has the fragments of the client that closed it, with the ensembles that it has written to."""
        closers = [client for client in self.client.values() if client.status is ClientStatus.CLOSED]
        return all(client.fragments == self.meta.fragments for client in closers)

    @step_invariant(c=clients)
    def no_lac_of_a_client_falls(self, after: BookKeeper, c: ModelValue) -> bool:
        """The LAC of a client never decreases: its next fragment begins after the LAC."""
        return after.client[c].lac >= self.client[c].lac

    @invariant(b=bookies)
    def no_out_of_order_entries(self, b: ModelValue) -> bool:
        """A bookie stores what the owner wrote, under the id that the owner gave it."""
        return all(entry.id == entry.data for entry in self.bookie[b].entries)

    @invariant(r=readers)
    def no_committed_entry_is_missing(self, r: ModelValue) -> bool:
        """No reader gets "no such entry" for a committed entry. Readers ask for committed entries only."""
        return self.reader[r].result is not ReadResult.NO_SUCH_ENTRY

    @invariant(r=readers)
    def no_dirty_reads(self, r: ModelValue) -> bool:
        """An entry that a reader has read is not cut off when the ledger is closed."""
        reader = self.reader[r]
        if reader.result is not ReadResult.OK or self.meta.status is not LedgerStatus.CLOSED:
            return True
        return reader.entry_id is not None and reader.entry_id <= self.meta.last_entry

    # -- assumptions about the constants -------------------------------------------------------------------------------

    @assumption
    def write_quorum_within_ensemble(self) -> bool:
        """The write quorum is no larger than the ensemble."""
        return self.write_quorum <= self.bookies_of_an_ensemble

    @assumption
    def everybody_is_one(self) -> bool:
        """No two of bookies, clients and readers have the same name."""
        everybody = (*self.bookies, *self.clients, *self.readers)
        return len(set(everybody)) == len(everybody)

    @property
    def bookies_of_an_ensemble(self) -> int:
        """How many bookies an ensemble has."""
        return self.ensemble_size or self.write_quorum

    # -- configurations ------------------------------------------------------------------------------------------------

    configurations = {
        "published": configuration(doc="the published configuration: a very large space"),
        "small": configuration(bookies=2, write_quorum=2, ack_quorum=1, doc="two bookies, no ensemble to change to"),
        "one-copy": configuration(bookies=2, **ONE_COPY, doc="one copy of each entry, and another bookie to change to"),
        "prompt-recovery": configuration(
            bookies=2,
            write_quorum=2,
            ack_quorum=1,
            recovery_waits_needlessly=False,
            doc="two bookies, and recovery waits for answers only",
        ),
        "striped": configuration(
            bookies=3,
            ensemble_size=3,
            write_quorum=2,
            ack_quorum=2,
            send_limit=2,
            message_loss=False,
            recovery_waits_needlessly=False,
            doc="entries striped over three bookies, two copies of each",
        ),
        "any-ensemble": configuration(
            bookies=3, **ONE_COPY, choose_ensembles=True, doc="any spare bookie may be the next"
        ),
        "any-stripes": configuration(
            clients=1,
            ensemble_size=2,
            **ONE_COPY,
            send_limit=2,
            choose_ensembles=True,
            doc="entries striped over any two of four bookies, which may be replaced",
        ),
        "sent-again": configuration(
            bookies=2,
            clients=1,
            **TWO_AT_ONCE,
            adds_keep_lac=True,
            doc="the owner resends two entries with the LAC that they were first sent with",
        ),
        "reader": configuration(
            bookies=2,
            readers=1,
            write_quorum=2,
            ack_quorum=2,
            message_loss=False,
            recovery_waits_needlessly=False,
            doc="a client reads while the ledger is written and recovered",
        ),
        "reader-of-two-entries": configuration(
            bookies=2,
            clients=1,
            readers=1,
            write_quorum=2,
            ack_quorum=1,
            send_limit=2,
            doc="a client reads either of two entries while nobody recovers the ledger",
        ),
        "frozen-lac": configuration(
            bookies=1,
            readers=1,
            **TWO_AT_ONCE,
            recovery_freezes_lac=True,
            doc="recovery writes carry the LAC that recovery began with, and a client reads",
        ),
        "recovered-twice": configuration(
            bookies=1,
            clients=3,
            **TWO_AT_ONCE,
            message_loss=False,
            bookies_keep_highest_lac=True,
            bookies_tell_lac_of_last=True,
            doc="two clients recover two entries, and write them back with different LACs",
        ),
        "as-the-store": configuration(
            bookies=2,
            readers=1,
            **ONE_COPY,
            send_limit=2,
            recovery_waits_needlessly=False,
            recovery_freezes_lac=True,
            recovery_marks_first=True,
            recovery_watches_metadata=False,
            bookies_keep_highest_lac=True,
            bookies_tell_lac_of_last=True,
            adds_keep_lac=True,
            doc="as the store's own clients and bookies work; the store refines this configuration",
        ),
        "reads-without-fencing": configuration(
            bookies=2,
            write_quorum=2,
            recovery_reads_fence=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="defect 1 of the 4.13 protocol: a bookie stores an entry after denying it",
        ),
        "reads-without-fencing-by-delay": configuration(
            bookies=2,
            write_quorum=2,
            recovery_reads_fence=False,
            message_loss=False,
            recovery_waits_needlessly=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="the same without a lost message",
        ),
        "hasty-negatives": configuration(
            bookies=2,
            write_quorum=2,
            ack_quorum=1,
            strict_negative_reads=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="recovery accepts one bookie's answer that there is no such entry",
        ),
        "reads-move-on": configuration(
            bookies=2,
            **TWO_AT_ONCE,
            recovery_reads_stay=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="recovery reads from the ensemble that it has changed to",
        ),
        "fragments-at-once": configuration(
            bookies=2,
            **ONE_COPY,
            recovery_keeps_fragments=False,
            expect="all_acked_entries_are_readable",
            doc="recovery publishes its ensemble before the entries are there",
        ),
    }


# -- types of the parts of the state ----------------------------------------------------------------------------------

TYPES: Types = {
    **LEDGER_TYPES,
    PendingAddOp: is_pending,
    "client.meta_version": or_none(at_least(1)),
    "client.last_recoverable_entry": at_least(NOT_KNOWN),
    "client.written_back": each(lambda protocol, entry_id: entry_id in protocol.entry_ids),
    "reader.entry_id": or_none(lambda protocol, entry_id: entry_id in protocol.entry_ids),
}
