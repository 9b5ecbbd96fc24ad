"""Apache BookKeeper without the journal: the life of one ledger whose bookies may crash and lose everything.

A bookie without a journal acknowledges entries and fences that a crash can still undo. BP-46 makes that safe. A bookie
that boots after an unclean shutdown fences its ledgers and puts the open ones in *limbo*: for an entry that it does not
have it answers that it does not know, never that there is none. This is the replication protocol with these two
protections, each of which can be switched off, and with one crash at any time. Here the bookie fences the ledger and
puts it in limbo whatever its status.

Any client may create the ledger and so become its owner. Any other client may recover it, several at a time.

Variables, actions and enabling conditions are those of ``BookKeeperProtocolWithLimbo.tla`` (Jack Vanlightly, 2021) with
the ``MessagePassing.tla`` of its time. So are the names and the number of states. The boot is reduced to fencing and
limbo: ledgers are not repaired. Three properties of the original are kept, although BookKeeper has none of them:

- Recovering clients share their timeouts, and the order in which adds arrive: a lost add of one counts as lost for all.
- A recovery that has changed the ensemble never closes the ledger. The original requires both that the new fragments
  are stored and that the fragments stay unchanged, so it closes only if the two are the same.
- A recovery read that finds no entry waits for every bookie that was asked, where BP-46 waits for as many as it takes
  for no ack quorum to be left. Reads fence, so when a recovery closes the ledger every bookie of it has been fenced.
  One that loses its fence after that is no ack quorum, unless one confirmation is enough. So scenario 1 of BP-46 does
  not occur here in its own size.

Without either protection a committed entry can be lost:

1. Without fencing, a bookie forgets that the ledger is fenced. It accepts an entry of the owner after another client
   has closed the ledger, and the owner commits the entry.
2. Without limbo, a bookie loses an entry that it has acknowledged. It tells recovery that there is no such entry, and
   recovery closes the ledger before it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Record,
    action,
    assumption,
    configuration,
    constant,
    invariant,
    model_values,
    network,
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
    Entry,
    FenceRequest,
    FenceResponse,
    Fragment,
    LedgerMetadata,
    PendingAddOp,
    SingleLedger,
    changed_fragments,
    clear_timeout,
    covers,
    fragment_of,
    has_timed_out,
    lac_after,
    newly_asked,
    one_to_resend,
    why_bookies_differ,
)
from fencepost.protocols.bookkeeper.v4_13 import RecoveryPhase
from fencepost.protocols.types import at_least, typed


class ClientStatus(enum.Enum):
    """The status of the ledger as a client sees it. WITHDRAWN: the client has stopped working on the ledger."""

    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"


class ReadCode(enum.Enum):
    """The answer of a bookie to a read: it has the entry, it has not, or (in limbo) it does not know."""

    OK = "ok"
    NO_SUCH_ENTRY = "no such entry"
    UNKNOWN = "unknown"


class LedgerOnBookie(ledger.LedgerOnBookie):
    """The ledger on one bookie."""

    limbo: bool = False


class Client(Record):
    """A client: its last add confirmed (LAC), the last add it pushed (LAP), and which bookies have confirmed each
    entry. If it recovers the ledger: the fenced bookies, and their answers for the entry being read.
    """

    meta_version: int | None = None
    status: ClientStatus | None = None
    fragments: tuple[Fragment, ...] = ()
    pending_add_ops: frozenset[PendingAddOp] = frozenset()
    lap: int = 0
    lac: int = 0
    confirmed: PerKey[int, Bookies] = per_key(lambda protocol: protocol.entry_ids, frozenset())
    fenced: Bookies = frozenset()
    curr_read_entry: Entry | None = None
    has_entry: Bookies = frozenset()
    no_such_entry: Bookies = frozenset()
    is_unknown: Bookies = frozenset()
    recovery_phase: RecoveryPhase = RecoveryPhase.NOT_STARTED

    @property
    def curr_fragment(self) -> Fragment:
        """The fragment that the client writes to."""
        return self.fragments[-1]

    def ensemble_of(self, entry_id: int) -> Bookies:
        """The bookies that have the entry, or should have it."""
        return frozenset(fragment_of(self.fragments, entry_id).ensemble)


class ReadRequest(Message):
    """A recovery read of one entry, which also fences the ledger."""

    entry_id: int


class ReadResponse(Message):
    """The entry, or none: either there is no such entry, or the bookie does not know."""

    entry: Entry | None
    code: ReadCode


Add = TypeVar("Add", AddEntryRequest, AddEntryResponse)


ADD = (AddEntryRequest, AddEntryResponse)
READ = (ReadRequest, ReadResponse)


NO_CRASH: Mapping[str, Any] = dict.fromkeys(
    [f"allow_crash_when_ledger_{when}" for when in ("open", "in_recovery", "closed")], False
)


class BookKeeperLimbo(SingleLedger):
    """The life of one ledger without the journal: clients, a metadata store, and bookies, one of which may crash."""

    name: ClassVar[str] = "bookkeeper-limbo"

    bookies: tuple[ModelValue, ...] = model_values(
        "b", 2, "the bookies that are available", symmetric=why_bookies_differ
    )
    clients: tuple[ModelValue, ...] = model_values(
        "c", 2, "the clients: one creates the ledger, the others may recover it", symmetric=True
    )
    write_quorum: int = constant(2, "bookies that an entry is sent to, the size of an ensemble")
    ack_quorum: int = constant(1, "bookies that must confirm an entry before it is committed")
    send_limit: int = constant(1, "entries that the owner of the ledger sends")
    fence_on_unclean_shutdown: bool = constant(
        True, "whether a bookie that has crashed fences the ledger when it boots"
    )
    limbo_on_unclean_shutdown: bool = constant(True, "whether a bookie that has crashed puts the ledger in limbo")
    allow_crash_when_ledger_open: bool = constant(True, "whether a bookie can crash while the ledger is open")
    allow_crash_when_ledger_in_recovery: bool = constant(
        True, "whether a bookie can crash while the ledger is in recovery"
    )
    allow_crash_when_ledger_closed: bool = constant(True, "whether a bookie can crash once the ledger is closed")

    meta: LedgerMetadata = state(LedgerMetadata, held_by="zk")
    bookie: PerKey[ModelValue, LedgerOnBookie] = per_key(bookies, LedgerOnBookie)
    client: PerKey[ModelValue, Client] = per_key(clients, Client)
    crashes: int = state(0)
    network: Network = network(
        {
            AddEntryRequest: (clients, bookies),
            AddEntryResponse: (bookies, clients),
            FenceRequest: (clients, bookies),
            FenceResponse: (bookies, clients),
            ReadRequest: (clients, bookies),
            ReadResponse: (bookies, clients),
        },
        lossy=True,
        once=True,
        remember=True,
    )

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie stores an entry and the LAC sent with it. A fenced bookie accepts recovery adds only."""
        add = self._receive_in_order(AddEntryRequest, c, b)
        require(add.recovery or not self.bookie[b].fenced)
        self.bookie[b].entries |= {add.entry}
        self.bookie[b].lac = add.lac
        self.network.send(AddEntryResponse(add.entry, add.recovery, success=True), b, c)

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_add_fenced_response(self, b: ModelValue, c: ModelValue) -> None:
        """A fenced bookie refuses an entry of the owner."""
        add = self._receive_in_order(AddEntryRequest, c, b)
        require(not add.recovery)
        require(self.bookie[b].fenced)
        self.network.send(AddEntryResponse(add.entry, recovery=False, success=False), b, c)

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_fencing_read_lac_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie fences the ledger and answers with its LAC."""
        self.network.receive(FenceRequest, source=c, to=b)
        self.bookie[b].fenced = True
        self.network.send(FenceResponse(self.bookie[b].lac), b, c)

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_read_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie fences the ledger and answers a recovery read. In limbo it never says that there is no such
        entry.
        """
        read = self.network.receive(ReadRequest, source=c, to=b).message
        self.bookie[b].fenced = True
        entry = self.bookie[b].entry(read.entry_id)
        if entry is not None:
            code = ReadCode.OK
        elif self.bookie[b].limbo:
            code = ReadCode.UNKNOWN
        else:
            code = ReadCode.NO_SUCH_ENTRY
        self.network.send(ReadResponse(entry, code), b, c)

    # -- crashes -------------------------------------------------------------------------------------------------------

    @action(b=bookies)
    def bookie_crashes_when_ledger_open(self, b: ModelValue) -> None:
        """A bookie crashes while the ledger is open."""
        require(self.allow_crash_when_ledger_open)
        require(self.meta.status is LedgerStatus.OPEN)
        self._restart_with_data_loss(b)

    @action(b=bookies)
    def bookie_crashes_when_ledger_in_recovery(self, b: ModelValue) -> None:
        """A bookie crashes while the ledger is in recovery."""
        require(self.allow_crash_when_ledger_in_recovery)
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self._restart_with_data_loss(b)

    @action(b=bookies)
    def bookie_crashes_when_ledger_closed(self, b: ModelValue) -> None:
        """A bookie crashes after the ledger was closed."""
        require(self.allow_crash_when_ledger_closed)
        require(self.meta.status is LedgerStatus.CLOSED)
        self._restart_with_data_loss(b)

    def _restart_with_data_loss(self, b: ModelValue) -> None:
        """A bookie comes back without any data, and messages to it are lost. One bookie does so, once."""
        require(self.crashes == 0)
        self.crashes += 1
        self.bookie[b].entries = frozenset()
        self.bookie[b].lac = 0
        self.bookie[b].fenced = self.fence_on_unclean_shutdown
        if self.limbo_on_unclean_shutdown:
            self.bookie[b].limbo = True
        for c in self.clients:
            for kind in (AddEntryRequest, FenceRequest, ReadRequest):
                self.network.lose(kind, c, b)

    # -- the owner of the ledger ---------------------------------------------------------------------------------------

    @action(c=clients)
    def client_creates_ledger(self, c: ModelValue) -> None:
        """A client creates the ledger with the first available ensemble, and owns it."""
        require(self.meta.status is None)
        require(self.client[c].meta_version is None)
        self._create_ledger(self._available_ensembles()[0])
        self.client[c].status = ClientStatus.OPEN
        self.client[c].meta_version = self.meta.version
        self.client[c].fragments = self.meta.fragments

    @action(c=clients)
    def client_sends_add_entry_requests(self, c: ModelValue) -> None:
        """The owner sends the next entry to every bookie of its ensemble."""
        me = self.client[c]
        require(me.status is ClientStatus.OPEN)
        require(me.lap < self.send_limit)
        entry = Entry(id=me.lap + 1, data=me.lap + 1)
        fragment = me.curr_fragment
        self._send_add(c, entry, to=fragment.ensemble, recovery=False)
        me.lap = entry.id
        me.pending_add_ops |= {PendingAddOp(entry, fragment.id, fragment.ensemble)}

    @action(c=clients, b=bookies)
    def client_receives_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that a bookie has stored an entry."""
        require(self.client[c].status is ClientStatus.OPEN)
        self._receive_add_confirmed_response(c, b)

    @action(c=clients, b=bookies)
    def client_receives_add_fenced_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that its ledger is fenced, so in recovery, and stops."""
        require(self.client[c].status is ClientStatus.OPEN)
        add = self._receive_in_order(AddEntryResponse, c, b)
        require(not add.success)
        require(b in self.client[c].curr_fragment.ensemble)
        self.client[c].status = ClientStatus.WITHDRAWN

    @action(c=clients, b=bookies)
    def client_changes_ensemble(self, c: ModelValue, b: ModelValue) -> None:
        """The owner replaces a bookie that did not answer, and stores the new fragments."""
        require(self.client[c].status is ClientStatus.OPEN)
        require(self._write_timed_out(c, b, recovery=False))
        require(self.meta.status is LedgerStatus.OPEN)
        require(self.client[c].meta_version == self.meta.version)
        self._change_ensemble(c, b, recovery=False)
        self.meta.fragments = self.client[c].fragments
        self.meta.version += 1
        self.client[c].meta_version = self.meta.version

    @action(c=clients)
    def client_sends_pending_add_op(self, c: ModelValue) -> None:
        """The owner sends an uncommitted entry to the bookies that are new in its ensemble."""
        require(self.client[c].status is ClientStatus.OPEN)
        self._send_pending_add_op(c, recovery=False)

    @action(c=clients)
    def client_closes_ledger_success(self, c: ModelValue) -> None:
        """The owner closes the ledger at its LAC. It may do so at any time while the metadata store has the ledger as
        open.
        """
        me = self.client[c]
        require(me.status is ClientStatus.OPEN)
        require(self.meta.status is LedgerStatus.OPEN)
        require(me.meta_version == self.meta.version)
        self._close(c)

    @action(c=clients)
    def client_closes_ledger_fail(self, c: ModelValue) -> None:
        """The owner tries to close the ledger, but another client is recovering it or has closed it. The owner
        withdraws.
        """
        me = self.client[c]
        require(me.status is ClientStatus.OPEN)
        require(self.meta.status is not LedgerStatus.OPEN)
        require(me.meta_version != self.meta.version)
        me.status = ClientStatus.WITHDRAWN
        me.meta_version = None

    # -- recovery ------------------------------------------------------------------------------------------------------

    @action(c=clients)
    def client_starts_recovery(self, c: ModelValue) -> None:
        """A client marks the ledger as in recovery, which it may be already, and asks every bookie of the last ensemble
        to fence it.
        """
        me = self.client[c]
        require(me.status is None)
        require(self.meta.status in (LedgerStatus.OPEN, LedgerStatus.IN_RECOVERY))
        self.meta.status = LedgerStatus.IN_RECOVERY
        self.meta.version += 1
        me.status = ClientStatus.IN_RECOVERY
        me.meta_version = self.meta.version
        me.recovery_phase = RecoveryPhase.FENCING
        me.fragments = self.meta.fragments
        self.network.send_all([(FenceRequest(), b) for b in me.curr_fragment.ensemble], c)

    @action(c=clients, b=bookies)
    def client_receives_fencing_read_lac_response(self, c: ModelValue, b: ModelValue) -> None:
        """A bookie reports that it is fenced. Recovery starts from the highest LAC reported, but not before the current
        fragment.

        A LAC that arrives after any client has begun to read is ignored.
        """
        response = self.network.receive(FenceResponse, source=b, to=c).message
        me = self.client[c]
        me.fenced |= {b}
        lac = max(response.lac, me.curr_fragment.first_entry_id - 1)
        if lac > me.lac and not any(self._has_begun_to_read(o) for o in self.clients):
            me.lac = lac
            me.lap = lac

    def _has_begun_to_read(self, c: ModelValue) -> bool:
        """Whether the client has sent a read request. Its phase shows that, so there is no need to look at the
        messages.
        """
        return self.client[c].recovery_phase not in (RecoveryPhase.NOT_STARTED, RecoveryPhase.FENCING)

    @action(c=clients)
    def client_sends_read_requests(self, c: ModelValue) -> None:
        """Recovery reads the next entry from the ensemble that it was written to. The first read waits until every ack
        quorum has a fenced bookie.
        """
        me = self.client[c]
        require(me.status is ClientStatus.IN_RECOVERY)
        phase = me.recovery_phase
        require(phase is RecoveryPhase.READ or (phase is RecoveryPhase.FENCING and self._every_ack_quorum_is_fenced(c)))
        # Nobody has asked for the next entry before: between two sends a response completes a read, which moves the
        # LAP. So there is no need to look through all requests ever sent, as the original does.
        entry_id = me.lap + 1
        me.recovery_phase = RecoveryPhase.PENDING_READ_RESPONSE
        self.network.send_all([(ReadRequest(entry_id), b) for b in me.ensemble_of(entry_id)], c)

    def _every_ack_quorum_is_fenced(self, c: ModelValue) -> bool:
        """Whether the bookies that are not fenced are too few for an ack quorum."""
        return covers(self.client[c].fenced, self.client[c].curr_fragment.ensemble, self.ack_quorum)

    def _receive_read_response(self, c: ModelValue, b: ModelValue) -> Read:
        """Count one response to a recovery read.

        A response without an entry does not name its entry. So it does not say which bookies were asked, and timeouts
        are neither counted nor cleared with it.
        """
        response = self.network.receive(ReadResponse, source=b, to=c).message
        me = self.client[c]
        has_entry, no_such_entry, is_unknown = (
            said | {b} if response.code is code else said
            for code, said in zip(ReadCode, (me.has_entry, me.no_such_entry, me.is_unknown), strict=True)
        )
        ensemble = me.ensemble_of(response.entry.id) if response.entry is not None else frozenset()
        answers = len(has_entry) + len(no_such_entry) + len(is_unknown)
        over = answers + sum(self._read_timed_out(c, b) for b in ensemble) == self.write_quorum
        return Read(response, ensemble, has_entry, no_such_entry, is_unknown, over)

    @action(c=clients, b=bookies)
    def client_receives_non_final_read(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery receives a response to a read, with more to come."""
        read = self._receive_read_response(c, b)
        require(not read.over)
        me = self.client[c]
        me.has_entry = read.has_entry
        me.no_such_entry = read.no_such_entry
        me.is_unknown = read.is_unknown
        if read.response.entry is not None:
            me.curr_read_entry = read.response.entry
        me.fenced |= {b}

    @action(c=clients, b=bookies)
    def client_completes_read_successfully(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery receives the last response, and an ack quorum has the entry. It will write the entry back, and reads
        the next one.
        """
        read = self._receive_read_response(c, b)
        require(read.over)
        require(len(read.has_entry) >= self.ack_quorum)
        me = self.client[c]
        found = read.response.entry or me.curr_read_entry
        assert found is not None, "an ack quorum has the entry, so one of its bookies has sent it"
        fragment = me.curr_fragment
        me.lap += 1
        me.pending_add_ops |= {PendingAddOp(Entry(me.lap, found.data), fragment.id, fragment.ensemble)}
        self._end_read(c, b, read, then=RecoveryPhase.READ)

    @action(c=clients, b=bookies)
    def client_completes_read_with_no_such_entry(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery receives the last response, and enough bookies lack the entry that it cannot be committed. Reading
        ends.

        Only an explicit answer counts; a timeout does not, and neither does a bookie that does not know.
        """
        read = self._receive_read_response(c, b)
        require(read.over)
        require(len(read.no_such_entry) > self.write_quorum - self.ack_quorum)
        self._end_read(c, b, read, then=RecoveryPhase.WRITE)

    def _end_read(self, c: ModelValue, b: ModelValue, read: Read, then: RecoveryPhase) -> None:
        self._clear_read_timeouts(c, read.ensemble)
        me = self.client[c]
        me.fenced |= {b}
        me.has_entry = frozenset()
        me.no_such_entry = frozenset()
        me.is_unknown = frozenset()
        me.curr_read_entry = None
        me.recovery_phase = then

    @action(c=clients)
    def client_writes_back_entry(self, c: ModelValue) -> None:
        """Recovery writes the first entry that is not written back yet to the current ensemble, wherever it was read
        from.
        """
        me = self.client[c]
        require(me.status is ClientStatus.IN_RECOVERY)
        require(me.recovery_phase is RecoveryPhase.WRITE)
        recovered = sorted((op.entry for op in me.pending_add_ops), key=lambda entry: entry.id)
        unsent = [entry for entry in recovered if not self._is_written_back(c, entry)]
        require(len(unsent) > 0)
        self._send_add(c, unsent[0], to=me.curr_fragment.ensemble, recovery=True)

    def _is_written_back(self, c: ModelValue, entry: Entry) -> bool:
        """Whether recovery has sent this entry to any bookie, with any LAC below the entry, as it was not committed."""
        return any(
            self.network.is_known(AddEntryRequest(entry, lac, recovery=True), c, b)
            for b in self.bookies
            for lac in range(entry.id)
        )

    @action(c=clients, b=bookies)
    def recovery_client_receives_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery learns that a bookie has stored an entry."""
        require(self.client[c].status is ClientStatus.IN_RECOVERY)
        self._receive_add_confirmed_response(c, b)

    @action(c=clients, b=bookies)
    def recovery_client_changes_ensemble(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery replaces a bookie that did not answer a write. It does not publish the change before the end."""
        require(self.client[c].status is ClientStatus.IN_RECOVERY)
        require(self._write_timed_out(c, b, recovery=True))
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self._change_ensemble(c, b, recovery=True)

    @action(c=clients)
    def recovery_client_sends_pending_add_op(self, c: ModelValue) -> None:
        """Recovery sends an entry that is not written back yet to the bookies that are new in its ensemble."""
        require(self.client[c].status is ClientStatus.IN_RECOVERY)
        self._send_pending_add_op(c, recovery=True)

    @action(c=clients)
    def recovery_client_closes_ledger(self, c: ModelValue) -> None:
        """Recovery has written back every entry that it read. It closes the ledger at its LAC, unless it has changed
        the ensemble.
        """
        me = self.client[c]
        require(me.status is ClientStatus.IN_RECOVERY)
        require(me.recovery_phase is RecoveryPhase.WRITE)
        require(not me.pending_add_ops)
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        require(me.meta_version == self.meta.version)
        require(me.fragments == self.meta.fragments)
        self._close(c)

    # -- what the owner and recovery share -----------------------------------------------------------------------------

    def _receive_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """Count a confirmation. The LAC moves to the last entry for which it and all entries before it have an ack
        quorum.
        """
        me = self.client[c]
        add = self._receive_in_order(AddEntryResponse, c, b)
        require(add.success)
        require(b in me.curr_fragment.ensemble)
        me.confirmed[add.entry.id] |= {b}
        reached = lac_after(0, self.send_limit, me.confirmed, self.ack_quorum)
        if reached > me.lac:
            me.lac = reached
        me.pending_add_ops = frozenset(op for op in me.pending_add_ops if op.entry.id > reached)

    def _change_ensemble(self, c: ModelValue, b: ModelValue, recovery: bool) -> None:
        """Start a fragment after the LAC, with another bookie in place of ``b``. All entries of the last ensemble
        change must have been resent.

        It replaces the current fragment if that has nothing committed. Confirmations by ``b`` of uncommitted entries no
        longer count, so an entry beyond the LAC can lose its ack quorum.
        """
        me = self.client[c]
        current = me.curr_fragment
        require(b in current.ensemble)
        require(not any(op.is_behind(current) for op in me.pending_add_ops))
        first_entry_id = me.lac + 1
        require(all(fragment.first_entry_id <= first_entry_id for fragment in self.meta.fragments))
        failed = frozenset({b})
        ensemble = self._available_ensembles(frozenset(current.ensemble) - failed, failed)[0]
        me.fragments = changed_fragments(me.fragments, ensemble, first_entry_id)
        self._discount(me.confirmed, first_entry_id, failed)
        self._clear_write_timeout(c, b, recovery)

    def _send_pending_add_op(self, c: ModelValue, recovery: bool) -> None:
        """Resend the first of the adds that were last sent to one earlier ensemble, to the bookies that are new."""
        me = self.client[c]
        fragment = me.curr_fragment
        op = one_to_resend(me.pending_add_ops, fragment)
        new = newly_asked(op.entry.id, op.ensemble, fragment.ensemble, self.write_quorum)
        self._send_add(c, op.entry, to=new, recovery=recovery)
        me.pending_add_ops = me.pending_add_ops - {op} | {PendingAddOp(op.entry, fragment.id, fragment.ensemble)}

    def _close(self, c: ModelValue) -> None:
        self._close_ledger(self.client[c].lac)
        self.client[c].status = ClientStatus.CLOSED
        self.client[c].meta_version = self.meta.version

    # -- messages ------------------------------------------------------------------------------------------------------

    def _sharing_with(self, c: ModelValue, recovery: bool = True) -> Iterator[ModelValue]:
        """The clients that share timeouts and the order of adds with ``c``, itself first: all recovering clients, or
        the owner alone.
        """
        yield c
        if recovery:
            yield from (o for o in self.clients if o != c and self._recovers(o))

    def _recovers(self, c: ModelValue) -> bool:
        return self.client[c].recovery_phase is not RecoveryPhase.NOT_STARTED

    def _receive_in_order(self, kind: type[Add], c: ModelValue, b: ModelValue) -> Add:
        """Receive an add of ``c`` at ``b``, or the answer to one. They arrive in the order of their entries."""
        source, to = _ends(kind, c, b)
        add = self.network.receive(kind, source=source, to=to).message
        if add.entry.id > 1:  # no entry comes before the first
            for o in self._sharing_with(c, add.recovery):
                in_flight = self.network.in_flight(kind, *_ends(kind, o, b))
                require(all(other.entry.id >= add.entry.id for other in in_flight))
        return add

    def _send_add(self, c: ModelValue, entry: Entry, to: Iterable[ModelValue], recovery: bool) -> None:
        request = AddEntryRequest(entry, self.client[c].lac, recovery)
        self.network.send_all([(request, b) for b in to], c)

    def _write_timed_out(self, c: ModelValue, b: ModelValue, recovery: bool) -> bool:
        """Whether an add to this bookie, or the answer to it, was lost."""
        return any(has_timed_out(self.network, ADD, o, b) for o in self._sharing_with(c, recovery))

    def _clear_write_timeout(self, c: ModelValue, b: ModelValue, recovery: bool) -> None:
        for o in self._sharing_with(c, recovery):
            clear_timeout(self.network, ADD, o, b)

    def _read_timed_out(self, c: ModelValue, b: ModelValue) -> bool:
        """Whether a recovery read of this bookie, or the answer to it, was lost."""
        return any(has_timed_out(self.network, READ, o, b) for o in self._sharing_with(c))

    def _clear_read_timeouts(self, c: ModelValue, ensemble: Bookies) -> None:
        for o in self._sharing_with(c):
            for b in ensemble:
                clear_timeout(self.network, READ, o, b)

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: {**LEDGER_TYPES, "crashes": at_least(0)}, "meta", "bookie", "client")

    @invariant(b=bookies)
    def no_out_of_order_entries(self, b: ModelValue) -> bool:
        """A bookie stores what the owner wrote, under the id that the owner gave it."""
        return all(entry.id == entry.data for entry in self.bookie[b].entries)

    @invariant(c=clients)
    def no_divergence_between_client_and_meta_data(self, c: ModelValue) -> bool:
        """No committed entry is lost: a closed ledger includes every entry that any client considers committed."""
        return self.meta.status is not LedgerStatus.CLOSED or self.client[c].lac <= self.meta.last_entry

    @invariant(c=clients, when=lambda protocol: protocol.fence_on_unclean_shutdown or not protocol.can_crash)
    def who_counts_as_fenced_is_fenced(self, c: ModelValue) -> bool:
        """A bookie that a recovery counts as fenced is fenced, and stays fenced unless a crash undoes it."""
        return all(self.bookie[b].fenced for b in self.client[c].fenced)

    @step_invariant(c=clients)
    def who_changes_the_metadata_has_read_them(self, after: BookKeeperLimbo, c: ModelValue) -> bool:
        """A client changes the metadata only from the version that it knows, or reads them first."""
        known = self.client[c].meta_version
        return known in (None, self.meta.version) or self.meta == after.meta or self.client[c] == after.client[c]

    @invariant(when=lambda protocol: not protocol.can_crash)
    def all_committed_entries_reach_ack_quorum(self) -> bool:
        """Every entry of a closed ledger is stored by an ack quorum of its ensemble, unless a bookie can lose its
        data.
        """
        if self.meta.status is not LedgerStatus.CLOSED:
            return True
        return all(self._copies(entry_id) >= self.ack_quorum for entry_id in range(1, self.meta.last_entry + 1))

    @property
    def can_crash(self) -> bool:
        """Whether a bookie can ever crash."""
        return (
            self.allow_crash_when_ledger_open
            or self.allow_crash_when_ledger_in_recovery
            or self.allow_crash_when_ledger_closed
        )

    # -- assumptions about the constants -------------------------------------------------------------------------------

    @assumption
    def bookies_are_not_clients(self) -> bool:
        """No bookie has the name of a client."""
        return not set(self.bookies) & set(self.clients)

    # -- configurations ------------------------------------------------------------------------------------------------

    configurations = {
        "protected": configuration(doc="both protections: a crash at any time loses nothing"),
        "three-bookies": configuration(
            bookies=3, doc="nobody crashes, and a bookie that does not answer is replaced", **NO_CRASH
        ),
        "two-entries": configuration(
            clients=1, send_limit=2, doc="nobody crashes, and the owner sends two entries", **NO_CRASH
        ),
        "replaced": configuration(
            clients=1,
            write_quorum=1,
            send_limit=2,
            doc="the same, and a bookie that does not answer is replaced: it may have the second entry alone",
            **NO_CRASH,
        ),
        "replaced-after-a-crash": configuration(
            clients=1, write_quorum=1, send_limit=2, doc="the same, and it may have been fenced since a crash"
        ),
        "both-confirm": configuration(
            ack_quorum=2,
            doc="nobody crashes, and recovery reads once one of two bookies is fenced",
            **NO_CRASH,
        ),
        "one-of-three": configuration(
            bookies=3, write_quorum=3, doc="nobody crashes, and any one of three bookies commits an entry", **NO_CRASH
        ),
        "two-recoveries": configuration(
            clients=3,
            write_quorum=1,
            doc="nobody crashes, two clients recover the ledger, and may replace its bookie",
            **NO_CRASH,
        ),
        "two-entries-recovered": configuration(
            bookies=1,
            clients=3,
            write_quorum=1,
            send_limit=2,
            doc="nobody crashes, and two clients recover two entries, from a LAC that may come late",
            **NO_CRASH,
        ),
        "without-fencing": configuration(
            fence_on_unclean_shutdown=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="limbo alone: a bookie forgets that it was fenced",
        ),
        "without-limbo": configuration(
            limbo_on_unclean_shutdown=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="fencing alone: a bookie loses an entry, and says that there is none",
        ),
        "scenario-1": configuration(
            fence_on_unclean_shutdown=False,
            allow_crash_when_ledger_open=False,
            allow_crash_when_ledger_in_recovery=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="scenario 1 of BP-46: without fencing, an entry is written after the ledger was closed",
        ),
        "scenario-2": configuration(
            limbo_on_unclean_shutdown=False,
            allow_crash_when_ledger_open=False,
            allow_crash_when_ledger_closed=False,
            expect="no_divergence_between_client_and_meta_data",
            doc="scenario 2 of BP-46: without limbo, recovery cuts off an acknowledged entry",
        ),
    }


class Read(NamedTuple):
    """A recovery read with one more response counted. ``over``: nothing more can come, timeouts included."""

    response: ReadResponse
    ensemble: Bookies
    has_entry: Bookies
    no_such_entry: Bookies
    is_unknown: Bookies
    over: bool


def _ends(kind: type[Add], c: ModelValue, b: ModelValue) -> tuple[ModelValue, ModelValue]:
    return (c, b) if kind is AddEntryRequest else (b, c)
