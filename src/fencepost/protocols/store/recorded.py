"""The messages of clients and bookies, and the versions of a ledger's metadata, as a recorder between them sees them:
`recorded-store`.

Recordings of any clients and bookies, including Java's, are validated with this protocol. A recorder does not see the
inside of a process: the owner of a connection, the contents of a journal, which client gave up, which client wrote the
metadata. So the protocol does not depend on that. It checks what must hold of messages and metadata in any case, by the
rules of `store`:

- A bookie accepts no entry of the owner once it has answered a read that fences it, and does not deny an entry that it
  has confirmed. This holds after a restart, too. A bookie that has told a recovery that it has no such entry does not
  accept it from the owner, before or after.
- No sender sends a LAC up to which not every entry is confirmed by an ack quorum. A bookie sends no LAC that it has not
  received.
- Metadata change only as owners, recoveries and auto-recovery may change them. A ledger is closed where all entries up
  to the end have an ack quorum, at or after every LAC that the owner has sent. A recovery closes it only where enough
  bookies have answered that they lack the next entry.
- Recoveries read once every ack quorum has a fenced bookie, and write back what they have read.

A version that the recorder has missed may have had any ensemble. So while versions are *missing*, from the first that
may have been written until the next that was seen, an entry may go to any bookie, and an ack quorum of any bookies
commits it. After that, entries may still go to ensembles that nobody has seen, and a recovery may have fenced one.

Entry ids begin at 0, and a LAC is -1 until an entry is confirmed, as on the wire. A bookie that is in no fragment may
have lost everything. A *life* of a bookie is a time in which it certainly did not restart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
    assumption,
    constant,
    invariant,
    model_values,
    per_key,
    require,
    state,
)
from fencepost.ledger.rules.adding import lac_of_bookie, lac_reached
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.ensembles import (
    Fragment,
    are_quorums,
    covers_ensemble,
    fragment_of,
    is_committed,
    write_set,
)
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus, current_ensemble
from fencepost.ledger.rules.reading import recovery_read
from fencepost.protocols.store.store import MetadataService

Ensemble = tuple[ModelValue, ...]
Bookies = frozenset[ModelValue]

NEVER = 0
"""Instead of the number of a life, which count from 1: never."""


class Copy(Record):
    """The header of an entry as it was sent: the LAC, and the length of the ledger so far; None if it has none."""

    lac: int
    length: int | None


class SeenBookie(Record):
    """What is known of a bookie.

    ``life``: counts its lives. ``forgotten``: the last life whose data it may have lost completely. The others are the
    last life in which an event happened: ``fenced``, it has said that it is fenced; ``refused``, it has refused an add
    because of that; ``took``, it has accepted an add of the owner; ``confirmed``, it has confirmed any entry;
    ``certain``, it was not in limbo; ``empty``, it has told a recovery that it has no entry at all; ``has``, it has
    confirmed this entry; ``lacks``, it has told a recovery that it lacks this entry. ``asked``: it was sent a read that
    fences. ``unseen``: clients may reach it without the recorder.
    """

    life: int = 1
    forgotten: int = NEVER
    fenced: int = NEVER
    refused: int = NEVER
    took: int = NEVER
    confirmed: int = NEVER
    certain: int = NEVER
    empty: int = NEVER
    has: PerKey[int, int] = per_key(lambda protocol: protocol.entry_ids, NEVER)
    lacks: PerKey[int, int] = per_key(lambda protocol: protocol.entry_ids, NEVER)
    asked: bool = False
    unseen: bool = False


class SeenEntry(Record):
    """What is known of an entry: the copy that its owner wrote, and all headers that it was sent with; the bookies that
    the owner and recoveries sent it to, and those that were seen to confirm it; whether it was sent to a reader; and
    the bookies that have told a recovery that there is no such entry.
    """

    written: Copy | None = None
    copies: frozenset[Copy] = frozenset()
    sent: Bookies = frozenset()
    confirmed: Bookies = frozenset()
    sent_back: Bookies = frozenset()
    recovered: Bookies = frozenset()
    read: bool = False
    lacked: Bookies = frozenset()


def _nothing(protocol: Protocol) -> tuple[Any, ...]:
    """Choices that only a recording can make."""
    return ()


class RecordedStore(Protocol):
    """The life of one ledger, as seen between clients and bookies."""

    name: ClassVar[str] = "recorded-store"

    bookies: tuple[ModelValue, ...] = model_values("b", 3, "the bookies that there are")
    entries: int = constant(4, "entries whose ids are distinguished")
    ensemble_size: int = constant(3, "bookies that entries are striped over")
    write_quorum: int = constant(3, "bookies that an entry is sent to")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is committed")
    whole: bool = constant(True, "whether every message about the ledger was seen")
    durable: bool = constant(True, "whether what bookies confirm is durable: not with deferred sync")

    meta: MetadataService = state(MetadataService)
    known: frozenset[tuple[Fragment, ...]] = state(frozenset())
    missing: bool = state(False)
    blind: bool = state(False)
    gone: bool = state(False)
    bookie: PerKey[ModelValue, SeenBookie] = per_key(bookies, SeenBookie)
    entry: PerKey[int, SeenEntry] = per_key(lambda protocol: protocol.entry_ids, SeenEntry)
    pushed: int = state(-1)
    confirmed: int = state(-1)
    claimed: int = state(-1)
    carried: int = state(-1)
    fenced: Bookies = state(frozenset())

    @assumption
    def quorums_fit(self) -> bool:
        """The quorums fit a ledger."""
        return are_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)

    @property
    def entry_ids(self) -> range:
        """The ids of entries."""
        return range(self.entries)

    # -- what can be concluded -----------------------------------------------------------------------------------------

    def _metadata(self) -> LedgerMetadata:
        metadata = self.meta.metadata
        require(metadata is not None)
        assert metadata is not None
        return metadata

    def _is_there(self) -> None:
        require(self.meta.metadata is not None or self.missing)

    def _write_set(self, entry_id: int, fragments: tuple[Fragment, ...]) -> Collection[ModelValue]:
        return write_set(entry_id, tuple(fragment_of(fragments, entry_id).ensemble), self.write_quorum)

    def _is_committed(self, fragments: tuple[Fragment, ...], closing: bool = False) -> Callable[[int], bool]:
        """Whether enough bookies were seen to confirm an entry. A recovery does not publish its ensemble until it
        closes the ledger (``closing``); an entry that it wrote back before is committed on any bookies.
        """

        anywhere = self.missing and not closing

        def is_so(entry_id: int) -> bool:
            seen = self.entry[entry_id]
            asked = self.bookies if anywhere else self._write_set(entry_id, fragments)
            confirmed = seen.confirmed | seen.recovered if closing else seen.confirmed
            sent = seen.sent | seen.sent_back if closing else seen.sent
            count = sum(b in confirmed or self._may_be_unseen(b, sent) for b in asked)
            if is_committed(count, self.ack_quorum):
                return True
            if closing or not seen.sent_back:
                return False
            back = sum(b in seen.recovered or self._may_be_unseen(b, seen.sent_back) for b in self.bookies)
            return is_committed(back, self.ack_quorum)

        return is_so

    def _may_be_unseen(self, b: ModelValue, sent: Bookies) -> bool:
        """Whether a bookie may have confirmed an entry that was not seen to be sent to it."""
        return b not in sent and self.bookie[b].unseen

    def _advance(self) -> None:
        """Commit entries, in their order."""
        metadata = self.meta.metadata
        require(metadata is not None or self.missing)
        fragments = () if metadata is None else metadata.fragments
        if self.whole and (metadata is None or metadata.status is not LedgerStatus.CLOSED):
            self.confirmed = lac_reached(self.confirmed, self.pushed, self._is_committed(fragments))

    def _claim(self, lac: int, owner: bool) -> None:
        """A LAC is sent: all entries up to it are committed, and its sender knows it."""
        if self.whole:
            if lac > self.confirmed:
                self._advance()  # a bookie may have been reached unseen since
            require(lac <= self.confirmed)
            if owner:
                self.claimed = lac_of_bookie(self.claimed, lac)

    def _is_in_ledger(self, b: ModelValue) -> bool:
        metadata = self.meta.metadata
        return metadata is not None and any(b in fragment.ensemble for fragment in metadata.fragments)

    def _binds(self, b: ModelValue, life: int) -> bool:
        """Whether a bookie is still bound by what it said in a life. It is not bound if the ledger is deleted, or if
        the bookie was in no fragment and has lost the data.
        """
        return life > self.bookie[b].forgotten and not self.gone

    def _must_have(self, b: ModelValue, confirmed: int) -> bool:
        """Whether a bookie must have what it has confirmed in a life. It may lose everything of a closed ledger, and
        copy it again: its answers do not decide the end of that ledger.
        """
        if not (self.durable and self._binds(b, confirmed) and self._is_in_ledger(b)):
            return False
        return self._metadata().status is not LedgerStatus.CLOSED or confirmed == self.bookie[b].life

    # -- clients -------------------------------------------------------------------------------------------------------

    @action(
        b=bookies,
        entry_id=lambda protocol: protocol.entry_ids,
        lac=_nothing,
        length=_nothing,
        recovery=(False, True),
        arrives=(False, True),
    )
    def client_sends_add(
        self, b: ModelValue, entry_id: int, lac: int, length: int | None, recovery: bool, arrives: bool
    ) -> None:
        """A client sends an entry to a bookie: the owner, or a client that writes back what it has read. The entry may
        get lost.
        """
        require(entry_id in self.entry_ids)
        entry, copy = self.entry[entry_id], Copy(lac, length)
        self._is_there()
        require(lac < entry_id)
        self._claim(lac, owner=not recovery)
        if recovery:
            require(entry.read or not self.whole)
            require(all(length == other.length for other in entry.copies))
        else:
            require(
                not self.whole
                or self.blind
                or any(b in self._write_set(entry_id, fragments) for fragments in self.known)
            )
            require(entry.written in (None, copy))
            entry.written = copy
        self.pushed = max(self.pushed, entry_id)
        if arrives:
            entry.copies |= {copy}
            self.carried = lac_of_bookie(self.carried, lac)
            if recovery:
                entry.sent_back |= {b}
            else:
                entry.sent |= {b}

    @action(b=bookies, lac=_nothing, arrives=(False, True))
    def client_tells_lac(self, b: ModelValue, lac: int, arrives: bool) -> None:
        """The owner sends its LAC without an entry."""
        self._is_there()
        self._claim(lac, owner=True)
        if arrives:
            self.carried = lac_of_bookie(self.carried, lac)

    @action(b=bookies, arrives=(False, True))
    def client_sends_fence(self, b: ModelValue, arrives: bool) -> None:
        """A recovery asks a bookie to fence the ledger, and for its LAC."""
        if arrives:
            self.bookie[b].asked = True

    @action(b=bookies, entry_id=lambda protocol: protocol.entry_ids, arrives=(False, True))
    def client_sends_recovery_read(self, b: ModelValue, entry_id: int, arrives: bool) -> None:
        """A recovery reads an entry, once the owner is fenced off."""
        self._is_there()
        fenced = self.fenced | {other for other in self.bookies if self.bookie[other].unseen}
        require(
            not self.whole
            or self.blind
            or any(
                covers_ensemble(fenced, ensemble, self.write_quorum, self.ack_quorum)
                for ensemble in self._last_ensembles()
            )
        )
        if arrives:
            self.bookie[b].asked = True

    def _last_ensembles(self) -> Iterable[Ensemble]:
        """The ensembles that were the last at some time, the latest first."""
        yield current_ensemble(self._metadata())
        for fragments in self.known:
            yield tuple(fragments[-1].ensemble)

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies, by="b")
    def bookie_takes_add(self, b: ModelValue) -> None:
        """A bookie accepts an entry of the owner, so it was not fenced when that was sent."""
        bookie = self.bookie[b]
        require(not (bookie.fenced and self._binds(b, bookie.fenced)))
        require(bookie.refused != bookie.life or self.gone)

    @action(
        b=bookies, entry_id=lambda protocol: protocol.entry_ids, recovery=(False, True), heard=(False, True), by="b"
    )
    def bookie_confirms_add(self, b: ModelValue, entry_id: int, recovery: bool, heard: bool) -> None:
        """A bookie has an entry, and confirms it. The confirmation may get lost."""
        require(entry_id in self.entry_ids)
        bookie, entry = self.bookie[b], self.entry[entry_id]
        if not recovery:
            require(not (bookie.lacks[entry_id] and self._binds(b, bookie.lacks[entry_id])))
            require(not (bookie.empty and self._binds(b, bookie.empty)))
            bookie.took = bookie.certain = bookie.life
        bookie.has[entry_id] = bookie.confirmed = bookie.life
        if heard:
            if recovery:
                entry.recovered |= {b}
            else:
                entry.confirmed |= {b}
            self._advance()

    @action(b=bookies, by="b")
    def bookie_refuses_add(self, b: ModelValue) -> None:
        """A bookie refuses an entry of the owner since it is fenced: a client has fenced it, or it has lost its
        data.
        """
        bookie = self.bookie[b]
        require(bookie.asked or bookie.took != bookie.life or bookie.unseen or not self.whole)
        bookie.refused = bookie.life

    @action(b=bookies, heard=(False, True), by="b")
    def bookie_is_fenced(self, b: ModelValue, heard: bool) -> None:
        """A bookie has answered a read that fences it."""
        self.bookie[b].fenced = self.bookie[b].life
        if heard:
            self.fenced |= {b}

    @action(b=bookies, entry_id=lambda protocol: protocol.entry_ids, fence=(False, True), by="b")
    def bookie_lacks_entry(self, b: ModelValue, entry_id: int, fence: bool) -> None:
        """A bookie says that it has no such entry, when it is asked and not later."""
        bookie = self.bookie[b]
        require(not (bookie.has[entry_id] and self._must_have(b, bookie.has[entry_id])))
        bookie.certain = bookie.life
        if fence:
            bookie.lacks[entry_id] = bookie.life

    @action(b=bookies, fence=(False, True), by="b")
    def bookie_lacks_everything(self, b: ModelValue, fence: bool) -> None:
        """A bookie says that it has no entry of the ledger, when it is asked and not later."""
        bookie = self.bookie[b]
        require(not (bookie.confirmed and self._must_have(b, bookie.confirmed)))
        bookie.certain = bookie.life
        if fence:
            bookie.empty = bookie.life

    @action(b=bookies, entry_id=lambda protocol: protocol.entry_ids)
    def recovery_hears_of_no_entry(self, b: ModelValue, entry_id: int) -> None:
        """A recovery receives the answer of a bookie that it lacks an entry."""
        self.entry[entry_id].lacked |= {b}

    @action(
        b=bookies, entry_id=lambda protocol: protocol.entry_ids, found=_nothing, lac=_nothing, length=_nothing, by="b"
    )
    def bookie_shows_entry(self, b: ModelValue, entry_id: int, found: int | None, lac: int, length: int | None) -> None:
        """A bookie sends a requested entry, as a client has sent it."""
        require(found == entry_id)
        require(entry_id in self.entry_ids)
        entry = self.entry[entry_id]
        require(Copy(lac, length) in entry.copies or not self.whole)
        entry.read = True

    @action(b=bookies, runs=_nothing, by="b")
    def bookie_shows_batch(self, b: ModelValue, runs: tuple[tuple[int, int], ...]) -> None:
        """A bookie sends consecutive entries."""
        for first, last in runs:
            for entry_id in range(first, last + 1):
                require(len(self.entry[entry_id].copies) > 0 or not self.whole)
                self.entry[entry_id].read = True

    @action(b=bookies, runs=_nothing, by="b")
    def bookie_lists_entries(self, b: ModelValue, runs: tuple[tuple[int, int], ...]) -> None:
        """A bookie lists its entries, when it is asked and not later."""
        for entry_id in range(self.pushed + 1):
            confirmed = self.bookie[b].has[entry_id]
            if confirmed and self._must_have(b, confirmed):
                require(any(first <= entry_id <= last for first, last in runs))

    @action(b=bookies, lac=_nothing, by="b")
    def bookie_tells_lac(self, b: ModelValue, lac: int) -> None:
        """A bookie sends a LAC that it has received, or that came with an entry that it has copied."""
        require(lac <= self.carried or not self.whole)

    @action(b=bookies, shows=(False, True), by="b")
    def bookie_is_in_limbo(self, b: ModelValue, shows: bool) -> None:
        """A bookie says that it cannot know whether it has lost data. So it has restarted, and it does not have the
        requested entry.
        """
        require(not shows)
        require(self.bookie[b].certain != self.bookie[b].life)

    @action(b=bookies)
    def bookie_may_start_anew(self, b: ModelValue) -> None:
        """No connection that existed before is seen to be used after this."""
        self.bookie[b].life += 1

    @action(b=bookies)
    def bookie_may_be_reached_unseen(self, b: ModelValue) -> None:
        """From now on clients may have found another way to a bookie, or have sent a message that could not be read."""
        self.bookie[b].unseen = True

    # -- metadata ------------------------------------------------------------------------------------------------------

    @action(by="zk")
    def metadata_is_missed(self) -> None:
        """One or several versions of the metadata were written that were not seen."""
        self.missing = self.blind = True

    @action(
        version=_nothing, quorums=_nothing, status=_nothing, fragments=_nothing, last_entry=_nothing,
        missed=(False, True), by="zk"
    )  # fmt: skip
    def metadata_written(
        self, version: int, quorums: tuple[int, int, int], status: LedgerStatus, fragments: tuple[Fragment, ...],
        last_entry: int, missed: bool
    ) -> None:  # fmt: skip
        """A version of the metadata was written. ``missed``: earlier versions were not seen, so this may be several
        changes at once.
        """
        require(quorums == (self.ensemble_size, self.write_quorum, self.ack_quorum))
        for fragment in fragments:
            require(len(set(fragment.ensemble)) == len(fragment.ensemble) == self.ensemble_size)
        require(all(one.first_entry_id < other.first_entry_id for one, other in itertools.pairwise(fragments)))
        require(fragments[0].first_entry_id == 0)
        require(missed == self.missing)
        before = self.meta.metadata
        after = LedgerMetadata(*quorums, fragments, status, last_entry)
        self.missing = False
        if before is None or missed:
            self._catches_up(before, after, missed)
        elif before.status is LedgerStatus.CLOSED:
            self._changes_closed(before, after)
        elif status is LedgerStatus.CLOSED:
            self._closes(before, after)
        elif before.fragments != fragments:
            self._changes_ensemble(before, after)
        else:
            require(before.status is LedgerStatus.OPEN or status is LedgerStatus.IN_RECOVERY)
        self.meta.metadata, self.meta.version = after, version
        self.known |= {fragments}
        for b in self.bookies:
            if not self._is_in_ledger(b):
                bookie = self.bookie[b]
                bookie.forgotten = bookie.life
                bookie.life += 1
        self._advance()

    def _catches_up(self, before: LedgerMetadata | None, after: LedgerMetadata, missed: bool) -> None:
        """The first version that is seen, or one after unseen ones."""
        if before is None:
            require(not self.whole or missed or (after.status is LedgerStatus.OPEN and len(after.fragments) == 1))
            end = (
                after.fragments[-1].first_entry_id - 1 if after.status is not LedgerStatus.CLOSED else after.last_entry
            )
            self.confirmed = max(self.confirmed, end)
            return
        order = tuple(LedgerStatus)
        require(order.index(before.status) <= order.index(after.status))
        if after.status is LedgerStatus.CLOSED:
            require(before.status is not LedgerStatus.CLOSED or before.last_entry == after.last_entry)
            if before.status is not LedgerStatus.CLOSED:
                self._ends(before, after)
        elif self.whole:
            self.confirmed = max(self.confirmed, after.fragments[-1].first_entry_id - 1)

    def _changes_ensemble(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """The owner has replaced bookies that failed, from the entry after its LAC on; or copies of older fragments
        were moved.

        A recovery does not publish its changes until it closes the ledger.
        """
        old, new = before.fragments, after.fragments
        require(after.status is before.status)
        if len(new) == len(old) and new[-1] == old[-1]:
            self._moves_copies(before, after)
            return
        require(before.status is LedgerStatus.OPEN)
        first = new[-1].first_entry_id
        require(new[: len(old) - 1] == old[:-1])
        require(len(new) == len(old) + 1 if first != old[-1].first_entry_id else len(new) == len(old))
        if len(new) > len(old):
            require(new[-2] == old[-1])
        require(
            all(
                b == other or b not in old[-1].ensemble
                for b, other in zip(new[-1].ensemble, old[-1].ensemble, strict=True)
            )
        )
        if self.whole:
            require(first - 1 <= self.confirmed)
            self.confirmed = lac_reached(first - 1, self.pushed, self._is_committed(new))
            require(self.claimed <= self.confirmed)

    def _closes(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """The owner closes the ledger at its LAC, or a recovery closes it where it ends, with the fragments that it has
        made.

        Java's owner also does that while somebody recovers the ledger, after a bookie has refused an add: it knows what
        was confirmed.
        """
        old, new, end = before.fragments, after.fragments, after.last_entry
        require(end >= old[-1].first_entry_id - 1)
        if before.status is LedgerStatus.OPEN:
            require(new == old)
        elif new != old or end > self.confirmed or not any(bookie.refused for bookie in self.bookie.values()):
            require(new[: len(old) - 1] == old[:-1])
            require(len(new) >= len(old) and new[len(old) - 1].first_entry_id == old[-1].first_entry_id)
            if self.whole and self.durable:
                asked = self._write_set(end + 1, old)
                lacked = self.entry[end + 1].lacked | {b for b in asked if self.bookie[b].unseen}
                require(recovery_read(False, lacked, (), asked, self.ack_quorum) is Verdict.NEGATIVE)
        self._ends(before, after)

    def _ends(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """A ledger is closed: no entry up to a LAC that its owner has sent is cut off, and every remaining entry has
        its ack quorum.
        """
        end = after.last_entry
        require(end >= -1)
        if not self.whole:
            return
        require(self.claimed <= end)
        is_stored = self._is_committed(after.fragments, closing=True)
        for entry_id in range(before.fragments[-1].first_entry_id, end + 1):
            require(is_stored(entry_id))
        self.confirmed = end

    def _changes_closed(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Of a closed ledger only the places of its copies change."""
        require((after.status, after.last_entry) == (before.status, before.last_entry))
        self._moves_copies(before, after)

    def _moves_copies(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Copies of fragments were moved. A bookie that was sent one of the entries has all of them."""
        firsts = [fragment.first_entry_id for fragment in after.fragments]
        require(firsts == [fragment.first_entry_id for fragment in before.fragments])
        end = after.last_entry if after.status is LedgerStatus.CLOSED else firsts[-1] - 1
        for number, (old, new) in enumerate(zip(before.fragments, after.fragments, strict=True)):
            last = firsts[number + 1] - 1 if number + 1 < len(firsts) else end
            fresh = [b for b in new.ensemble if b not in old.ensemble]
            if not self.whole or not fresh:
                continue
            for entry_id in range(new.first_entry_id, last + 1):
                for b in write_set(entry_id, tuple(new.ensemble), self.write_quorum):
                    copied = self.entry[entry_id].recovered | self.entry[entry_id].confirmed
                    require(b not in fresh or b in copied or not self.bookie[b].confirmed)

    @action(by="zk")
    def ledger_is_deleted(self) -> None:
        """The ledger is deleted. Nothing that was known of it binds anybody."""
        self.gone = True

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant
    def nothing_that_was_told_is_cut_off(self) -> bool:
        """A closed ledger ends at or after every LAC that its owner has sent."""
        metadata = self.meta.metadata
        return metadata is None or metadata.status is not LedgerStatus.CLOSED or self.claimed <= metadata.last_entry
