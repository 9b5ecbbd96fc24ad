"""The ledger store as a protocol: its clients and bookies, whose every decision is made by `fencepost.ledger.rules`.

An action here sends, receives and keeps state. The decisions are made by the functions that the store runs, with the
protections that are on: whether a bookie accepts an add, how far the LAC goes, how a read ends, whether metadata may be
replaced.

It is the life of one ledger, as in `bookkeeper` and with its names, and with more behaviour of a real client:

- It acts on the metadata that it last read. Others may have changed them since. Then its write is refused, and it reads
  them and asks the rule again.
- The answer to a write arrives later, or is lost. Meanwhile the owner counts what bookies confirm, and more bookies may
  fail.
- A recovery reads several entries at once, while it writes back (``reads_in_flight``).
- A recovery that was overtaken finds out when it closes the ledger.
- A bookie that lost everything in a crash comes back in limbo (``crashes``).

Where a role handles several bookies or entries at once, there is a step for each entry here. So there are more
behaviours, not fewer. A message that no longer makes a difference is never received. A declared refinement checks that
every step is one of `bookkeeper`: see ``PUBLISHED``. Entry ids start at 1; a LAC of 0 means that nothing is confirmed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

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
    one_of,
    per_key,
    refines,
    require,
    state,
    step_invariant,
    subsets,
)
from fencepost.language.declarations import Configuration, varied
from fencepost.ledger.rules.adding import answer_to_add, lac_of_bookie, lac_reached, may_append
from fencepost.ledger.rules.codes import Code, Verdict
from fencepost.ledger.rules.ensembles import (
    Fragment,
    are_quorums,
    covers_ensemble,
    fragment_of,
    is_committed,
    needs_change,
    newly_asked,
    still_confirmed,
    write_set,
)
from fencepost.ledger.rules.metadata import (
    LedgerMetadata,
    LedgerStatus,
    Next,
    closed,
    current_ensemble,
    end_of,
    ends_at,
    marked_in_recovery,
    takes_update,
    to_announce_fragments,
    to_change_ensemble,
    to_close,
    to_close_recovered,
    to_start_recovery,
    with_changed_ensemble,
)
from fencepost.ledger.rules.placement import Unplaced, chosen, replaced
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.rules.reading import (
    ReadOutcome,
    answer_to_read,
    is_readable,
    ordinary_read,
    outcome_of_read,
    recovery_read,
)
from fencepost.ledger.rules.recovery import (
    confirmed_before,
    ensemble_to_read,
    fencing,
    is_end,
    is_fenced_by_read,
    keeps_fragments,
    lac_to_carry,
    may_close,
    may_read_ahead,
    says_fenced,
)
from fencepost.protocols.bookkeeper import current, ledger
from fencepost.protocols.bookkeeper.current import (
    NOT_KNOWN,
    OWNERS,
    BookKeeper,
    ClientStatus,
    PendingAddOp,
    ReadRequest,
    ReadResponse,
    ReadResult,
    RecoveryPhase,
)
from fencepost.protocols.bookkeeper.ledger import (
    Add,
    AddEntryRequest,
    AddEntryResponse,
    Bookies,
    Entry,
    FenceRequest,
    FenceResponse,
    LedgerProtocol,
    are_bookies,
    earliest_add,
    is_entry,
)
from fencepost.protocols.store.protections import Protected
from fencepost.protocols.types import Types, at_least, each, or_none, typed

Ensemble = tuple[ModelValue, ...]
Read = TypeVar("Read", bound=Message)


class Status(enum.Enum):
    """The status of a client."""

    OPEN = "open"
    CHANGING_ENSEMBLE = "changing ensemble"
    CLOSING = "closing"
    CLOSED = "closed"
    FOUND_CLOSED = "found closed"
    """Somebody else has closed its ledger, exactly at its LAC."""
    WITHDRAWN = "withdrawn"
    ADOPTING = "adopting"
    """It wants to own a ledger that was created for it. Only in protocols where that happens."""
    MARKING = "marking"
    """It will recover the ledger, and has read its metadata."""
    IN_RECOVERY = "in recovery"
    TELLING_FRAGMENTS = "telling fragments"
    """Only without the protection that recovery does not publish its fragments before it closes the ledger."""
    CLOSING_RECOVERED = "closing recovered"
    OVERTAKEN = "overtaken"
    """Somebody else has marked or closed the ledger since."""
    ABORTED = "aborted"


PUBLISHED_STATUS: Mapping[Status, ClientStatus] = {
    Status.OPEN: ClientStatus.OPEN,
    Status.CHANGING_ENSEMBLE: ClientStatus.OPEN,
    Status.CLOSING: ClientStatus.OPEN,
    Status.CLOSED: ClientStatus.CLOSED,
    Status.FOUND_CLOSED: ClientStatus.CLIENT_WITHDRAWN,
    Status.WITHDRAWN: ClientStatus.CLIENT_WITHDRAWN,
    Status.IN_RECOVERY: ClientStatus.IN_RECOVERY,
    Status.TELLING_FRAGMENTS: ClientStatus.IN_RECOVERY,
    Status.CLOSING_RECOVERED: ClientStatus.IN_RECOVERY,
    Status.OVERTAKEN: ClientStatus.IN_RECOVERY,
    Status.ABORTED: ClientStatus.RECOVERY_ABORTED,
}
"""The status of a client in `bookkeeper`, unless the metadata decide it: see :meth:`Store.published_status`."""


WRITING = (
    Status.CHANGING_ENSEMBLE,
    Status.CLOSING,
    Status.ADOPTING,
    Status.MARKING,
    Status.TELLING_FRAGMENTS,
    Status.CLOSING_RECOVERED,
)
"""The statuses of clients that write metadata."""


class MetadataService(Record):
    """The metadata of the ledger, or None before it is created, and their version."""

    metadata: LedgerMetadata | None = None
    version: int = 0


class Answer(enum.Enum):
    """The answer of the metadata service to a write."""

    WRITTEN = "written"
    LOST = "lost"
    """The service has accepted the write, and its answer is lost."""
    REFUSED = "refused"


class Update(Record):
    """A write of metadata, and the answer that the client waits for. ``version`` is the version that the write
    created.
    """

    metadata: LedgerMetadata
    version: int
    answer: Answer


class LedgerOnBookie(current.LedgerOnBookie):
    """The ledger at a bookie, and whether it is in limbo there."""

    limbo: bool = False


class Client(Record):
    """The state of a client.

    ``seen``: the metadata as it last read them, with the unpublished fragments of its recovery. ``version``: theirs.
    ``update``: an unanswered write. ``lap``: the last add that it pushed. Of a recovery: the fenced bookies, the
    ensemble that it reads from, and the LAC that it began with; ``last_read``: the last entry that it has asked for;
    the bookies that lack each entry; ``found``: entries that arrived out of order; the end, once known; and the entries
    that it has sent to any bookie.
    """

    status: Status | None = None
    seen: LedgerMetadata | None = None
    version: int | None = None
    update: Update | None = None
    pending_add_ops: frozenset[PendingAddOp] = frozenset()
    lap: int = 0
    lac: int = 0
    confirmed: PerKey[int, Bookies] = per_key(lambda protocol: protocol.entry_ids, frozenset())
    fenced: Bookies = frozenset()
    recovery_phase: RecoveryPhase = RecoveryPhase.NOT_STARTED
    recovery_ensemble: Ensemble = ()
    recovery_lac: int = 0
    last_read: int = 0
    no_such_entry: PerKey[int, Bookies] = per_key(lambda protocol: protocol.readable_ids, frozenset())
    found: frozenset[Entry] = frozenset()
    last_recoverable_entry: int = NOT_KNOWN
    written_back: frozenset[int] = frozenset()


class Reader(Record):
    """One ordinary read: its entry, the bookies that were asked and have answered, and the result."""

    entry_id: int | None = None
    asked: Bookies = frozenset()
    answered: Bookies = frozenset()
    result: ReadResult | None = None


RESULTS: Mapping[Verdict, ReadResult | None] = {
    Verdict.WAITING: None,
    Verdict.POSITIVE: ReadResult.OK,
    Verdict.NEGATIVE: ReadResult.NO_SUCH_ENTRY,
    Verdict.UNKNOWN: ReadResult.UNKNOWN,
}


class BookiesWhere(Collection[ModelValue]):
    """The bookies that pass a test. The test is evaluated only for the bookies that are looked up."""

    def __init__(self, bookies: Iterable[ModelValue], test: Callable[[ModelValue], bool]) -> None:
        self._bookies = bookies
        self._test = test

    def __contains__(self, b: object) -> bool:
        return isinstance(b, ModelValue) and b in self._bookies and self._test(b)

    def __iter__(self) -> Iterator[ModelValue]:
        return (b for b in self._bookies if self._test(b))

    def __len__(self) -> int:
        return sum(1 for _ in self)


# -- types of the parts of the state ----------------------------------------------------------------------------------


def _is_metadata(protocol: Any, metadata: LedgerMetadata) -> bool:
    last = 0
    for fragment in metadata.fragments:
        if not (are_bookies(protocol, tuple(fragment.ensemble)) and fragment.first_entry_id > last):
            return False
        last = fragment.first_entry_id
    return metadata.status is LedgerStatus.CLOSED or metadata.last_entry == -1


def _is_pending(protocol: Any, op: PendingAddOp) -> bool:
    return is_entry(protocol, op.entry) and op.fragment_id >= 1 and are_bookies(protocol, op.ensemble) and op.lac >= 0


TYPES: Types = {
    Bookies: are_bookies,
    Ensemble: are_bookies,
    Entry: is_entry,
    LedgerMetadata: _is_metadata,
    PendingAddOp: _is_pending,
    Update: lambda protocol, update: _is_metadata(protocol, update.metadata),
    "client.version": or_none(at_least(1)),
    "client.last_recoverable_entry": at_least(NOT_KNOWN),
    "client.written_back": each(lambda protocol, entry_id: entry_id in protocol.entry_ids),
    "reader.entry_id": or_none(lambda protocol, entry_id: entry_id in protocol.entry_ids),
    "crashed": at_least(0),
}


LOSS = "no_divergence_between_client_and_meta_data"
READABLE = "all_acked_entries_are_readable"

UNPROTECTED: Mapping[str, Configuration] = {
    "fenced-bookies-add": configuration(
        LOSS, "a fenced bookie accepts entries of the owner", fenced_bookies_refuse=False
    ),
    "one-bookie-fenced": configuration(
        "reads_begin_when_the_owner_is_fenced_off",
        "recovery reads when one bookie is fenced",
        fencing_covers_ensemble=False,
    ),
    "reads-without-fencing": configuration(
        LOSS, "defect 1 of the 4.13 protocol: a bookie stores an entry after denying it", recovery_reads_fence=False
    ),
    "starts-at-the-lac": configuration(
        LOSS,
        "defect 2 of the 4.13 protocol: recovery trusts the LAC of a bookie that joined late",
        recovery_starts_at_fragment=False,
    ),
    "reads-move-on": configuration(
        LOSS, "recovery reads from the ensemble that it has changed to", recovery_reads_stay=False
    ),
    "fragments-at-once": configuration(
        READABLE, "recovery publishes its ensemble before the entries are there", recovery_keeps_fragments=False
    ),
    "hasty-negatives": configuration(
        LOSS, "recovery accepts one bookie's answer that there is no such entry", negatives_cover_quorum=False
    ),
    "closes-before-writing-back": configuration(
        LOSS, "recovery closes before entries have an ack quorum", write_back_before_close=False
    ),
    "unconditional-updates": configuration(
        "whoever_closes_the_ledger_knows_its_end",
        "metadata are replaced even if somebody has changed them",
        conditional_updates=False,
    ),
    "confirmations-kept": configuration(
        "all_committed_entries_reach_ack_quorum",
        "a bookie that has left the ensemble still counts",
        confirmations_withdrawn=False,
    ),
    "confirmed-out-of-order": configuration(
        READABLE, "the LAC passes an entry that is not confirmed", confirmed_in_order=False
    ),
    "lac-runs-ahead": configuration(
        READABLE, "the LAC goes on while the ensemble is being changed", lac_waits_for_change=False
    ),
    "limbo-denies": configuration(LOSS, "a bookie in limbo says that it has no such entry", limbo_is_unknown=False),
}
"""Configurations without a protection, of any size, and the invariant that is violated."""

ONE_BOOKIE: dict[str, Any] = {"bookies": 1, "write_quorum": 1, "ack_quorum": 1}
ONE_COPY: dict[str, Any] = {"bookies": 2, "write_quorum": 1, "ack_quorum": 1}
TWO_ENTRIES: dict[str, Any] = {"send_limit": 2, "inflight_limit": 2}


def _clients_and_readers(protocol: Store) -> Iterable[ModelValue]:
    return (*protocol.clients, *protocol.readers)


# -- the state of `bookkeeper` -----------------------------------------------------------------------------------------


def _as_published(store: Store, ensemble: Ensemble) -> ledger.Ensemble:
    """An ensemble of `bookkeeper`: unordered where the order means nothing."""
    return ensemble if ensemble and store.bookies_of_an_ensemble > store.write_quorum else frozenset(ensemble)


def _fragments(store: Store, metadata: LedgerMetadata | None) -> tuple[ledger.Fragment, ...]:
    fragments = () if metadata is None else metadata.fragments
    return tuple(
        ledger.Fragment(fragment.first_entry_id, _as_published(store, tuple(fragment.ensemble)), number)
        for number, fragment in enumerate(fragments, start=1)
    )


def _known(store: Store, c: ModelValue) -> LedgerMetadata | None:
    """The metadata that a client would know if its write were answered at once."""
    client = store.client[c]
    taken = store._taken(c)
    if taken is not None:
        return taken
    return None if client.status in (None, Status.MARKING) else client.seen


def _version(store: Store, c: ModelValue) -> int | None:
    client = store.client[c]
    if store._taken(c) is not None and client.update is not None:
        return client.update.version
    return None if client.status in (None, Status.MARKING) else client.version


def _current(store: Store, c: ModelValue) -> ledger.Fragment:
    fragments = _fragments(store, _known(store, c))
    return fragments[-1] if fragments else ledger.Fragment()


def _confirmed(store: Store, c: ModelValue, entry_id: int) -> Bookies:
    """The bookies that have confirmed an entry. If the entry is not committed, bookies that are leaving the ensemble do
    not count.
    """
    client = store.client[c]
    confirmed = client.confirmed[entry_id]
    taken = store._taken(c)
    return confirmed if taken is None or entry_id <= client.lac else confirmed & frozenset(current_ensemble(taken))


def _lac(store: Store, c: ModelValue) -> int:
    """The LAC if it did not wait for the ensemble change."""
    client = store.client[c]

    def committed(entry_id: int) -> bool:
        return is_committed(len(_confirmed(store, c, entry_id)), store.ack_quorum)

    return lac_reached(client.lac, client.lap, committed)


def _pending(store: Store, c: ModelValue) -> frozenset[PendingAddOp]:
    return frozenset(
        op.replace(ensemble=_as_published(store, tuple(op.ensemble)))
        for op in store.client[c].pending_add_ops
        if op.entry.id > _lac(store, c)
    )


def _curr_read_entry(store: Store, c: ModelValue) -> int:
    client = store.client[c]
    return client.lap + 1 if client.last_read > client.lap else 0


def _no_such_entry(store: Store, c: ModelValue) -> Bookies:
    entry_id = _curr_read_entry(store, c)
    return store.client[c].no_such_entry[entry_id] if entry_id else frozenset()


PUBLISHED: Mapping[str, Any] = {
    "meta.status": lambda self: None if self.meta.metadata is None else self.meta.metadata.status,
    "meta.fragments": lambda self: _fragments(self, self.meta.metadata),
    "meta.last_entry": lambda self: 0 if self.meta.metadata is None else max(self.meta.metadata.last_entry, 0),
    "client.meta_version": _version,
    "client.status": lambda self, c: self.published_status(c),
    "client.fragments": lambda self, c: _fragments(self, _known(self, c)),
    "client.curr_fragment.first_entry_id": lambda self, c: _current(self, c).first_entry_id,
    "client.curr_fragment.ensemble": lambda self, c: _current(self, c).ensemble,
    "client.curr_fragment.id": lambda self, c: _current(self, c).id,
    "client.pending_add_ops": _pending,
    "client.lac": _lac,
    "client.confirmed": _confirmed,
    "client.recovery_ensemble": lambda self, c: _as_published(self, self.client[c].recovery_ensemble),
    "client.curr_read_entry": _curr_read_entry,
    "client.no_such_entry": _no_such_entry,
    "reader.asked": lambda self, r: self.reader[r].asked - self.reader[r].answered,
}
"""The variables of `bookkeeper` in a state of `store`. Variables not listed are the same in both."""


class Store(Protected, LedgerProtocol):
    """The life of one ledger, by the rules of the store: clients that write and recover it, bookies, readers, a
    metadata service.
    """

    name: ClassVar[str] = "store"
    add_entry_request: ClassVar[type[AddEntryRequest]] = AddEntryRequest
    add_entry_response: ClassVar[type[AddEntryResponse]] = AddEntryResponse
    read_request: ClassVar[type[ReadRequest]] = ReadRequest
    read_response: ClassVar[type[ReadResponse]] = ReadResponse

    bookies: tuple[ModelValue, ...] = model_values("b", 2, "the bookies that are available")
    clients: tuple[ModelValue, ...] = model_values(
        "c", 2, "clients that may create the ledger or recover it", symmetric=True
    )
    readers: tuple[ModelValue, ...] = model_values("r", 0, "clients that read one entry", symmetric=True)
    write_quorum: int = constant(2, "bookies that an entry is sent to")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is committed")
    ensemble_size: int = constant(0, "bookies that entries are striped over; 0: the write quorum")
    send_limit: int = constant(1, "entries that the owner sends")
    inflight_limit: int = constant(1, "entries that the owner sends before the first of them is committed")
    message_loss: bool = constant(True, "whether messages can be lost, not only delayed")
    choose_ensembles: bool = constant(False, "whether any valid ensemble may be chosen, not only the first")
    metadata_lags: bool = constant(True, "whether metadata are read, written and answered in separate steps")
    metadata_answers_lost: bool = constant(
        False, "whether the answer to an ensemble change, or to closing the ledger, can be lost"
    )
    mark_answers_lost: bool = constant(
        False, "whether the answer to a recovery that marks the ledger can be lost, so that it marks it again"
    )
    appends_while_changing: bool = constant(
        False, "whether the owner sends entries while the ensemble is being changed"
    )
    reads_in_flight: int = constant(1, "entries that a recovery reads at once")
    crashes: int = constant(0, "how often a bookie crashes, loses everything and comes back in limbo")

    meta: MetadataService = state(MetadataService, held_by="zk")
    bookie: PerKey[ModelValue, LedgerOnBookie] = per_key(bookies, LedgerOnBookie)
    client: PerKey[ModelValue, Client] = per_key(clients, Client)
    reader: PerKey[ModelValue, Reader] = per_key(readers, Reader)
    crashed: int = state(0)
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

    configurations = {
        "default": configuration(doc="two bookies, no ensemble to change to, and both must confirm"),
        "three-bookies": configuration(bookies=3, doc="the same with another bookie to change to: a very large space"),
        "small": configuration(ack_quorum=1, doc="the same, and one confirmation is enough"),
        "one-copy": configuration(**ONE_COPY, doc="one copy of each entry, and another bookie to change to"),
        "two-entries": configuration(**ONE_COPY, **TWO_ENTRIES, doc="the same with two entries in flight"),
        "lost-answers": configuration(
            **ONE_COPY, metadata_answers_lost=True, doc="answers to writes of metadata are lost"
        ),
        "marks-again": configuration(
            **ONE_COPY,
            mark_answers_lost=True,
            doc="a recovery does not learn that it has marked the ledger, and marks it again",
        ),
        "at-once": configuration(
            **ONE_COPY, metadata_lags=False, doc="metadata are read, written and answered at once"
        ),
        "overtaken": configuration(
            bookies=1,
            clients=3,
            write_quorum=1,
            ack_quorum=1,
            message_loss=False,
            doc="two recoveries besides the owner, one of which overtakes the other",
        ),
        "one-of-two": configuration(
            bookies=3, clients=1, ack_quorum=1, doc="one of two copies is enough, and another bookie to change to"
        ),
        "reads-ahead": configuration(
            bookies=1,
            write_quorum=1,
            ack_quorum=1,
            **TWO_ENTRIES,
            reads_in_flight=2,
            doc="a recovery reads two entries at once",
        ),
        "appends-while-changing": configuration(
            bookies=2,
            clients=1,
            write_quorum=1,
            ack_quorum=1,
            send_limit=3,
            inflight_limit=3,
            appends_while_changing=True,
            doc="the owner sends entries while it changes the ensemble",
        ),
        "striped": configuration(
            bookies=3,
            ensemble_size=3,
            send_limit=2,
            message_loss=False,
            metadata_lags=False,
            doc="entries striped over three bookies, two copies of each",
        ),
        "reader": configuration(
            bookies=2, readers=1, message_loss=False, doc="a client reads while the ledger is written and recovered"
        ),
        "reader-of-two-entries": configuration(
            bookies=2,
            clients=1,
            readers=1,
            ack_quorum=1,
            send_limit=2,
            doc="a client reads one of two entries, which a bookie may lack, and answers are lost",
        ),
        "crash": configuration(
            bookies=2,
            ack_quorum=1,
            crashes=1,
            message_loss=False,
            doc="a bookie without a journal crashes, and comes back in limbo",
        ),
        **varied(
            UNPROTECTED,
            {
                "fenced-bookies-add": {"bookies": 2},
                "one-bookie-fenced": {"bookies": 2, "ack_quorum": 1},
                "reads-without-fencing": {"bookies": 2},
                "starts-at-the-lac": {**ONE_COPY, "send_limit": 2},
                "reads-move-on": {**ONE_COPY, **TWO_ENTRIES},
                "fragments-at-once": ONE_COPY,
                "hasty-negatives": {"bookies": 2, "ack_quorum": 1},
                "closes-before-writing-back": {"bookies": 2},
                "unconditional-updates": ONE_BOOKIE,
                "confirmations-kept": {"bookies": 3, "clients": 1, **TWO_ENTRIES},
                "confirmed-out-of-order": {"bookies": 1, "clients": 1, **ONE_BOOKIE, **TWO_ENTRIES},
                "lac-runs-ahead": {"bookies": 2, "clients": 1, **ONE_COPY, **TWO_ENTRIES},
                "limbo-denies": {"bookies": 2, "ack_quorum": 1, "crashes": 1},
            },
        ),
    }

    # -- assumptions about the constants -------------------------------------------------------------------------------

    @assumption
    def quorums_fit(self) -> bool:
        """The quorums fit a ledger."""
        return are_quorums(self.bookies_of_an_ensemble, self.write_quorum, self.ack_quorum)

    @assumption
    def something_is_read(self) -> bool:
        """A recovery reads at least one entry at a time."""
        return self.reads_in_flight >= 1

    @assumption
    def everybody_is_one(self) -> bool:
        """No two of bookies, clients and readers have the same name."""
        everybody = (*self.bookies, *self.clients, *self.readers)
        return len(set(everybody)) == len(everybody)

    @property
    def bookies_of_an_ensemble(self) -> int:
        """How many bookies an ensemble has."""
        return self.ensemble_size or self.write_quorum

    @property
    def readable_ids(self) -> range:
        """The ids that a recovery may read: those of all entries, and the one after them."""
        return range(1, self.send_limit + 2)

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata of the ledger, which must exist."""
        metadata = self.meta.metadata
        assert metadata is not None
        return metadata

    # -- ensembles -----------------------------------------------------------------------------------------------------

    def write_set(self, entry_id: int, ensemble: Ensemble) -> Bookies:
        return frozenset(write_set(entry_id, ensemble, self.write_quorum))

    def _pick(self, ensembles: Iterable[Ensemble | Unplaced], taken: Iterable[Fragment]) -> Ensemble:
        """The first of these ensembles that is not yet the ensemble of a fragment, or with ``choose_ensembles`` any. If
        there is none, the action is not enabled.

        A client does not choose the order of bookies: it gets the list from the metadata service.
        """
        known = [frozenset(fragment.ensemble) for fragment in taken]
        valid = dict.fromkeys(e for e in ensembles if not isinstance(e, Unplaced) and frozenset(e) not in known)
        require(len(valid) > 0)
        return one_of(list(valid)) if self.choose_ensembles else next(iter(valid))

    def _candidates(self) -> Iterator[Ensemble]:
        return (
            tuple(b for b in self.bookies if b in some) for some in subsets(self.bookies, self.bookies_of_an_ensemble)
        )

    def _first_ensemble(self) -> Ensemble:
        """The ensemble of a new ledger."""
        return self._pick((chosen(some, self.bookies_of_an_ensemble) for some in self._candidates()), ())

    def _ensemble_without(self, current: Ensemble, failed: Bookies) -> Ensemble:
        """An ensemble with other bookies in place of those that failed."""
        ensembles = (replaced(current, failed, some) for some in self._candidates())
        return self._pick(ensembles, self.metadata.fragments)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _write_timed_out(self, c: ModelValue, b: ModelValue) -> bool:
        """Whether an add of this client to this bookie, or the answer to it, was lost."""
        return bool(self.network.lost(AddEntryRequest, c, b) or self.network.lost(AddEntryResponse, b, c))

    def _next_add(
        self,
        kind: type[Add],
        source: ModelValue,
        to: ModelValue,
        where: Callable[[Add], bool] = lambda add: True,
    ) -> Add:
        """Receive an add, or the answer to one, in the order of their entries."""
        return earliest_add(self.network, kind, source, to, where)

    def _next_read(
        self,
        kind: type[Read],
        source: ModelValue,
        to: ModelValue,
        where: Callable[[Read], bool] = lambda read: True,
    ) -> Read:
        """Receive a read, or the answer to one."""
        return self.network.receive(kind, source=source, to=to, where=where).message

    # -- what bookies store --------------------------------------------------------------------------------------------

    def _store(self, b: ModelValue, c: ModelValue, add: AddEntryRequest) -> None:
        """Store an entry at a bookie, with the LAC that came with it."""
        bookie = self.bookie[b]
        bookie.entries |= {add.entry}
        if bookie.is_last(add.entry.id):
            bookie.lac_of_last = add.lac

    def _show(self, b: ModelValue, entry_id: int) -> None:
        """A bookie answers with an entry. For subclasses."""

    def _stored(self, b: ModelValue, entry_id: int) -> Entry | None:
        """The entry with this id, if a bookie has it."""
        return self.bookie[b].entry(entry_id)

    def _stores_any(self, b: ModelValue) -> bool:
        """Whether a bookie has any entry."""
        return bool(self.bookie[b].entries)

    def _lac_of_last(self, b: ModelValue) -> int:
        """The LAC that came with the last entry of a bookie."""
        return self.bookie[b].lac_of_last

    def _read_timed_out(self, c: ModelValue, b: ModelValue, entry_id: int) -> bool:
        """Whether the read of an entry, or the answer to it, was lost."""
        reads = (read.entry_id for read in self.network.lost(ReadRequest, c, b))
        answers = (answer.entry_id for answer in self.network.lost(ReadResponse, b, c))
        return entry_id in (*reads, *answers)

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie stores an entry and the LAC sent with it."""
        add, code = self._receive_add(b, c)
        require(code is Code.OK)
        self._store(b, c, add)
        self.bookie[b].lac = lac_of_bookie(self.bookie[b].lac, add.lac)
        self.network.send(self.add_entry_response(add.entry, add.recovery, success=True), b, c)

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_add_fenced_response(self, b: ModelValue, c: ModelValue) -> None:
        """A fenced bookie refuses an entry of the owner."""
        add, code = self._receive_add(b, c)
        require(code is Code.FENCED)
        self.network.send(self.add_entry_response(add.entry, add.recovery, success=False), b, c)

    def _receive_add(self, b: ModelValue, c: ModelValue) -> tuple[AddEntryRequest, Code]:
        add = self._next_add(self.add_entry_request, c, b)
        fenced = self.bookie[b].fenced
        return add, answer_to_add(key_matches=True, fenced=fenced, recovery=add.recovery, protections=self.protections)

    @action(b=bookies, c=clients, by="b")
    def bookie_sends_fencing_read_lac_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie fences the ledger and answers with its last entry, which carries a LAC. It may not have known the
        ledger before. In limbo it does not say that it has no entry, so it does not count as fenced.
        """
        self.network.receive(FenceRequest, source=c, to=b)
        bookie = self.bookie[b]
        if is_fenced_by_read(True, is_of_last_entry=True, protections=self.protections):
            bookie.fenced = True
        lacks_all = bookie.limbo and not self._stores_any(b)
        code = answer_to_read(stored=not lacks_all, known_ledger=True, limbo=bookie.limbo, protections=self.protections)
        if says_fenced(code):
            self.network.send(FenceResponse(self._lac_of_last(b)), b, c)

    @action(b=bookies, c=_clients_and_readers, by="b")
    def bookie_sends_read_response(self, b: ModelValue, c: ModelValue) -> None:
        """A bookie answers a read with the entry or with none. A recovery read fences the ledger. In limbo it does not
        say that there is none.
        """
        read = self._next_read(self.read_request, c, b)
        bookie = self.bookie[b]
        if is_fenced_by_read(read.fence, protections=self.protections):
            bookie.fenced = True
        entry = self._stored(b, read.entry_id)
        if entry is not None:
            self._show(b, entry.id)
        code = answer_to_read(
            stored=entry is not None, known_ledger=True, limbo=bookie.limbo, protections=self.protections
        )
        # An answer that leaves open whether the entry exists is as good as none, so none is sent.
        if outcome_of_read(code, is_intact=True) is not ReadOutcome.FAILED:
            self.network.send(self.read_response(read.entry_id, entry, read.fence), b, c)

    @action(b=bookies, by="b")
    def bookie_crashes(self, b: ModelValue) -> None:
        """A bookie without a journal comes back without any data, fenced and in limbo. Messages to it are lost."""
        require(self.crashed < self.crashes)
        self.crashed += 1
        self.bookie[b] = LedgerOnBookie(fenced=True, limbo=True)
        for c in self.clients:
            for kind in (AddEntryRequest, FenceRequest, ReadRequest):
                self.network.lose(kind, c, b)

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _write(self, c: ModelValue, metadata: LedgerMetadata, failed: Bookies = frozenset()) -> None:
        """Write metadata in place of those that were last read. If the write is accepted, the timeouts of ``failed``
        bookies are cleared.

        The answer arrives with :meth:`client_receives_metadata`, or at once.
        """
        client = self.client[c]
        assert client.version is not None, "a client writes what it has changed of what it has seen"
        answer = Answer.REFUSED
        if takes_update(client.version, self.meta.version, self.protections):
            self.meta.metadata = metadata
            self.meta.version += 1
            answer = one_of((Answer.WRITTEN, Answer.LOST)) if self._may_lose_answer(c) else Answer.WRITTEN
            for b in failed:
                self.network.forget_lost(self.add_entry_request, c, b)
                self.network.forget_lost(self.add_entry_response, b, c)
        client.update = Update(metadata, self.meta.version, answer)
        if not self.metadata_lags:
            self._receive_metadata(c)

    def _may_lose_answer(self, c: ModelValue) -> bool:
        """Whether the answer to a write may be lost. Of the marks of recoveries only the first, since there can be any
        number of them.
        """
        client = self.client[c]
        if client.status is not Status.MARKING:
            return self.metadata_answers_lost
        return self.mark_answers_lost and client.seen is not None and client.seen.status is LedgerStatus.OPEN

    @action(c=clients)
    def client_receives_metadata(self, c: ModelValue) -> None:
        """The answer to a write of metadata arrives. If the write was refused or the answer was lost, the client has
        read the current metadata.
        """
        require(self.client[c].status in WRITING)
        self._receive_metadata(c)

    def _receive_metadata(self, c: ModelValue) -> None:
        client = self.client[c]
        update = client.update
        require(update is not None)
        assert update is not None
        client.update = None
        written = update.answer is Answer.WRITTEN
        seen, version = (update.metadata, update.version) if written else (self.metadata, self.meta.version)
        if client.status is Status.MARKING:
            client.seen, client.version = seen, version
            if written:
                self._fence(c)
        elif client.status is Status.CHANGING_ENSEMBLE:
            if update.answer is not Answer.REFUSED:
                self._go_on_with(c, update.metadata, version)
            if to_change_ensemble(seen.status, has_failed_bookies=False) is Next.DONE:
                self._end_change(c)
            else:
                client.status, client.version = Status.WITHDRAWN, None
        elif client.status is Status.TELLING_FRAGMENTS:
            if to_announce_fragments(seen.status, version == update.version, self.protections) is Next.WRITE:
                self._go_on_with(c, update.metadata, version)
                client.status = Status.IN_RECOVERY
                self._advance_lac(c)
            else:
                client.status = Status.OVERTAKEN
        elif client.status is Status.CLOSING:
            if to_close(seen.status, ends_at(seen, self._lac(c), 0)) is not Next.DONE:
                client.status, client.version = Status.WITHDRAWN, None
            elif update.answer is Answer.REFUSED:
                client.status, client.version = Status.FOUND_CLOSED, None
            else:
                client.status, client.version = Status.CLOSED, version
        elif written or (update.answer is Answer.LOST and version == update.version):
            client.status, client.version = Status.CLOSED, version
        else:
            client.status = Status.OVERTAKEN

    def _go_on_with(self, c: ModelValue, metadata: LedgerMetadata, version: int | None) -> None:
        """The ensemble was changed: bookies that left it no longer count for uncommitted entries."""
        client = self.client[c]
        left = frozenset(self.client_ensemble(c)) - frozenset(current_ensemble(metadata))
        for entry_id in range(client.lac + 1, client.lap + 1):
            client.confirmed[entry_id] = still_confirmed(client.confirmed[entry_id], left, self.protections)
        client.seen, client.version = metadata, version

    def _taken(self, c: ModelValue) -> LedgerMetadata | None:
        """The write of a client that the metadata service has accepted and the client does not know of yet."""
        update = self.client[c].update
        return None if update is None or update.answer is Answer.REFUSED else update.metadata

    def _is_leaving(self, c: ModelValue, b: ModelValue) -> bool:
        """Whether a bookie is in the ensemble that a client adds to, but no longer in the one in the metadata."""
        taken = self._taken(c)
        return taken is not None and b not in current_ensemble(taken)

    # -- the owner of the ledger ---------------------------------------------------------------------------------------

    @action(c=clients)
    def client_creates_ledger(self, c: ModelValue) -> None:
        """A client creates the ledger, and owns it."""
        require(self.meta.metadata is None)
        client = self.client[c]
        ensemble = self._first_ensemble()
        fragments = (Fragment(1, ensemble),)
        metadata = LedgerMetadata(self.bookies_of_an_ensemble, self.write_quorum, self.ack_quorum, fragments)
        self.meta.metadata = metadata
        self.meta.version = 1
        client.status = Status.OPEN
        client.seen, client.version = metadata, 1

    @action(c=clients)
    def client_sends_add_entry_requests(self, c: ModelValue) -> None:
        """The owner sends the next entry to the bookies of its write set."""
        client = self.client[c]
        changing = self.appends_while_changing and client.status is Status.CHANGING_ENSEMBLE
        require(client.status is Status.OPEN or changing)
        require(client.lap < self.send_limit)
        require(may_append(client.lap, client.lac, self.inflight_limit))
        op = self._push(c, Entry(client.lap + 1, client.lap + 1), recovery=False)
        self._send_add(c, op, self.write_set(op.entry.id, self.client_ensemble(c)), recovery=False)

    @action(c=clients, b=bookies)
    def client_receives_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that a bookie has stored an entry, even while it changes the ensemble."""
        require(self.client[c].status in (Status.OPEN, Status.CHANGING_ENSEMBLE))
        self._receive_add_confirmed_response(c, b)

    @action(c=clients, b=bookies)
    def client_receives_add_fenced_response(self, c: ModelValue, b: ModelValue) -> None:
        """The owner learns that its ledger is fenced, so in recovery, and stops."""
        client = self.client[c]
        require(client.status in (Status.OPEN, Status.CHANGING_ENSEMBLE))
        add = self._next_add(self.add_entry_response, b, c, where=lambda add: not add.success)
        require(b in self.write_set(add.entry.id, self.client_ensemble(c)) and not self._is_leaving(c, b))
        client.status = Status.WITHDRAWN

    @action(c=clients)
    def client_changes_ensemble(self, c: ModelValue) -> None:
        """The owner writes metadata that replace all the bookies that did not answer."""
        client = self.client[c]
        require(self._may_change_ensemble(c))
        failed = self.failed_bookies(c)
        require(to_change_ensemble(self.seen(c).status, needs_change(self.client_ensemble(c), failed)) is Next.WRITE)
        metadata = self._with_others_for(c, failed)
        assert metadata is not None, "the owner begins no fragment before an existing one"
        client.status = Status.CHANGING_ENSEMBLE
        self._write(c, metadata, failed)

    @action(c=clients)
    def client_resends_pending_add_op(self, c: ModelValue) -> None:
        """The owner sends an uncommitted entry to the bookies that are new in its write set."""
        require(self._may_change_ensemble(c))
        self._resend_pending_add_op(c, recovery=False)

    @action(c=clients)
    def client_closes_ledger(self, c: ModelValue) -> None:
        """The owner starts to close the ledger at its LAC. It may do so at any time while it believes that the ledger
        is open.
        """
        require(self.client[c].status is Status.OPEN)
        self._close(c)

    def _close(self, c: ModelValue) -> None:
        client = self.client[c]
        require(to_close(self.seen(c).status, ends_there=False) is Next.WRITE)
        client.status = Status.CLOSING
        self._write(c, closed(self.seen(c), self._lac(c), 0))

    # -- recovery ------------------------------------------------------------------------------------------------------

    @action(c=clients)
    def client_opens_ledger(self, c: ModelValue) -> None:
        """A client reads the metadata of the ledger, to recover it."""
        require(self.metadata_lags)
        self._open(c)

    def _open(self, c: ModelValue) -> None:
        client = self.client[c]
        require(client.status is None)
        require(self.meta.metadata is not None)
        metadata = self.metadata
        require(to_start_recovery(metadata.status) is Next.WRITE)
        client.status = Status.MARKING
        client.seen, client.version = metadata, self.meta.version

    @action(c=clients)
    def client_starts_recovery(self, c: ModelValue) -> None:
        """A client marks the ledger as in recovery, which it may be already."""
        client = self.client[c]
        if not self.metadata_lags and client.status is None:
            self._open(c)
        require(client.status is Status.MARKING and client.update is None)
        require(to_start_recovery(self.seen(c).status) is Next.WRITE)
        self._write(c, marked_in_recovery(self.seen(c)))

    def _fence(self, c: ModelValue) -> None:
        """Ask every bookie of the last ensemble to fence the ledger, which is marked."""
        client = self.client[c]
        client.status = Status.IN_RECOVERY
        client.recovery_phase = RecoveryPhase.FENCING
        client.recovery_ensemble = self.client_ensemble(c)
        self._send_fences(c, client.recovery_ensemble)

    def _send_fences(self, c: ModelValue, asked: Ensemble) -> None:
        request = FenceRequest()
        self.network.send_all([(request, b) for b in asked], c)

    @action(c=clients, b=bookies)
    def client_receives_fencing_read_lac_response(self, c: ModelValue, b: ModelValue) -> None:
        """A bookie reports that it is fenced. Recovery starts from the highest LAC reported. A LAC that arrives after
        reading has begun is ignored.
        """
        client = self.client[c]
        require(client.recovery_phase is RecoveryPhase.FENCING)
        response = self.network.receive(FenceResponse, source=b, to=c).message
        self._count_fenced(c, b, self._lac_of_response(response))

    def _count_fenced(self, c: ModelValue, b: ModelValue, answered: int) -> None:
        client = self.client[c]
        client.fenced |= {b}
        lac = confirmed_before([answered], self.seen(c).fragments[-1].first_entry_id, self.protections)
        if lac > client.lac:
            client.lac = client.recovery_lac = client.lap = lac

    def _lac_of_response(self, response: FenceResponse) -> int:
        """The LAC that a client takes from a response."""
        return response.lac

    @action(c=clients)
    def client_sends_recovery_read_requests(self, c: ModelValue) -> None:
        """Recovery reads the next entry. The first read waits until the owner is fenced off."""
        self._read_next_entry(c)

    def _read_next_entry(self, c: ModelValue) -> None:
        client = self.client[c]
        require(client.status is Status.IN_RECOVERY)
        if client.recovery_phase is RecoveryPhase.FENCING:
            quorums = (self.write_quorum, self.ack_quorum)
            fenced = fencing(client.fenced, (), client.recovery_ensemble, *quorums, self.protections)
            require(fenced is Verdict.POSITIVE)
        else:
            require(client.last_recoverable_entry == NOT_KNOWN)
        entry_id = max(client.last_read, client.lap) + 1
        require(may_read_ahead(entry_id, client.lap, self.reads_in_flight))
        require(entry_id in self.readable_ids)
        client.recovery_phase = RecoveryPhase.READ_WRITE
        client.last_read = entry_id
        client.fenced = frozenset()
        self._send_recovery_reads(c, entry_id, self.write_set(entry_id, self.ensemble_to_read(c)))

    def _send_recovery_reads(self, c: ModelValue, entry_id: int, asked: Bookies) -> None:
        request = self.read_request(entry_id, fence=True)
        self.network.send_all([(request, b) for b in asked], c)

    def ensemble_to_read(self, c: ModelValue) -> Ensemble:
        return ensemble_to_read(self.client[c].recovery_ensemble, self.client_ensemble(c), self.protections)

    @action(c=clients, b=bookies)
    def client_receives_recovery_read_response(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery receives a response to a read. It may decide the reads of several entries, in their order."""
        client = self.client[c]
        require(client.status is Status.IN_RECOVERY and client.last_read > client.lap)
        response = self._next_read(
            self.read_response, b, c, lambda read: client.lap < read.entry_id <= client.last_read
        )
        if response.entry is None:
            client.no_such_entry[response.entry_id] |= {b}
        else:
            client.found |= {response.entry}
        while client.last_read > client.lap and self._is_decided(c, client.lap + 1):
            pass

    def _is_decided(self, c: ModelValue, entry_id: int) -> bool:
        """Whether the read of an entry is decided, after those before it. If so, apply the result."""
        client = self.client[c]
        entry = next((entry for entry in client.found if entry.id == entry_id), None)
        asked = self.write_set(entry_id, self.ensemble_to_read(c))
        failed = BookiesWhere(asked, lambda b: self._read_timed_out(c, b, entry_id))
        negative = client.no_such_entry[entry_id]
        verdict = recovery_read(entry is not None, negative, failed, asked, self.ack_quorum, self.protections)
        if verdict is Verdict.WAITING:
            return False
        if entry is not None:
            client.no_such_entry[entry_id] = frozenset()
            client.found -= {entry}
            self._push(c, Entry(entry_id, entry.data), recovery=True)
            return True
        if is_end(verdict):
            client.last_recoverable_entry = entry_id - 1
        else:
            client.status = Status.ABORTED
        client.recovery_ensemble = ()
        client.found = frozenset()
        for other in range(entry_id, client.last_read + 1):
            client.no_such_entry[other] = frozenset()
        client.last_read = 0
        return True

    @action(c=clients)
    def client_writes_back_entry(self, c: ModelValue) -> None:
        """Recovery writes the first entry that it has not sent yet to the current ensemble, wherever it was read
        from.
        """
        self._write_back_entry(c)

    def _write_back_entry(self, c: ModelValue) -> None:
        client = self.client[c]
        require(self._may_write_back(c))
        unsent = [op for op in self._pending_add_ops(c) if op.entry.id not in client.written_back]
        require(len(unsent) > 0)
        op = min(unsent, key=lambda op: op.entry.id)
        self._send_add(c, op, self.write_set(op.entry.id, self.client_ensemble(c)), recovery=True)
        client.written_back |= {op.entry.id}

    def _may_write_back(self, c: ModelValue) -> bool:
        """Whether a client recovers the ledger. Where several entries are read at once, one answer may decide two
        reads: the first entry is found and sent before the second ends the recovery.
        """
        status = self.client[c].status
        return status is Status.IN_RECOVERY or (status is Status.ABORTED and self.reads_in_flight > 1)

    @action(c=clients, b=bookies)
    def recovery_client_receives_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """Recovery learns that a bookie has stored an entry."""
        require(self.client[c].status in (Status.IN_RECOVERY, Status.TELLING_FRAGMENTS))
        self._receive_add_confirmed_response(c, b)

    @action(c=clients)
    def recovery_client_changes_ensemble(self, c: ModelValue) -> None:
        """Recovery replaces all the bookies that did not answer a write. It does not publish the change before it
        closes the ledger.
        """
        client = self.client[c]
        require(client.status is Status.IN_RECOVERY)
        failed = self.failed_bookies(c)
        require(needs_change(self.client_ensemble(c), failed))
        metadata = self._with_others_for(c, failed)
        if metadata is None:
            client.status = Status.ABORTED
        elif keeps_fragments(self.protections):
            self._go_on_with(c, metadata, client.version)
            for b in failed:
                self.network.forget_lost(self.add_entry_request, c, b)
                self.network.forget_lost(self.add_entry_response, b, c)
        else:
            client.status = Status.TELLING_FRAGMENTS
            self._write(c, metadata, failed)

    @action(c=clients)
    def recovery_client_sends_pending_add_op(self, c: ModelValue) -> None:
        """Recovery sends an entry that is not written back yet to the bookies that are new in its write set."""
        require(self.client[c].status is Status.IN_RECOVERY)
        self._resend_pending_add_op(c, recovery=True)

    @action(c=clients)
    def recovery_client_closes_ledger(self, c: ModelValue) -> None:
        """Recovery has read and written back everything. It closes the ledger, with its fragments, at the last entry
        read.
        """
        client = self.client[c]
        require(client.status is Status.IN_RECOVERY)
        end = client.last_recoverable_entry
        require(may_close(end != NOT_KNOWN, [op.entry.id for op in self._pending_add_ops(c)], self.protections))
        seen = self.seen(c)
        require(to_close_recovered(seen.status, is_own_version=True, protections=self.protections) is Next.WRITE)
        client.status = Status.CLOSING_RECOVERED
        self._write(c, closed(seen, end, 0, seen.fragments))

    # -- what the owner and recovery share -----------------------------------------------------------------------------

    def _pending_add_ops(self, c: ModelValue) -> Collection[PendingAddOp]:
        """The adds of a client that are not committed."""
        return self.client[c].pending_add_ops

    def _add_pending(self, c: ModelValue, op: PendingAddOp) -> None:
        self.client[c].pending_add_ops |= {op}

    def _replace_pending(self, c: ModelValue, op: PendingAddOp, other: PendingAddOp) -> None:
        self.client[c].pending_add_ops = self.client[c].pending_add_ops - {op} | {other}

    def _forget_pending(self, c: ModelValue, reached: int) -> None:
        """Drop the pending adds up to an entry: they are committed."""
        client = self.client[c]
        client.pending_add_ops = frozenset(op for op in client.pending_add_ops if op.entry.id > reached)

    def client_ensemble(self, c: ModelValue) -> Ensemble:
        """The ensemble that a client adds entries to."""
        return current_ensemble(self.seen(c))

    def seen(self, c: ModelValue) -> LedgerMetadata:
        """The metadata as a client last read them."""
        seen = self.client[c].seen
        assert seen is not None
        return seen

    def _push(self, c: ModelValue, entry: Entry, recovery: bool) -> PendingAddOp:
        """Add an entry to those that wait to be committed. Each time it is sent it carries the current LAC."""
        client = self.client[c]
        client.lap = entry.id
        lac = lac_to_carry(client.recovery_lac, client.lac, self.protections) if recovery else self._lac(c)
        op = PendingAddOp(entry, len(self.seen(c).fragments), self.client_ensemble(c), lac)
        self._add_pending(c, op)
        return op

    def _send_add(self, c: ModelValue, op: PendingAddOp, to: Iterable[ModelValue], recovery: bool) -> None:
        self.network.send_all([(self._add_request(c, b, op.entry, op.lac, recovery), b) for b in to], c)

    def _add_request(self, c: ModelValue, b: ModelValue, entry: Entry, lac: int, recovery: bool) -> AddEntryRequest:
        return self.add_entry_request(entry, lac, recovery)

    def _lac(self, c: ModelValue) -> int:
        """The LAC that a client sends: the last confirmed entry."""
        return self.client[c].lac

    def _receive_add_confirmed_response(self, c: ModelValue, b: ModelValue) -> None:
        """Count a confirmation.

        A confirmation by a bookie that is leaving the ensemble makes no difference where the LAC waits for the change
        and the bookie does not count afterwards. Then it is not received.
        """
        client = self.client[c]
        add = self._next_add(self.add_entry_response, b, c, where=lambda add: add.success)
        require(b in self.write_set(add.entry.id, self.client_ensemble(c)))
        if self.lac_waits_for_change and self.confirmations_withdrawn:
            require(not self._is_leaving(c, b))
        client.confirmed[add.entry.id] |= {b}
        self._advance_lac(c)

    def _advance_lac(self, c: ModelValue) -> None:
        client = self.client[c]
        changing = client.status in (Status.CHANGING_ENSEMBLE, Status.TELLING_FRAGMENTS)
        reached = lac_reached(client.lac, client.lap, self._is_committed(c), changing, self.protections)
        if reached > client.lac:
            self._forget_pending(c, reached)
            client.lac = reached

    def _is_committed(self, c: ModelValue) -> Callable[[int], bool]:
        confirmed = self.client[c].confirmed
        return lambda entry_id: is_committed(len(confirmed[entry_id]), self.ack_quorum)

    def failed_bookies(self, c: ModelValue) -> Bookies:
        """The bookies of the ensemble that did not answer an add. All entries of the last ensemble change must have
        been resent.
        """
        seen = self.seen(c)
        failed = frozenset(b for b in self.client_ensemble(c) if self._write_timed_out(c, b))
        require(len(failed) > 0)
        require(not any(self._is_behind(op, seen) for op in self._pending_add_ops(c)))
        return failed

    def _with_others_for(self, c: ModelValue, failed: Bookies) -> LedgerMetadata | None:
        """The metadata with other bookies in place of those that failed, or None if that would need a fragment before
        an existing one.
        """
        client = self.client[c]
        ensemble = self._ensemble_without(self.client_ensemble(c), failed)
        try:
            return with_changed_ensemble(self.seen(c), ensemble, client.lac)
        except ValueError:
            return None

    def _end_change(self, c: ModelValue) -> None:
        """End the ensemble change: the LAC goes on."""
        self.client[c].status = Status.OPEN
        self._advance_lac(c)

    def _may_change_ensemble(self, c: ModelValue) -> bool:
        """Whether the owner may start an ensemble change: it waits for no other write."""
        return self.client[c].status is Status.OPEN

    def _is_behind(self, op: PendingAddOp, seen: LedgerMetadata) -> bool:
        """Whether the ensemble has changed since ``op`` was last sent."""
        return op.fragment_id != len(seen.fragments) or op.ensemble != current_ensemble(seen)

    def _resend_pending_add_op(self, c: ModelValue, recovery: bool) -> None:
        """Resend the first of the adds that were last sent to one earlier ensemble, to the bookies that are new."""
        client = self.client[c]
        seen = self.seen(c)
        behind = [op for op in self._pending_add_ops(c) if self._is_behind(op, seen)]
        op = one_of([op for op in behind if not any(other.is_sent_before(op) for other in behind)])
        new = newly_asked(op.entry.id, op.ensemble, self.client_ensemble(c), self.write_quorum)
        self._send_add(c, op, new, recovery)
        self._replace_pending(c, op, op.replace(fragment_id=len(seen.fragments), ensemble=self.client_ensemble(c)))
        if recovery:
            client.written_back |= {op.entry.id}

    # -- ordinary reads ------------------------------------------------------------------------------------------------

    def published_write_set(self, entry_id: int) -> Bookies:
        """The bookies that have an entry according to the metadata."""
        return self.write_set(entry_id, tuple(fragment_of(self.metadata.fragments, entry_id).ensemble))

    @action(r=readers, entry_id=lambda protocol: protocol.entry_ids)
    def reader_sends_read_requests(self, r: ModelValue, entry_id: int) -> None:
        """A reader asks for an entry that it may consider committed: a closed ledger has it, or a bookie's LAC covers
        it.
        """
        reader = self.reader[r]
        require(reader.entry_id is None)
        require(self.meta.metadata is not None)
        metadata = self.metadata
        end = end_of(metadata)
        lac = max(self.bookie[b].lac for b in current_ensemble(metadata)) if end is None else 0
        require(is_readable(entry_id, lac, end))
        asked = self.published_write_set(entry_id)
        reader.entry_id = entry_id
        reader.asked = asked
        self._send_reads(r, entry_id, asked)

    def _send_reads(self, r: ModelValue, entry_id: int, asked: Bookies) -> None:
        self.network.send_all([(ReadRequest(entry_id, fence=False), b) for b in asked], r)

    @action(r=readers, b=bookies)
    def reader_receives_read_response(self, r: ModelValue, b: ModelValue) -> None:
        """One bookie that has the entry is enough. The result is "no such entry" only if all say so."""
        reader = self.reader[r]
        require(reader.result is None and b in reader.asked)
        response = self.network.receive(ReadResponse, source=b, to=r).message
        reader.answered |= {b}
        reader.result = RESULTS[ordinary_read(response.entry is not None, reader.answered, (), reader.asked)]

    @action(r=readers)
    def reader_gives_up(self, r: ModelValue) -> None:
        """Every bookie that has not answered has timed out, and no bookie had the entry."""
        reader = self.reader[r]
        require(reader.result is None and reader.entry_id is not None)
        assert reader.entry_id is not None
        entry_id = reader.entry_id
        failed = BookiesWhere(reader.asked - reader.answered, lambda b: self._read_timed_out(r, b, entry_id))
        verdict = ordinary_read(False, reader.answered, failed, reader.asked)
        require(verdict is Verdict.UNKNOWN)
        reader.result = RESULTS[verdict]

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: TYPES, "meta", "bookie")

    def published_status(self, c: ModelValue) -> ClientStatus | None:
        """The status of a client in `bookkeeper`. A client whose close was accepted is closed, even if it does not know
        it yet.
        """
        status, taken = self.client[c].status, self._taken(c)
        if (
            status in (Status.CLOSING, Status.CLOSING_RECOVERED)
            and taken is not None
            and taken.status is LedgerStatus.CLOSED
        ):
            return ClientStatus.CLOSED
        return None if status in (None, Status.ADOPTING, Status.MARKING) else PUBLISHED_STATUS[status]

    @invariant
    def no_divergence_between_client_and_meta_data(self) -> bool:
        """No committed entry is lost: a closed ledger was closed by exactly one client, at its LAC, and includes every
        entry that its owner considers committed.
        """
        metadata = self.meta.metadata
        if metadata is None or metadata.status is not LedgerStatus.CLOSED:
            return True
        statuses = {c: self.published_status(c) for c in self.clients}
        lacs = {c: self._lac(c) for c, status in statuses.items() if status in OWNERS}
        closers = [c for c, lac in lacs.items() if statuses[c] is ClientStatus.CLOSED and lac == metadata.last_entry]
        return len(closers) == 1 and all(lac <= metadata.last_entry for lac in lacs.values())

    @invariant(c=clients, entry_id=lambda protocol: protocol.entry_ids, when=lambda protocol: not protocol.crashes)
    def all_acked_entries_are_readable(self, c: ModelValue, entry_id: int) -> bool:
        """Every entry that the owner, or the client that closed the ledger, considers committed is stored by a bookie
        of its ensemble, unless a bookie loses its data.
        """
        if self._lac(c) < entry_id or self.published_status(c) not in (ClientStatus.OPEN, ClientStatus.CLOSED):
            return True
        return any(self._stored(b, entry_id) is not None for b in self.published_write_set(entry_id))

    @invariant(entry_id=lambda protocol: protocol.entry_ids, when=lambda protocol: not protocol.crashes)
    def all_committed_entries_reach_ack_quorum(self, entry_id: int) -> bool:
        """Every entry of a closed ledger is stored by an ack quorum of its write set, unless a bookie loses its
        data.
        """
        metadata = self.meta.metadata
        if metadata is None or metadata.status is not LedgerStatus.CLOSED or metadata.last_entry < entry_id:
            return True
        copies = [b for b in self.published_write_set(entry_id) if self._stored(b, entry_id) is not None]
        return is_committed(len(copies), self.ack_quorum)

    @invariant(c=clients)
    def whoever_closes_the_ledger_knows_its_end(self, c: ModelValue) -> bool:
        """A client that believes its ledger to be closed at its LAC, by itself or by somebody else, is right."""
        if self.client[c].status not in (Status.CLOSED, Status.FOUND_CLOSED):
            return True
        metadata = self.meta.metadata
        return metadata is not None and ends_at(metadata, self._lac(c), 0)

    @invariant(b=bookies)
    def no_lac_beyond_the_end(self, b: ModelValue) -> bool:
        """No bookie has a LAC beyond the end of a closed ledger: a reader would trust that LAC, and read entries that
        are cut off.
        """
        metadata = self.meta.metadata
        end = None if metadata is None else end_of(metadata)
        return end is None or self.bookie[b].lac <= end

    @invariant(b=bookies)
    def no_out_of_order_entries(self, b: ModelValue) -> bool:
        """A bookie stores what the owner wrote, under the id that the owner gave it."""
        return all(entry.id == entry.data for entry in self.bookie[b].entries)

    @invariant(c=clients)
    def reads_begin_when_the_owner_is_fenced_off(self, c: ModelValue) -> bool:
        """A recovery starts to read only once the bookies that are not fenced cannot form an ack quorum of any write
        set.
        """
        client = self.client[c]
        if client.recovery_phase is not RecoveryPhase.READ_WRITE or not client.recovery_ensemble:
            return True
        fenced = BookiesWhere(client.recovery_ensemble, lambda b: self.bookie[b].fenced)
        return covers_ensemble(fenced, client.recovery_ensemble, self.write_quorum, self.ack_quorum)

    @invariant(r=readers)
    def no_committed_entry_is_missing(self, r: ModelValue) -> bool:
        """No reader gets "no such entry" for a committed entry. Readers ask for committed entries only."""
        return self.reader[r].result is not ReadResult.NO_SUCH_ENTRY

    @invariant(r=readers)
    def no_dirty_reads(self, r: ModelValue) -> bool:
        """An entry that a reader has read is not cut off when the ledger is closed."""
        reader, metadata = self.reader[r], self.meta.metadata
        if reader.result is not ReadResult.OK or metadata is None or metadata.status is not LedgerStatus.CLOSED:
            return True
        return is_readable(reader.entry_id, 0, end_of(metadata)) if reader.entry_id is not None else True

    @step_invariant(b=bookies)
    def no_lac_of_a_bookie_falls(self, after: Store, b: ModelValue) -> bool:
        """A bookie never reports a lower LAC to a reader than before, unless the bookie has lost its data."""
        return after.crashed > self.crashed or after.bookie[b].lac >= self.bookie[b].lac

    # -- refinement ----------------------------------------------------------------------------------------------------

    refines_bookkeeper = refines(
        BookKeeper,
        PUBLISHED,
        constants={
            "recovery_waits_needlessly": False,
            "recovery_marks_first": lambda protocol: protocol.metadata_lags,
            "recovery_watches_metadata": False,
            "bookies_keep_highest_lac": True,
            "bookies_tell_lac_of_last": True,
            "adds_keep_lac": True,
            "strict_negative_reads": Protected.negatives_cover_quorum,
        },
        when=lambda protocol: protocol.is_published,
        doc="Every step is a step of bookkeeper, or changes nothing there.",
    )

    @property
    def is_published(self) -> bool:
        """Whether the protocol does no more than `bookkeeper` allows."""
        return (
            self.protections == ALL
            and self.reads_in_flight == 1
            and not (self.crashes or self.appends_while_changing or self.mark_answers_lost)
        )
