"""Watches a cluster from outside, and raises :class:`Violation` at the moment a ledger breaks a promise.

The judge knows what writers appended, what bookies durably stored and answered, what readers received, and every change
of metadata. It shares no code with the roles' decisions, so a wrong rule does not mislead it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from fencepost.ledger.messages import (
    AddEntry,
    AddEntryResponse,
    BookieMessage,
    ListEntriesResponse,
    ReadEntry,
    ReadEntryResponse,
    Request,
    Response,
)
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus

UNFENCED = frozenset({Code.UNAUTHORIZED, Code.BAD_REQUEST, Code.IO_ERROR, Code.TOO_MANY_REQUESTS, Code.READ_ONLY})
"""The answers to a fencing read that promise nothing."""

_ORDER = {LedgerStatus.OPEN: 0, LedgerStatus.IN_RECOVERY: 1, LedgerStatus.CLOSED: 2}


class Violation(Exception):
    """A broken promise: its name, and what happened."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(promise, what)
        self.promise = promise
        self.what = what

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


PROMISES = {
    "durable": "what a bookie acknowledges is on its disk",
    "quorum": "an entry that is acknowledged is stored by an ack quorum of its write set",
    "order": "entries are acknowledged in order",
    "no loss": "an acknowledged entry is never lost, changed or reordered",
    "prefix": "a reader sees a prefix of what was appended, up to what is confirmed",
    "one close": "a ledger ends once, at one entry, and nothing is acknowledged beyond it",
    "fencing": "a bookie that has answered a fencing read takes nothing more from the owner",
    "keys": "only clients with the key of a ledger write to it or fence it",
    "lac": "the LAC of a bookie never falls, and never passes what is confirmed",
    "listed": "a bookie lists no entry that it never had",
    "metadata": "the metadata of a ledger only ever go forward",
    "refusal": "a bookie that has lost something does not start as if it had never had it",
    "repair": "a bookie that takes a ledger for repaired has every entry that belongs to it",
    "replication": "a bookie that takes the place of another in a ledger has every entry that belongs there",
    "placement": "no change of an ensemble and no repair leaves an entry in fewer racks, zones or regions than is"
    " enforced, or on a bookie of another group",
    "answers": "every call of a client has one answer",
    "sanity": "no role raises an exception",
    "liveness": "when all faults are over, somebody can close the ledger and read all of it",
}
"""The properties that the judge checks."""


@dataclass(frozen=True)
class Asked:
    """What is enforced of the placement: where each bookie is, the fewest racks and zones of an entry, and the fewest
    regions of an ack quorum. ``others``: bookies that take no entries.
    """

    places: Mapping[str, str] = field(default_factory=dict)
    racks: int = 1
    zones: int = 1
    regions: int = 1
    others: frozenset[str] = frozenset()


@dataclass
class History:
    """The history of one ledger. ``stored``: the bookies that have ever durably held the right bytes of each entry.
    ``gone``: those that lost them while the metadata did not name them. ``excused``: those that lost them with their
    disk.
    """

    key: bytes
    appended: list[bytes] = field(default_factory=list)
    acknowledged: int = -1
    confirmed: int = -1
    stored: dict[int, set[str]] = field(default_factory=dict)
    gone: dict[int, set[str]] = field(default_factory=dict)
    excused: dict[int, set[str]] = field(default_factory=dict)
    metadata: LedgerMetadata | None = None
    fenced: set[str] = field(default_factory=set)
    lacs: dict[str, int] = field(default_factory=dict)


class Judge:
    """The histories of all ledgers of a run. ``promises``: those to check; all if empty. ``asked``: of the placement of
    every ledger, from its beginning.
    """

    def __init__(self, promises: Collection[str] = (), asked: Asked | None = None) -> None:
        self.promises = promises
        self.asked = asked
        self.ledgers: dict[int, History] = {}

    def holds_to(self, promise: str) -> bool:
        """Whether it checks a promise."""
        return not self.promises or promise in self.promises

    def _broken(self, promise: str, what: str) -> None:
        if self.holds_to(promise):
            raise Violation(promise, what)

    # -- the writer ---------------------------------------------------------------------------------------------------

    def created(self, ledger: int, key: bytes) -> None:
        """A ledger is about to be created with this master key."""
        self.ledgers[ledger] = History(key)

    def appended(self, ledger: int, data: bytes) -> None:
        """The writer was asked to append data."""
        self.ledgers[ledger].appended.append(data)

    def acknowledged(self, ledger: int, place: int, entry_id: int) -> None:
        """The writer acknowledges permanently that the append at a position, counted from 0, is this entry."""
        history = self.ledgers[ledger]
        if entry_id != place or entry_id != history.acknowledged + 1:
            self._broken(
                "order",
                f"entry {entry_id} is acknowledged after entry {history.acknowledged}, and was appended as number"
                f" {place}",
            )
        metadata = history.metadata
        if metadata is not None and metadata.status is LedgerStatus.CLOSED and entry_id > metadata.last_entry:
            self._broken(
                "one close",
                f"entry {entry_id} is acknowledged, and the ledger was closed at entry {metadata.last_entry}",
            )
        history.acknowledged = entry_id
        self._hold(history, [entry_id], "is acknowledged")

    # -- bookies ------------------------------------------------------------------------------------------------------

    def stored(self, bookie: str, ledger: int, entry_id: int, data: bytes) -> None:
        """An entry with this data is durable at a bookie."""
        history = self.ledgers[ledger]
        if entry_id < len(history.appended) and data == history.appended[entry_id]:
            history.stored.setdefault(entry_id, set()).add(bookie)
            history.gone.get(entry_id, set()).discard(bookie)
            history.excused.get(entry_id, set()).discard(bookie)

    def answered(self, bookie: str, request: Request, response: Response, was_fenced: bool, durable: bool) -> None:
        """A bookie answers. ``was_fenced``: it had answered a fencing read before this request. ``durable``: the added
        entry is on its disk.
        """
        if isinstance(request, BookieMessage):
            return
        history = self.ledgers[request.ledger]
        if isinstance(request, AddEntry) and isinstance(response, AddEntryResponse):
            if response.code is not Code.OK:
                return
            if request.master_key != history.key:
                self._broken("keys", f"{bookie} takes entry {request.entry_id} with a wrong key")
            if was_fenced and not request.recovery:
                self._broken("fencing", f"{bookie} takes entry {request.entry_id} from the owner after it was fenced")
            if not durable and not request.deferred_sync:
                self._broken("durable", f"{bookie} acknowledges entry {request.entry_id}, which is not on its disk")
        elif isinstance(request, ReadEntry) and isinstance(response, ReadEntryResponse):
            if request.fence and response.code not in UNFENCED:
                if request.master_key != history.key:
                    self._broken("keys", f"{bookie} lets itself be fenced with a wrong key")
                history.fenced.add(bookie)
            if response.lac > self.confirmed(request.ledger):
                self._broken(
                    "lac",
                    f"{bookie} reports the LAC {response.lac}, but only {self.confirmed(request.ledger)} is confirmed",
                )
        elif isinstance(response, ListEntriesResponse):
            for first, last in response.runs:
                for entry_id in range(first, last + 1):
                    if bookie not in history.stored.get(entry_id, ()):
                        self._broken("listed", f"{bookie} lists entry {entry_id}, which it never had")

    def is_fenced(self, bookie: str, request: Request) -> bool:
        """Whether a bookie has answered a fencing read of the request's ledger."""
        return not isinstance(request, BookieMessage) and bookie in self.ledgers[request.ledger].fenced

    def knows(self, bookie: str, ledger: int, lac: int, fenced: bool) -> None:
        """Check the state of a ledger at a bookie, after each event."""
        history = self.ledgers[ledger]
        before = history.lacs.get(bookie, -1)
        if lac < before:
            self._broken("lac", f"the LAC of {bookie} falls from {before} to {lac}")
        if lac > before:
            if lac > self.confirmed(ledger):
                self._broken("lac", f"the LAC of {bookie} is {lac}, but only {self.confirmed(ledger)} is confirmed")
            history.lacs[bookie] = lac
        if not fenced and bookie in history.fenced:
            self._broken("fencing", f"{bookie} has answered a fencing read, but has forgotten that it is fenced")

    def forgot(self, bookie: str, ledger: int) -> None:
        """A bookie lost its disk, and knows nothing of a ledger that does not name it. It need not be fenced any more.

        It may have held entries of a recovery that has not written its new ensemble yet. Losing those with the disk is
        excused.
        """
        history = self.ledgers[ledger]
        history.fenced.discard(bookie)
        for entry_id, bookies in history.stored.items():
            if bookie in bookies:
                history.excused.setdefault(entry_id, set()).add(bookie)

    def restarted(self, bookie: str, has: Callable[[int, int], bool]) -> None:
        """A bookie was started; ``has`` says whether it has an entry or does not deny having it. It may have forgotten
        a LAC that came without an entry.
        """
        for ledger, history in self.ledgers.items():
            history.lacs.pop(bookie, None)
            metadata = history.metadata
            for entry_id, bookies in history.stored.items():
                if metadata is None or (metadata.status is LedgerStatus.CLOSED and entry_id > metadata.last_entry):
                    continue
                excused = bookie in history.excused.get(entry_id, ())
                if bookie in bookies and not excused and not has(ledger, entry_id):
                    if bookie in _write_set(metadata, entry_id):
                        self._broken("refusal", f"{bookie} starts without entry {entry_id}, which it had")
                    history.gone.setdefault(entry_id, set()).add(bookie)

    def repaired(self, bookie: str, ledger: int, metadata: LedgerMetadata, has: Callable[[int, int], bool]) -> None:
        """A bookie considers a closed ledger with these metadata repaired; ``has`` says which entries it has."""
        for entry_id in range(metadata.last_entry + 1):
            if bookie in _write_set(metadata, entry_id) and not has(ledger, entry_id):
                self._broken("repair", f"{bookie} takes the ledger for repaired, and lacks entry {entry_id}")

    def lacks(self, bookie: str) -> bool:
        """Whether a bookie has lost entries that it confirmed to a recovery which had not yet added it to the metadata.
        Nobody copies those back.

        They count as missing until the ledger is closed without the bookie.
        """
        return any(
            bookie in bookies
            and (metadata.status is not LedgerStatus.CLOSED or bookie in _write_set(metadata, entry_id))
            for history in self.ledgers.values()
            if (metadata := history.metadata) is not None
            for entry_id, bookies in history.excused.items()
        )

    # -- the metadata service -----------------------------------------------------------------------------------------

    def metadata_written(self, who: str, ledger: int, old: LedgerMetadata | None, new: LedgerMetadata) -> None:
        """The metadata of a ledger are replaced."""
        history = self.ledgers[ledger]
        history.metadata = new
        if self.asked is not None:
            self._placed(who, self.asked, new)
        starts = [fragment.first_entry_id for fragment in new.fragments]
        if starts != sorted(set(starts)) or starts[:1] != [0]:
            self._broken("metadata", f"{who} writes fragments that begin at {starts}")
        for fragment in new.fragments:
            if len(set(fragment.ensemble)) != new.ensemble_size:
                self._broken("metadata", f"{who} writes the ensemble {', '.join(fragment.ensemble)}")
        if old is not None:
            if old.status is LedgerStatus.CLOSED and new.replace(fragments=()) != old.replace(fragments=()):
                self._broken(
                    "one close",
                    f"{who} changes a ledger that was closed at entry {old.last_entry}: it ends at {new.last_entry}",
                )
            if _ORDER[new.status] < _ORDER[old.status]:
                self._broken(
                    "metadata", f"{who} turns a ledger that is {old.status.value} into one that is {new.status.value}"
                )
            if old.status is LedgerStatus.IN_RECOVERY:
                self._recovered(who, history, old, new)
            else:
                self._replicated(who, history, old, new)
        if new.status is LedgerStatus.CLOSED:
            if new.last_entry < history.acknowledged:
                self._broken(
                    "no loss",
                    f"{who} closes the ledger at entry {new.last_entry}, and entry {history.acknowledged} was"
                    " acknowledged",
                )
            if new.last_entry >= len(history.appended):
                self._broken(
                    "no loss",
                    f"{who} closes the ledger at entry {new.last_entry}, and {len(history.appended)} were appended",
                )
            length = sum(map(len, history.appended[: new.last_entry + 1]))
            if new.length != length:
                self._broken(
                    "metadata",
                    f"{who} closes the ledger with {new.length} bytes of data, and its entries have {length}",
                )
            self._hold(history, range(new.last_entry + 1), f"is within the ledger that {who} closes")
            for entry_id, bookies in history.gone.items():
                lacking = bookies.intersection(_write_set(new, entry_id)) if entry_id <= new.last_entry else ()
                for bookie in sorted(lacking):
                    self._broken(
                        "refusal",
                        f"{who} closes the ledger, and {bookie} has started without entry {entry_id}, which it had",
                    )
        else:
            self._hold(history, range(history.acknowledged + 1), f"was acknowledged before {who} changed the ensemble")

    def _placed(self, who: str, asked: Asked, metadata: LedgerMetadata) -> None:
        """Check where the bookies of every write set are."""
        for fragment in metadata.fragments:
            twice = [*fragment.ensemble] * 2
            for first in range(len(fragment.ensemble)):
                bookies = twice[first : first + metadata.write_quorum]
                racks = [asked.places.get(bookie, "") for bookie in bookies]
                zones = [rack.split("/")[1] if rack.count("/") == 2 else "" for rack in racks]
                regions = min(len({*some} - {""}) for some in combinations(zones, metadata.ack_quorum))
                for what, found, least in (
                    ("racks", len({*racks} - {""}), asked.racks),
                    ("zones", len({*zones} - {""}), asked.zones),
                    ("regions of an ack quorum", regions, asked.regions),
                ):
                    if 1 < least > found:
                        self._broken("placement", f"{who} has entries on {', '.join(bookies)}: {what} {found}")
            if not asked.others.isdisjoint(fragment.ensemble):
                self._broken("placement", f"{who} has entries on {', '.join(fragment.ensemble)}, not all of its groups")

    def _recovered(self, who: str, history: History, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """The metadata of a ledger in recovery are replaced."""
        if new.status is LedgerStatus.IN_RECOVERY and new.fragments != old.fragments:
            self._broken("metadata", f"{who} changes the ensemble of a ledger that is being recovered")
        if new.status is LedgerStatus.CLOSED:
            ensemble = list(old.fragments[-1].ensemble)
            for entry_id in range(len(ensemble)):
                asked = [ensemble[(entry_id + place) % len(ensemble)] for place in range(old.write_quorum)]
                if sum(bookie not in history.fenced for bookie in asked) >= old.ack_quorum:
                    fenced = ", ".join(sorted(history.fenced)) or "nobody"
                    self._broken(
                        "fencing",
                        f"{who} closes the ledger, and of {', '.join(asked)} an ack quorum is not fenced: {fenced} is",
                    )

    def _replicated(self, who: str, history: History, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """The metadata are replaced, perhaps with another bookie in a fragment that is already complete."""
        for place, (before, after) in enumerate(zip(old.fragments, new.fragments, strict=False)):
            following = old.fragments[place + 1 : place + 2]
            if not following and old.status is not LedgerStatus.CLOSED:
                return
            end = following[0].first_entry_id if following else old.last_entry + 1
            come = set(after.ensemble) - set(before.ensemble)
            for entry_id in range(before.first_entry_id, end) if come else ():
                for bookie in sorted(
                    come.intersection(_write_set(new, entry_id)) - history.stored.get(entry_id, set())
                ):
                    self._broken("replication", f"{who} replaces a bookie by {bookie}, which lacks entry {entry_id}")

    # -- readers ------------------------------------------------------------------------------------------------------

    def confirmed(self, ledger: int) -> int:
        """The last entry up to which all are confirmed: an ack quorum of each write set has stored them."""
        history = self.ledgers[ledger]
        metadata = history.metadata
        if metadata is not None:
            if metadata.status is LedgerStatus.CLOSED:
                history.confirmed = max(history.confirmed, metadata.last_entry)
            while history.confirmed + 1 < len(history.appended) and self._is_held(
                history, metadata, history.confirmed + 1
            ):
                history.confirmed += 1
        return max(history.confirmed, history.acknowledged)

    def read(self, who: str, ledger: int, entry_id: int, data: bytes) -> None:
        """A reader received an entry."""
        history = self.ledgers[ledger]
        if entry_id > self.confirmed(ledger):
            self._broken("prefix", f"{who} reads entry {entry_id}, but only {history.confirmed} is confirmed")
        if [data] != history.appended[entry_id : entry_id + 1]:
            self._broken("no loss", f"{who} reads another entry {entry_id} than was appended")

    def learnt_lac(self, who: str, ledger: int, lac: int, before: int) -> None:
        """A reader learnt a LAC. ``before``: its LAC before the request."""
        if lac > self.confirmed(ledger):
            self._broken(
                "prefix",
                f"{who} learns the LAC {lac}, but only {self.ledgers[ledger].confirmed} is confirmed",
            )
        if lac < before:
            self._broken("prefix", f"{who} learns the LAC {lac} after it was {before}")

    def missing(self, who: str, ledger: int, entry_id: int) -> None:
        """A reader was answered that an entry does not exist."""
        if entry_id <= self.ledgers[ledger].acknowledged:
            self._broken("no loss", f"{who} learns that there is no entry {entry_id}, which was acknowledged")

    def ended(self, who: str, ledger: int, last_entry: int) -> None:
        """A client learnt that the ledger is closed, and its last entry."""
        metadata = self.ledgers[ledger].metadata
        if metadata is None or metadata.status is not LedgerStatus.CLOSED or metadata.last_entry != last_entry:
            self._broken("one close", f"{who} learns that the ledger is closed at entry {last_entry}, but it is not")

    def past_end(self, who: str, ledger: int, entry_id: int) -> None:
        """A reader learnt that the ledger ended before an entry."""
        metadata = self.ledgers[ledger].metadata
        if metadata is None or metadata.status is not LedgerStatus.CLOSED or entry_id <= metadata.last_entry:
            self._broken("no loss", f"{who} learns that the ledger ends before entry {entry_id}, but it does not")

    # -- placement of entries -----------------------------------------------------------------------------------------

    def _hold(self, history: History, entries: Sequence[int], why: str) -> None:
        metadata = history.metadata
        assert metadata is not None
        for entry_id in entries:
            if not self._is_held(history, metadata, entry_id):
                by = ", ".join(sorted(history.stored.get(entry_id, ()))) or "nobody"
                asked = ", ".join(_write_set(metadata, entry_id))
                self._broken("quorum", f"entry {entry_id} {why}, and is stored by {by}, where its write set is {asked}")

    def _is_held(self, history: History, metadata: LedgerMetadata, entry_id: int) -> bool:
        stored = history.stored.get(entry_id, ())
        return sum(bookie in stored for bookie in _write_set(metadata, entry_id)) >= metadata.ack_quorum


def _write_set(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """The write set of an entry, by the metadata."""
    ensemble = list([f.ensemble for f in metadata.fragments if f.first_entry_id <= entry_id][-1])
    return [ensemble[(entry_id + place) % len(ensemble)] for place in range(metadata.write_quorum)]
