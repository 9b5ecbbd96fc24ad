"""The replication protocol of Apache BookKeeper 4.13: the life of one ledger, from creation to closing.

Writer ``w1`` owns the ledger. It sends each entry to the bookies of the current ensemble. An entry is committed once an
ack quorum has confirmed it. When a bookie does not answer, ``w1`` starts a new fragment with another ensemble. Writer
``w2`` may start recovery at any time, even while ``w1`` is alive. It marks the ledger as in recovery, fences the
bookies, and reads forward from the highest last add confirmed (LAC) that a bookie reports. It writes back what it reads
and closes the ledger.

Variables, actions and enabling conditions are those of ``BookKeeperProtocol_v4_13.tla`` and
``MessagePassing_v4_13.tla`` (Jack Vanlightly, 2020 to 2021). So are the names and the number of states. Entry ids start
at 1; a LAC of 0 means that nothing is confirmed. Readers and auto-recovery are left out. Recovery reads and recovery
writes are concurrent in BookKeeper; here they are phases.

The protocol had two defects, and the checker finds both:

1. Fencing the LAC reads is not enough. A bookie that is not fenced can answer "no such entry" and store the entry
   afterwards: ``w1`` commits what ``w2`` cuts off. With ``recovery_reads_fence`` such an answer stays true.
2. Recovery used to accept a LAC of 0. It then read and wrote back entries of earlier fragments. If a bookie failed
   meanwhile, recovery asked for a fragment before an existing one. ``recover_from_current_fragment=false`` is that old
   rule.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

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
)
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper.ledger import (
    LEDGER_TYPES,
    Bookies,
    Entry,
    FenceRequest,
    FenceResponse,
    Fragment,
    LedgerMetadata,
    LedgerOnBookie,
    PendingAddOp,
    SingleLedger,
    changed_fragments,
    clear_timeout,
    covers,
    earliest_add,
    fragment_of,
    has_timed_out,
    lac_after,
    newly_asked,
    one_to_resend,
    why_bookies_differ,
)
from fencepost.protocols.types import typed

W1 = ModelValue("w1", 0)
W2 = ModelValue("w2", 1)
WRITERS = (W1, W2)


class WriterStatus(enum.Enum):
    """The status of the ledger as a writer sees it. INVALID: the metadata store refused a change that the writer asked
    for.
    """

    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"
    INVALID = "invalid"


class RecoveryPhase(enum.Enum):
    """The phase of a recovery. BookKeeper has no phases. They reduce the number of states and hide no defect."""

    NOT_STARTED = 0
    FENCING = 1
    READ = 2
    PENDING_READ_RESPONSE = 3
    WRITE = 4


class Writer(Record):
    """A writer: its LAC, the last add it pushed (LAP), and which bookies have confirmed which entry."""

    meta_version: int | None = None
    status: WriterStatus | None = None
    curr_fragment: Fragment = Fragment()
    pending_add_ops: frozenset[PendingAddOp] = frozenset()
    lap: int = 0
    lac: int = 0
    confirmed: PerKey[int, Bookies] = per_key(lambda protocol: protocol.entry_ids, frozenset())


class RecoveringWriter(Writer):
    """A writer that recovers a ledger: which bookies are fenced, and the answers for the entry being read."""

    fenced: Bookies = frozenset()
    curr_read_entry: Entry | None = None
    has_entry: Bookies = frozenset()
    no_such_entry: Bookies = frozenset()
    recovery_phase: RecoveryPhase = RecoveryPhase.NOT_STARTED


class AddEntryRequest(Message):
    """Store this entry. From ``w2`` it is a recovery add, which a fenced bookie accepts too."""

    entry: Entry
    lac: int


class AddEntryResponse(Message):
    """The entry is stored. Without success: the ledger is fenced."""

    entry: Entry
    success: bool


class ReadRequest(Message):
    """A recovery read of one entry, which may fence the ledger."""

    entry_id: int
    fence: bool


class ReadResponse(Message):
    """The entry, or None if there is no such entry. None does not say which entry was asked for."""

    entry: Entry | None
    fence: bool


ADD = (AddEntryRequest, AddEntryResponse)
READ = (ReadRequest, ReadResponse)


class BookKeeper413(SingleLedger):
    """The life of one ledger: a writer, a recovering writer, bookies and a metadata store."""

    name: ClassVar[str] = "bookkeeper-4.13"

    bookies: tuple[ModelValue, ...] = model_values(
        "b", 3, "the bookies that are available", symmetric=why_bookies_differ
    )
    write_quorum: int = constant(3, "bookies that an entry is sent to, the size of an ensemble")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is committed")
    send_limit: int = constant(1, "entries that w1 sends")
    recovery_reads_fence: bool = constant(False, "whether recovery reads fence the ledger too: the fix of defect 1")
    recover_from_current_fragment: bool = constant(
        True, "whether recovery does not rewrite entries of earlier fragments: the fix of defect 2"
    )
    message_loss: bool = constant(True, "whether messages can be lost, not only delayed")

    meta: LedgerMetadata = state(LedgerMetadata, held_by="zk")
    bookie: PerKey[ModelValue, LedgerOnBookie] = per_key(bookies, LedgerOnBookie)
    w1: Writer = state(Writer, held_by="w1")
    w2: RecoveringWriter = state(RecoveringWriter, held_by="w2")
    network: Network = network(
        {
            AddEntryRequest: (WRITERS, bookies),
            AddEntryResponse: (bookies, WRITERS),
            FenceRequest: (W2, bookies),
            FenceResponse: (bookies, W2),
            ReadRequest: (W2, bookies),
            ReadResponse: (bookies, W2),
        },
        lossy=message_loss,
        once=True,
        remember=True,
    )

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies, w=WRITERS, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, w: ModelValue) -> None:
        """A bookie stores an entry and the LAC sent with it. A fenced bookie accepts recovery adds only."""
        add = earliest_add(self.network, AddEntryRequest, w, b)
        require(w == W2 or not self.bookie[b].fenced)
        self.bookie[b].entries |= {add.entry}
        self.bookie[b].lac = add.lac
        self.network.send(AddEntryResponse(add.entry, success=True), b, w)

    @action(b=bookies, by="b")
    def bookie_sends_add_fenced_response(self, b: ModelValue) -> None:
        """A fenced bookie refuses an entry of ``w1``."""
        add = earliest_add(self.network, AddEntryRequest, W1, b)
        require(self.bookie[b].fenced)
        self.network.send(AddEntryResponse(add.entry, success=False), b, W1)

    @action(b=bookies, by="b")
    def bookie_sends_fencing_read_lac_response(self, b: ModelValue) -> None:
        """A bookie fences the ledger and answers with its LAC."""
        self.network.receive(FenceRequest, source=W2, to=b)
        self.bookie[b].fenced = True
        self.network.send(FenceResponse(self.bookie[b].lac), b, W2)

    @action(b=bookies, by="b")
    def bookie_sends_read_response(self, b: ModelValue) -> None:
        """A bookie answers a recovery read with the entry or with none. It fences the ledger if recovery reads
        fence.
        """
        read = self.network.receive(ReadRequest, source=W2, to=b).message
        if read.fence:
            self.bookie[b].fenced = True
        self.network.send(ReadResponse(self.bookie[b].entry(read.entry_id), read.fence), b, W2)

    # -- the owner of the ledger ---------------------------------------------------------------------------------------

    @action(by=W1)
    def w1_creates_ledger(self) -> None:
        """The owner creates the ledger with the first available ensemble."""
        require(self.meta.status is None)
        require(self.w1.meta_version is None)
        self.w1.curr_fragment = self._create_ledger(self._available_ensembles()[0])
        self.w1.status = WriterStatus.OPEN
        self.w1.meta_version = self.meta.version

    @action(by=W1)
    def w1_sends_add_entry_requests(self) -> None:
        """The owner sends the next entry to every bookie of its ensemble."""
        require(self.w1.status is WriterStatus.OPEN)
        require(self.w1.lap < self.send_limit)
        entry = Entry(id=self.w1.lap + 1, data=self.w1.lap + 1)
        fragment = self.w1.curr_fragment
        self._send_add(W1, self.w1, entry, to=fragment.ensemble)
        self.w1.lap = entry.id
        self.w1.pending_add_ops |= {PendingAddOp(entry, fragment.id, fragment.ensemble)}

    @action(b=bookies, by=W1)
    def w1_receives_add_confirmed_response(self, b: ModelValue) -> None:
        """The owner learns that a bookie has stored an entry."""
        require(self.w1.status is WriterStatus.OPEN)
        self._receive_add_confirmed_response(W1, self.w1, b)

    @action(b=bookies, by=W1)
    def w1_receives_add_fenced_response(self, b: ModelValue) -> None:
        """The owner learns that its ledger is fenced, so in recovery, and stops."""
        require(self.w1.status is WriterStatus.OPEN)
        earliest_add(self.network, AddEntryResponse, b, W1, where=lambda add: not add.success)
        require(b in self.w1.curr_fragment.ensemble)
        self.w1.status = None

    @action(b=bookies, by=W1)
    def w1_changes_ensemble(self, b: ModelValue) -> None:
        """The owner replaces a bookie that did not answer."""
        require(self.w1.status is WriterStatus.OPEN)
        require(has_timed_out(self.network, ADD, W1, b))
        require(self.meta.status is LedgerStatus.OPEN)
        self._change_ensemble(W1, self.w1, b)

    @action(b=bookies, by=W1)
    def w1_tries_invalid_ensemble_change(self, b: ModelValue) -> None:
        """The owner asks for a fragment before an existing one.

        This never happens. While the owner's metadata are current, nobody else has added fragments. It starts each
        fragment at its LAC + 1, and its LAC never decreases.
        """
        require(self.w1.status is WriterStatus.OPEN)
        require(has_timed_out(self.network, ADD, W1, b))
        require(self.meta.status is LedgerStatus.OPEN)
        self._try_invalid_ensemble_change(self.w1, b)

    @action(by=W1)
    def w1_sends_pending_add_op(self) -> None:
        """The owner sends an uncommitted entry to the bookies that are new in its ensemble."""
        require(self.w1.status is WriterStatus.OPEN)
        self._send_pending_add_op(W1, self.w1)

    @action(by=W1)
    def w1_close_ledger_success(self) -> None:
        """The owner closes the ledger at its LAC. It may do so at any time while the metadata store has the ledger as
        open.
        """
        require(self.w1.status is WriterStatus.OPEN)
        require(self.meta.status is LedgerStatus.OPEN)
        self._close(self.w1)

    @action(by=W1)
    def w1_close_ledger_fail(self) -> None:
        """The owner tries to close the ledger, but somebody is recovering it or has closed it. The owner discards its
        metadata.

        It does not stop. Entries that it has sent can still be confirmed, which is all that defect 1 needs.
        """
        require(self.w1.status is WriterStatus.OPEN)
        require(self.meta.status is not LedgerStatus.OPEN)
        require(self.w1.meta_version != self.meta.version)
        self.w1.meta_version = None

    # -- recovery ------------------------------------------------------------------------------------------------------

    @action(by=W2)
    def w2_place_in_recovery(self) -> None:
        """The second writer marks the ledger as in recovery and asks every bookie of the last ensemble to fence it."""
        require(self.w2.status is None)
        require(self.meta.status is LedgerStatus.OPEN)
        fragment = self.meta.fragments[-1]
        self.meta.status = LedgerStatus.IN_RECOVERY
        self.meta.version += 1
        self.w2.status = WriterStatus.IN_RECOVERY
        self.w2.meta_version = self.meta.version
        self.w2.recovery_phase = RecoveryPhase.FENCING
        self.w2.curr_fragment = fragment
        self.network.send_all([(FenceRequest(), b) for b in fragment.ensemble], W2)

    @action(b=bookies, by=W2)
    def w2_receives_fencing_read_lac_response(self, b: ModelValue) -> None:
        """A bookie reports that it is fenced. Recovery starts from the highest LAC reported, but not before the current
        fragment.

        A LAC that arrives after reading has begun is ignored.
        """
        response = self.network.receive(FenceResponse, source=b, to=W2).message
        self.w2.fenced |= {b}
        if self.w2.recovery_phase is RecoveryPhase.FENCING:
            lac = max(response.lac, self._minimum_lac())
            if lac > self.w2.lac:
                self.w2.lac = lac
                self.w2.lap = lac

    def _minimum_lac(self) -> int:
        """The last entry that is certainly committed: all entries before the current fragment are. This is the fix of
        defect 2. Before the fix it was 0.
        """
        return self.w2.curr_fragment.first_entry_id - 1 if self.recover_from_current_fragment else 0

    @action(by=W2)
    def w2_sends_read_requests(self) -> None:
        """Recovery reads the next entry from the ensemble that it was written to. The first read waits until every ack
        quorum has a fenced bookie.
        """
        require(self.w2.status is WriterStatus.IN_RECOVERY)
        phase = self.w2.recovery_phase
        require(phase is RecoveryPhase.READ or (phase is RecoveryPhase.FENCING and self._every_ack_quorum_is_fenced()))
        # Nobody has asked for the next entry before: between two sends a response completes a read, which moves the
        # LAP. So there is no need to look through all requests ever sent, as the original does.
        entry_id = self.w2.lap + 1
        self.w2.recovery_phase = RecoveryPhase.PENDING_READ_RESPONSE
        request = ReadRequest(entry_id, self.recovery_reads_fence)
        self.network.send_all([(request, b) for b in fragment_of(self.meta.fragments, entry_id).ensemble], W2)

    def _every_ack_quorum_is_fenced(self) -> bool:
        """Whether the bookies that are not fenced are too few for an ack quorum."""
        return covers(self.w2.fenced, self.w2.curr_fragment.ensemble, self.ack_quorum)

    def _receive_read_response(self, b: ModelValue) -> Read:
        """Count one response to a recovery read.

        A negative response does not name its entry. So it does not say which bookies were asked, and timeouts are
        neither counted nor cleared with it.
        """
        response = self.network.receive(ReadResponse, source=b, to=W2).message
        has_entry, no_such_entry = self.w2.has_entry, self.w2.no_such_entry
        ensemble: Bookies = frozenset()
        if response.entry is None:
            no_such_entry |= {b}
        else:
            has_entry |= {b}
            ensemble = frozenset(fragment_of(self.meta.fragments, response.entry.id).ensemble)
        over = self._is_read_over(len(has_entry) + len(no_such_entry), ensemble - has_entry - no_such_entry)
        return Read(response, ensemble, has_entry, no_such_entry, over)

    def _is_read_over(self, answers: int, silent: Bookies) -> bool:
        """Whether answers and timeouts add up to the write quorum. A bookie that has answered has not timed out, so
        only silent bookies are checked, and only until one of them may still answer.
        """
        missing = self.write_quorum - answers
        if missing == len(silent):
            return all(has_timed_out(self.network, READ, W2, b) for b in silent)
        return missing == sum(has_timed_out(self.network, READ, W2, b) for b in silent)

    @action(b=bookies, by=W2)
    def w2_receives_non_final_read(self, b: ModelValue) -> None:
        """Recovery receives a response to a read, with more to come."""
        read = self._receive_read_response(b)
        require(not read.over)
        self.w2.has_entry = read.has_entry
        self.w2.no_such_entry = read.no_such_entry
        if read.response.entry is not None:
            self.w2.curr_read_entry = read.response.entry
        self._note_fenced(read, b)

    @action(b=bookies, by=W2)
    def w2_completes_read_successfully(self, b: ModelValue) -> None:
        """Recovery receives the last response, and an ack quorum has the entry. It will write the entry back, and reads
        the next one.
        """
        read = self._receive_read_response(b)
        require(read.over)
        require(len(read.has_entry) >= self.ack_quorum)
        found = read.response.entry or self.w2.curr_read_entry
        assert found is not None, "an ack quorum has the entry, so one of its bookies has sent it"
        fragment = self.w2.curr_fragment
        self.w2.lap += 1
        entry = Entry(self.w2.lap, found.data)
        self.w2.pending_add_ops |= {PendingAddOp(entry, fragment.id, fragment.ensemble)}
        self._end_read(read, b, then=RecoveryPhase.READ)

    @action(b=bookies, by=W2)
    def w2_completes_read_with_no_such_entry(self, b: ModelValue) -> None:
        """Recovery receives the last response, and enough bookies lack the entry that it cannot be committed. Reading
        ends.

        Only an explicit answer counts; a timeout does not.
        """
        read = self._receive_read_response(b)
        require(read.over)
        require(len(read.no_such_entry) > self.write_quorum - self.ack_quorum)
        self._end_read(read, b, then=RecoveryPhase.WRITE)

    def _end_read(self, read: Read, b: ModelValue, then: RecoveryPhase) -> None:
        for member in read.ensemble:
            clear_timeout(self.network, READ, W2, member)
        self._note_fenced(read, b)
        self.w2.has_entry = frozenset()
        self.w2.no_such_entry = frozenset()
        self.w2.curr_read_entry = None
        self.w2.recovery_phase = then

    def _note_fenced(self, read: Read, b: ModelValue) -> None:
        if read.response.fence:
            self.w2.fenced |= {b}

    @action(by=W2)
    def w2_writes_back_entry(self) -> None:
        """Recovery writes the first entry that is not written back yet to the current ensemble, wherever it was read
        from.
        """
        require(self.w2.status is WriterStatus.IN_RECOVERY)
        require(self.w2.recovery_phase is RecoveryPhase.WRITE)
        recovered = sorted((op.entry for op in self.w2.pending_add_ops), key=lambda entry: entry.id)
        unsent = [entry for entry in recovered if not self._written_back(entry)]
        require(len(unsent) > 0)
        self._send_add(W2, self.w2, unsent[0], to=self.w2.curr_fragment.ensemble)

    def _written_back(self, entry: Entry) -> bool:
        """Whether recovery has sent this entry to any bookie."""
        requests = [AddEntryRequest(entry, lac) for lac in range(entry.id)]
        return any(self.network.is_known(request, W2, b) for request in requests for b in self.bookies)

    @action(b=bookies, by=W2)
    def w2_receives_add_confirmed_response(self, b: ModelValue) -> None:
        """Recovery learns that a bookie has stored an entry."""
        require(self.w2.status is WriterStatus.IN_RECOVERY)
        self._receive_add_confirmed_response(W2, self.w2, b)

    @action(b=bookies, by=W2)
    def w2_changes_ensemble(self, b: ModelValue) -> None:
        """Recovery replaces a bookie that did not answer a write.

        BookKeeper writes new ensembles to the metadata store only at the end. With one recovering writer that makes no
        difference.
        """
        require(self.w2.status is WriterStatus.IN_RECOVERY)
        require(has_timed_out(self.network, ADD, W2, b))
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self._change_ensemble(W2, self.w2, b)

    @action(b=bookies, by=W2)
    def w2_tries_invalid_ensemble_change(self, b: ModelValue) -> None:
        """Recovery asks for a fragment before an existing one, and the metadata store refuses: defect 2."""
        require(self.w2.status is WriterStatus.IN_RECOVERY)
        require(has_timed_out(self.network, ADD, W2, b))
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self._try_invalid_ensemble_change(self.w2, b)

    @action(by=W2)
    def w2_sends_pending_add_op(self) -> None:
        """Recovery sends an entry that is not written back yet to the bookies that are new in its ensemble."""
        require(self.w2.status is WriterStatus.IN_RECOVERY)
        self._send_pending_add_op(W2, self.w2)

    @action(by=W2)
    def w2_closes_ledger(self) -> None:
        """Recovery has written back every entry that it read. It closes the ledger at its LAC."""
        require(self.w2.status is WriterStatus.IN_RECOVERY)
        require(self.w2.recovery_phase is RecoveryPhase.WRITE)
        require(not self.w2.pending_add_ops)
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self._close(self.w2)

    # -- what both writers do ------------------------------------------------------------------------------------------

    def _send_add(self, source: ModelValue, writer: Writer, entry: Entry, to: Iterable[ModelValue]) -> None:
        request = AddEntryRequest(entry, writer.lac)
        self.network.send_all([(request, b) for b in to], source)

    def _close(self, writer: Writer) -> None:
        """Close the ledger at the writer's LAC, unless the metadata have changed since the writer last read them."""
        require(writer.meta_version == self.meta.version)
        self._close_ledger(writer.lac)
        writer.status = WriterStatus.CLOSED
        writer.meta_version = self.meta.version

    def _receive_add_confirmed_response(self, w: ModelValue, writer: Writer, b: ModelValue) -> None:
        """Count a confirmation. The LAC moves to the last entry for which it and all entries before it have an ack
        quorum.
        """
        add = earliest_add(self.network, AddEntryResponse, b, w, where=lambda add: add.success)
        require(b in writer.curr_fragment.ensemble)
        writer.confirmed[add.entry.id] |= {b}
        reached = lac_after(0, self.send_limit, writer.confirmed, self.ack_quorum)
        if reached:
            if reached > writer.lac:
                writer.lac = reached
            writer.pending_add_ops = frozenset(op for op in writer.pending_add_ops if op.entry.id > reached)

    def _replacement(self, writer: Writer, b: ModelValue) -> Bookies:
        """The ensemble with another bookie in place of ``b``. The writer's metadata must be current, and the entries of
        its last ensemble change must have been resent.
        """
        require(writer.meta_version == self.meta.version)
        require(b in writer.curr_fragment.ensemble)
        require(not any(op.is_behind(writer.curr_fragment) for op in writer.pending_add_ops))
        failed = frozenset({b})
        return self._available_ensembles(frozenset(writer.curr_fragment.ensemble) - failed, failed)[0]

    def _is_valid_next_fragment(self, first_entry_id: int) -> bool:
        """Whether the fragment would be the last one: fragments may only be added at the end."""
        return all(fragment.first_entry_id <= first_entry_id for fragment in self.meta.fragments)

    def _change_ensemble(self, w: ModelValue, writer: Writer, b: ModelValue) -> None:
        """Start a fragment after the LAC, with another bookie in place of ``b``.

        It replaces the current fragment if that has nothing committed. Confirmations by ``b`` of uncommitted entries no
        longer count, so an entry beyond the LAC can lose its ack quorum.
        """
        ensemble = self._replacement(writer, b)
        first_entry_id = writer.lac + 1
        require(self._is_valid_next_fragment(first_entry_id))
        fragments = changed_fragments(self.meta.fragments, ensemble, first_entry_id)
        self.meta.fragments = fragments
        self.meta.version += 1
        writer.meta_version = self.meta.version
        writer.curr_fragment = fragments[-1]
        self._discount(writer.confirmed, first_entry_id, {b})
        clear_timeout(self.network, ADD, w, b)

    def _try_invalid_ensemble_change(self, writer: Writer, b: ModelValue) -> None:
        """Try the same where the new fragment would come before an existing one. The store refuses, and the writer is
        stuck.
        """
        self._replacement(writer, b)
        require(not self._is_valid_next_fragment(writer.lac + 1))
        writer.status = WriterStatus.INVALID

    def _send_pending_add_op(self, w: ModelValue, writer: Writer) -> None:
        """Resend the first of the adds that were last sent to one earlier ensemble, to the bookies that are new."""
        fragment = writer.curr_fragment
        op = one_to_resend(writer.pending_add_ops, fragment)
        new = newly_asked(op.entry.id, op.ensemble, fragment.ensemble, self.write_quorum)
        self._send_add(w, writer, op.entry, to=new)
        writer.pending_add_ops = writer.pending_add_ops - {op} | {
            PendingAddOp(op.entry, fragment.id, fragment.ensemble)
        }

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: LEDGER_TYPES, "meta", "bookie", "w1", "w2")

    @invariant
    def only_valid_fragments(self) -> bool:
        """No writer ever asks for a fragment before an existing one."""
        return self.w1.status is not WriterStatus.INVALID and self.w2.status is not WriterStatus.INVALID

    @invariant(b=bookies)
    def no_out_of_order_entries(self, b: ModelValue) -> bool:
        """A bookie stores what ``w1`` wrote, under the id that ``w1`` gave it."""
        return all(entry.id == entry.data for entry in self.bookie[b].entries)

    @invariant
    def no_divergence_between_writer_and_meta_data(self) -> bool:
        """No committed entry is lost: a closed ledger includes every entry that ``w1`` considers committed."""
        return self.meta.status is not LedgerStatus.CLOSED or self.w1.lac <= self.meta.last_entry

    @invariant
    def all_committed_entries_reach_ack_quorum(self) -> bool:
        """Every entry of a closed ledger is stored by an ack quorum of its ensemble. Bookies lose no data in this
        model.
        """
        if self.meta.status is not LedgerStatus.CLOSED:
            return True
        return all(self._copies(entry_id) >= self.ack_quorum for entry_id in range(1, self.meta.last_entry + 1))

    # -- assumptions about the constants -------------------------------------------------------------------------------

    @assumption
    def bookies_are_not_writers(self) -> bool:
        """No bookie has the name of a writer."""
        return not set(self.bookies) & set(WRITERS)

    # -- configurations ------------------------------------------------------------------------------------------------

    configurations = {
        "published": configuration(
            expect="no_divergence_between_writer_and_meta_data", doc="the published configuration, which has defect 1"
        ),
        "fixed": configuration(recovery_reads_fence=True, doc="the published configuration, defect 1 fixed"),
        "small": configuration(
            bookies=2,
            write_quorum=2,
            ack_quorum=1,
            recovery_reads_fence=True,
            doc="two bookies, no ensemble to change to",
        ),
        "medium": configuration(write_quorum=2, recovery_reads_fence=True, doc="three bookies, ensembles of two"),
        "two-entries": configuration(
            bookies=2,
            write_quorum=2,
            ack_quorum=2,
            send_limit=2,
            recovery_reads_fence=True,
            message_loss=False,
            doc="two entries, so that recovery may begin after the first",
        ),
        "three-copies": configuration(
            ack_quorum=1,
            recovery_reads_fence=True,
            message_loss=False,
            doc="three copies of one entry, of which one bookie may hold the only one",
        ),
        "defect-1-small": configuration(
            bookies=2,
            write_quorum=2,
            ack_quorum=2,
            expect="no_divergence_between_writer_and_meta_data",
            doc="defect 1 with as few bookies as possible",
        ),
        "defect-1-by-delay": configuration(
            message_loss=False,
            expect="no_divergence_between_writer_and_meta_data",
            doc="defect 1 without a lost message: a delayed one is enough",
        ),
        "defect-2": configuration(
            write_quorum=1,
            ack_quorum=1,
            send_limit=2,
            recovery_reads_fence=True,
            recover_from_current_fragment=False,
            expect="only_valid_fragments",
            doc="defect 2 with the fewest states: two entries, one copy of each",
        ),
        "defect-2-one-entry": configuration(
            write_quorum=2,
            ack_quorum=1,
            recovery_reads_fence=True,
            recover_from_current_fragment=False,
            expect="only_valid_fragments",
            doc="defect 2 with a single entry, in two copies",
        ),
        "defect-2-fixed": configuration(
            write_quorum=2, ack_quorum=1, recovery_reads_fence=True, doc="the same single entry, defect 2 fixed"
        ),
    }


class Read(NamedTuple):
    """A recovery read with one more response counted. ``over``: nothing more can come, timeouts included."""

    response: ReadResponse
    ensemble: Bookies
    has_entry: Bookies
    no_such_entry: Bookies
    over: bool
