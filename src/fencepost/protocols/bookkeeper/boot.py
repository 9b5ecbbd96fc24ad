"""Running BookKeeper without the journal: the boot of a bookie that may have lost data in a crash, so that no
acknowledged entry is lost.

A journal makes every add durable before it is acknowledged. BP-46 (*Running without the journal*) lets adds skip it, so
a crash can erase what a bookie has acknowledged. A bookie that forgot its fence accepts entries of a closed ledger
(scenario 1 of BP-46). A bookie that lost an entry says *no such entry*, and recovery cuts the ledger off before it
(scenario 2). So a bookie that may have lost data boots in two phases. In phase one it fences the ledger and puts it in
limbo: for an entry that it does not have it then answers *unknown*. After that it serves clients. In phase two it waits
for the ledger to be recovered, copies its missing entries from its peers, and leaves limbo.

The published model, ``BookKeeperProtocolWithLimbo.tla``, covers a simplified boot, as BP-46 itself says: one bookie
loses everything and is back in the same step, permanently fenced and in limbo. This protocol has the full sequence,
step by step. Any part of what was not flushed may be lost. A bookie is down for a while, crashes again at any point of
its boot, loses one of its disks, or is shut down cleanly at any time while it serves. Each protection is a constant
that can switch it off.

It covers one ledger, open at the beginning, with all bookies in its ensemble. The ``writer`` owns it, and sends an
entry once the one before is acknowledged. So an entry on a bookie shows that those before it are confirmed. A
recoverer, ``r1``, is any process that recovers the ledger, a client or a bookie in phase two, and may stop at any
point. A reader, if there is one, reads an acknowledged entry. Entry ids start at 1.

Sources of the rules, by section of BP-46:

- *A note on Quorums*: how many bookies must be fenced before recovery reads, how many negatives end the ledger, and
  when a reader accepts a negative.
- *A note on cookies*: a cookie in the metadata service and on every disk. A bookie that lacks one does not boot, unless
  the bookie is configured to fix that, or an operator does.
- *Proposed Changes*: only adds skip the journal, as each bookie is configured at the time.
- *Detecting Data Loss On Boot*: the mark of an unclean shutdown, set on start-up and cleared on shutdown.
- *Protection Mechanism*: all ledgers are fenced; in limbo, reads are served and explicit negatives become unknowns;
  repair.
- *The Full Boot-Up Sequence*: the two phases and their steps, with clients served between them. Here only ledgers that
  are not closed are fenced, which is ``fence_closed_ledgers=false``.
- *Scenario 2*, step 4: the owner's ensemble change is refused, since the metadata have changed.

Left out, and why that hides no defect:

- *Flushing.* Only a clean shutdown waits for a flush, so it is no action: what a crash leaves was flushed, what it
  erases was not. A second crash may erase what the first has left, which is more than can happen.
- *Timeouts.* Nobody acts on one, so a lost message is one that never arrives, with all later ones on the same
  connection. A message that finds its bookie down arrives later.
- *Ensemble changes that succeed.* BP-46 is about bookies that come back, not about replacing them.
- *The single steps of marking the ledger, of stamping cookies, of setting the mark on each disk.* Until the last of
  them is done, the sign that made the bookie begin with them remains, so a crash among them equals one before them. The
  order of these three matters, so each is an action.
- *Stale metadata in phase one.* A ledger is never opened again, so a bookie would only put a closed ledger in limbo.
- *Messages for copying.* A copied entry belongs to a closed ledger and never changes.
- *Messages of readers.* A bookie's answer to a reader depends on when it answers, and on nothing that the reader does.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar, cast

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
    initial,
    invariant,
    leads_to,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    step_invariant,
    strong,
    subsets,
    weak,
)
from fencepost.language.declarations import Configuration
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper.ledger import Bookies, are_bookies, write_set
from fencepost.protocols.types import Types, at_least, each, one_of_kind, typed

WRITER = ModelValue("writer")
CUT_OFF = "no_divergence_between_writer_and_meta_data"

Entries = frozenset[int]


class WriterStatus(enum.Enum):
    """The status of the ledger as its owner sees it: open, closed by the owner, or being recovered by somebody else."""

    OPEN = "open"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"


class Boot(enum.Enum):
    """The next step of a bookie's boot. It serves clients once it is up, or while it is behind with phase one."""

    DOWN = "down"
    MARKING = "marking"
    """It has signs of a loss. Next it marks the ledger, which is phase one."""
    STAMPING = "stamping"
    """Next it replaces its cookies."""
    STARTING = "starting"
    """Next it sets the mark and serves."""
    BEHIND = "behind"
    """It serves clients before phase one is over. Only where it does not wait for that."""
    UP = "up"


SERVING = (Boot.BEHIND, Boot.UP)


class Cookie(enum.Enum):
    """The cookie of a disk, compared with the one in the metadata service."""

    CURRENT = "current"
    OLD = "old"
    """An earlier cookie of the bookie: the disk has been out of use since."""
    MISSING = "missing"


class RecoveryPhase(enum.Enum):
    """The phase of a recovery. It reads and writes back at the same time. ``WRITING``: nothing more to read."""

    NOT_STARTED = "not started"
    FENCING = "fencing"
    READING = "reading"
    WRITING = "writing"
    DONE = "done"


class Code(enum.Enum):
    """The answer of a bookie to a read of an entry. ``NO_SUCH_ENTRY`` is an explicit negative: a promise that it never
    had it.
    """

    OK = "ok"
    NO_SUCH_ENTRY = "no such entry"
    UNKNOWN = "unknown"


class LedgerMetadata(Record):
    """The ledger in the metadata store."""

    status: LedgerStatus = LedgerStatus.OPEN
    last_entry: int = 0


class Disk(Record):
    """One disk of a bookie: its cookie, and ``unclean``, whether it has the mark of an unclean shutdown. The mark is
    set at start-up and cleared by a clean shutdown.
    """

    cookie: Cookie = Cookie.CURRENT
    unclean: bool = True


class Bookie(Record):
    """One bookie: its boot step, and the contents of its disks.

    The first disk has the ledger: ``entries``, and the flags ``fenced`` and ``limbo`` of the index. The second, if
    there is one, has the journal. ``journals_adds``: the bookie's configuration; ``marked_journaling``: whether its
    mark says so. The bookie does not know ``lost``: entries that it stored, that a crash erased, and that it had not
    copied again when it left limbo.
    """

    boot: Boot = Boot.UP
    journals_adds: bool = False
    marked_journaling: bool = False
    entries: Entries = frozenset()
    fenced: bool = False
    limbo: bool = False
    lost: Entries = frozenset()
    disk: PerKey[int, Disk] = per_key(lambda protocol: range(1, protocol.disks + 1), Disk)

    @property
    def is_unclean(self) -> bool:
        """Whether the mark of an unclean shutdown is on any of its disks."""
        return any(disk.unclean for disk in self.disk.values())


class Writer(Record):
    """The owner of the ledger: its last add pushed and confirmed, and the number of confirmations of the entry between
    them.
    """

    status: WriterStatus = WriterStatus.OPEN
    lap: int = 0
    lac: int = 0
    confirmed: int = 0


class Recovery(Record):
    """A recoverer: the number of fenced bookies, of each answer to the read of the entry after ``lap``, and of
    confirmations of each entry that it wrote back.
    """

    phase: RecoveryPhase = RecoveryPhase.NOT_STARTED
    fenced: int = 0
    lap: int = 0
    lac: int = 0
    found: int = 0
    denied: int = 0
    unknown: int = 0
    written_back: PerKey[int, int] = per_key(lambda protocol: protocol.entry_ids, 0)


class Reader(Record):
    """A reader: the entry that it has asked for, the bookies that have answered without it, how many of them do not
    know, and the result.
    """

    entry_id: int = 0
    answered: Bookies = frozenset()
    unknown: int = 0
    outcome: Code | None = None


class AddEntryRequest(Message):
    """From the writer: store this entry."""

    entry_id: int


class AddEntryResponse(Message):
    """The entry is stored. Without success: the ledger is fenced."""

    entry_id: int
    success: bool


class Fence(Record):
    """Accept no more entries from the writer, and report your LAC."""


class Fenced(Record):
    """The ledger is fenced; with the highest LAC that came with an entry. With a code other than OK, nothing is
    promised.
    """

    lac: int
    code: Code = Code.OK


class Read(Record):
    """A recovery read of one entry, which fences the ledger too."""

    entry_id: int


class ReadResult(Record):
    """The answer to a recovery read."""

    entry_id: int
    code: Code


class Add(Record):
    """A recovery add, which a fenced bookie accepts too."""

    entry_id: int


class Added(Record):
    """The entry is stored."""

    entry_id: int


class RecoveryRequest(Message):
    """A request of a recoverer. All its requests to a bookie use one connection, and arrive in order."""

    ask: Fence | Read | Add


class RecoveryResponse(Message):
    """The answer, over the same connection."""

    answer: Fenced | ReadResult | Added


Ask = TypeVar("Ask", Fence, Read, Add)
Answer = TypeVar("Answer", Fenced, ReadResult, Added)


STATUSES = frozenset(status.value for status in LedgerStatus)


def _why_bookies_differ(protocol: BookKeeperBoot) -> str:
    """The reason why bookies are not symmetric."""
    return (
        "entries are striped over the bookies in their order"
        if 0 < protocol.write_quorum < len(protocol.bookies)
        else ""
    )


CLOSED_STORY: Mapping[str, Any] = {"send_limit": 2, "stored_at_first": 1, "sends_when": frozenset({"closed"})}
"""Every bookie has an entry, and the writer sends the next one once the ledger is closed."""


def cuts_off(doc: str, **constants: Any) -> Configuration:
    """A configuration in which the ledger is cut off before an acknowledged entry."""
    return configuration(CUT_OFF, doc, **constants)


class BookKeeperBoot(Protocol):
    """The life of one ledger whose bookies run without the journal: a writer, a recoverer, and bookies that crash and
    boot.
    """

    name: ClassVar[str] = "bookkeeper-boot"

    bookies: tuple[ModelValue, ...] = model_values(
        "b", 2, "the bookies, all of them in the ensemble of the ledger", symmetric=_why_bookies_differ
    )
    recoverers: tuple[ModelValue, ...] = model_values(
        "r", 1, "clients or bookies that may recover the ledger", symmetric=True
    )
    readers: tuple[ModelValue, ...] = model_values("d", 0, "clients that read one acknowledged entry", symmetric=True)
    write_quorum: int = constant(0, "bookies that an entry is sent to; 0: all of them")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is acknowledged")
    send_limit: int = constant(1, "entries of the ledger")
    stored_at_first: int = constant(
        0, "entries among these that every bookie has and the writer has acknowledged at the beginning"
    )
    sends_when: frozenset[str] = constant(
        STATUSES, "the status that the ledger must have when the writer sends an entry"
    )

    max_crashes: int = constant(1, "how often bookies crash or lose a disk, in total")
    copies_at_risk: int = constant(1, "copies of an entry that crashes may destroy before they are repaired")
    crashes_when: frozenset[str] = constant(
        STATUSES, "the status that the ledger must have when bookies crash or lose a disk"
    )
    disk_loss: bool = constant(True, "whether a disk can come back empty")
    disks: int = constant(1, "disks of a bookie: the first has the ledger, the second the journal")
    old_disks: bool = constant(
        False, "whether an empty disk can be one from before the ledger was created, with the cookie of that time"
    )
    mark_loss: bool = constant(False, "whether the mark on a disk can be lost, and nothing else")
    clean_shutdown: bool = constant(True, "whether bookies are also shut down cleanly")
    fences_fail: bool = constant(False, "whether a bookie can fail to fence the ledger, and say so")

    journal_adds: bool = constant(False, "whether adds are journaled: BookKeeper with the journal")
    journal_adds_varies: bool = constant(
        False, "whether that differs from bookie to bookie, and from one start of a bookie to the next"
    )
    fix_cookies: bool = constant(
        True, "whether a bookie without its cookie boots and makes a new one, or refuses to boot"
    )
    operator_fixes_cookies: bool = constant(
        False, "whether an operator lets a bookie boot that refuses to, with the command of BP-46 for that"
    )
    operator_deletes_cookies: bool = constant(
        False,
        "whether an operator deletes the rest of a bookie that refuses to boot, including its cookie in the metadata",
    )

    journal_fences: bool = constant(True, "whether fencing is journaled: BP-46 leaves only adds out of the journal")
    mark_before_serving: bool = constant(
        True, "whether the mark of an unclean shutdown is set before a bookie serves, or at some time after that"
    )
    detect_unclean_shutdown: bool = constant(True, "whether a boot checks the mark of an unclean shutdown")
    detect_while_journaling: bool = constant(
        True, "whether it does so even if adds are journaled from now on, as they may not have been before"
    )
    check_cookies: bool = constant(True, "whether a boot checks the cookies, which show an empty disk")
    check_every_disk: bool = constant(True, "whether it checks them on every disk, or accepts a single one")
    compare_cookies: bool = constant(
        True, "whether a cookie has to be the one in the metadata, or any cookie is accepted"
    )
    cookie_in_metadata: bool = constant(
        True,
        "whether the metadata have the cookie too, to distinguish a new bookie from one that has lost everything",
    )
    phase_one_of_new_bookies: bool = constant(
        True, "whether a bookie that is new, by its cookies, goes through phase one as well"
    )
    cookie_after_marks: bool = constant(True, "whether cookies are replaced after the ledger is marked, or before that")
    phase_one_before_serving: bool = constant(
        True, "whether a bookie that was not shut down cleanly waits for the end of phase one before it serves"
    )
    phase_one_fences: bool = constant(True, "whether phase one fences the ledger")
    fence_closed_ledgers: bool = constant(True, "whether it fences closed ledgers too")
    phase_one_sets_limbo: bool = constant(True, "whether phase one puts a ledger that is not closed in limbo")
    limbo_of_closed_ledgers: bool = constant(
        False, "whether it does so with a closed one too, which BP-46 does not require"
    )
    limbo_answers_unknown: bool = constant(True, "whether a bookie in limbo answers unknown instead of no such entry")
    limbo_in_index: bool = constant(True, "whether limbo is kept in the index, or in memory only")
    recovery_before_leaving_limbo: bool = constant(
        True, "whether a bookie leaves limbo only when the ledger is recovered"
    )
    repair_before_leaving_limbo: bool = constant(
        True, "whether a bookie leaves limbo only with every entry of the ledger that it should have"
    )
    copies_to_recover: int = constant(
        1, "copies that make an entry recoverable: one in BookKeeper, an ack quorum in BP-46"
    )

    connections_in_order: bool = constant(True, "whether messages on one connection arrive in order")
    marks_in_steps: bool = constant(
        False,
        "whether phase one first fences the ledger, then puts it in limbo, and a bookie then sets the mark, each a"
        " step",
    )
    limbo_tells_last_entry: bool = constant(
        False, "whether a bookie in limbo that has an entry answers a fence request with that one"
    )
    lac_may_be_older: bool = constant(
        False,
        "whether an entry may carry an older LAC than that of the entry before it, since recovery has written it back",
    )
    mark_tells_of_journaling: bool = constant(
        False,
        "whether the mark says how adds were journaled, so that a bookie which crashes with all of them in its journal"
        " has lost none",
    )
    mark_on_every_disk: bool = constant(True, "whether the mark is on every disk, or on the first alone")
    clean_end_is_marked: bool = constant(
        False,
        "whether a clean shutdown sets a mark too, so that a disk without any means an unclean one; in BP-46 it"
        " means a clean one",
    )

    meta: LedgerMetadata = state(LedgerMetadata, held_by="zk")
    cookie_of: PerKey[ModelValue, bool] = state(per_key(bookies, True), held_by="zk")
    bookie: PerKey[ModelValue, Bookie] = per_key(bookies, Bookie)
    writer: Writer = state(Writer, held_by="writer")
    recovery: PerKey[ModelValue, Recovery] = per_key(recoverers, Recovery)
    reader: PerKey[ModelValue, Reader] = per_key(readers, Reader)
    crashes: int = state(0)
    network: Network = network(
        {
            AddEntryRequest: (WRITER, bookies),
            AddEntryResponse: (bookies, WRITER),
            RecoveryRequest: (recoverers, bookies),
            RecoveryResponse: (bookies, recoverers),
        },
        ordered=connections_in_order,
    )

    # -- assumptions about the constants -------------------------------------------------------------------------------

    @assumption
    def something_is_sent(self) -> bool:
        """The writer has an entry to send."""
        return 0 <= self.stored_at_first < self.send_limit

    @assumption
    def an_ack_quorum_is_some_of_a_write_quorum(self) -> bool:
        """Every entry is confirmed by a bookie, and the ack quorum is no larger than the write quorum."""
        return 1 <= self.ack_quorum <= self.copies <= len(self.bookies)

    @assumption
    def an_ack_quorum_is_enough_to_recover(self) -> bool:
        """An entry without a copy is not recoverable, and an ack quorum of copies is always enough."""
        return 1 <= self.copies_to_recover <= self.ack_quorum

    @assumption
    def a_bookie_has_one_disk_or_two(self) -> bool:
        """A bookie has a disk with the ledger, and may have one with the journal."""
        return self.disks in (1, 2)

    @assumption
    def things_happen_at_some_status(self) -> bool:
        """The statuses at which crashes and sends are allowed are statuses that the ledger can have."""
        return all(when and when <= STATUSES for when in (self.crashes_when, self.sends_when))

    @assumption
    def nobody_is_taken_for_somebody_else(self) -> bool:
        """The names of bookies, recoverers, readers and the writer are all different."""
        everybody = [WRITER, *self.bookies, *self.recoverers, *self.readers]
        return len(set(everybody)) == len(everybody)

    @property
    def entry_ids(self) -> range:
        """The ids of all entries of the ledger."""
        return range(1, self.send_limit + 1)

    @property
    def copies(self) -> int:
        """The number of bookies that an entry is sent to."""
        return self.write_quorum or len(self.bookies)

    @property
    def quorum_coverage(self) -> int:
        """The number of bookies of a write set that leaves no ack quorum without one of them."""
        return self.copies - self.ack_quorum + 1

    @property
    def ensemble_coverage(self) -> int:
        """The number of bookies of the ensemble that leaves no ack quorum without one of them."""
        return len(self.bookies) - self.ack_quorum + 1

    def _write_set(self, entry_id: int) -> Collection[ModelValue]:
        """The bookies that an entry is sent to."""
        return write_set(entry_id, self.bookies, self.copies)

    @initial
    def the_story_begins(self) -> None:
        """The first entries, if any, are on their bookies. Each bookie has its configuration, or either one."""
        self.writer.lap = self.writer.lac = self.stored_at_first
        for b in self.bookies:
            me = self.bookie[b]
            me.entries = frozenset(e for e in range(1, self.stored_at_first + 1) if b in self._write_set(e))
            me.journals_adds = one_of((False, True)) if self.journal_adds_varies else self.journal_adds
            for disk in me.disk.values():
                disk.unclean = False
            self._set_mark(me)

    # -- bookies serve clients -----------------------------------------------------------------------------------------

    @action(b=bookies, by="b")
    def bookie_stores_entry(self, b: ModelValue) -> None:
        """A bookie that is not fenced stores an entry of the writer, and confirms it."""
        me = self._serving(b)
        add = self.network.receive(AddEntryRequest, source=WRITER, to=b)
        require(not me.fenced)
        self._store(me, add.message.entry_id)
        self.network.reply(add, AddEntryResponse(add.message.entry_id, success=True))

    @action(b=bookies, by="b")
    def bookie_refuses_entry(self, b: ModelValue) -> None:
        """A fenced bookie refuses an entry of the writer."""
        me = self._serving(b)
        add = self.network.receive(AddEntryRequest, source=WRITER, to=b)
        require(me.fenced)
        self.network.reply(add, AddEntryResponse(add.message.entry_id, success=False))

    @action(b=bookies, r=recoverers, by="b")
    def bookie_is_fenced(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie fences the ledger and answers with its LAC: an entry shows that those before it are confirmed.

        This is a read of the last entry. In limbo a bookie does not know which one that is.
        """
        me = self._serving(b)
        self._receive_request(Fence, b, r)
        me.fenced = True
        if self.limbo_answers_unknown and me.limbo and not (self.limbo_tells_last_entry and me.entries):
            self._respond(b, r, Fenced(0, Code.UNKNOWN))
        else:
            lac = max(me.entries, default=1) - 1
            self._respond(b, r, Fenced(one_of(range(lac + 1)) if self.lac_may_be_older else lac))

    @action(b=bookies, r=recoverers, by="b")
    def bookie_fails_to_fence(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie cannot fence the ledger, for any reason, and says so."""
        require(self.fences_fail)
        self._serving(b)
        self._receive_request(Fence, b, r)
        self._respond(b, r, Fenced(0, Code.UNKNOWN))

    @action(b=bookies, r=recoverers, by="b")
    def bookie_answers_read(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie fences the ledger and answers a recovery read. In limbo it never gives an explicit negative."""
        me = self._serving(b)
        read = self._receive_request(Read, b, r)
        me.fenced = True
        self._respond(b, r, ReadResult(read.entry_id, self._answer(me, read.entry_id)))

    def _answer(self, me: Bookie, entry_id: int) -> Code:
        if entry_id in me.entries:
            return Code.OK
        return Code.UNKNOWN if self.limbo_answers_unknown and me.limbo else Code.NO_SUCH_ENTRY

    @action(b=bookies, r=recoverers, by="b")
    def bookie_stores_recovered_entry(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie, fenced or not, stores an entry that recovery writes back."""
        me = self._serving(b)
        add = self._receive_request(Add, b, r)
        self._store(me, add.entry_id)
        self._respond(b, r, Added(add.entry_id))

    def _serving(self, b: ModelValue) -> Bookie:
        me = self.bookie[b]
        require(me.boot in SERVING)
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
        """A clean shutdown: everything is flushed, and then the mark is cleared."""
        require(self.clean_shutdown)
        me = self._serving(b)
        me.boot = Boot.DOWN
        for disk in me.disk.values():
            disk.unclean = False
        me.marked_journaling = False
        if not self.limbo_in_index:
            me.limbo = False

    @action(b=bookies, by="b")
    def bookie_crashes(self, b: ModelValue) -> None:
        """A crash erases any part of what was not flushed, and nothing that was journaled.

        A bookie that does not serve yet has flushed everything.
        """
        me = self.bookie[b]
        require(me.boot is not Boot.DOWN)
        self._count_crash()
        if me.boot in SERVING:
            self._lose_what_was_not_flushed(b, journal_is_left=True)
        me.boot = Boot.DOWN

    @action(b=bookies, disk=lambda protocol: range(1, protocol.disks + 1), by="b")
    def bookie_loses_disk(self, b: ModelValue, disk: int) -> None:
        """A disk is lost, while its bookie is down or with the bookie, and another one replaces it: empty, or an old
        one.

        With the first disk the ledger is gone, including the index. With the second the journal is gone, and with it
        everything that was only there.
        """
        require(self.disk_loss)
        self._count_crash()
        me = self.bookie[b]
        if disk == 1:
            self._lose(b, me.entries)
            me.fenced = me.limbo = False
        elif me.is_unclean:
            self._lose_what_was_not_flushed(b, journal_is_left=False)
        me.boot = Boot.DOWN
        self._lose_mark(me, disk)
        me.disk[disk].cookie = one_of((Cookie.MISSING, Cookie.OLD)) if self.old_disks else Cookie.MISSING

    @action(b=bookies, disk=lambda protocol: range(1, protocol.disks + 1), by="b")
    def bookie_loses_mark(self, b: ModelValue, disk: int) -> None:
        """The mark on a disk of a bookie that is down is gone, or unreadable, and nothing else is lost."""
        require(self.mark_loss)
        me = self.bookie[b]
        require(me.boot is Boot.DOWN and disk in self._marked_disks)
        self._lose_mark(me, disk)

    def _lose_mark(self, me: Bookie, disk: int) -> None:
        """Remove the mark from a disk. The bookie then reads what the absence of a mark means."""
        me.disk[disk].unclean = self.clean_end_is_marked and disk in self._marked_disks
        me.marked_journaling = me.marked_journaling and me.is_unclean and not me.disk[disk].unclean

    def _count_crash(self) -> None:
        require(self.crashes < self.max_crashes)
        require(self.meta.status.value in self.crashes_when)
        self.crashes += 1

    def _lose_what_was_not_flushed(self, b: ModelValue, journal_is_left: bool) -> None:
        me = self.bookie[b]
        if not (journal_is_left and me.journals_adds):
            self._lose(b, one_of(subsets(me.entries)))
        if me.fenced and not (journal_is_left and self.journal_fences):
            me.fenced = one_of((True, False))

    def _lose(self, b: ModelValue, entries: Entries) -> None:
        """Destroy copies, of any entry no more than are at risk."""
        for entry_id in entries:
            elsewhere = sum(entry_id in self.bookie[peer].lost for peer in self.bookies if peer != b)
            require(elsewhere < self.copies_at_risk)
        self.bookie[b].entries -= entries
        self.bookie[b].lost |= entries

    # -- bookies boot --------------------------------------------------------------------------------------------------

    @action(b=bookies, by="b")
    def bookie_starts(self, b: ModelValue) -> None:
        """A bookie starts, with its old or a new configuration, and looks for signs of a loss. If there are none it
        serves.

        Without its cookies it boots only if it is to fix that without an operator, or if it is a new bookie.
        """
        me = self.bookie[b]
        require(me.boot is Boot.DOWN)
        if self.journal_adds_varies:
            me.journals_adds = one_of((False, True))
        if self._is_new(b) and not self.phase_one_of_new_bookies:
            self._stamp(b)
            me.boot = Boot.STARTING
        elif self._cookies_fail(b):
            require(self.fix_cookies or self._is_new(b))
            self._begin_phase_one(me)
        elif (
            me.is_unclean
            and not me.marked_journaling
            and self.detect_unclean_shutdown
            and (self.detect_while_journaling or not me.journals_adds)
        ):
            me.boot = Boot.MARKING if self.phase_one_before_serving else Boot.BEHIND
        elif self.marks_in_steps:
            me.boot = Boot.STARTING
        else:
            self._serve(me)

    def _cookies_fail(self, b: ModelValue) -> bool:
        """Whether a cookie is missing, or is not the expected one."""
        if not self.check_cookies:
            return False
        right = [self._is_right(disk.cookie) for disk in self.bookie[b].disk.values()]
        on_disks = all(right) if self.check_every_disk else any(right)
        return not on_disks or (self.cookie_in_metadata and not self.cookie_of[b])

    def _is_right(self, cookie: Cookie) -> bool:
        return cookie is Cookie.CURRENT or (cookie is Cookie.OLD and not self.compare_cookies)

    def _is_new(self, b: ModelValue) -> bool:
        """Whether there is no cookie anywhere, as for a bookie that is new."""
        if not self.check_cookies or (self.cookie_in_metadata and self.cookie_of[b]):
            return False
        return all(disk.cookie is Cookie.MISSING for disk in self.bookie[b].disk.values())

    def _begin_phase_one(self, me: Bookie) -> None:
        me.boot = Boot.MARKING if self.cookie_after_marks else Boot.STAMPING

    @action(b=bookies, by="operator")
    def operator_fixes_cookie(self, b: ModelValue) -> None:
        """An operator lets a bookie that refuses to boot, since it lacks its cookie, go through phase one."""
        require(self.operator_fixes_cookies)
        self._begin_phase_one(self._refusing(b))

    @action(b=bookies, by="operator")
    def operator_deletes_cookie(self, b: ModelValue) -> None:
        """An operator deletes everything that is left of a bookie that refuses to boot, so that it starts as a new
        one.
        """
        require(self.operator_deletes_cookies)
        require(self.cookie_of[b])
        me = self._refusing(b)
        self._lose(b, me.entries)
        me.fenced = me.limbo = False
        for disk in me.disk.values():
            disk.cookie = Cookie.MISSING
        for disk_number in me.disk:
            self._lose_mark(me, disk_number)
        self.cookie_of[b] = False

    def _refusing(self, b: ModelValue) -> Bookie:
        me = self.bookie[b]
        require(not self.fix_cookies)
        require(me.boot is Boot.DOWN and self._cookies_fail(b) and not self._is_new(b))
        return me

    @action(b=bookies, by="b")
    def bookie_fences_ledger(self, b: ModelValue) -> None:
        """Phase one in two steps: the first fences the ledger, on disk."""
        me = self.bookie[b]
        require(self.marks_in_steps and me.boot in (Boot.MARKING, Boot.BEHIND))
        require(self.phase_one_fences and not me.fenced)
        require(self.fence_closed_ledgers or self.meta.status is not LedgerStatus.CLOSED)
        me.fenced = True

    @action(b=bookies, by="b")
    def bookie_marks_ledger(self, b: ModelValue) -> None:
        """Phase one: fence the ledger and, unless it is closed, put it in limbo. Both are on disk when this is done."""
        me = self.bookie[b]
        require(me.boot in (Boot.MARKING, Boot.BEHIND))
        closed = self.meta.status is LedgerStatus.CLOSED
        if self.phase_one_fences and (self.fence_closed_ledgers or not closed):
            me.fenced = True
        if self.phase_one_sets_limbo and (self.limbo_of_closed_ledgers or not closed):
            me.limbo = True
        if self._cookies_fail(b):
            me.boot = Boot.STAMPING
        elif self.marks_in_steps and me.boot is Boot.MARKING:
            me.boot = Boot.STARTING
        else:
            self._serve(me)

    @action(b=bookies, by="b")
    def bookie_stamps_cookies(self, b: ModelValue) -> None:
        """A bookie makes a new cookie, in the metadata and on every disk."""
        me = self.bookie[b]
        require(me.boot is Boot.STAMPING)
        self._stamp(b)
        me.boot = Boot.STARTING if self.cookie_after_marks else Boot.MARKING

    def _stamp(self, b: ModelValue) -> None:
        self.cookie_of[b] = True
        for disk in self.bookie[b].disk.values():
            disk.cookie = Cookie.CURRENT

    @action(b=bookies, by="b")
    def bookie_serves(self, b: ModelValue) -> None:
        """A bookie with new cookies, or one for which setting the mark is a step, sets the mark and serves clients."""
        me = self.bookie[b]
        require(me.boot is Boot.STARTING)
        self._serve(me)

    def _serve(self, me: Bookie) -> None:
        """Set the mark on every disk, then serve clients. A crash in between has no effect."""
        me.boot = Boot.UP
        if self.mark_before_serving:
            self._set_mark(me)

    @action(b=bookies, by="b")
    def bookie_sets_mark_late(self, b: ModelValue) -> None:
        """The mark is set while the bookie already serves. Only where it is not set before that."""
        me = self._serving(b)
        require(not self.mark_before_serving)
        require(not all(me.disk[number].unclean for number in self._marked_disks))
        self._set_mark(me)

    def _set_mark(self, me: Bookie) -> None:
        me.marked_journaling = self.mark_tells_of_journaling and me.journals_adds
        for number in self._marked_disks:
            me.disk[number].unclean = True

    @property
    def _marked_disks(self) -> range:
        return range(1, self.disks + 1 if self.mark_on_every_disk else 2)

    @action(b=bookies, peer=bookies, by="b")
    def bookie_copies_entry(self, b: ModelValue, peer: ModelValue) -> None:
        """Phase two: a bookie copies a missing entry of the closed ledger from another bookie, which may be in limbo
        itself.
        """
        require(b != peer)
        me = self._serving(b)
        require(self.meta.status is LedgerStatus.CLOSED)
        self._store(me, one_of(self._missing(b) & self._serving(peer).entries))

    @action(b=bookies, by="b")
    def bookie_leaves_limbo(self, b: ModelValue) -> None:
        """The end of phase two: the ledger is recovered, the bookie has all its entries of it, and limbo ends."""
        me = self._serving(b)
        require(me.limbo)
        if self.recovery_before_leaving_limbo:
            require(self.meta.status is LedgerStatus.CLOSED)
        if self.repair_before_leaving_limbo:
            require(not self._missing(b))
        me.limbo = False
        me.lost = frozenset()

    def _missing(self, b: ModelValue) -> Entries:
        """The entries of the closed ledger that the bookie should have and does not have."""
        assigned = frozenset(e for e in range(1, self.meta.last_entry + 1) if b in self._write_set(e))
        return assigned - self.bookie[b].entries

    # -- the owner of the ledger ---------------------------------------------------------------------------------------

    @action(by=WRITER)
    def writer_sends_entry(self) -> None:
        """The owner sends the next entry to its write set, once the one before is acknowledged."""
        require(self.writer.status is WriterStatus.OPEN)
        require(self.writer.lap == self.writer.lac < self.send_limit)
        require(self.meta.status.value in self.sends_when)
        self.writer.lap += 1
        self.network.send_all([(AddEntryRequest(self.writer.lap), b) for b in self._write_set(self.writer.lap)], WRITER)

    @action(b=bookies, by=WRITER)
    def writer_receives_confirmation(self, b: ModelValue) -> None:
        """A bookie has stored an entry. With an ack quorum the writer acknowledges it to its caller."""
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
        """A bookie is fenced, so the ledger is being recovered. The writer stops."""
        require(self.writer.status is WriterStatus.OPEN)
        self.network.receive(AddEntryResponse, source=b, to=WRITER, where=lambda add: not add.success)
        self.writer.status = WriterStatus.WITHDRAWN

    @action(by=WRITER)
    def writer_is_refused_another_ensemble(self) -> None:
        """A bookie does not answer, and the owner tries to replace it. But the metadata have changed, since the ledger
        is being recovered or is closed. The writer stops.
        """
        require(self.writer.status is WriterStatus.OPEN)
        require(self.writer.lap > 0)
        require(self.meta.status is not LedgerStatus.OPEN)
        self.writer.status = WriterStatus.WITHDRAWN

    @action(by=WRITER)
    def writer_closes_ledger(self) -> None:
        """The owner closes the ledger at its LAC, at any time, unless somebody was faster."""
        require(self.writer.status is WriterStatus.OPEN)
        require(self.meta.status is LedgerStatus.OPEN)
        self.writer.status = WriterStatus.CLOSED
        self.meta.status = LedgerStatus.CLOSED
        self.meta.last_entry = self.writer.lac

    # -- readers -------------------------------------------------------------------------------------------------------

    @action(d=readers, entry_id=lambda protocol: protocol.entry_ids)
    def reader_asks(self, d: ModelValue, entry_id: int) -> None:
        """A reader asks for an entry that was acknowledged, or that the closed ledger has."""
        me = self.reader[d]
        require(me.entry_id == 0)
        require(entry_id <= max(self.writer.lac, self.meta.last_entry))
        me.entry_id = entry_id

    @action(b=bookies, d=readers, by="b")
    def bookie_answers_reader(self, b: ModelValue, d: ModelValue) -> None:
        """A bookie answers a reader. One copy is enough. The result is "no such entry" only if the whole write set says
        so.
        """
        me = self.reader[d]
        require(me.entry_id != 0 and me.outcome is None)
        require(b in self._write_set(me.entry_id) and b not in me.answered)
        code = self._answer(self._serving(b), me.entry_id)
        if code is Code.OK:
            me.outcome = Code.OK
            return
        me.answered |= {b}
        if code is Code.UNKNOWN:
            me.unknown += 1
        if len(me.answered) == self.copies:
            me.outcome = Code.UNKNOWN if me.unknown else Code.NO_SUCH_ENTRY

    # -- recovery ------------------------------------------------------------------------------------------------------

    @action(r=recoverers)
    def recovery_starts(self, r: ModelValue) -> None:
        """A client, or a bookie in phase two, starts to recover the ledger."""
        require(self.recovery[r].phase is RecoveryPhase.NOT_STARTED)
        require(self.meta.status is not LedgerStatus.CLOSED)
        self.meta.status = LedgerStatus.IN_RECOVERY
        self.recovery[r].phase = RecoveryPhase.FENCING
        self._ask(r, Fence(), self.bookies)

    @action(r=recoverers, b=bookies, by="r")
    def recovery_counts_fenced(self, r: ModelValue, b: ModelValue) -> None:
        """A bookie is fenced. When every ack quorum has a fenced bookie, recovery reads the entry after the highest
        LAC.

        A bookie that does not know, or has failed, does not count.
        """
        me = self.recovery[r]
        fenced = self._receive_answer(Fenced, r, b)
        if me.phase is not RecoveryPhase.FENCING or fenced.code is not Code.OK:
            return
        me.lac = me.lap = max(me.lac, fenced.lac)
        me.fenced += 1
        if me.fenced == self.ensemble_coverage:
            me.fenced = 0
            me.phase = RecoveryPhase.READING
            self._ask_for(r, me.lap + 1)

    @action(r=recoverers, b=bookies, by="r")
    def recovery_counts_read(self, r: ModelValue, b: ModelValue) -> None:
        """Recovery counts the answer of a bookie to a read.

        With enough copies, the entry is written back, and the next one is read. When the explicit negatives leave no
        possible ack quorum, the ledger ends before it. An unknown decides nothing. Answers after the decision are
        ignored.
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
            self._ask(r, Add(me.lap), self._write_set(me.lap))
            self._ask_for(r, me.lap + 1)
        elif me.denied == self.quorum_coverage:
            self._forget_answers(me)
            me.phase = RecoveryPhase.WRITING

    def _forget_answers(self, me: Recovery) -> None:
        me.found = me.denied = me.unknown = 0

    @action(r=recoverers, b=bookies, by="r")
    def recovery_counts_added(self, r: ModelValue, b: ModelValue) -> None:
        """A bookie has stored an entry that was written back. The LAC moves to the last entry for which it and all
        before it have an ack quorum.
        """
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
        """Recovery has read and written back everything. The ledger ends there, unless somebody else has closed it."""
        me = self.recovery[r]
        require(me.phase is RecoveryPhase.WRITING)
        require(me.lac == me.lap)
        require(self.meta.status is LedgerStatus.IN_RECOVERY)
        self.meta.status = LedgerStatus.CLOSED
        self.meta.last_entry = me.lac
        me.phase = RecoveryPhase.DONE

    def _ask_for(self, r: ModelValue, entry_id: int) -> None:
        self._ask(r, Read(entry_id), self._write_set(entry_id))

    def _ask(self, r: ModelValue, ask: Fence | Read | Add, bookies: Collection[ModelValue]) -> None:
        self.network.send_all([(RecoveryRequest(ask), b) for b in bookies], r)

    def _receive_answer(self, kind: type[Answer], r: ModelValue, b: ModelValue) -> Answer:
        """Receive an answer of a bookie, after those to all earlier requests. A recoverer that is done receives
        none.
        """
        require(self.recovery[r].phase is not RecoveryPhase.DONE)
        response = self.network.receive(RecoveryResponse, source=b, to=r, where=lambda m: isinstance(m.answer, kind))
        return cast("Answer", response.message.answer)

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: TYPES, "bookie")

    @invariant
    def no_divergence_between_writer_and_meta_data(self) -> bool:
        """No acknowledged entry is cut off: a closed ledger includes every entry that the writer has acknowledged."""
        return self.meta.status is not LedgerStatus.CLOSED or self.writer.lac <= self.meta.last_entry

    @invariant(entry_id=lambda p: p.entry_ids)
    def every_acknowledged_entry_has_a_copy(self, entry_id: int) -> bool:
        """An entry that the writer has acknowledged, or that a closed ledger has, is still stored by some bookie."""
        if entry_id > self.writer.lac and entry_id > self.meta.last_entry:
            return True
        return any(entry_id in self.bookie[b].entries for b in self.bookies)

    @invariant(r=recoverers)
    def recovery_reads_are_decided(self, r: ModelValue) -> bool:
        """A read that all bookies have answered is decided, unless an ack quorum of bookies is in limbo.

        In that case it stays undecided however often it is repeated, and the ledger stays in limbo.
        """
        me = self.recovery[r]
        return me.found + me.denied + me.unknown < self.copies or me.unknown >= self.ack_quorum

    @invariant(d=readers)
    def no_acknowledged_entry_is_denied(self, d: ModelValue) -> bool:
        """No reader gets "no such entry" for an acknowledged entry. Readers ask for acknowledged entries only."""
        return self.reader[d].outcome is not Code.NO_SUCH_ENTRY

    @step_invariant(r=recoverers)
    def no_lac_falls(self, after: BookKeeperBoot, r: ModelValue) -> bool:
        """The LAC that a recovery starts from does not decrease: it is the highest of any bookie."""
        return after.recovery[r].lac >= self.recovery[r].lac

    @step_invariant
    def no_closed_ledger_changes(self, after: BookKeeperBoot) -> bool:
        """A closed ledger stays closed, at the same end: readers rely on that."""
        return self.meta.status is not LedgerStatus.CLOSED or after.meta == self.meta

    @step_invariant(b=bookies)
    def only_closed_ledgers_are_repaired(self, after: BookKeeperBoot, b: ModelValue) -> bool:
        """Until the ledger is closed, a bookie stores only what it is sent. An entry that it copied before could be cut
        off, or be one that it has denied.
        """
        if self.meta.status is LedgerStatus.CLOSED:
            return True
        stored = after.bookie[b].entries - self.bookie[b].entries
        sent = {add.entry_id for add in self.network.in_flight(AddEntryRequest, WRITER, b)}
        for r in self.recoverers:
            asked = [request.ask for request in self.network.in_flight(RecoveryRequest, r, b)]
            sent |= {ask.entry_id for ask in asked if isinstance(ask, Add)}
        return stored <= sent

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        weak(
            recovery_starts, recovery_counts_fenced, recovery_counts_read, recovery_counts_added, recovery_closes_ledger
        ),
        weak(bookie_starts, bookie_marks_ledger, bookie_stamps_cookies, bookie_serves),
        strong(bookie_copies_entry, bookie_leaves_limbo),
        strong(bookie_is_fenced, bookie_answers_read, bookie_stores_recovered_entry),
    ]
    """The ledger is recovered, and bookies boot. A bookie in limbo may be shut down again and again, so its actions
    while it is up are strongly fair. The writer need not do anything.
    """

    @leads_to(b=bookies, when=lambda protocol: False)
    def limbo_ends(self, b: ModelValue) -> tuple[bool, bool]:
        """A bookie leaves limbo, unless an ack quorum of bookies is in limbo."""
        limbo = self.bookie[b].limbo
        return limbo, not limbo or sum(self.bookie[peer].limbo for peer in self.bookies) >= self.ack_quorum

    # -- configurations ------------------------------------------------------------------------------------------------

    configurations = {
        "default": configuration(doc="two bookies; one crash or empty disk, at any point, and clean shutdowns"),
        "small": configuration(disk_loss=False, clean_shutdown=False, doc="the same, and bookies only crash"),
        "one-confirmation": configuration(
            ack_quorum=1,
            send_limit=2,
            max_crashes=0,
            clean_shutdown=False,
            doc="one confirmation is enough, and nothing fails: the other comes late, and LACs differ",
        ),
        "fenced-once-more": configuration(
            bookies=3,
            **CLOSED_STORY,
            crashes_when=frozenset({"closed"}),
            clean_shutdown=False,
            doc="scenario 1 in its own size with all protections: a disk that forgot the fence comes back fenced",
        ),
        "older-lacs": configuration(
            send_limit=2,
            stored_at_first=1,
            max_crashes=0,
            clean_shutdown=False,
            lac_may_be_older=True,
            doc="nothing fails, and a bookie may report an older LAC than its last entry came with",
        ),
        "two-recoverers": configuration(
            recoverers=2, max_crashes=0, clean_shutdown=False, doc="two recoverers, one of which closes the ledger"
        ),
        "three-bookies": configuration(bookies=3, doc="the same with three bookies: a large one"),
        "two-crashes": configuration(
            max_crashes=2, doc="a second crash: between the steps of a boot, while in limbo, or of another bookie"
        ),
        "two-entries": configuration(send_limit=2, doc="two entries, so that the LAC moves"),
        "striped": configuration(bookies=3, write_quorum=2, doc="an ensemble of three, and two copies of an entry"),
        "two-disks": configuration(
            disks=2, doc="a disk with the ledger and one with the journal, one of which is lost"
        ),
        "old-disks": configuration(old_disks=True, doc="an empty disk may have a cookie that was replaced since"),
        "clean-end-marked": configuration(
            disk_loss=False,
            mark_loss=True,
            clean_end_is_marked=True,
            doc="marks are lost, and only a mark shows a clean shutdown",
        ),
        "journaling-varies": configuration(
            journal_adds_varies=True, doc="adds are journaled by some bookies and not by others, now and not before"
        ),
        "as-the-store": configuration(
            sends_when=frozenset({"open"}),
            crashes_when=frozenset({"open"}),
            disks=2,
            mark_loss=True,
            clean_shutdown=False,
            journal_adds_varies=True,
            marks_in_steps=True,
            limbo_tells_last_entry=True,
            lac_may_be_older=True,
            mark_tells_of_journaling=True,
            mark_on_every_disk=False,
            clean_end_is_marked=True,
            doc="the differences of the bookies of Fencepost's store",
        ),
        "fences-fail": configuration(fences_fail=True, doc="a bookie may fail to fence the ledger"),
        "reader": configuration(readers=1, doc="a client reads what was acknowledged"),
        "reader-in-limbo": configuration(
            bookies=3,
            readers=1,
            write_quorum=2,
            **CLOSED_STORY,
            max_crashes=2,
            crashes_when=frozenset({"closed"}),
            disk_loss=False,
            clean_shutdown=False,
            limbo_of_closed_ledgers=True,
            doc="bookies crash in turn after the ledger is closed, and it is in limbo then: no reader is misled",
        ),
        "cookies-not-fixed": configuration(fix_cookies=False, doc="a bookie with an empty disk does not boot"),
        "operator-fixes": configuration(
            fix_cookies=False,
            operator_fixes_cookies=True,
            doc="the same, and an operator lets it boot, through phase one",
        ),
        "operator-deletes": configuration(
            fix_cookies=False, operator_deletes_cookies=True, doc="an operator makes it a new bookie"
        ),
        "operator-deletes-all": configuration(
            disks=2,
            clean_shutdown=False,
            fix_cookies=False,
            operator_deletes_cookies=True,
            doc="the same where another disk still has something",
        ),
        "new-bookie": configuration(
            sends_when=frozenset({"in recovery"}),
            max_crashes=2,
            crashes_when=frozenset({"open"}),
            clean_shutdown=False,
            cookie_in_metadata=False,
            phase_one_of_new_bookies=False,
            doc="a bookie that loses its disk before it has any data counts as a new one",
        ),
        "nothing-to-forget": configuration(
            disk_loss=False,
            clean_shutdown=False,
            journal_adds=True,
            fence_closed_ledgers=False,
            limbo_answers_unknown=False,
            marks_in_steps=True,
            doc="everything is journaled and disks stay, so that nothing depends on phase one, which is done in steps",
        ),
        "not-needed": configuration(
            clean_shutdown=False,
            journal_fences=False,
            mark_before_serving=False,
            detect_while_journaling=False,
            check_every_disk=False,
            compare_cookies=False,
            phase_one_of_new_bookies=False,
            cookie_after_marks=False,
            limbo_in_index=False,
            doc="one crash or empty disk and nothing else: without protections that only further faults need",
        ),
        "with-the-journal": configuration(
            journal_adds=True,
            detect_unclean_shutdown=False,
            fix_cookies=False,
            doc="BookKeeper before BP-46: everything is journaled, and only cookies are checked",
        ),
        "scenario-1": cuts_off(
            "scenario 1 of BP-46 in its own size: fencing is forgotten, and phase one does not fence",
            bookies=3,
            **CLOSED_STORY,
            crashes_when=frozenset({"closed"}),
            journal_fences=False,
            phase_one_fences=False,
            disk_loss=False,
            clean_shutdown=False,
        ),
        "scenario-1-closed-ledger": cuts_off(
            "scenario 1 by an empty disk: phase one leaves closed ledgers alone",
            bookies=3,
            crashes_when=frozenset({"closed"}),
            fence_closed_ledgers=False,
            clean_shutdown=False,
        ),
        "scenario-2": cuts_off(
            "scenario 2 of BP-46 in its own size: an entry is forgotten, and there is no limbo",
            bookies=3,
            sends_when=frozenset({"open"}),
            crashes_when=frozenset({"in recovery"}),
            phase_one_sets_limbo=False,
            disk_loss=False,
            clean_shutdown=False,
        ),
        "fences-not-journaled": cuts_off(
            "with the journal, but a fence is answered before it is journaled",
            journal_adds=True,
            detect_unclean_shutdown=False,
            fix_cookies=False,
            journal_fences=False,
        ),
        "unclean-shutdown-not-detected": cuts_off("a crash counts as a clean shutdown", detect_unclean_shutdown=False),
        "mark-lost": cuts_off(
            "the mark of a crash is lost, which looks like a clean shutdown", disk_loss=False, mark_loss=True
        ),
        "marked-late": cuts_off(
            "a bookie serves before it sets the mark of an unclean shutdown", mark_before_serving=False
        ),
        "journal-turned-on": cuts_off(
            "a bookie that journals adds from now on does not check the mark",
            journal_adds_varies=True,
            detect_while_journaling=False,
        ),
        "phase-one-not-awaited": cuts_off(
            "a bookie serves before the ledger is marked", phase_one_before_serving=False
        ),
        "cookies-not-checked": cuts_off("an empty disk has no mark of a crash", check_cookies=False),
        "one-cookie-is-enough": cuts_off(
            "the other disk has its cookie, the one with the ledger does not", disks=2, check_every_disk=False
        ),
        "any-cookie-will-do": cuts_off(
            "a disk has a cookie that was replaced since", old_disks=True, compare_cookies=False
        ),
        "cookie-on-disks-only": cuts_off(
            "a bookie that has lost all its disks counts as a new one",
            cookie_in_metadata=False,
            phase_one_of_new_bookies=False,
        ),
        "taken-for-new": cuts_off(
            "an operator makes it a new bookie, and it serves as one",
            fix_cookies=False,
            operator_deletes_cookies=True,
            phase_one_of_new_bookies=False,
        ),
        "cookies-before-marks": cuts_off(
            "cookies are replaced, and a crash happens before the ledger is marked",
            max_crashes=2,
            cookie_after_marks=False,
        ),
        "limbo-denies": cuts_off("a bookie in limbo says no such entry", limbo_answers_unknown=False),
        "limbo-in-memory": cuts_off(
            "a clean shutdown forgets limbo before the ledger is recovered", limbo_in_index=False
        ),
        "limbo-left-unrecovered": cuts_off(
            "limbo ends before the ledger is recovered", recovery_before_leaving_limbo=False
        ),
        "limbo-left-early": configuration(
            max_crashes=2,
            repair_before_leaving_limbo=False,
            expect="every_acknowledged_entry_has_a_copy",
            doc="limbo ends with recovery, before missing entries are copied",
        ),
        "an-ack-quorum-to-recover": configuration(
            bookies=3,
            clean_shutdown=False,
            copies_to_recover=2,
            expect="recovery_reads_are_decided",
            doc="recovery as BP-46 words it: a ledger may stay in limbo forever",
        ),
        "an-ack-quorum-to-recover-small": configuration(
            bookies=3,
            sends_when=frozenset({"open"}),
            crashes_when=frozenset({"open"}),
            disk_loss=False,
            clean_shutdown=False,
            copies_to_recover=2,
            expect="recovery_reads_are_decided",
            doc="the same, and a bookie only crashes, while the ledger is open",
        ),
        "reader-denied": configuration(
            readers=1,
            **CLOSED_STORY,
            max_crashes=2,
            crashes_when=frozenset({"closed"}),
            clean_shutdown=False,
            expect="no_acknowledged_entry_is_denied",
            doc="one bookie crashes and is repaired, then the other: each has denied the entry once",
        ),
        "too-many-crashes": configuration(
            max_crashes=2,
            copies_at_risk=2,
            expect="every_acknowledged_entry_has_a_copy",
            doc="crashes destroy an ack quorum of copies, which no protection covers",
        ),
    }


# -- types of the parts of the state -----------------------------------------------------------------------------------


def _counts_bookies(protocol: BookKeeperBoot, value: int) -> bool:
    return type(value) is int and 0 <= value <= len(protocol.bookies)


def _is_entry_id(protocol: BookKeeperBoot, value: int) -> bool:
    return value in protocol.entry_ids


def _is_position(protocol: BookKeeperBoot, value: int) -> bool:
    return type(value) is int and 0 <= value <= protocol.send_limit


TYPES: Types = {
    Entries: each(_is_entry_id),
    Bookies: are_bookies,
    "meta.last_entry": _is_position,
    "cookie_of": one_of_kind(bool),
    "writer.lap": _is_position,
    "writer.lac": _is_position,
    "writer.confirmed": _counts_bookies,
    "recovery.fenced": _counts_bookies,
    "recovery.lap": _is_position,
    "recovery.lac": _is_position,
    "recovery.found": _counts_bookies,
    "recovery.denied": _counts_bookies,
    "recovery.unknown": _counts_bookies,
    "recovery.written_back": _counts_bookies,
    "reader.entry_id": _is_position,
    "reader.unknown": _counts_bookies,
    "crashes": at_least(0),
}
