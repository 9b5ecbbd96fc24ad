"""Running BookKeeper without the journal: what a bookie does when it boots, so that nothing is lost by what a crash took.

A journal makes every add durable before it is acknowledged. BP-46 (*Running without the journal*) lets adds skip it, so a crash can
take what a bookie has acknowledged. A bookie that forgot that it was fenced takes entries of a ledger that is closed (scenario 1 of
BP-46); one that forgot an entry says *no such entry*, and recovery cuts the ledger off before it (scenario 2). So a bookie that may have
forgotten something boots in two phases. In phase one it fences the ledger and puts it in limbo: of an entry that it does not have it
then says *unknown*. After that it serves clients. In phase two it waits for the ledger to be recovered, copies from its peers what it
lacks, and leaves limbo.

The published model, ``BookKeeperProtocolWithLimbo.tla``, covers a simplified boot, as BP-46 itself says: one bookie loses everything and
is back in the same step, fenced and in limbo for good. This is the full sequence: any part of what was not flushed may be lost, a bookie
is down for a while, crashes again between the phases or in the middle of the second, comes back with an empty disk, is shut down
cleanly while still in limbo. Each protection is a constant that turns it off.

It is the story of one ledger, open when it begins, with all bookies in its ensemble and in every write set. The ``writer`` owns it, and
sends an entry once the one before is acknowledged; so an entry on a bookie tells that those before it are confirmed. A recoverer, ``r1``,
is whoever recovers the ledger, a client that takes the writer for dead or a bookie in phase two, and may stop at any point. Entry ids
start at 1.

Where the rules come from, by section of BP-46:

- *A note on Quorums*: how many bookies must be fenced before recovery reads, and how many negatives end the ledger.
- *A note on cookies*: a disk without its cookie is empty; a bookie that lacks it does not boot, unless that is to be fixed.
- *Proposed Changes*: only adds skip the journal; fixing cookies is an option.
- *Detecting Data Loss On Boot*: the bit in the index, set on start-up and cleared on shutdown.
- *Protection Mechanism*: all ledgers are fenced; in limbo, reads are served and explicit negatives become unknowns; repair.
- *The Full Boot-Up Sequence*: the two phases and what is done in each, clients served between them. Here only ledgers that are not
  closed are fenced, which is ``fence_closed_ledgers=false``.

What is not here, and why nothing is hidden by that:

- *Flushing.* Nothing waits for a flush but a clean shutdown, so it is no action: what a crash leaves was flushed, what it takes was not.
- *Timeouts.* Nobody acts on one, so a message that is lost is one that never arrives, with all that comes after it over the same
  connection. One that finds its bookie down arrives later.
- *Ensemble changes.* BP-46 is about bookies that come back, not about replacing them.
- *The steps of phase one.* The bookie serves nobody meanwhile, so nobody can tell in which order it marks ledgers and updates its
  cookie, and a crash in the middle is like one before.
- *Messages for copying.* What is copied is an entry of a closed ledger, which never changes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import ClassVar, TypeVar, cast

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    action,
    assumption,
    configuration,
    constant,
    invariant,
    leads_to,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    strong,
    subsets,
    weak,
)
from fencepost.protocols.types import Path, Test, at_least, each, is_typed, one_of_kind, parts
from fencepost.store.rules.metadata import LedgerStatus

WRITER = ModelValue("writer")
CUT_OFF = "no_divergence_between_writer_and_meta_data"

Entries = frozenset[int]


class WriterStatus(enum.Enum):
    """What the owner of the ledger believes: that it is open, that it has closed it, or that somebody recovers it."""

    OPEN = "open"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"


class Boot(enum.Enum):
    """How far a bookie has booted. It serves clients unless it is down."""

    DOWN = "down"
    PHASE_TWO = "phase two"
    DONE = "done"


class RecoveryPhase(enum.Enum):
    """How far a recovery is. It reads and writes back at the same time; ``WRITING`` is when nothing more is to be read."""

    NOT_STARTED = "not started"
    FENCING = "fencing"
    READING = "reading"
    WRITING = "writing"
    DONE = "done"


class Code(enum.Enum):
    """What a bookie says to a read of an entry. ``NO_SUCH_ENTRY`` is an explicit negative: it promises that it never had it."""

    OK = "ok"
    NO_SUCH_ENTRY = "no such entry"
    UNKNOWN = "unknown"


class LedgerMetadata(Record):
    """What the metadata store knows of the ledger."""

    status: LedgerStatus = LedgerStatus.OPEN
    last_entry: int = 0


class Bookie(Record):
    """One bookie: how far it has booted, and what it has on its disk.

    ``unclean`` is the bit in the index that is set at start-up and cleared by a clean shutdown; ``cookie`` is whether there is one. An
    empty disk has neither. ``lost`` is nothing that the bookie knows: entries that it stored, that a crash took, and that it did not
    get back before the end of phase two.
    """

    boot: Boot = Boot.DONE
    unclean: bool = True
    cookie: bool = True
    entries: Entries = frozenset()
    fenced: bool = False
    limbo: bool = False
    lost: Entries = frozenset()


class Writer(Record):
    """What the owner of the ledger knows: its last add pushed and confirmed, and how many have confirmed the entry between them."""

    status: WriterStatus = WriterStatus.OPEN
    lap: int = 0
    lac: int = 0
    confirmed: int = 0


class Recovery(Record):
    """What a recoverer knows: how many bookies are fenced, how many answered what to the read of the entry after ``lap``, how many
    have confirmed each entry that it wrote back."""

    phase: RecoveryPhase = RecoveryPhase.NOT_STARTED
    fenced: int = 0
    lap: int = 0
    lac: int = 0
    found: int = 0
    denied: int = 0
    unknown: int = 0
    written_back: PerKey[int, int] = per_key(lambda protocol: protocol.entry_ids, 0)


class AddEntryRequest(Message):
    """From the writer: store this entry."""

    entry_id: int


class AddEntryResponse(Message):
    """The entry is stored; or, without success, the ledger is fenced."""

    entry_id: int
    success: bool


class Fence(Record):
    """Take no more entries from the writer, and tell your LAC."""


class Fenced(Record):
    """The ledger is fenced; the highest LAC that came with an entry."""

    lac: int


class Read(Record):
    """A recovery read of one entry, which fences the ledger too."""

    entry_id: int


class ReadResult(Record):
    """The answer to a recovery read."""

    entry_id: int
    code: Code


class Add(Record):
    """A recovery add, which a fenced bookie takes as well."""

    entry_id: int


class Added(Record):
    """The entry is stored."""

    entry_id: int


class RecoveryRequest(Message):
    """From a recoverer. All that it asks of a bookie goes over one connection, and arrives in order."""

    ask: Fence | Read | Add


class RecoveryResponse(Message):
    """The answer, over the same connection."""

    answer: Fenced | ReadResult | Added


Ask = TypeVar("Ask", Fence, Read, Add)
Answer = TypeVar("Answer", Fenced, ReadResult, Added)


def _counts_bookies(protocol: BookKeeperBoot, value: int) -> bool:
    return type(value) is int and 0 <= value <= len(protocol.bookies)


def _is_entry_id(protocol: BookKeeperBoot, value: int) -> bool:
    return value in protocol.entry_ids


def _is_position(protocol: BookKeeperBoot, value: int) -> bool:
    return type(value) is int and 0 <= value <= protocol.send_limit


TYPES: Mapping[str, Test] = {
    "meta.status": one_of_kind(LedgerStatus),
    "meta.last_entry": _is_position,
    "bookie.boot": one_of_kind(Boot),
    "bookie.unclean": one_of_kind(bool),
    "bookie.cookie": one_of_kind(bool),
    "bookie.entries": each(_is_entry_id),
    "bookie.fenced": one_of_kind(bool),
    "bookie.limbo": one_of_kind(bool),
    "bookie.lost": each(_is_entry_id),
    "writer.status": one_of_kind(WriterStatus),
    "writer.lap": _is_position,
    "writer.lac": _is_position,
    "writer.confirmed": _counts_bookies,
    "recovery.phase": one_of_kind(RecoveryPhase),
    "recovery.fenced": _counts_bookies,
    "recovery.lap": _is_position,
    "recovery.lac": _is_position,
    "recovery.found": _counts_bookies,
    "recovery.denied": _counts_bookies,
    "recovery.unknown": _counts_bookies,
    "recovery.written_back": _counts_bookies,
    "crashes": at_least(0),
}


class BookKeeperBoot(Protocol):
    """The life of one ledger whose bookies run without the journal: a writer, a recoverer, and bookies that crash and boot."""

    name: ClassVar[str] = "bookkeeper-boot"

    bookies: tuple[ModelValue, ...] = model_values(
        "b", 3, "the bookies, all of them in the ensemble of the ledger", symmetric=True
    )
    recoverers: tuple[ModelValue, ...] = model_values("r", 1, "who may recover the ledger", symmetric=True)
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is acknowledged")
    send_limit: int = constant(1, "entries that the writer sends")

    max_crashes: int = constant(1, "how often bookies crash or lose their disk, all together")
    copies_at_risk: int = constant(1, "copies of an entry that crashes may destroy before they are repaired")
    disk_loss: bool = constant(True, "whether a disk can come back empty")
    clean_shutdown: bool = constant(True, "whether bookies are also shut down as they should be")

    journal_adds: bool = constant(False, "whether adds are journaled: BookKeeper with the journal")
    journal_fences: bool = constant(True, "whether fencing is journaled: BP-46 leaves only adds out of the journal")
    detect_unclean_shutdown: bool = constant(True, "whether a boot looks at the bit that tells of an unclean shutdown")
    check_cookies: bool = constant(True, "whether a boot looks for the cookies that tell of an empty disk")
    fix_cookies: bool = constant(
        True, "whether a bookie without its cookie boots and makes a new one, or refuses to boot"
    )
    phase_one_fences: bool = constant(True, "whether phase one fences the ledger")
    fence_closed_ledgers: bool = constant(True, "whether it fences closed ledgers too")
    phase_one_sets_limbo: bool = constant(True, "whether phase one puts a ledger that is not closed in limbo")
    limbo_answers_unknown: bool = constant(True, "whether a bookie in limbo says unknown in place of no such entry")
    limbo_in_index: bool = constant(True, "whether limbo is kept in the index, or in memory only")
    repair_before_leaving_limbo: bool = constant(
        True, "whether a bookie leaves limbo only with every entry of the ledger"
    )
    copies_to_recover: int = constant(
        1, "copies that make an entry recoverable: one in BookKeeper, an ack quorum in BP-46"
    )

    meta: LedgerMetadata = state(LedgerMetadata, held_by="zk")
    bookie: PerKey[ModelValue, Bookie] = per_key(bookies, Bookie)
    writer: Writer = state(Writer, held_by="writer")
    recovery: PerKey[ModelValue, Recovery] = per_key(recoverers, Recovery)
    crashes: int = state(0)
    network: Network = network(
        {
            AddEntryRequest: (WRITER, bookies),
            AddEntryResponse: (bookies, WRITER),
            RecoveryRequest: (recoverers, bookies),
            RecoveryResponse: (bookies, recoverers),
        },
        ordered=True,
    )

    configurations = {
        "default": configuration(doc="three bookies; one crash or empty disk, at any point"),
        "small": configuration(bookies=2, doc="the same with two bookies"),
        "two-crashes": configuration(
            bookies=2,
            max_crashes=2,
            doc="a second crash: between the phases, in the middle of phase two, or of another bookie",
        ),
        "two-entries": configuration(bookies=2, send_limit=2, doc="two entries, so that the LAC moves"),
        "cookies-not-fixed": configuration(
            bookies=2, fix_cookies=False, doc="a bookie with an empty disk does not boot"
        ),
        "with-the-journal": configuration(
            bookies=2,
            journal_adds=True,
            detect_unclean_shutdown=False,
            fix_cookies=False,
            doc="BookKeeper before BP-46: everything is journaled, and only cookies are checked",
        ),
        "scenario-1": configuration(
            journal_fences=False,
            phase_one_fences=False,
            disk_loss=False,
            expect=CUT_OFF,
            doc="scenario 1 of BP-46: fencing is forgotten, and phase one does not fence",
        ),
        "scenario-1-closed-ledger": configuration(
            fence_closed_ledgers=False,
            expect=CUT_OFF,
            doc="scenario 1 by an empty disk: phase one leaves closed ledgers alone",
        ),
        "scenario-2": configuration(
            phase_one_sets_limbo=False,
            disk_loss=False,
            expect=CUT_OFF,
            doc="scenario 2 of BP-46: an entry is forgotten, and there is no limbo",
        ),
        "unclean-shutdown-not-detected": configuration(
            bookies=2, detect_unclean_shutdown=False, expect=CUT_OFF, doc="a crash is taken for a clean shutdown"
        ),
        "cookies-not-checked": configuration(
            bookies=2, check_cookies=False, expect=CUT_OFF, doc="an empty disk has no bit that tells of a crash"
        ),
        "limbo-denies": configuration(
            bookies=2, limbo_answers_unknown=False, expect=CUT_OFF, doc="a bookie in limbo says no such entry"
        ),
        "limbo-in-memory": configuration(
            bookies=2,
            limbo_in_index=False,
            expect=CUT_OFF,
            doc="a clean shutdown forgets limbo before the ledger is recovered",
        ),
        "limbo-left-early": configuration(
            bookies=2,
            max_crashes=2,
            repair_before_leaving_limbo=False,
            expect="every_acknowledged_entry_has_a_copy",
            doc="limbo ends with recovery, before missing entries are copied",
        ),
        "an-ack-quorum-to-recover": configuration(
            copies_to_recover=2,
            expect="recovery_reads_are_decided",
            doc="recovery as BP-46 words it: a ledger may stay in limbo for ever",
        ),
        "too-many-crashes": configuration(
            bookies=2,
            max_crashes=2,
            copies_at_risk=2,
            expect="every_acknowledged_entry_has_a_copy",
            doc="crashes destroy an ack quorum of copies: more than anything protects from",
        ),
    }

    # -- what is assumed of the constants ------------------------------------------------------------------------------

    @assumption
    def something_is_sent(self) -> bool:
        """The send limit is positive."""
        return self.send_limit > 0

    @assumption
    def an_ack_quorum_is_some_of_the_bookies(self) -> bool:
        """Entries are confirmed by somebody, and no more confirmations are asked for than can come."""
        return 1 <= self.ack_quorum <= len(self.bookies)

    @assumption
    def an_ack_quorum_is_enough_to_recover(self) -> bool:
        """An entry is not recoverable without a copy, and an ack quorum of copies is always enough."""
        return 1 <= self.copies_to_recover <= self.ack_quorum

    @assumption
    def nobody_is_taken_for_somebody_else(self) -> bool:
        """The names of bookies, recoverers and the writer are all different."""
        everybody = [WRITER, *self.bookies, *self.recoverers]
        return len(set(everybody)) == len(everybody)

    @property
    def entry_ids(self) -> range:
        """The ids of all entries that are ever sent."""
        return range(1, self.send_limit + 1)

    @property
    def coverage(self) -> int:
        """So many bookies leave no ack quorum without one of them: the quorum coverage of BP-46, and its ensemble coverage."""
        return len(self.bookies) - self.ack_quorum + 1

    # -- bookies serve clients -----------------------------------------------------------------------------------------

    @action(b=bookies, by="b")
    def bookie_stores_entry(self, b: ModelValue) -> None:
        """A bookie that is not fenced stores an entry of the writer, and says so."""
        me = self._serving(b)
        add = self.network.receive(AddEntryRequest, source=WRITER, to=b)
        require(not me.fenced)
        self._store(me, add.message.entry_id)
        self.network.reply(add, AddEntryResponse(add.message.entry_id, success=True))

    @action(b=bookies, by="b")
    def bookie_refuses_entry(self, b: ModelValue) -> None:
        """A bookie that is fenced refuses an entry of the writer."""
        me = self._serving(b)
        add = self.network.receive(AddEntryRequest, source=WRITER, to=b)
        require(me.fenced)
        self.network.reply(add, AddEntryResponse(add.message.entry_id, success=False))

    @action(b=bookies, r=recoverers, by="b")
    def bookie_is_fenced(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie is fenced, and answers with its LAC: an entry came with the word that those before it are confirmed."""
        me = self._serving(b)
        self._receive_request(Fence, b, r)
        me.fenced = True
        self._respond(b, r, Fenced(max(me.entries, default=1) - 1))

    @action(b=bookies, r=recoverers, by="b")
    def bookie_answers_read(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie is fenced by a recovery read too, and answers it. In limbo it never gives an explicit negative."""
        me = self._serving(b)
        read = self._receive_request(Read, b, r)
        me.fenced = True
        if read.entry_id in me.entries:
            code = Code.OK
        elif self.limbo_answers_unknown and me.limbo:
            code = Code.UNKNOWN
        else:
            code = Code.NO_SUCH_ENTRY
        self._respond(b, r, ReadResult(read.entry_id, code))

    @action(b=bookies, r=recoverers, by="b")
    def bookie_stores_recovered_entry(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie, fenced or not, stores an entry that recovery writes back."""
        me = self._serving(b)
        add = self._receive_request(Add, b, r)
        self._store(me, add.entry_id)
        self._respond(b, r, Added(add.entry_id))

    def _serving(self, b: ModelValue) -> Bookie:
        me = self.bookie[b]
        require(me.boot is not Boot.DOWN)
        return me

    def _receive_request(self, kind: type[Ask], b: ModelValue, r: ModelValue) -> Ask:
        request = self.network.receive(RecoveryRequest, source=r, to=b, where=lambda m: isinstance(m.ask, kind))
        return cast("Ask", request.message.ask)

    def _respond(self, b: ModelValue, r: ModelValue, answer: Fenced | ReadResult | Added) -> None:
        self.network.send(RecoveryResponse(answer), b, r)

    def _store(self, me: Bookie, entry_id: int) -> None:
        me.entries |= {entry_id}
        me.lost -= {entry_id}

    # -- bookies go down -----------------------------------------------------------------------------------------------

    @action(b=bookies, by="b")
    def bookie_shuts_down(self, b: ModelValue) -> None:
        """A clean shutdown in limbo: everything is flushed, and the bit in the index is cleared.

        A bookie that is not in limbo has nothing to forget, and would come back as it was.
        """
        require(self.clean_shutdown)
        me = self._serving(b)
        require(me.limbo)
        me.boot = Boot.DOWN
        me.unclean = False
        if not self.limbo_in_index:
            me.limbo = False

    @action(b=bookies, by="b")
    def bookie_crashes(self, b: ModelValue) -> None:
        """A crash takes any part of what was not flushed, and nothing that was journaled."""
        me = self._serving(b)
        self._count_crash()
        me.boot = Boot.DOWN
        if not self.journal_adds:
            self._lose(b, one_of(subsets(me.entries)))
        if me.fenced and not self.journal_fences:
            me.fenced = one_of((True, False))

    @action(b=bookies, by="b")
    def bookie_loses_disk(self, b: ModelValue) -> None:
        """A bookie goes down, to come back with an empty disk: no entries, no index, no cookie."""
        require(self.disk_loss)
        me = self._serving(b)
        self._count_crash()
        self._lose(b, me.entries)
        self.bookie[b] = Bookie(boot=Boot.DOWN, unclean=False, cookie=False, lost=me.lost)

    def _count_crash(self) -> None:
        require(self.crashes < self.max_crashes)
        self.crashes += 1

    def _lose(self, b: ModelValue, entries: Entries) -> None:
        """Copies are destroyed; not more of any entry than may be at risk."""
        for entry_id in entries:
            elsewhere = sum(entry_id in self.bookie[peer].lost for peer in self.bookies if peer != b)
            require(elsewhere < self.copies_at_risk)
        self.bookie[b].entries -= entries
        self.bookie[b].lost |= entries

    # -- bookies boot --------------------------------------------------------------------------------------------------

    @action(b=bookies, by="b")
    def bookie_boots(self, b: ModelValue) -> None:
        """A bookie starts: it looks for signs of a loss, goes through phase one if there are any, and serves clients.

        Without its cookie it boots only if that is to be fixed without an operator.
        """
        me = self.bookie[b]
        require(me.boot is Boot.DOWN)
        disk_is_empty = self.check_cookies and not me.cookie
        require(self.fix_cookies or not disk_is_empty)
        if disk_is_empty or (self.detect_unclean_shutdown and me.unclean):
            closed = self.meta.status is LedgerStatus.CLOSED
            if self.phase_one_fences and (self.fence_closed_ledgers or not closed):
                me.fenced = True
            if self.phase_one_sets_limbo and not closed:
                me.limbo = True
        me.cookie = True
        me.unclean = True
        me.boot = Boot.PHASE_TWO

    @action(b=bookies, peer=bookies, by="b")
    def bookie_copies_entry(self, b: ModelValue, peer: ModelValue) -> None:
        """Phase two: an entry of the closed ledger that is missing is copied from another bookie, which may be in limbo itself."""
        require(b != peer)
        me = self.bookie[b]
        require(me.boot is Boot.PHASE_TWO)
        require(self.meta.status is LedgerStatus.CLOSED)
        self._store(me, one_of(self._missing(me) & self._serving(peer).entries))

    @action(b=bookies, by="b")
    def bookie_completes_boot(self, b: ModelValue) -> None:
        """The end of phase two: a ledger that was in limbo is recovered, all entries of a closed one are there, limbo is over."""
        me = self.bookie[b]
        require(me.boot is Boot.PHASE_TWO)
        if self.meta.status is not LedgerStatus.CLOSED:
            require(not me.limbo)
        elif self.repair_before_leaving_limbo or not me.limbo:
            require(not self._missing(me))
        me.boot = Boot.DONE
        me.limbo = False
        me.lost = frozenset()

    def _missing(self, me: Bookie) -> Entries:
        return frozenset(range(1, self.meta.last_entry + 1)) - me.entries

    # -- the owner of the ledger ---------------------------------------------------------------------------------------

    @action(by=WRITER)
    def writer_sends_entry(self) -> None:
        """The owner sends the next entry to every bookie, as soon as the one before is acknowledged."""
        require(self.writer.status is WriterStatus.OPEN)
        require(self.writer.lap == self.writer.lac < self.send_limit)
        self.writer.lap += 1
        self.network.send_all([(AddEntryRequest(self.writer.lap), b) for b in self.bookies], WRITER)

    @action(b=bookies, by=WRITER)
    def writer_receives_confirmation(self, b: ModelValue) -> None:
        """A bookie has stored an entry. With an ack quorum it is acknowledged: whoever gave it to the writer may rely on it."""
        me = self.writer
        require(me.status is WriterStatus.OPEN)
        require(me.lac < me.lap)
        add = self.network.receive(AddEntryResponse, source=b, to=WRITER, where=lambda add: add.success).message
        if add.entry_id == me.lap:
            me.confirmed += 1
            if me.confirmed == self.ack_quorum:
                me.confirmed = 0
                me.lac = me.lap

    @action(b=bookies, by=WRITER)
    def writer_withdraws(self, b: ModelValue) -> None:
        """A bookie is fenced, so somebody recovers the ledger. The writer has no more to do with it."""
        require(self.writer.status is WriterStatus.OPEN)
        self.network.receive(AddEntryResponse, source=b, to=WRITER, where=lambda add: not add.success)
        self.writer.status = WriterStatus.WITHDRAWN

    @action(by=WRITER)
    def writer_closes_ledger(self) -> None:
        """The owner closes the ledger at its LAC, at any time, unless somebody was faster."""
        require(self.writer.status is WriterStatus.OPEN)
        require(self.meta.status is LedgerStatus.OPEN)
        self.writer.status = WriterStatus.CLOSED
        self.meta.status = LedgerStatus.CLOSED
        self.meta.last_entry = self.writer.lac

    # -- recovery ------------------------------------------------------------------------------------------------------

    @action(r=recoverers)
    def recovery_starts(self, r: ModelValue) -> None:
        """Somebody recovers the ledger: a client that takes the writer for dead, or a bookie in phase two."""
        require(self.recovery[r].phase is RecoveryPhase.NOT_STARTED)
        require(self.meta.status is not LedgerStatus.CLOSED)
        self.meta.status = LedgerStatus.IN_RECOVERY
        self.recovery[r].phase = RecoveryPhase.FENCING
        self._ask(r, Fence())

    @action(r=recoverers, b=bookies, by="r")
    def recovery_counts_fenced(self, r: ModelValue, b: ModelValue) -> None:
        """A bookie is fenced. When every ack quorum has one that is, the entry after the highest LAC is read."""
        me = self.recovery[r]
        fenced = self._receive_answer(Fenced, r, b)
        if me.phase is not RecoveryPhase.FENCING:
            return
        me.lac = me.lap = max(me.lac, fenced.lac)
        me.fenced += 1
        if me.fenced == self.coverage:
            me.fenced = 0
            me.phase = RecoveryPhase.READING
            self._ask(r, Read(me.lap + 1))

    @action(r=recoverers, b=bookies, by="r")
    def recovery_counts_read(self, r: ModelValue, b: ModelValue) -> None:
        """The answer of a bookie to a read.

        Enough copies: the entry is written back, and the next one is read. So many explicit negatives that no ack quorum can have it:
        the ledger ends before it. An unknown decides nothing. What comes after the decision is ignored.
        """
        me = self.recovery[r]
        read = self._receive_answer(ReadResult, r, b)
        if me.phase is not RecoveryPhase.READING or read.entry_id != me.lap + 1:
            return
        if read.code is Code.OK:
            me.found += 1
        elif read.code is Code.NO_SUCH_ENTRY:
            me.denied += 1
        else:
            me.unknown += 1
        if me.found == self.copies_to_recover:
            self._forget_answers(me)
            me.lap += 1
            self._ask(r, Add(me.lap))
            self._ask(r, Read(me.lap + 1))
        elif me.denied == self.coverage:
            self._forget_answers(me)
            me.phase = RecoveryPhase.WRITING

    def _forget_answers(self, me: Recovery) -> None:
        me.found = me.denied = me.unknown = 0

    @action(r=recoverers, b=bookies, by="r")
    def recovery_counts_added(self, r: ModelValue, b: ModelValue) -> None:
        """A bookie has stored an entry that was written back. The LAC moves up to the last that has an ack quorum with all before."""
        me = self.recovery[r]
        added = self._receive_answer(Added, r, b)
        if added.entry_id <= me.lac:
            return
        me.written_back[added.entry_id] += 1
        while me.lac < me.lap and me.written_back[me.lac + 1] >= self.ack_quorum:
            me.lac += 1
            me.written_back[me.lac] = 0

    @action(r=recoverers)
    def recovery_closes_ledger(self, r: ModelValue) -> None:
        """Nothing more to read, and everything is written back: the ledger ends there, unless somebody else has closed it."""
        me = self.recovery[r]
        require(me.phase is RecoveryPhase.WRITING)
        require(me.lac == me.lap)
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self.meta.status = LedgerStatus.CLOSED
        self.meta.last_entry = me.lac
        me.phase = RecoveryPhase.DONE

    def _ask(self, r: ModelValue, ask: Fence | Read | Add) -> None:
        self.network.send_all([(RecoveryRequest(ask), b) for b in self.bookies], r)

    def _receive_answer(self, kind: type[Answer], r: ModelValue, b: ModelValue) -> Answer:
        """An answer of a bookie, which comes after those to all that was asked of it before. Who is done with recovery hears none."""
        require(self.recovery[r].phase is not RecoveryPhase.DONE)
        response = self.network.receive(RecoveryResponse, source=b, to=r, where=lambda m: isinstance(m.answer, kind))
        return cast("Answer", response.message.answer)

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant(
        part=lambda self: parts(
            TYPES, {"bookie": self.bookies, "recovery": self.recoverers, "written_back": self.entry_ids}
        )
    )
    def type_ok(self, part: Path) -> bool:
        """Every part of the state holds a value of its type."""
        return is_typed(self, part, TYPES)

    @invariant
    def no_divergence_between_writer_and_meta_data(self) -> bool:
        """Nothing acknowledged is cut off: a closed ledger ends at or after all that the writer has acknowledged."""
        return self.meta.status is not LedgerStatus.CLOSED or self.writer.lac <= self.meta.last_entry

    @invariant(entry_id=lambda p: p.entry_ids)
    def every_acknowledged_entry_has_a_copy(self, entry_id: int) -> bool:
        """What the writer has acknowledged, or what a closed ledger has, is still stored by somebody."""
        if entry_id > self.writer.lac and entry_id > self.meta.last_entry:
            return True
        return any(entry_id in self.bookie[b].entries for b in self.bookies)

    @invariant(r=recoverers)
    def recovery_reads_are_decided(self, r: ModelValue) -> bool:
        """A read that everybody has answered is decided, as long as too few are in limbo to be an ack quorum.

        Otherwise it is so for good, whoever asks again, and the ledger stays in limbo.
        """
        me = self.recovery[r]
        return me.found + me.denied + me.unknown < len(self.bookies) or me.unknown >= self.ack_quorum

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        weak(
            recovery_starts, recovery_counts_fenced, recovery_counts_read, recovery_counts_added, recovery_closes_ledger
        ),
        weak(bookie_boots),
        strong(bookie_copies_entry, bookie_completes_boot),
        strong(bookie_is_fenced, bookie_answers_read, bookie_stores_recovered_entry),
    ]
    """The ledger is recovered, and bookies boot. One in limbo may be shut down again and again, so what it does while it is up is
    strongly fair. The writer need not do anything."""

    @leads_to(b=bookies, when=lambda protocol: False)
    def limbo_ends(self, b: ModelValue) -> tuple[bool, bool]:
        """A bookie leaves limbo, unless so many are in limbo that they are an ack quorum."""
        limbo = self.bookie[b].limbo
        return limbo, not limbo or sum(self.bookie[peer].limbo for peer in self.bookies) >= self.ack_quorum
