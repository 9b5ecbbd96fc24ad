"""What the published BookKeeper protocols share about one ledger: its values, messages and rules, and the assumptions
about its constants.

Nothing but the names of statuses is shared with the store, whose rules are checked against these protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    assumption,
    one_of,
    require,
    step_invariant,
    subsets,
)
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.types import Types

Bookies = frozenset[ModelValue]

Ensemble = frozenset[ModelValue] | tuple[ModelValue, ...]
"""The bookies of a fragment. Their order counts only where entries are striped over them. Elsewhere the ensemble is
unordered.
"""


class Entry(Record):
    """An entry. ``data`` counts the writes of the owner, so it equals ``id`` unless entries are out of order."""

    id: int
    data: int


class Fragment(Record):
    """A run of entries, from ``first_entry_id`` on, on one ensemble. The defaults are those of a client without a
    fragment.

    The published protocols number the fragments of a ledger from 1.
    """

    first_entry_id: int = 0
    ensemble: Ensemble = frozenset()
    id: int = 0


class PendingAddOp(Record):
    """An entry that is not committed yet, and the fragment and ensemble that it was last sent to."""

    entry: Entry
    fragment_id: int
    ensemble: Ensemble

    def is_behind(self, fragment: Fragment) -> bool:
        """Whether the ensemble has changed since this was last sent. A replaced ensemble keeps the id of its
        fragment.
        """
        return self.fragment_id != fragment.id or self.ensemble != fragment.ensemble

    def is_sent_before(self, other: PendingAddOp) -> bool:
        """Whether this comes before ``other``, and was last sent to the same ensemble."""
        same = (self.fragment_id, self.ensemble) == (other.fragment_id, other.ensemble)
        return same and self.entry.id < other.entry.id


class LedgerMetadata(Record):
    """The ledger in the metadata store. Every change is conditional on the version."""

    status: LedgerStatus | None = None
    fragments: tuple[Fragment, ...] = ()
    last_entry: int = 0
    version: int = 0


class LedgerOnBookie(Record):
    """The ledger on one bookie."""

    entries: frozenset[Entry] = frozenset()
    fenced: bool = False
    lac: int = 0

    def entry(self, entry_id: int) -> Entry | None:
        """The entry with this id, if the bookie has it."""
        return next((entry for entry in self.entries if entry.id == entry_id), None)


class AddEntryRequest(Message):
    """Store this entry. A fenced bookie takes only recovery adds."""

    entry: Entry
    lac: int
    recovery: bool


class AddEntryResponse(Message):
    """The entry is stored. Without success: the ledger is fenced."""

    entry: Entry
    recovery: bool
    success: bool


class FenceRequest(Message):
    """Accept no more entries from the owner of the ledger, and report your LAC."""


class FenceResponse(Message):
    """The ledger is fenced. ``lac``: the LAC that came with the last entry."""

    lac: int


Add = TypeVar("Add", bound=Message)
Op = TypeVar("Op", bound=PendingAddOp)


def earliest_add(
    network: Network,
    kind: type[Add],
    source: ModelValue,
    to: ModelValue,
    where: Callable[[Add], bool] = lambda add: True,
) -> Add:
    """Receive an add, or the answer to one. Between two nodes they arrive in the order of their entries."""
    in_flight: Sequence[Any] = network.in_flight(kind, source, to)
    require(len(in_flight) > 0)
    earliest = min(add.entry.id for add in in_flight)

    def is_next(add: Any) -> bool:
        return add.entry.id == earliest and where(add)

    return network.receive(kind, source=source, to=to, where=is_next).message


Exchange = tuple[type[Message], type[Message]]
"""A kind of request to a bookie, and the kind of its answer."""


def has_timed_out(network: Network, exchange: Exchange, client: ModelValue, b: ModelValue) -> bool:
    """Whether a request of a client to a bookie, or the answer to one, was lost."""
    request, response = exchange
    return bool(network.lost(request, client, b) or network.lost(response, b, client))


def clear_timeout(network: Network, exchange: Exchange, client: ModelValue, b: ModelValue) -> None:
    """Discard the lost messages between a client and a bookie."""
    request, response = exchange
    network.forget_lost(request, client, b)
    network.forget_lost(response, b, client)


def one_to_resend(pending: Iterable[Op], fragment: Fragment) -> Op:
    """The first of the adds that were last sent to one earlier ensemble. If there are several such ensembles, any of
    them.
    """
    behind = [op for op in pending if op.is_behind(fragment)]
    return one_of([op for op in behind if not any(other.is_sent_before(op) for other in behind)])


def write_set(entry_id: int, ensemble: Collection[ModelValue], write_quorum: int) -> Collection[ModelValue]:
    """The bookies that an entry is sent to: the whole ensemble, or, if striped, ``write_quorum`` bookies, starting one
    bookie further on for each entry.
    """
    if write_quorum == len(ensemble):
        return ensemble
    bookies = tuple(ensemble)
    return tuple(bookies[(entry_id + place) % len(bookies)] for place in range(write_quorum))


def newly_asked(
    entry_id: int, before: Collection[ModelValue], after: Collection[ModelValue], write_quorum: int
) -> list[ModelValue]:
    """The bookies that an entry must be sent to after an ensemble change: those in its write set now and not before."""
    had = write_set(entry_id, before, write_quorum)
    return [b for b in write_set(entry_id, after, write_quorum) if b not in had]


def covers(bookies: Bookies, cohort: Collection[ModelValue], ack_quorum: int) -> bool:
    """Whether every ack quorum of the cohort contains one of ``bookies``."""
    return sum(b not in bookies for b in cohort) < ack_quorum


def fragment_of(fragments: Sequence[Fragment], entry_id: int) -> Fragment:
    """The fragment of an entry: the last that starts at or before it."""
    return next(fragment for fragment in reversed(fragments) if fragment.first_entry_id <= entry_id)


def changed_fragments(fragments: tuple[Fragment, ...], ensemble: Ensemble, first_entry_id: int) -> tuple[Fragment, ...]:
    """The fragments after an ensemble change. The last one gets the new ensemble if it begins at ``first_entry_id``;
    otherwise a fragment is added.
    """
    kept = fragments[:-1] if fragments[-1].first_entry_id == first_entry_id else fragments
    return (*kept, Fragment(first_entry_id, ensemble, len(kept) + 1))


def lac_after(lac: int, last: int, confirmed: PerKey[int, Bookies], ack_quorum: int) -> int:
    """The LAC: the last entry for which it and all entries before it have an ack quorum."""
    while lac < last and len(confirmed[lac + 1]) >= ack_quorum:
        lac += 1
    return lac


# -- types of the parts of the state ----------------------------------------------------------------------------------


def are_bookies(protocol: Any, value: Ensemble) -> bool:
    """Bookies of the protocol only."""
    return frozenset(value) <= frozenset(protocol.bookies)


def is_ensemble(protocol: Any, value: Ensemble) -> bool:
    """A set of the size of an ensemble."""
    return are_bookies(protocol, value) and len(value) == protocol.bookies_of_an_ensemble


def is_entry(protocol: Any, entry: Entry) -> bool:
    """An entry that some run sends."""
    return entry.id in protocol.entry_ids and entry.data in protocol.entry_ids


def is_fragment(protocol: Any, fragment: Fragment) -> bool:
    """A fragment that can be in the metadata."""
    return fragment.id >= 1 and is_ensemble(protocol, fragment.ensemble) and fragment.first_entry_id >= 1


def is_pending(protocol: Any, op: PendingAddOp) -> bool:
    """An entry that was sent to an ensemble."""
    return is_entry(protocol, op.entry) and op.fragment_id >= 1 and is_ensemble(protocol, op.ensemble)


LEDGER_TYPES: Types = {
    Bookies: are_bookies,
    Ensemble: are_bookies,
    Entry: is_entry,
    Fragment: is_fragment,
    PendingAddOp: is_pending,
}


# -- constants --------------------------------------------------------------------------------------------------------


def why_bookies_differ(protocol: Any) -> str:
    """The reason why bookies are not symmetric: where there are several ensembles, the first is preferred."""
    if len(protocol.bookies) == protocol.write_quorum:
        return ""
    return "an ensemble is chosen in the order of the bookies where there are more of them than the write quorum"


class LedgerProtocol(Protocol):
    """Assumptions about the constants of a protocol about one ledger."""

    name: ClassVar[str] = ""

    bookies: tuple[ModelValue, ...]
    write_quorum: int
    ack_quorum: int
    send_limit: int

    @assumption
    def something_is_sent(self) -> bool:
        """The send limit is positive."""
        return self.send_limit > 0

    @assumption
    def quorums_are_positive(self) -> bool:
        """Every entry is sent to a bookie and confirmed by a bookie."""
        return self.write_quorum > 0 and self.ack_quorum > 0

    @assumption
    def ack_quorum_within_write_quorum(self) -> bool:
        """The ack quorum is no larger than the write quorum."""
        return self.ack_quorum <= self.write_quorum

    @assumption
    def enough_bookies_for_an_ensemble(self) -> bool:
        """A ledger can be created."""
        return self.bookies_of_an_ensemble <= len(self.bookies)

    @property
    def entry_ids(self) -> range:
        """The ids of all entries that a run can send."""
        return range(1, self.send_limit + 1)

    @property
    def bookies_of_an_ensemble(self) -> int:
        """How many bookies an ensemble has."""
        return self.write_quorum


class SingleLedger(LedgerProtocol):
    """Rules that the published protocols share: the choice of ensembles, and changes of the ledger's metadata."""

    name: ClassVar[str] = ""

    meta: LedgerMetadata
    bookie: PerKey[ModelValue, Any]

    def _available_ensembles(self, include: Bookies = frozenset(), exclude: Bookies = frozenset()) -> list[Bookies]:
        """The ensembles that keep ``include``, avoid ``exclude`` and are not the ensemble of a stored fragment, in the
        order in which the bookies are declared. If there is none, the action is not enabled.
        """
        taken = [frozenset(fragment.ensemble) for fragment in self.meta.fragments]
        available = [
            ensemble
            for ensemble in subsets(self.bookies, self.bookies_of_an_ensemble)
            if include <= ensemble and not ensemble & exclude and ensemble not in taken
        ]
        require(len(available) > 0)
        return available

    def _create_ledger(self, ensemble: Ensemble) -> Fragment:
        """Create the ledger in the metadata store, open, with its first fragment."""
        fragment = Fragment(id=1, ensemble=ensemble, first_entry_id=1)
        self.meta.status = LedgerStatus.OPEN
        self.meta.version = 1
        self.meta.fragments = (fragment,)
        return fragment

    def _close_ledger(self, last_entry: int) -> None:
        """Close the ledger in the metadata store."""
        self.meta.status = LedgerStatus.CLOSED
        self.meta.last_entry = last_entry
        self.meta.version += 1

    def _discount(self, confirmed: PerKey[int, Bookies], first_entry_id: int, failed: Collection[ModelValue]) -> None:
        """Discard confirmations of uncommitted entries by bookies that are replaced."""
        for entry_id in self.entry_ids[first_entry_id - 1 :]:
            confirmed[entry_id] -= frozenset(failed)

    def _copies(self, entry_id: int) -> int:
        """How many bookies of its ensemble store an entry."""
        ensemble = fragment_of(self.meta.fragments, entry_id).ensemble
        return sum(self.bookie[b].entry(entry_id) is not None for b in ensemble)

    @step_invariant
    def every_change_of_the_metadata_is_a_version(self, after: SingleLedger) -> bool:
        """Every change of the metadata increments their version, so a client can tell whether they have changed since
        it read them.
        """
        return self.meta == after.meta or after.meta.version == self.meta.version + 1

    @step_invariant
    def what_is_closed_stays_as_it_is(self, after: SingleLedger) -> bool:
        """The metadata of a closed ledger do not change: nobody closes it again at another end."""
        return self.meta.status is not LedgerStatus.CLOSED or self.meta == after.meta
