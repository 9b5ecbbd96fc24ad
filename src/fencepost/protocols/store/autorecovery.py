"""Auto-recovery as a protocol: bookies stop and come back, an auditor publishes the ledgers of those that are lost, and
workers give these ledgers other bookies, while writers change ensembles and recoveries close ledgers.

The decisions are those of the store: `fencepost.ledger.rules.auditing` and `fencepost.ledger.rules.replication`, and
the rules of metadata and ensembles. Nodes of the metadata service are as BookKeeper's
``ZkLedgerUnderreplicationManager`` has them: an ephemeral vote of each process, a mark and an ephemeral lock of each
ledger.

A bookie that stops keeps what it has. Requests to bookies are answered at once, and a writer has one entry in flight. A
recovery fences one bookie at a time, and reads, writes back and closes in one step. An audit is one step. `store` has
writers and recoveries in detail. Entry ids start at 0; a LAC of -1 means that nothing is confirmed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import ClassVar

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
    assumption,
    configuration,
    constant,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    sometimes,
    state,
    step_invariant,
)
from fencepost.ledger.rules.adding import lac_reached
from fencepost.ledger.rules.auditing import VOTE, Due, Watched, audited, in_order, met, seen, to_publish
from fencepost.ledger.rules.ensembles import (
    Fragment,
    are_quorums,
    covers_ensemble,
    fragment_of,
    with_ensemble,
)
from fencepost.ledger.rules.metadata import (
    NOT_CLOSED,
    LedgerMetadata,
    LedgerStatus,
    Next,
    closed,
    current_ensemble,
    marked_in_recovery,
    takes_update,
    to_change_ensemble,
    to_close,
    to_close_recovered,
    to_start_recovery,
    with_changed_ensemble,
)
from fencepost.ledger.rules.placement import Placement, Policy, Unplaced, chosen, replaced, replacement, spread
from fencepost.ledger.rules.protections import Protections
from fencepost.ledger.rules.replication import (
    is_closed_fragment,
    lost,
    replaceable,
    sources,
    span,
    waits_for_end,
    with_replacement,
)
from fencepost.protocols.protections import switched_on
from fencepost.protocols.types import Types, at_least, one_of_kind, or_none, typed

NOTHING = NOT_CLOSED
"""The LAC of a ledger without confirmed entries."""


class Owner(enum.Enum):
    """The status of a ledger's writer."""

    WRITES = "writes"
    CLOSED = "closed"
    FENCED_OFF = "fenced off"


class Phase(enum.Enum):
    """What the worker of a process does."""

    IDLE = "idle"
    LOOKING = "looking"
    """It has a ledger, and looks for replicas to replace."""
    COPYING = "copying"
    WAITING = "waiting"
    """A lost bookie is where the ledger is written. The writer has some time to replace it."""
    WHOLE = "whole"
    """It has seen that no bookie of the ledger is lost, and removes the mark next."""


class Held(Record):
    """A ledger on a bookie."""

    entries: frozenset[int] = frozenset()
    fenced: bool = False


class Mark(Record):
    """The node of an under-replicated ledger. Its version begins anew when it is created again."""

    missing: tuple[ModelValue, ...]
    version: int = 0


class Writer(Record):
    """``metadata`` and ``version``: as it last read or wrote them. ``sent``: its last entry."""

    status: Owner = Owner.WRITES
    metadata: LedgerMetadata | None = None
    version: int = 0
    sent: int = NOTHING
    lac: int = NOTHING


class Repair(Record):
    """A replica that a worker replaces, in the metadata as it has read them."""

    metadata: LedgerMetadata
    version: int
    fragment: int
    gone: ModelValue
    new: ModelValue


class Process(Record):
    """A process that runs auto-recovery. ``vote``: its number. ``watched``: what it knows as auditor.

    Of its worker: the ledger that it works at, the version of the mark that it has read, its repair, and how many
    entries it has copied for that.
    """

    vote: int | None = None
    watched: Watched | None = None
    phase: Phase = Phase.IDLE
    ledger: ModelValue | None = None
    marked: int = 0
    repair: Repair | None = None
    copied: int = 0


def _is_metadata(protocol: AutoRecovery, metadata: LedgerMetadata) -> bool:
    firsts = [fragment.first_entry_id for fragment in metadata.fragments]
    return (
        firsts == sorted({*firsts})
        and firsts[0] == 0
        and all(len({*each.ensemble} & {*protocol.bookies}) == protocol.write_quorum for each in metadata.fragments)
        and (metadata.status is LedgerStatus.CLOSED or metadata.last_entry == NOTHING)
    )


def _are_bookies(protocol: AutoRecovery, bookies: Iterable[ModelValue]) -> bool:
    return {*bookies} <= {*protocol.bookies}


TYPES: Types = {
    LedgerMetadata: _is_metadata,
    "metadata": _is_metadata,
    "version": at_least(0),
    "writer.sent": at_least(NOTHING),
    "writer.lac": at_least(NOTHING),
    "held.entries": lambda protocol, entries: entries <= {*range(protocol.send_limit)},
    "mark": or_none(lambda protocol, mark: _are_bookies(protocol, mark.missing) and mark.version >= 0),
    "lock": or_none(lambda protocol, process: process in protocol.processes),
    "recovery": or_none(at_least(1)),
    "process.watched": or_none(lambda protocol, watched: _are_bookies(protocol, watched.known | watched.waiting)),
    "process.ledger": or_none(lambda protocol, ledger: ledger in protocol.ledgers),
    "process.repair": or_none(lambda protocol, repair: _is_metadata(protocol, repair.metadata)),
    "up": one_of_kind(bool),
    "stops": at_least(0),
    "ends": at_least(0),
}


COPIES = "acknowledged_entries_keep_their_copies"
MARKED = "ledgers_of_lost_bookies_are_marked"


class AutoRecovery(Protocol):
    """Ledgers of lost bookies get others, while they are written, recovered and closed."""

    name: ClassVar[str] = "autorecovery"

    bookies: tuple[ModelValue, ...] = model_values("b", 3, "the bookies")
    ledgers: tuple[ModelValue, ...] = model_values("l", 1, "the ledgers", symmetric=True)
    processes: tuple[ModelValue, ...] = model_values("p", 1, "the processes that run auto-recovery", symmetric=True)
    racks: int = constant(1, "racks that the bookies are in, in turn; each entry is to be in all of them")
    write_quorum: int = constant(2, "bookies that each entry is sent to, and of each ensemble")
    ack_quorum: int = constant(2, "bookies that must have an entry before it is confirmed")
    send_limit: int = constant(1, "entries that a writer sends")
    max_stops: int = constant(2, "how often a bookie stops, in all")
    max_ends: int = constant(0, "how often a process, or its session, ends, in all; another begins at once")

    clients_recover: bool = constant(
        True, "whether clients recover ledgers at any time, or only workers that have waited"
    )

    conditional_updates: bool = constant(True, "whether metadata are replaced only if nobody has changed them")
    ledgers_are_locked: bool = constant(True, "whether a worker takes only a ledger that it can lock")
    entries_precede_metadata: bool = constant(True, "whether the metadata name a bookie only once it has the entries")
    open_fragments_wait: bool = constant(
        True, "whether the fragment that is written is repaired only once a recovery has fenced and closed the ledger"
    )
    marks_have_versions: bool = constant(True, "whether a mark is removed only at the version that its worker has read")
    marks_are_renewed: bool = constant(True, "whether an audit writes the mark of a locked ledger in any case")
    oldest_vote_audits: bool = constant(True, "whether only the process with the oldest vote is the auditor")
    returns_are_noticed: bool = constant(
        True, "whether an auditor notices each return of a bookie, or only whether it is registered now and then"
    )
    auditors_begin_with_cookies: bool = constant(
        True, "whether a new auditor expects all bookies that have a cookie, or those that are registered"
    )

    placement_is_enforced: bool = constant(
        True, "whether a bookie is rather not replaced than by one that leaves an entry in fewer racks"
    )

    up: PerKey[ModelValue, bool] = per_key(bookies, True)
    held: PerKey[ModelValue, PerKey[ModelValue, Held]] = per_key(bookies, per_key(ledgers, Held))
    writer: PerKey[ModelValue, Writer] = per_key(ledgers, Writer)
    metadata: PerKey[ModelValue, LedgerMetadata | None] = state(per_key(ledgers, None), held_by="zk")
    version: PerKey[ModelValue, int] = state(per_key(ledgers, 0), held_by="zk")
    mark: PerKey[ModelValue, Mark | None] = state(per_key(ledgers, None), held_by="zk")
    lock: PerKey[ModelValue, ModelValue | None] = state(per_key(ledgers, None), held_by="zk")
    recovery: PerKey[ModelValue, int | None] = per_key(ledgers, None)
    """The version of the metadata that a recovery has marked."""
    process: PerKey[ModelValue, Process] = per_key(processes, Process)
    stops: int = state(0)
    ends: int = state(0)

    @property
    def protections(self) -> Protections:
        """The protections of ledgers that this protocol can switch off, and all others."""
        return switched_on(self, Protections)

    @property
    def placement(self) -> Placement:
        """Where the bookies are, and how far entries are spread."""
        policy = Policy(
            min_num_racks_per_write_quorum=self.racks,
            enforce_min_num_racks_per_write_quorum=self.placement_is_enforced,
        )
        return Placement(policy, tuple((b, f"/rack-{n % self.racks}") for n, b in enumerate(self.bookies)))

    @assumption
    def quorums_fit(self) -> bool:
        """An ensemble is a write quorum, and there is another bookie."""
        return are_quorums(self.write_quorum, self.write_quorum, self.ack_quorum) and self.write_quorum < len(
            self.bookies
        )

    @property
    def _quorums(self) -> tuple[int, int]:
        return self.write_quorum, self.ack_quorum

    def _registered(self) -> tuple[ModelValue, ...]:
        return tuple(b for b in self.bookies if self.up[b])

    @initial
    def ledgers_are_created(self) -> None:
        """Every ledger is created on the first bookies, and its writer has sent nothing."""
        ensemble = chosen(self.bookies, self.write_quorum, self._quorums, self.placement)
        assert not isinstance(ensemble, Unplaced)
        created = LedgerMetadata(self.write_quorum, self.write_quorum, self.ack_quorum, (Fragment(0, ensemble),))
        for ledger in self.ledgers:
            self.metadata[ledger] = self.writer[ledger].metadata = created

    def _metadata(self, ledger: ModelValue) -> LedgerMetadata:
        metadata = self.metadata[ledger]
        assert metadata is not None, "every ledger is created"
        return metadata

    def _write(self, ledger: ModelValue, metadata: LedgerMetadata) -> None:
        self.metadata[ledger] = metadata
        self.version[ledger] += 1

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies, by="b")
    def bookie_stops(self, b: ModelValue) -> None:
        """A bookie stops, and is no longer registered. It keeps what it has."""
        require(self.up[b] and self.stops < self.max_stops)
        self.up[b] = False
        self.stops += 1

    @action(b=bookies, by="b")
    def bookie_returns(self, b: ModelValue) -> None:
        """A bookie serves again, with all that it had."""
        require(not self.up[b])
        self.up[b] = True
        for p in self.processes:
            watched = self.process[p].watched
            if watched is not None and self.returns_are_noticed:
                self.process[p].watched = met(watched, (b,))  # type: ignore[arg-type]

    # -- the writer ----------------------------------------------------------------------------------------------------

    def _own(self, ledger: ModelValue) -> LedgerMetadata:
        """The metadata as their writer knows them, while it writes."""
        writer = self.writer[ledger]
        require(writer.status is Owner.WRITES)
        assert writer.metadata is not None, "every ledger is created"
        return writer.metadata

    @action(ledger=ledgers)
    def writer_sends(self, ledger: ModelValue) -> None:
        """A writer sends its next entry, once the one before is confirmed."""
        self._own(ledger)
        writer = self.writer[ledger]
        require(writer.sent == writer.lac and writer.sent + 1 < self.send_limit)
        writer.sent += 1

    @action(ledger=ledgers, b=bookies)
    def bookie_stores(self, ledger: ModelValue, b: ModelValue) -> None:
        """A bookie of the writer's ensemble stores the last entry."""
        writer, held = self.writer[ledger], self.held[b][ledger]
        require(b in current_ensemble(self._own(ledger)))
        require(self.up[b] and not held.fenced)
        require(writer.sent > NOTHING and writer.sent not in held.entries)
        held.entries |= {writer.sent}

    @action(ledger=ledgers)
    def writer_confirms(self, ledger: ModelValue) -> None:
        """An ack quorum has the last entry: it is acknowledged."""
        ensemble = current_ensemble(self._own(ledger))
        writer = self.writer[ledger]
        reached = lac_reached(
            writer.lac,
            writer.sent,
            lambda entry_id: sum(entry_id in self.held[b][ledger].entries for b in ensemble) >= self.ack_quorum,
        )
        require(reached > writer.lac)
        writer.lac = reached

    @action(ledger=ledgers)
    def writer_is_fenced_off(self, ledger: ModelValue) -> None:
        """A fenced bookie refuses an entry. The writer ends."""
        ensemble = current_ensemble(self._own(ledger))
        writer = self.writer[ledger]
        require(writer.sent > writer.lac)
        require(any(self.up[b] and self.held[b][ledger].fenced for b in ensemble))
        self._ends(ledger, Owner.FENCED_OFF)

    def _ends(self, ledger: ModelValue, status: Owner) -> None:
        """The writer ends. What it knows does not matter any more."""
        writer = self.writer[ledger]
        writer.status, writer.metadata, writer.version = status, None, 0

    @action(ledger=ledgers)
    def writer_changes_ensemble(self, ledger: ModelValue) -> None:
        """A writer replaces the bookies that are down, from the entry after the LAC."""
        own, writer = self._own(ledger), self.writer[ledger]
        failed = frozenset(b for b in current_ensemble(own) if not self.up[b])
        require(len(failed) > 0 and writer.sent > writer.lac)
        require(takes_update(writer.version, self.version[ledger], self.protections))
        require(to_change_ensemble(own.status, True) is Next.WRITE)
        ensemble = replaced(current_ensemble(own), failed, self._registered(), self._quorums, self.placement)
        require(not isinstance(ensemble, Unplaced))
        assert not isinstance(ensemble, Unplaced)
        self._write(ledger, with_changed_ensemble(own, ensemble, writer.lac))
        writer.metadata, writer.version = self.metadata[ledger], self.version[ledger]

    @action(ledger=ledgers)
    def writer_closes(self, ledger: ModelValue) -> None:
        """A writer closes its ledger at its LAC."""
        own, writer = self._own(ledger), self.writer[ledger]
        require(writer.sent == writer.lac)
        require(takes_update(writer.version, self.version[ledger], self.protections))
        require(to_close(own.status, False) is Next.WRITE)
        self._write(ledger, closed(own, writer.lac, 0))
        self._ends(ledger, Owner.CLOSED)

    @action(ledger=ledgers)
    def writer_reads_metadata(self, ledger: ModelValue) -> None:
        """The version has changed, and the write of a writer was refused. It reads them again, and ends if the ledger
        is not open any more.
        """
        self._own(ledger)
        writer = self.writer[ledger]
        require(writer.version != self.version[ledger])
        metadata = self._metadata(ledger)
        if metadata.status is LedgerStatus.OPEN:
            writer.metadata, writer.version = metadata, self.version[ledger]
        else:
            self._ends(ledger, Owner.FENCED_OFF)

    # -- recovery ------------------------------------------------------------------------------------------------------

    @action(ledger=ledgers)
    def recovery_begins(self, ledger: ModelValue) -> None:
        """A client recovers a ledger."""
        require(self.clients_recover)
        self._begin_recovery(ledger)

    def _begin_recovery(self, ledger: ModelValue) -> None:
        metadata = self._metadata(ledger)
        require(self.recovery[ledger] is None)
        require(to_start_recovery(metadata.status) is Next.WRITE)
        self._write(ledger, marked_in_recovery(metadata))
        self.recovery[ledger] = self.version[ledger]

    @action(ledger=ledgers, b=bookies)
    def recovery_fences(self, ledger: ModelValue, b: ModelValue) -> None:
        """A recovery fences a bookie of the last ensemble."""
        require(self.recovery[ledger] is not None)
        require(self.up[b] and not self.held[b][ledger].fenced)
        require(b in current_ensemble(self._metadata(ledger)))
        self.held[b][ledger].fenced = True

    @action(ledger=ledgers)
    def recovery_closes(self, ledger: ModelValue) -> None:
        """Fenced bookies cover the ensemble. A recovery writes the last entry that one of them has back to an ack
        quorum, with others in place of the bookies that are down, and closes the ledger there.

        The entries before it are confirmed, since an add carries the LAC.
        """
        marked = self.recovery[ledger]
        require(marked is not None)
        assert marked is not None
        metadata = self._metadata(ledger)
        fragment = metadata.fragments[-1]
        answers = frozenset(b for b in fragment.ensemble if self.up[b] and self.held[b][ledger].fenced)
        require(covers_ensemble(answers, fragment.ensemble, self.write_quorum, self.ack_quorum))
        last = max((max(self.held[b][ledger].entries, default=NOTHING) for b in answers), default=NOTHING)
        last = max(last, fragment.first_entry_id - 1)
        fragments = metadata.fragments
        if last >= fragment.first_entry_id:
            ensemble = fragment.ensemble
            failed = frozenset(b for b in ensemble if not self.up[b])
            if failed:
                others = replaced(ensemble, failed, self._registered(), self._quorums, self.placement)
                ensemble = ensemble if isinstance(others, Unplaced) else others
            if ensemble != fragment.ensemble:
                fragments = with_ensemble(fragments, ensemble, last)
            writable = [b for b in ensemble if self.up[b]]
            require(len(writable) >= self.ack_quorum)
            for b in writable:
                self.held[b][ledger].entries |= {last}
        require(takes_update(marked, self.version[ledger], self.protections))
        require(to_close_recovered(metadata.status, True) is Next.WRITE)
        self._write(ledger, closed(metadata, last, 0, fragments))
        self.recovery[ledger] = None

    # -- the auditor ---------------------------------------------------------------------------------------------------

    @action(p=processes, by="p")
    def process_votes(self, p: ModelValue) -> None:
        """A process stands for election. Its vote is younger than all others."""
        require(self.process[p].vote is None)
        others = [self.process[q].vote for q in self.processes]
        self.process[p].vote = max((vote for vote in others if vote is not None), default=-1) + 1

    @action(p=processes, by="p")
    def process_is_elected(self, p: ModelValue) -> None:
        """A process finds its vote to be the oldest, and is the auditor."""
        me = self.process[p]
        require(me.vote is not None and me.watched is None)
        votes = in_order(f"{VOTE}{self.process[q].vote}" for q in self.processes if self.process[q].vote is not None)
        require(not self.oldest_vote_audits or votes[0] == f"{VOTE}{me.vote}")
        expected = self.bookies if self.auditors_begin_with_cookies else self._registered()
        me.watched = Watched(known=frozenset(expected))  # type: ignore[arg-type]

    @action(p=processes, by="p")
    def auditor_looks(self, p: ModelValue) -> None:
        """An auditor finds bookies lost, or back."""
        me = self.process[p]
        require(me.watched is not None)
        assert me.watched is not None
        watched, _ = seen(me.watched, self._registered(), delay=1)  # type: ignore[arg-type]
        require(watched != me.watched)
        me.watched = watched

    @action(p=processes, by="p")
    def auditor_audits(self, p: ModelValue) -> None:
        """The delay is over, and a bookie is still lost. The auditor publishes every ledger with a lost bookie."""
        me = self.process[p]
        require(me.watched is not None)
        assert me.watched is not None
        watched, due = seen(me.watched, self._registered(), delay=0)  # type: ignore[arg-type]
        require(watched == me.watched and due is Due.NOW)
        for ledger in self.ledgers:
            gone = lost(self._metadata(ledger), self._registered())  # type: ignore[arg-type]
            if gone:
                self._publish(ledger, gone)  # type: ignore[arg-type]
        me.watched = audited(watched)

    def _publish(self, ledger: ModelValue, gone: frozenset[ModelValue]) -> None:
        mark = self.mark[ledger]
        is_locked = self.marks_are_renewed and self.lock[ledger] is not None
        missing = to_publish(None if mark is None else mark.missing, gone, is_locked)
        if missing is not None:
            self.mark[ledger] = Mark(missing, 0 if mark is None else mark.version + 1)

    # -- the worker ----------------------------------------------------------------------------------------------------

    @action(p=processes, ledger=ledgers, by="p")
    def worker_takes(self, p: ModelValue, ledger: ModelValue) -> None:
        """A worker locks a ledger that is published."""
        me, mark = self.process[p], self.mark[ledger]
        require(me.phase is Phase.IDLE and mark is not None)
        assert mark is not None
        require(self.lock[ledger] is None or not self.ledgers_are_locked)
        self.lock[ledger] = p
        me.phase, me.ledger, me.marked = Phase.LOOKING, ledger, mark.version

    def _works(self, p: ModelValue, phase: Phase) -> ModelValue:
        """The ledger of a worker in this phase."""
        me = self.process[p]
        require(me.phase is phase)
        assert me.ledger is not None, "a worker that is not idle has a ledger"
        return me.ledger

    def _release(self, p: ModelValue) -> None:
        me = self.process[p]
        if me.ledger is not None and self.lock[me.ledger] == p:
            self.lock[me.ledger] = None
        me.phase, me.ledger, me.marked, me.repair, me.copied = Phase.IDLE, None, 0, None, 0

    def _gone(self, ledger: ModelValue) -> frozenset[ModelValue]:
        gone: frozenset[ModelValue] = lost(self._metadata(ledger), self._registered())  # type: ignore[arg-type,assignment]
        return gone

    def _replaceable(self, ledger: ModelValue) -> list[tuple[int, ModelValue]]:
        metadata, gone = self._metadata(ledger), self._gone(ledger)
        found: list[tuple[int, ModelValue]] = replaceable(metadata, gone)  # type: ignore[arg-type,assignment]
        if not self.open_fragments_wait and metadata.status is LedgerStatus.OPEN:
            found += [(len(metadata.fragments) - 1, b) for b in current_ensemble(metadata) if b in gone]
        return found

    @action(p=processes, by="p")
    def worker_begins_repair(self, p: ModelValue) -> None:
        """A worker finds a replica on a lost bookie, and another bookie for it."""
        ledger = self._works(p, Phase.LOOKING)
        found = self._replaceable(ledger)
        require(len(found) > 0)
        fragment, gone = found[0]
        metadata = self._metadata(ledger)
        new = self._replacement(ledger, (one_of(self._registered()), *self._registered()))
        require(not isinstance(new, Unplaced))
        me = self.process[p]
        me.phase, me.copied = Phase.COPYING, 0
        me.repair = Repair(metadata, self.version[ledger], fragment, gone, new)  # type: ignore[arg-type]

    def _replacement(self, ledger: ModelValue, candidates: Sequence[ModelValue]) -> ModelValue | Unplaced:
        """The first candidate that can take the place of the first lost replica of a ledger."""
        metadata, (fragment, gone) = self._metadata(ledger), self._replaceable(ledger)[0]
        ensemble = metadata.fragments[fragment].ensemble
        return replacement(ensemble, gone, self._gone(ledger), candidates, self._quorums, self.placement)

    def _to_copy(self, p: ModelValue) -> range:
        """The entries of the fragment that a worker repairs: of one that is written, those that a bookie has."""
        me = self.process[p]
        assert me.repair is not None and me.ledger is not None, "who copies has a repair"
        metadata, place = me.repair.metadata, me.repair.fragment
        if is_closed_fragment(metadata, place):
            return span(metadata, place)
        fragment = metadata.fragments[place]
        ends = [max(self.held[b][me.ledger].entries, default=NOTHING) + 1 for b in fragment.ensemble if self.up[b]]
        return range(fragment.first_entry_id, max(ends, default=fragment.first_entry_id))

    def _can_copy(self, p: ModelValue, entry_id: int) -> bool:
        """Whether the new bookie can be given an entry: it serves, and so does one that has the entry."""
        me = self.process[p]
        assert me.repair is not None and me.ledger is not None, "who copies has a repair"
        ledger, repair = me.ledger, me.repair
        several = sources(repair.metadata, entry_id, repair.gone)
        return self.up[repair.new] and any(self.up[b] and entry_id in self.held[b][ledger].entries for b in several)

    @action(p=processes, by="p")
    def worker_copies(self, p: ModelValue) -> None:
        """A worker gives the new bookie the next entry, which it reads from another bookie of its write set."""
        ledger = self._works(p, Phase.COPYING)
        me, entries = self.process[p], self._to_copy(p)
        require(me.copied < len(entries))
        assert me.repair is not None
        require(self._can_copy(p, entries[me.copied]))
        self.held[me.repair.new][ledger].entries |= {entries[me.copied]}
        me.copied += 1

    @action(p=processes, by="p")
    def worker_gives_up(self, p: ModelValue) -> None:
        """The next entry cannot be copied now. A worker leaves the ledger for later."""
        self._works(p, Phase.COPYING)
        me, entries = self.process[p], self._to_copy(p)
        require(me.copied < len(entries) and not self._can_copy(p, entries[me.copied]))
        self._release(p)

    @action(p=processes, by="p")
    def worker_replaces(self, p: ModelValue) -> None:
        """The new bookie has all entries. A worker names it in the metadata, unless somebody has changed them. Then, or
        if more is lost, it looks again.
        """
        ledger = self._works(p, Phase.COPYING)
        me = self.process[p]
        require(not self.entries_precede_metadata or me.copied >= len(self._to_copy(p)))
        repair = me.repair
        assert repair is not None, "who copies has a repair"
        if takes_update(repair.version, self.version[ledger], self.protections):
            self._write(ledger, with_replacement(repair.metadata, repair.fragment, repair.gone, repair.new))  # type: ignore[arg-type]
        me.phase, me.repair, me.copied = Phase.LOOKING, None, 0

    @action(p=processes, by="p")
    def worker_looks_at_the_whole(self, p: ModelValue) -> None:
        """A worker has nothing to replace. It waits for the end of a ledger that is written on a lost bookie, or has
        seen that the ledger is whole.
        """
        ledger = self._works(p, Phase.LOOKING)
        require(not self._replaceable(ledger))
        gone = self._gone(ledger)
        waits = waits_for_end(self._metadata(ledger), gone)  # type: ignore[arg-type]
        self.process[p].phase = Phase.WAITING if waits else Phase.WHOLE

    @action(p=processes, by="p")
    def worker_leaves_it(self, p: ModelValue) -> None:
        """There is no bookie to copy to. A worker leaves the ledger for later."""
        ledger = self._works(p, Phase.LOOKING)
        require(len(self._replaceable(ledger)) > 0)
        require(isinstance(self._replacement(ledger, self._registered()), Unplaced))
        self._release(p)

    @action(p=processes, by="p")
    def worker_recovers(self, p: ModelValue) -> None:
        """The time of the writer is over. A worker has the ledger closed by a recovery."""
        ledger = self._works(p, Phase.WAITING)
        require(waits_for_end(self._metadata(ledger), self._gone(ledger)))  # type: ignore[arg-type]
        self._begin_recovery(ledger)

    @action(p=processes, by="p")
    def worker_looks_again(self, p: ModelValue) -> None:
        """The ledger is closed, or no lost bookie is where it is written. A worker looks for replicas again."""
        ledger = self._works(p, Phase.WAITING)
        require(not waits_for_end(self._metadata(ledger), self._gone(ledger)))  # type: ignore[arg-type]
        self.process[p].phase = Phase.LOOKING

    @action(p=processes, by="p")
    def worker_removes_mark(self, p: ModelValue) -> None:
        """A worker removes the mark, unless it was written again meanwhile, and the lock."""
        ledger = self._works(p, Phase.WHOLE)
        mark = self.mark[ledger]
        if mark is not None and (mark.version == self.process[p].marked or not self.marks_have_versions):
            self.mark[ledger] = None
        self._release(p)

    @action(p=processes, by="p")
    def process_ends(self, p: ModelValue) -> None:
        """A process or its session ends, with its vote and its lock, and another begins."""
        require(self.ends < self.max_ends)
        require(self.process[p] != Process())
        self._release(p)
        self.process[p] = Process()
        self.ends += 1

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: TYPES)

    @invariant(ledger=ledgers)
    def acknowledged_entries_keep_their_copies(self, ledger: ModelValue) -> bool:
        """Of the bookies that the metadata name for it, an ack quorum has each acknowledged entry."""
        fragments = self._metadata(ledger).fragments
        return all(
            sum(entry_id in self.held[b][ledger].entries for b in fragment_of(fragments, entry_id).ensemble)
            >= self.ack_quorum
            for entry_id in range(self.writer[ledger].lac + 1)
        )

    @invariant(ledger=ledgers)
    def closed_ledgers_have_what_is_acknowledged(self, ledger: ModelValue) -> bool:
        """A closed ledger ends at its last acknowledged entry, or after it."""
        metadata = self._metadata(ledger)
        return metadata.status is not LedgerStatus.CLOSED or metadata.last_entry >= self.writer[ledger].lac

    @step_invariant(ledger=ledgers)
    def new_bookies_have_the_entries(self, after: AutoRecovery, ledger: ModelValue) -> bool:
        """A bookie that joins the ensemble of a closed fragment has all acknowledged entries of the fragment."""
        before, now = self._metadata(ledger), after._metadata(ledger)
        if before == now:
            return True
        firsts = {each.first_entry_id: each.ensemble for each in before.fragments}
        return all(
            entry_id in after.held[b][ledger].entries
            for place, fragment in enumerate(now.fragments)
            if fragment.first_entry_id in firsts and is_closed_fragment(now, place)
            for b in fragment.ensemble
            if b not in firsts[fragment.first_entry_id]
            for entry_id in span(now, place)
            if entry_id <= after.writer[ledger].lac
        )

    @step_invariant(ledger=ledgers)
    def what_is_closed_keeps_its_end(self, after: AutoRecovery, ledger: ModelValue) -> bool:
        """A closed ledger stays closed, at the same entry. Its ensembles may change."""
        before, now = self._metadata(ledger), after._metadata(ledger)
        return before.status is not LedgerStatus.CLOSED or (now.status, now.last_entry) == (
            before.status,
            before.last_entry,
        )

    @invariant(ledger=ledgers)
    def entries_are_in_all_racks(self, ledger: ModelValue) -> bool:
        """The bookies of each fragment are in as many racks as each entry is to be in."""
        fragments, placement = self._metadata(ledger).fragments, self.placement
        return all(spread(each.ensemble, self._quorums, placement).lacking == 0 for each in fragments)

    @invariant(ledger=ledgers)
    def one_worker_copies_a_ledger(self, ledger: ModelValue) -> bool:
        """No two workers work at the same ledger."""
        return sum(self.process[p].ledger == ledger for p in self.processes) <= 1

    @invariant
    def there_is_one_auditor(self) -> bool:
        """No two processes audit."""
        return sum(self.process[p].watched is not None for p in self.processes) <= 1

    @invariant(ledger=ledgers)
    def ledgers_of_lost_bookies_are_marked(self, ledger: ModelValue) -> bool:
        """A ledger that names a bookie that is down is marked, unless an auditor is still to find the bookie lost."""
        return self.mark[ledger] is not None or not any(
            each in self._given_up() for fragment in self._metadata(ledger).fragments for each in fragment.ensemble
        )

    def _given_up(self) -> frozenset[ModelValue]:
        """The bookies that are down, and that an auditor does not expect any more, as it has published their
        ledgers.
        """
        watching = [self.process[p].watched for p in self.processes]
        expected = [watched.known | watched.waiting for watched in watching if watched is not None]
        return frozenset(b for b in self.bookies if not self.up[b] and any(b not in each for each in expected))

    # -- what can happen -----------------------------------------------------------------------------------------------

    @sometimes(ledger=ledgers)
    def a_ledger_is_whole_again(self, ledger: ModelValue) -> bool:
        """A closed ledger with an acknowledged entry has lost a bookie, and has another in its place and no mark."""
        metadata = self._metadata(ledger)
        return (
            metadata.status is LedgerStatus.CLOSED
            and self.writer[ledger].lac > NOTHING
            and self.mark[ledger] is None
            and len(self._given_up()) > 0
        )

    @sometimes(ledger=ledgers)
    def a_worker_fences_a_writer_off(self, ledger: ModelValue) -> bool:
        """A writer is fenced off by the recovery of a worker that has waited for it."""
        return self.writer[ledger].status is Owner.FENCED_OFF and any(
            self.process[p].ledger == ledger and self.process[p].phase is Phase.WAITING for p in self.processes
        )

    # -- configurations ------------------------------------------------------------------------------------------------

    configurations = {
        "default": configuration(doc="one ledger of one entry, one process, and bookies that stop twice"),
        "small": configuration(max_stops=1, doc="a bookie that stops once"),
        "two-processes": configuration(processes=2, max_stops=1, doc="two processes, and a bookie that stops once"),
        "ends": configuration(max_stops=1, max_ends=1, doc="the process ends at any time, and with it its session"),
        "two-entries": configuration(
            send_limit=2, clients_recover=False, doc="two entries, and nobody but the worker recovers"
        ),
        "one-confirms": configuration(ack_quorum=1, doc="one of two bookies confirms an entry"),
        "two-ledgers": configuration(
            ledgers=2, max_stops=1, clients_recover=False, doc="two ledgers, and a bookie that stops once"
        ),
        "four-bookies": configuration(bookies=4, clients_recover=False, doc="one bookie more to choose from"),
        "two-racks": configuration(
            bookies=4, racks=2, clients_recover=False, doc="four bookies in two racks, and each entry in both"
        ),
        "without-locks": configuration(
            "one_worker_copies_a_ledger",
            "a worker takes a ledger that another has",
            processes=2,
            ledgers_are_locked=False,
        ),
        "unconditional-updates": configuration(
            "what_is_closed_keeps_its_end", "metadata are replaced that somebody has changed", conditional_updates=False
        ),
        "metadata-first": configuration(
            COPIES, "the metadata name a bookie before it has the entries", entries_precede_metadata=False
        ),
        "open-fragments": configuration(
            COPIES, "a fragment is repaired while it is written", open_fragments_wait=False
        ),
        "marks-at-any-version": configuration(
            MARKED, "a mark is removed that names another bookie by now", marks_have_versions=False
        ),
        "as-bookkeeper": configuration(
            MARKED, "a mark is removed that named the bookie already, before it was lost again", marks_are_renewed=False
        ),
        "returns-overlooked": configuration(
            MARKED, "a bookie returns and is lost again while the auditor looks elsewhere", returns_are_noticed=False
        ),
        "registered-alone": configuration(
            MARKED, "an auditor does not expect who was lost before it was elected", auditors_begin_with_cookies=False
        ),
        "not-enforced": configuration(
            "entries_are_in_all_racks",
            "a rack is away for a while, and its bookies are replaced by some of the other rack",
            bookies=4,
            racks=2,
            clients_recover=False,
            placement_is_enforced=False,
        ),
        "anyone-audits": configuration(
            "there_is_one_auditor", "everybody who votes is the auditor", processes=2, oldest_vote_audits=False
        ),
    }
