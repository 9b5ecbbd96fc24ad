"""The ledger store with bookies that boot: `store`, with bookies that crash, lose directories, and repair themselves
step by step.

The rules that bookies run decide how a bookie detects a loss, what it must do for its ledgers then, which entries it
should have, and when limbo ends: `fencepost.ledger.rules.boot`, `cookies` and `replication`. They also decide the steps
of a boot and their order:

1. Compare the cookies, and read the record of how the last run went (RUNNING). If there is such a record and no sign of
   a loss, the bookie serves.
2. Record the repair in every directory (REPAIR), and then open the storage.
3. Phase one: fence the ledger, and then put it in limbo if it is not closed. Each is durable on its own.
4. Make new cookies, if the old ones were wrong: first in the directories, then in the metadata.
5. Record RUNNING, and serve.
6. Phase two: somebody recovers the ledger; the bookie copies its missing entries; limbo ends; and then the repair.

A crash may happen between any two steps, and erases any part of what was confirmed from memory. Clients, and the
answers of bookies, are those of `store`, as roles run them: a client does everything that an answer requires at once.
Bookies answer every request here, with a code, since a bookie in limbo says that it does not know. At the beginning the
ledger exists, owned by the first client, with all bookies in its ensemble, which does not change. A declared refinement
checks that all this is `bookkeeper-boot`: see ``AS_BOOT``.
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
    Record,
    action,
    assumption,
    configuration,
    constant,
    initial,
    invariant,
    model_values,
    network,
    one_of,
    per_key,
    refines,
    require,
    subsets,
)
from fencepost.language.declarations import varied
from fencepost.ledger.rules.adding import lac_of_bookie
from fencepost.ledger.rules.boot import CLEAN_END, Mark, Run, Step, mark_of, may_leave_limbo, steps_of_boot
from fencepost.ledger.rules.codes import Code, Verdict
from fencepost.ledger.rules.cookies import Boot, Cookie, Stamped, may_boot, may_repair
from fencepost.ledger.rules.ensembles import Fragment, covers_ensemble
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.rules.reading import ReadOutcome, answer_to_read, ordinary_read, outcome_of_read
from fencepost.ledger.rules.recovery import fencing, is_fenced_by_read, says_fenced
from fencepost.ledger.rules.replication import belonging, sources
from fencepost.protocols.bookkeeper import boot
from fencepost.protocols.bookkeeper.boot import WRITER, BookKeeperBoot
from fencepost.protocols.bookkeeper.current import NOT_KNOWN, RecoveryPhase
from fencepost.protocols.bookkeeper.ledger import AddEntryRequest, AddEntryResponse, Bookies, Entry
from fencepost.protocols.store import store
from fencepost.protocols.store.store import LOSS, RESULTS, UNPROTECTED, BookiesWhere, Ensemble, Status, Store
from fencepost.protocols.types import Types, each, typed


class Stamp(enum.Enum):
    """The cookie in a directory: none, the one in the metadata, or an earlier one."""

    MISSING = "missing"
    CURRENT = "current"
    OLD = "old"


class Directory(Record):
    """A directory of a bookie. ``is_stamped_anew``: it has a new cookie that is not in the metadata yet."""

    stamp: Stamp = Stamp.CURRENT
    is_stamped_anew: bool = False
    is_empty: bool = False
    is_under_repair: bool = False


class Bookie(store.LedgerOnBookie):
    """A bookie, and its part of the ledger.

    ``works``: whether its process runs; ``steps``: the remaining steps of its boot; ``serves``: whether it accepts
    connections. The first directory has the entries and the record of how the bookie runs (``run``); the second, if
    there is one, has the journal. ``lacs``: the LAC that each entry came with. The bookie does not know ``lost``:
    entries that it confirmed, that were destroyed, and that it had not copied again when it left limbo.
    """

    works: bool = True
    steps: tuple[Step, ...] = ()
    serves: bool = True
    journals_adds: bool = False
    run: Run | None = None
    lacs: PerKey[int, int] = per_key(lambda protocol: protocol.entry_ids, 0)
    lost: frozenset[int] = frozenset()
    directory: PerKey[int, Directory] = per_key(lambda protocol: protocol.directory_numbers, Directory)


class Fence(Record):
    """Accept no more entries from the owner of the ledger, and report your last entry."""


class Read(Record):
    """A recovery read of one entry."""

    entry_id: int


class Add(Record):
    """A recovery add."""

    entry: Entry
    lac: int


class Fenced(Record):
    """The answer to a fence request: the LAC that came with the last entry, if there is one and the bookie knows it."""

    lac: int
    code: Code


class ReadAnswer(Record):
    """The answer to a read of one entry."""

    entry_id: int
    code: Code


class Added(Record):
    """The entry is stored."""

    entry: Entry


class RecoveryRequest(Message):
    """A request of a recovery. All its requests to a bookie use one connection."""

    ask: Fence | Read | Add


class RecoveryResponse(Message):
    """The answer, over the same connection."""

    answer: Fenced | ReadAnswer | Added


Ask = TypeVar("Ask", Fence, Read, Add)
Answer = TypeVar("Answer", Fenced, ReadAnswer, Added)


class ReaderRequest(Message):
    """An ordinary read of one entry."""

    entry_id: int


class ReaderResponse(Message):
    """The answer to an ordinary read."""

    entry_id: int
    code: Code


def _owner(protocol: BootingStore) -> tuple[ModelValue, ...]:
    return protocol.clients[:1]


def _recoverers(protocol: BootingStore) -> tuple[ModelValue, ...]:
    return protocol.clients[1:]


TYPES: Types = {
    **store.TYPES,
    "bookie.lost": each(lambda protocol, entry_id: entry_id in protocol.entry_ids),
    "failed": lambda protocol, bookies: bookies <= frozenset(protocol.bookies),
}


# -- the state of `bookkeeper-boot` ------------------------------------------------------------------------------------


def _boot(self: BootingStore, b: ModelValue) -> boot.Boot:
    """The boot step of a bookie in `bookkeeper-boot`. Its mark there is the record of how it runs here: once that is
    set, it is up.
    """
    bookie = self.bookie[b]
    if not bookie.works:
        return boot.Boot.DOWN
    if not bookie.steps:
        return boot.Boot.UP
    first = bookie.steps[0]
    if first is Step.OPEN_STORAGE:
        return boot.Boot.MARKING if Step.MARK_LEDGERS in bookie.steps else boot.Boot.STARTING
    return BOOTS[first]


BOOTS: Mapping[Step, boot.Boot] = {
    Step.BEGIN_REPAIR: boot.Boot.MARKING,
    Step.MARK_LEDGERS: boot.Boot.MARKING,
    Step.STAMP_COOKIES: boot.Boot.STAMPING,
    Step.NOTE_RUN: boot.Boot.STARTING,
    Step.SERVE: boot.Boot.UP,
}

COOKIES: Mapping[Stamp, boot.Cookie] = {
    Stamp.MISSING: boot.Cookie.MISSING,
    Stamp.CURRENT: boot.Cookie.CURRENT,
    Stamp.OLD: boot.Cookie.OLD,
}


def _is_unclean(self: BootingStore, b: ModelValue, number: int) -> bool:
    return number == 1 and self.bookie[b].run != CLEAN_END


def _marked_journaling(self: BootingStore, b: ModelValue) -> bool:
    run = self.bookie[b].run
    return run is not None and run.journals_adds


def _writer_status(self: BootingStore) -> boot.WriterStatus:
    """The ledger's status as the owner sees it. If the owner has lost a ledger before writing to it, that makes no
    difference.
    """
    owner = self.client[self.clients[0]]
    if owner.status is Status.CLOSED:
        return boot.WriterStatus.CLOSED
    return boot.WriterStatus.OPEN if owner.status is Status.OPEN or not owner.lap else boot.WriterStatus.WITHDRAWN


def _writer_confirmed(self: BootingStore) -> int:
    owner = self.client[self.clients[0]]
    return len(owner.confirmed[owner.lap]) if owner.lap > owner.lac else 0


def _phase(self: BootingStore, r: ModelValue) -> boot.RecoveryPhase:
    client = self.client[r]
    if client.status is Status.CLOSED:
        return boot.RecoveryPhase.DONE
    if client.recovery_phase is RecoveryPhase.NOT_STARTED:
        return boot.RecoveryPhase.NOT_STARTED
    if client.recovery_phase is RecoveryPhase.FENCING:
        return boot.RecoveryPhase.FENCING
    return boot.RecoveryPhase.READING if client.last_recoverable_entry == NOT_KNOWN else boot.RecoveryPhase.WRITING


def _denied(self: BootingStore, r: ModelValue) -> int:
    """The number of bookies that lack the entry being read. If the read cannot be decided, every bookie counts as
    answered.
    """
    client = self.client[r]
    if client.status is Status.ABORTED and client.recovery_phase is RecoveryPhase.READ_WRITE:
        return self.write_quorum - len(self.failed[r])
    return len(client.no_such_entry[client.lap + 1]) if client.last_read > client.lap else 0


def _unknown(self: BootingStore, r: ModelValue) -> int:
    return len(self.failed[r]) if self.client[r].recovery_phase is RecoveryPhase.READ_WRITE else 0


def _written_back(self: BootingStore, r: ModelValue, entry_id: int) -> int:
    client = self.client[r]
    return len(client.confirmed[entry_id]) if entry_id > client.lac else 0


CODES: Mapping[ReadOutcome, boot.Code] = {
    ReadOutcome.FOUND: boot.Code.OK,
    ReadOutcome.NEGATIVE: boot.Code.NO_SUCH_ENTRY,
    ReadOutcome.FAILED: boot.Code.UNKNOWN,
}


def _request(request: RecoveryRequest) -> boot.RecoveryRequest:
    ask = request.ask
    if isinstance(ask, Fence):
        return boot.RecoveryRequest(boot.Fence())
    return boot.RecoveryRequest(boot.Read(ask.entry_id) if isinstance(ask, Read) else boot.Add(ask.entry.id))


def _response(response: RecoveryResponse) -> boot.RecoveryResponse:
    answer = response.answer
    if isinstance(answer, Fenced):
        code = boot.Code.OK if says_fenced(answer.code) else boot.Code.UNKNOWN
        return boot.RecoveryResponse(boot.Fenced(answer.lac, code))
    if isinstance(answer, ReadAnswer):
        return boot.RecoveryResponse(
            boot.ReadResult(answer.entry_id, CODES[outcome_of_read(answer.code, is_intact=True)])
        )
    return boot.RecoveryResponse(boot.Added(answer.entry.id))


AS_BOOT: Mapping[str, Any] = {
    "meta.status": lambda self: self.metadata.status,
    "meta.last_entry": lambda self: max(self.metadata.last_entry, 0),
    "cookie_of": lambda self, b: True,
    "bookie.boot": _boot,
    "bookie.marked_journaling": _marked_journaling,
    "bookie.entries": lambda self, b: frozenset(entry.id for entry in self.bookie[b].entries),
    "bookie.disk.cookie": lambda self, b, number: COOKIES[self.bookie[b].directory[number].stamp],
    "bookie.disk.unclean": _is_unclean,
    "writer.status": _writer_status,
    "writer.lap": lambda self: self.client[self.clients[0]].lap,
    "writer.lac": lambda self: self.client[self.clients[0]].lac,
    "writer.confirmed": _writer_confirmed,
    "recovery.phase": _phase,
    "recovery.fenced": lambda self, r: len(self.client[r].fenced),
    "recovery.lap": lambda self, r: self.client[r].lap,
    "recovery.lac": lambda self, r: self.client[r].lac,
    "recovery.found": lambda self, r: 0,
    "recovery.denied": _denied,
    "recovery.unknown": _unknown,
    "recovery.written_back": _written_back,
    "reader": lambda self, d: boot.Reader(),
    "crashes": "crashed",
    "network": {
        AddEntryRequest: (boot.AddEntryRequest, lambda add: boot.AddEntryRequest(add.entry.id)),
        AddEntryResponse: (boot.AddEntryResponse, lambda add: boot.AddEntryResponse(add.entry.id, add.success)),
        RecoveryRequest: (boot.RecoveryRequest, _request),
        RecoveryResponse: (boot.RecoveryResponse, _response),
        ReaderRequest: None,
        ReaderResponse: None,
    },
}
"""The variables of `bookkeeper-boot` in a state of `booting-store`. Variables not listed are the same in both."""


CRASHES: Mapping[str, Any] = {"directory_loss": False, "clean_shutdown": False}


class BootingStore(Store):
    """The life of one ledger, by the rules of the store, on bookies that crash, lose directories, boot and repair
    themselves.
    """

    name: ClassVar[str] = "booting-store"

    clients: tuple[ModelValue, ...] = model_values(
        "c", (WRITER.name, "r1"), "the owner of the ledger, who is first, and clients that may recover it"
    )
    readers: tuple[ModelValue, ...] = model_values("d", 0, "clients that read one entry", symmetric=True)
    message_loss: bool = constant(
        False, "whether messages are lost; here a message that is not received counts as lost"
    )
    metadata_lags: bool = constant(False, "whether metadata are read, written and answered in separate steps")
    connections_in_order: bool = constant(True, "whether messages on one connection arrive in order")

    crashes: int = constant(1, "how often bookies crash or lose a directory, in total")
    copies_at_risk: int = constant(1, "copies of an entry that crashes may destroy before they are repaired")
    directories: int = constant(1, "directories of a bookie: the first has the entries, the second the journal")
    directory_loss: bool = constant(True, "whether a directory can come back empty")
    old_directories: bool = constant(False, "whether an empty directory can have a cookie that was replaced since")
    note_loss: bool = constant(False, "whether the record of how a bookie runs can be lost alone")
    clean_shutdown: bool = constant(True, "whether bookies also shut down cleanly")
    journal_adds: bool = constant(False, "whether adds are in the journal before they are confirmed")
    journal_adds_varies: bool = constant(False, "whether that differs between bookies, and from one start to the next")
    stamp_missing_cookies: bool = constant(
        True, "whether a bookie that has lost a directory still starts, and repairs itself"
    )
    boot_fences: bool = constant(
        True, "whether a bookie that may have lost something fences the ledger before it serves"
    )
    boot_enters_limbo: bool = constant(True, "whether it then puts a ledger that is not closed in limbo")
    cookies_follow_marks: bool = constant(
        True, "whether new cookies are stamped after the ledger is marked, or before that"
    )
    run_precedes_answers: bool = constant(
        True, "whether a bookie records that it runs before it serves, or at some time after that"
    )

    bookie: PerKey[ModelValue, Bookie] = per_key(Store.bookies, Bookie)  # type: ignore[assignment]
    failed: PerKey[ModelValue, Bookies] = per_key(lambda protocol: (*protocol.clients, *protocol.readers), frozenset())
    """The bookies that gave no useful answer: to fence requests, and then to the read of the entry after those found;
    or to a reader.
    """
    network: Network = network(
        {
            AddEntryRequest: (_owner, Store.bookies),
            AddEntryResponse: (Store.bookies, _owner),
            RecoveryRequest: (_recoverers, Store.bookies),
            RecoveryResponse: (Store.bookies, _recoverers),
            ReaderRequest: (readers, Store.bookies),
            ReaderResponse: (Store.bookies, readers),
        },
        ordered=connections_in_order,
    )

    configurations = {
        "default": configuration(
            doc="two bookies; one crash or empty directory, at any point, and bookies that shut down cleanly"
        ),
        "small": configuration(**CRASHES, doc="the same, and bookies only crash"),
        "three-bookies": configuration(bookies=3, write_quorum=3, **CRASHES, doc="the same with three bookies"),
        "two-crashes": configuration(
            crashes=2,
            clean_shutdown=False,
            doc="a second crash: between the steps of a boot, in limbo, or of another bookie",
        ),
        "two-entries": configuration(send_limit=2, doc="two entries, so that the LAC moves"),
        "striped": configuration(bookies=3, doc="an ensemble of three, and two copies of an entry"),
        "two-directories": configuration(
            directories=2, doc="a directory with the entries and one with the journal, one of which is lost"
        ),
        "old-directories": configuration(
            old_directories=True, doc="an empty directory may have a cookie that was replaced since"
        ),
        "note-lost": configuration(
            **CRASHES, note_loss=True, doc="bookies only crash, and lose the record of how they run with that"
        ),
        "journaling-varies": configuration(
            journal_adds_varies=True,
            doc="adds are in the journal of some bookies and not of others, now and not before",
        ),
        "with-the-journal": configuration(journal_adds=True, doc="all adds are in the journal"),
        "cookies-not-stamped": configuration(
            stamp_missing_cookies=False, doc="a bookie that has lost a directory does not start"
        ),
        "one-bookie": configuration(
            bookies=1,
            write_quorum=1,
            ack_quorum=1,
            **CRASHES,
            note_loss=True,
            journal_adds=True,
            doc="the only bookie crashes with all adds in its journal, and loses its record: it is in limbo",
        ),
        "any-order": configuration(
            **CRASHES, connections_in_order=False, doc="messages on a connection may overtake each other"
        ),
        "reader": configuration(readers=1, **CRASHES, doc="a client reads what was acknowledged"),
        "boot-does-not-fence": configuration(
            boot_fences=False,
            clean_shutdown=False,
            expect=LOSS,
            doc="a bookie that has lost its fence accepts entries of the owner",
        ),
        "boot-without-limbo": configuration(
            **CRASHES,
            boot_enters_limbo=False,
            expect=LOSS,
            doc="a bookie that has lost an entry says that there is none",
        ),
        "cookies-before-marks": configuration(
            crashes=2,
            clean_shutdown=False,
            directories=2,
            journal_adds=True,
            cookies_follow_marks=False,
            expect=LOSS,
            doc="cookies are new, and a crash happens before the ledger is marked",
        ),
        "run-noted-late": configuration(
            directory_loss=False,
            run_precedes_answers=False,
            expect=LOSS,
            doc="a bookie serves, and crashes before it has recorded that it runs",
        ),
        **varied(UNPROTECTED, {"limbo-denies": CRASHES}),
        "too-many-crashes": configuration(
            **CRASHES,
            crashes=2,
            copies_at_risk=2,
            expect="every_acknowledged_entry_has_a_copy",
            doc="crashes destroy an ack quorum of copies, which no protection covers",
        ),
    }

    # -- assumptions about the constants -------------------------------------------------------------------------------

    @assumption
    def the_owner_is_first(self) -> bool:
        """The first client is the owner, by the name that it has in `bookkeeper-boot`."""
        return self.clients[0] == WRITER

    @assumption
    def a_bookie_has_one_directory_or_two(self) -> bool:
        """A bookie has a directory with the entries, and may have one with the journal."""
        return self.directories in (1, 2)

    @assumption
    def clients_do_one_thing_after_another(self) -> bool:
        """Metadata are written at once, message losses are not observed, and one entry is written and one read at a
        time.
        """
        return not (self.metadata_lags or self.message_loss) and self.inflight_limit == 1 and self.reads_in_flight == 1

    @property
    def bookies_of_an_ensemble(self) -> int:
        """All bookies are in the ensemble."""
        return len(self.bookies)

    @property
    def directory_numbers(self) -> range:
        """The numbers of the directories of a bookie."""
        return range(1, self.directories + 1)

    @initial
    def the_ledger_is_there(self) -> None:
        """The owner has created the ledger, and all bookies serve."""
        ensemble = (Fragment(1, tuple(self.bookies)),)
        metadata = LedgerMetadata(len(self.bookies), self.write_quorum, self.ack_quorum, ensemble)
        self.meta.metadata = metadata
        self.meta.version = 1
        owner = self.client[self.clients[0]]
        owner.status, owner.seen, owner.version = Status.OPEN, metadata, 1
        for b in self.bookies:
            bookie = self.bookie[b]
            bookie.journals_adds = one_of((False, True)) if self.journal_adds_varies else self.journal_adds
            bookie.run = Run(journals_adds=bookie.journals_adds)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _write_timed_out(self, c: ModelValue, b: ModelValue) -> bool:
        return False

    def _read_timed_out(self, c: ModelValue, b: ModelValue, entry_id: int) -> bool:
        return b in self.failed[c]

    def _send_fences(self, c: ModelValue, asked: Ensemble) -> None:
        self.network.send_all([(RecoveryRequest(Fence()), b) for b in asked], c)

    def _send_recovery_reads(self, c: ModelValue, entry_id: int, asked: Bookies) -> None:
        self.network.send_all([(RecoveryRequest(Read(entry_id)), b) for b in asked], c)

    def _add_request(self, c: ModelValue, b: ModelValue, entry: Entry, lac: int, recovery: bool) -> Any:
        return RecoveryRequest(Add(entry, lac)) if recovery else AddEntryRequest(entry, lac, recovery)

    def _next_add(self, kind: Any, source: ModelValue, to: ModelValue, where: Any = lambda add: True) -> Any:
        """Receive an add, or the answer to one, on the owner's connection or that of a recovery."""
        if self.clients[0] in (source, to):
            return self.network.receive(kind, source=source, to=to, where=where).message
        if kind is AddEntryRequest:
            add = self._asked(Add, to, source)
            return AddEntryRequest(add.entry, add.lac, recovery=True)
        return AddEntryResponse(self._answered(Added, to, source).entry, recovery=True, success=True)

    def _asked(self, kind: type[Ask], b: ModelValue, c: ModelValue) -> Ask:
        """Receive the request of a recovery at a bookie."""
        request = self.network.receive(RecoveryRequest, source=c, to=b, where=lambda m: isinstance(m.ask, kind))
        return cast("Ask", request.message.ask)

    def _answered(self, kind: type[Answer], c: ModelValue, b: ModelValue) -> Answer:
        """Send the answer of a bookie to a recovery."""
        response = self.network.receive(RecoveryResponse, source=b, to=c, where=lambda m: isinstance(m.answer, kind))
        return cast("Answer", response.message.answer)

    # -- bookies serve -------------------------------------------------------------------------------------------------

    def _serving(self, b: ModelValue) -> Bookie:
        bookie = self.bookie[b]
        require(bookie.serves)
        return bookie

    @action(b=Store.bookies, c=Store.clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie stores an entry and the LAC sent with it."""
        self._serving(b)
        add, code = self._receive_add(b, c)
        require(code is Code.OK)
        self._store(b, c, add)
        self._answer_add(b, c, add, success=True)

    @action(b=Store.bookies, c=Store.clients, by="b")
    def bookie_sends_add_fenced_response(self, b: ModelValue, c: ModelValue) -> None:
        """A fenced bookie refuses an entry of the owner."""
        self._serving(b)
        add, code = self._receive_add(b, c)
        require(code is Code.FENCED)
        self._answer_add(b, c, add, success=False)

    def _answer_add(self, b: ModelValue, c: ModelValue, add: AddEntryRequest, success: bool) -> None:
        if c == self.clients[0]:
            self.network.send(AddEntryResponse(add.entry, add.recovery, success), b, c)
        else:
            self.network.send(RecoveryResponse(Added(add.entry)), b, c)

    def _store(self, b: ModelValue, c: ModelValue, add: AddEntryRequest) -> None:
        self._put(b, add.entry, add.lac)

    def _put(self, b: ModelValue, entry: Entry, lac: int) -> None:
        bookie = self.bookie[b]
        bookie.entries |= {entry}
        bookie.lacs[entry.id] = lac
        bookie.lost -= {entry.id}
        bookie.lac = lac_of_bookie(bookie.lac, lac)

    def _lac_of_last(self, b: ModelValue) -> int:
        bookie = self.bookie[b]
        last = max((entry.id for entry in bookie.entries), default=0)
        return bookie.lacs[last] if last else 0

    @action(b=Store.bookies, c=_recoverers, by="b")
    def bookie_sends_fencing_read_lac_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie fences the ledger and answers with its last entry. In limbo it does not say that it has none."""
        bookie = self._serving(b)
        self._asked(Fence, b, c)
        if is_fenced_by_read(True, is_of_last_entry=True, protections=self.protections):
            bookie.fenced = True
        code = self._answer_to_read(bookie, self._stores_any(b))
        self.network.send(RecoveryResponse(Fenced(self._lac_of_last(b) if code is Code.OK else 0, code)), b, c)

    @action(b=Store.bookies, c=_recoverers, by="b")
    def bookie_sends_read_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie answers a recovery read, which fences the ledger. In limbo it does not say that there is no such
        entry.
        """
        bookie = self._serving(b)
        entry_id = self._asked(Read, b, c).entry_id
        if is_fenced_by_read(True, protections=self.protections):
            bookie.fenced = True
        code = self._answer_to_read(bookie, self._stored(b, entry_id) is not None)
        self.network.send(RecoveryResponse(ReadAnswer(entry_id, code)), b, c)

    def _answer_to_read(self, bookie: Bookie, stored: bool) -> Code:
        return answer_to_read(stored=stored, known_ledger=True, limbo=bookie.limbo, protections=self.protections)

    @action(b=Store.bookies, r=readers, by="b")
    def bookie_answers_reader(self, b: ModelValue, r: ModelValue) -> None:
        """A bookie answers an ordinary read, which does not fence the ledger."""
        bookie = self._serving(b)
        entry_id = self.network.receive(ReaderRequest, source=r, to=b).message.entry_id
        code = self._answer_to_read(bookie, self._stored(b, entry_id) is not None)
        self.network.send(ReaderResponse(entry_id, code), b, r)

    # -- bookies go down -----------------------------------------------------------------------------------------------

    @action(b=Store.bookies, by="b")
    def bookie_ends(self, b: ModelValue) -> None:
        """A bookie shuts down cleanly. It has flushed everything before it records that."""
        require(self.clean_shutdown)
        bookie = self._serving(b)
        self._end(bookie)
        bookie.run = CLEAN_END

    def _end(self, bookie: Bookie) -> None:
        bookie.works = bookie.serves = False
        bookie.steps = ()

    @action(b=Store.bookies, by="b")
    def bookie_crashes(self, b: ModelValue) -> None:
        """A crash erases any of the entries that were confirmed from memory. Fences and limbo were journaled before
        they were answered.
        """
        bookie = self.bookie[b]
        require(bookie.works)
        self._count_crash()
        if bookie.serves and not bookie.journals_adds:
            self._lose(b, one_of(subsets(bookie.entries)))
        self._end(bookie)

    @action(b=Store.bookies, number=lambda protocol: protocol.directory_numbers, by="b")
    def bookie_loses_directory(self, b: ModelValue, number: int) -> None:
        """A directory is lost, while its bookie is down or with the bookie, and another one replaces it.

        With the first, the entries are gone, and the fence, limbo and the record of how the bookie runs. With the
        second the journal is gone, and with it everything that was only there.
        """
        require(self.directory_loss)
        self._count_crash()
        bookie = self.bookie[b]
        if number == 1:
            self._lose(b, bookie.entries)
            bookie.fenced = bookie.limbo = False
            bookie.run = None
        elif bookie.run != CLEAN_END:
            self._lose(b, one_of(subsets(bookie.entries)))
            if bookie.fenced:
                bookie.fenced = one_of((True, False))
        self._end(bookie)
        stamp = one_of((Stamp.MISSING, Stamp.OLD)) if self.old_directories else Stamp.MISSING
        bookie.directory[number] = Directory(stamp, is_empty=True)

    @action(b=Store.bookies, by="b")
    def bookie_loses_note(self, b: ModelValue) -> None:
        """The record of how a bookie runs is gone, or unreadable, and nothing else is lost."""
        require(self.note_loss)
        bookie = self.bookie[b]
        require(not bookie.works and bookie.run is not None)
        bookie.run = None

    def _count_crash(self) -> None:
        require(self.crashed < self.crashes)
        self.crashed += 1

    def _lose(self, b: ModelValue, entries: frozenset[Entry]) -> None:
        """Destroy copies, of any entry no more than are at risk."""
        bookie = self.bookie[b]
        for entry in entries:
            require(sum(entry.id in self.bookie[peer].lost for peer in self.bookies if peer != b) < self.copies_at_risk)
            bookie.lacs[entry.id] = 0
        bookie.entries -= entries
        bookie.lost |= frozenset(entry.id for entry in entries)
        bookie.lac = max(bookie.lacs[entry_id] for entry_id in self.entry_ids)

    # -- bookies boot --------------------------------------------------------------------------------------------------

    def _cookie(self, b: ModelValue, token: str) -> Cookie:
        return Cookie(bookie_id=b.name, journal_directories=("journal",), ledger_directories=("ledgers",), token=token)

    def _stamped(self, b: ModelValue) -> list[Stamped]:
        """The directories of a bookie, as a start finds them."""
        found = []
        for number in self.directory_numbers:
            directory = self.bookie[b].directory[number]
            if directory.is_stamped_anew:
                cookie = self._cookie(b, "new")
            elif directory.stamp is Stamp.MISSING:
                cookie = None
            else:
                cookie = self._cookie(b, directory.stamp.value)
            found.append(Stamped(str(number), cookie, directory.is_empty, directory.is_under_repair))
        return found

    def _own(self, b: ModelValue) -> Cookie:
        """The cookie that a bookie should have everywhere, which is the one in the metadata."""
        return self._cookie(b, Stamp.CURRENT.value)

    def _has_problem(self, b: ModelValue) -> bool:
        """Whether the cookies of a bookie disagree."""
        return may_boot(self._own(b), self._own(b), self._stamped(b)).boot is not Boot.READY

    def _may_repair(self, b: ModelValue) -> bool:
        return may_repair(self._own(b), self._own(b), self._stamped(b))

    @action(b=Store.bookies, by="b")
    def bookie_starts(self, b: ModelValue) -> None:
        """A bookie starts, with its old or a new configuration, and decides what to do before it serves.

        Without its cookies it starts only if it is configured to repair itself.
        """
        bookie = self.bookie[b]
        require(not bookie.works)
        if self.journal_adds_varies:
            bookie.journals_adds = one_of((False, True))
        has_lost = self._has_problem(b)
        if has_lost:
            require(self.stamp_missing_cookies and self._may_repair(b))
        bookie.works = True
        bookie.steps = steps_of_boot(has_lost_directory=has_lost, last_run=bookie.run, protections=self.protections)

    def _next(self, b: ModelValue, step: Step) -> Bookie:
        """The bookie, if this is its next step."""
        bookie = self.bookie[b]
        require(bookie.steps[:1] == (step,))
        return bookie

    def _is_done(self, bookie: Bookie) -> None:
        """Go on with the next step."""
        bookie.steps = bookie.steps[1:]

    @action(b=Store.bookies, by="b")
    def bookie_begins_repair(self, b: ModelValue) -> None:
        """A bookie records the repair in all directories, before they contain anything else."""
        bookie = self._next(b, Step.BEGIN_REPAIR)
        for directory in bookie.directory.values():
            directory.is_under_repair = True
        self._is_done(bookie)

    @action(b=Store.bookies, by="b")
    def bookie_opens_storage(self, b: ModelValue) -> None:
        """A bookie opens its storage. From now on there are files in its directories."""
        bookie = self._next(b, Step.OPEN_STORAGE)
        for directory in bookie.directory.values():
            directory.is_empty = False
        self._is_done(bookie)

    @action(b=Store.bookies, by="b")
    def bookie_fences_ledger(self, b: ModelValue) -> None:
        """Phase one: a bookie fences a ledger that was ever on it, durably."""
        bookie = self._next(b, Step.MARK_LEDGERS)
        require(self.boot_fences and not bookie.fenced)
        require(self._mark(b) is not Mark.NOTHING)
        bookie.fenced = True

    @action(b=Store.bookies, by="b")
    def bookie_marks_ledger(self, b: ModelValue) -> None:
        """The end of phase one: unless it is closed, the ledger is in limbo, durably."""
        bookie = self._next(b, Step.MARK_LEDGERS)
        mark = self._mark(b)
        require(bookie.fenced or mark is Mark.NOTHING or not self.boot_fences)
        if mark is Mark.LIMBO:
            bookie.limbo = True
        self._is_done(bookie)

    def _mark(self, b: ModelValue) -> Mark:
        return mark_of(self.metadata, b, self.protections)

    @action(b=Store.bookies, by="b")
    def bookie_stamps_directories(self, b: ModelValue) -> None:
        """New cookies are in the directories."""
        bookie = self._next(b, Step.STAMP_COOKIES)
        require(not all(directory.is_stamped_anew for directory in bookie.directory.values()))
        for directory in bookie.directory.values():
            directory.is_stamped_anew = True

    @action(b=Store.bookies, by="b")
    def bookie_stamps_metadata(self, b: ModelValue) -> None:
        """The new cookie is in the metadata, too: the bookie counts as one that has lost nothing."""
        bookie = self._next(b, Step.STAMP_COOKIES)
        require(all(directory.is_stamped_anew for directory in bookie.directory.values()))
        for directory in bookie.directory.values():
            directory.stamp = Stamp.CURRENT
            directory.is_stamped_anew = False
        self._is_done(bookie)

    @action(b=Store.bookies, by="b")
    def bookie_notes_run(self, b: ModelValue) -> None:
        """A bookie records how it runs from now on."""
        bookie = self._next(b, Step.NOTE_RUN)
        bookie.run = Run(journals_adds=bookie.journals_adds)
        self._is_done(bookie)

    @action(b=Store.bookies, by="b")
    def bookie_serves(self, b: ModelValue) -> None:
        """A bookie accepts connections."""
        bookie = self._next(b, Step.SERVE)
        bookie.serves = True
        self._is_done(bookie)

    # -- phase two -----------------------------------------------------------------------------------------------------

    def _missing(self, b: ModelValue) -> Collection[int]:
        """The entries of closed fragments that a bookie should have and does not have."""
        metadata = self.metadata
        if metadata.status is not LedgerStatus.CLOSED:
            return ()
        return [entry_id for entry_id in belonging(metadata, b) if self._stored(b, entry_id) is None]

    def _repairing(self, b: ModelValue) -> Bookie:
        bookie = self._serving(b)
        require(any(bookie.directory[number].is_under_repair for number in self.directory_numbers))
        return bookie

    @action(b=Store.bookies, peer=Store.bookies, by="b")
    def bookie_copies_entry(self, b: ModelValue, peer: ModelValue) -> None:
        """A bookie copies a missing entry of the closed ledger from another bookie, which may be in limbo itself."""
        self._repairing(b)
        source = self._serving(peer)
        entry_id = one_of(self._missing(b))
        require(peer in sources(self.metadata, entry_id, b))
        entry = self._stored(peer, entry_id)
        require(outcome_of_read(self._answer_to_read(source, entry is not None), is_intact=True) is ReadOutcome.FOUND)
        assert entry is not None
        self._put(b, entry, source.lacs[entry_id])

    @action(b=Store.bookies, by="b")
    def bookie_leaves_limbo(self, b: ModelValue) -> None:
        """The end of the ledger is fixed, and no entry of it is missing: limbo ends."""
        bookie = self._repairing(b)
        require(bookie.limbo)
        require(may_leave_limbo(self.metadata.status, len(self._missing(b))))
        bookie.limbo = False
        bookie.lost = frozenset()

    @action(b=Store.bookies, by="b")
    def bookie_ends_repair(self, b: ModelValue) -> None:
        """No entry of a closed ledger is missing, and no ledger is in limbo."""
        bookie = self._repairing(b)
        require(not bookie.limbo and not self._missing(b))
        for directory in bookie.directory.values():
            directory.is_under_repair = False

    # -- clients, as roles run them ------------------------------------------------------------------------------------

    @action(c=_owner, b=Store.bookies)
    def client_receives_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that a bookie has stored an entry. A confirmation makes no difference when it waits for
        none.
        """
        client = self.client[c]
        require(client.status is Status.OPEN and client.lac < client.lap)
        self._receive_add_confirmed_response(c, b)

    @action(c=_owner, b=Store.bookies)
    def client_receives_add_fenced_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that its ledger is fenced."""
        require(self.client[c].status is Status.OPEN)
        self._next_add(AddEntryResponse, b, c, where=lambda add: not add.success)
        self.client[c].status = Status.WITHDRAWN

    @action(c=_recoverers, b=Store.bookies)
    def client_receives_fencing_read_lac_response(self, c: ModelValue, b: ModelValue) -> None:
        """A bookie is fenced, or cannot say so. When enough are, recovery reads the first entry. When that is no longer
        possible, it gives up.
        """
        client = self.client[c]
        require(client.status is Status.IN_RECOVERY and client.recovery_phase is RecoveryPhase.FENCING)
        answer = self._answered(Fenced, c, b)
        if says_fenced(answer.code):
            self._count_fenced(c, b, answer.lac)
        else:
            self.failed[c] |= {b}
        quorums = (self.write_quorum, self.ack_quorum)
        verdict = fencing(client.fenced, self.failed[c], client.recovery_ensemble, *quorums, self.protections)
        if verdict is Verdict.POSITIVE:
            self.failed[c] = frozenset()
            self._read_next_entry(c)
        elif verdict is Verdict.UNKNOWN:
            client.status = Status.ABORTED

    @action(c=_recoverers, b=Store.bookies)
    def client_receives_recovery_read_response(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery receives a response to a read. It writes the entry back, and reads the next one."""
        client = self.client[c]
        require(client.status is Status.IN_RECOVERY and client.last_read > client.lap)
        entry_id = client.lap + 1
        answer = self._answered(ReadAnswer, c, b)
        if answer.entry_id != entry_id:
            return
        outcome = outcome_of_read(answer.code, is_intact=True)
        if outcome is ReadOutcome.FOUND:
            client.found |= {Entry(entry_id, entry_id)}
        elif outcome is ReadOutcome.NEGATIVE:
            client.no_such_entry[entry_id] |= {b}
        else:
            self.failed[c] |= {b}
        if not self._is_decided(c, entry_id) or client.status is Status.ABORTED:
            return
        self.failed[c] = frozenset()
        if client.last_recoverable_entry == NOT_KNOWN:
            self._write_back_entry(c)
            self._read_next_entry(c)

    # -- ordinary reads ------------------------------------------------------------------------------------------------

    def _send_reads(self, r: ModelValue, entry_id: int, asked: Bookies) -> None:
        self.network.send_all([(ReaderRequest(entry_id), b) for b in asked], r)

    @action(r=readers, b=Store.bookies)
    def reader_receives_read_response(self, r: ModelValue, b: ModelValue) -> None:
        """One bookie that has the entry is enough. The result is "no such entry" only if all say so."""
        reader = self.reader[r]
        require(reader.result is None and b in reader.asked)
        outcome = outcome_of_read(self.network.receive(ReaderResponse, source=b, to=r).message.code, is_intact=True)
        if outcome is ReadOutcome.NEGATIVE:
            reader.answered |= {b}
        elif outcome is ReadOutcome.FAILED:
            self.failed[r] |= {b}
        verdict = ordinary_read(outcome is ReadOutcome.FOUND, reader.answered, self.failed[r], reader.asked)
        reader.result = RESULTS[verdict]

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: TYPES, "meta")

    @invariant(entry_id=lambda protocol: protocol.entry_ids)
    def every_acknowledged_entry_has_a_copy(self, entry_id: int) -> bool:
        """An entry that the owner has acknowledged, or that a closed ledger has, is still stored by some bookie."""
        if entry_id > self.client[self.clients[0]].lac and entry_id > self.metadata.last_entry:
            return True
        return any(self._stored(b, entry_id) is not None for b in self.bookies)

    @invariant(c=Store.clients, when=lambda protocol: protocol.is_as_checked)
    def reads_begin_when_the_owner_is_fenced_off(self, c: ModelValue) -> bool:
        """A recovery starts to read only once the bookies that serve and are not fenced cannot form an ack quorum of
        any write set.
        """
        client = self.client[c]
        if client.recovery_phase is not RecoveryPhase.READ_WRITE or not client.recovery_ensemble:
            return True
        off = BookiesWhere(client.recovery_ensemble, lambda b: self.bookie[b].fenced or not self.bookie[b].serves)
        return covers_ensemble(off, client.recovery_ensemble, self.write_quorum, self.ack_quorum)

    @invariant(b=Store.bookies)
    def a_bookie_that_is_down_can_start(self, b: ModelValue) -> bool:
        """No crash leaves a bookie that repairs itself unable to start."""
        if self.bookie[b].works or not self.stamp_missing_cookies or not self._has_problem(b):
            return True
        return self._may_repair(b)

    # -- refinement ----------------------------------------------------------------------------------------------------

    @property
    def is_published(self) -> bool:
        """It is not `bookkeeper`, whose bookies lose no data."""
        return False

    refines_bookkeeper_boot = refines(
        BookKeeperBoot,
        AS_BOOT,
        constants={
            "recoverers": _recoverers,
            "readers": (),
            "max_crashes": lambda protocol: protocol.crashes,
            "disks": lambda protocol: protocol.directories,
            "disk_loss": lambda protocol: protocol.directory_loss,
            "old_disks": lambda protocol: protocol.old_directories,
            "mark_loss": lambda protocol: protocol.note_loss,
            "fix_cookies": lambda protocol: protocol.stamp_missing_cookies,
            "marks_in_steps": True,
            "limbo_tells_last_entry": True,
            "lac_may_be_older": True,
            "mark_tells_of_journaling": True,
            "mark_on_every_disk": False,
            "clean_end_is_marked": True,
        },
        when=lambda protocol: protocol.is_as_checked,
        doc="Every step is a step of bookkeeper-boot, or changes nothing there.",
    )

    @property
    def is_as_checked(self) -> bool:
        """Whether all protections are on."""
        return self.protections == ALL
