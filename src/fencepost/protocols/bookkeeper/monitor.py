"""A monitor of the published replication protocol: what the trace of a ledger never shows, whichever store wrote it.

A replay against the rules that a store runs does not notice a fault in these rules, since store and validator have it
in common. So the monitor has none of them. It holds the facts of a trace to ``BookKeeperProtocol.tla``, by functions of
the published protocols (:mod:`fencepost.protocols.bookkeeper.ledger`) alone:

- An owner acknowledges an entry, and all before it, once an ack quorum of its write set has confirmed it. No message
  has a higher last add confirmed (LAC). The owner changes the ensemble from the entry after its LAC, and closes there.
- A fenced bookie confirms no entry of the owner. A bookie does not deny an entry that it has confirmed, unless it has
  reported a loss.
- A recovery reads once every ack quorum of the last ensemble has a fenced bookie. It reads from the entry after the
  highest LAC, and writes back what it finds. It closes where enough bookies lack the next entry, and every entry before
  has its ack quorum.
- A version of the metadata replaces the version before it, and keeps its complete fragments. What is closed stays so.
- A ledger ends at or after all that was acknowledged or read.

Most facts are known from one node alone, in its own order. The others hold in any order, so the monitor orders nothing.
The publication does not model deferred sync. With that, an entry may be cut off until it is forced, and where a changed
ensemble begins is not asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from fencepost.protocols.bookkeeper.ledger import covers, write_set
from fencepost.traces.validation.conformance import Event, Objection, by_action

Metadata: TypeAlias = Mapping[str, Any]
"""Metadata as traces have them."""

OPEN, IN_RECOVERY, CLOSED = "OPEN", "IN_RECOVERY", "CLOSED"

_STATES = (OPEN, IN_RECOVERY, CLOSED)
"""In the order in which a ledger has them."""

_NEGATIVES = ("NO_ENTRY", "NO_LEDGER")
"""The codes by which a bookie denies an entry."""


def _ids(event: Event) -> Iterator[int]:
    for first, last in event.parameters["entries"]:
        yield from range(first, last + 1)


def _ensemble(metadata: Metadata, entry_id: int) -> Sequence[str]:
    """The bookies of the fragment of an entry."""
    fragments = metadata["fragments"]
    found: Sequence[str] = next((held for first, held in reversed(fragments) if first <= entry_id), ())
    return found


def _confirmed_by(metadata: Metadata, entry_id: int, bookies: Iterable[str]) -> int:
    """How many bookies of the write set of an entry are among these."""
    asked = _write_set(metadata, entry_id, _ensemble(metadata, entry_id))
    return len(asked & set(bookies))


def _write_set(metadata: Metadata | None, entry_id: int, ensemble: Sequence[Any]) -> set[Any]:
    return set(write_set(entry_id, ensemble, metadata["write_quorum"])) if metadata and ensemble else set()


class _Bookie:
    """What a bookie has said in the lives so far. Positions in its journal are of the present life; 0: durable before
    it.
    """

    def __init__(self) -> None:
        self.has_lost = False
        """Whether it has reported a loss. Then it may be fenced although nobody has fenced it."""
        self.fenced_at: int | None = None
        self.has: dict[int, int] = {}
        """The positions of the entries that it has confirmed."""
        self.durable = 0

    def restart(self) -> None:
        """Forget what was not durable."""
        if self.fenced_at is not None:
            self.fenced_at = 0 if self.fenced_at <= self.durable else None
        self.has = {entry_id: 0 for entry_id, position in self.has.items() if position <= self.durable}
        self.durable = 0

    def lose(self) -> None:
        """Forget all."""
        self.has_lost, self.fenced_at, self.has = True, None, {}


class _Client:
    """A client that writes metadata. ``seen``: the metadata that it goes by; ``base``: the version that it last wanted
    to replace.
    """

    def __init__(self, metadata: Metadata | None) -> None:
        self.seen = metadata
        self.base: int | None = None
        self.confirmed: defaultdict[int, set[str]] = defaultdict(set)
        """The bookies that have confirmed each entry to it."""
        self.striped: set[tuple[str, ...]] = set()
        """The ensembles that it has sent adds to, and that are larger than the write quorum."""

    def adds_to(self, ensemble: Sequence[str]) -> None:
        """It sends adds to this ensemble."""
        if self.seen is not None and len(ensemble) != self.seen["write_quorum"]:
            self.striped.add(tuple(ensemble))

    def has_asked(self, bookie: str, entry_id: int) -> bool:
        """Whether a bookie is in the write set of an entry."""
        seen = self.seen
        return not self.striped or any(bookie in _write_set(seen, entry_id, each) for each in self.striped)

    def is_committed(self, entry_id: int, metadata: Metadata) -> bool:
        """Whether an ack quorum of the write set of an entry has confirmed it to this client."""
        count = _confirmed_by(metadata, entry_id, self.confirmed.get(entry_id, ()))
        return bool(count >= metadata["ack_quorum"])

    def first_uncommitted(self, begin: int, end: int, metadata: Metadata) -> int | None:
        """The first entry from ``begin`` to ``end`` without its ack quorum."""
        return next((each for each in range(begin, end + 1) if not self.is_committed(each, metadata)), None)


class _Owner(_Client):
    """``acknowledged``: the last entry that its caller knows to be stored; ``lac``: that may be told others, which is
    the same without deferred sync.
    """

    def __init__(self, metadata: Metadata | None) -> None:
        super().__init__(metadata)
        self.acknowledged = self.lac = -1
        self.deferred = False
        self.is_changing = False


class _Recovery(_Client):
    """``lac``: the highest LAC that bookies have told it. ``begin``: the first entry that it must read, once it
    reads.
    """

    def __init__(self, metadata: Metadata | None) -> None:
        super().__init__(metadata)
        self.lac = -1
        self.begin: int | None = None
        self.fenced: set[str] = set()
        self.found: set[int] = set()
        self.denied: defaultdict[int, set[str]] = defaultdict(set)
        self.reads_from: Sequence[str] = ()
        """The ensemble that it fences and reads from."""
        self.fragments: Sequence[Any] | None = None
        """Its own fragments, after it has replaced bookies."""

    def reached(self) -> int:
        """The last entry that is committed with all before it, as far as this recovery knows."""
        last = self.lac if self.begin is None else self.begin - 1
        while self.seen is not None and self.is_committed(last + 1, self.now(self.seen)):
            last += 1
        return last

    def now(self, metadata: Metadata) -> Metadata:
        """Metadata with its own fragments."""
        return metadata if self.fragments is None else {**metadata, "fragments": self.fragments}


class Monitor:
    """Looks at the events of one ledger in one run, node by node, each node's in order. ``objections``: what the
    publication rules out, in that order.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.objections: list[Objection] = []
        self.bookies: defaultdict[str, _Bookie] = defaultdict(_Bookie)
        self.clients: dict[tuple[str, int, str], _Client] = {}
        self.owners: list[_Owner] = []
        self.has_creator = False
        """Whether the owner is traced; ``is_deleted``: whether the ledger was deleted."""
        self.is_deleted = False
        self.versions: dict[int, tuple[Event, Metadata]] = {}
        self.closing: dict[int, Event] = {}
        """The first write that closes the ledger at each entry."""
        self.denials: list[Objection] = []
        self.readers: list[Event] = []
        self.last_read: tuple[int, Event] | None = None
        for event in events:
            look = _LOOKS.get(event.action)
            if look is not None and (event.subject is not None or event.action in _OF_ALL):
                look(self, event)
        self._conclude()

    def _object(self, event: Event, why: str) -> None:
        self.objections.append(Objection(event, why))

    def _client(self, event: Event) -> _Client | None:
        return self.clients.get((event.node, event.incarnation, event.actor))

    def _owner(self, event: Event) -> _Owner | None:
        client = self._client(event)
        return client if isinstance(client, _Owner) else None

    def _recovery(self, event: Event) -> _Recovery | None:
        client = self._client(event)
        return client if isinstance(client, _Recovery) else None

    # -- bookies -----------------------------------------------------------------------------------------------------

    def _started(self, event: Event) -> None:
        if event.node in self.bookies:
            self.bookies[event.node].restart()

    def _synced(self, event: Event) -> None:
        bookie = self.bookies[event.node]
        bookie.durable = max(bookie.durable, event.parameters["position"])

    def _bookie_adds(self, event: Event) -> None:
        bookie, position = self.bookies[event.node], event.parameters["position"]
        if bookie.fenced_at is not None and not event.parameters["recovery"]:
            self._object(event, "a fenced bookie confirms an entry of the owner")
        for entry_id in _ids(event):
            bookie.has.setdefault(entry_id, position)

    def _bookie_fenced(self, event: Event) -> None:
        bookie = self.bookies[event.node]
        if bookie.fenced_at is None:
            bookie.fenced_at = event.parameters["position"]

    def _bookie_recovers(self, event: Event) -> None:
        if event.parameters["fenced"]:
            self.bookies[event.node].fenced_at = 0

    def _answers_fence(self, event: Event) -> None:
        bookie = self.bookies[event.node]
        if event.parameters["code"] in ("OK", *_NEGATIVES) and bookie.fenced_at is None:
            if not bookie.has_lost:
                self._object(event, "a bookie answers a read that fences, and is not fenced")
            bookie.fenced_at = event.parameters["position"]

    def _bookie_reads(self, event: Event) -> None:
        if event.parameters["code"] not in _NEGATIVES:
            return
        has, since = self.bookies[event.node].has, event.parameters.get("since")
        for entry_id in _ids(event):
            position = has.get(entry_id)
            if position is not None and (since is None or position <= since):
                self.denials.append(Objection(event, f"the bookie denies entry {entry_id}, which it has confirmed"))

    def _bookie_loses(self, event: Event) -> None:
        self.bookies[event.node].lose()

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _deleted(self, event: Event) -> None:
        self.is_deleted = True

    def _told(self, event: Event) -> None:
        """A version of the metadata, as anybody has seen it."""
        metadata, version = event.parameters.get("metadata"), event.parameters["version"]
        if metadata is None:
            return
        before = self.versions.setdefault(version, (event, metadata))[1]
        if before != metadata and not self.is_deleted:
            self._object(event, f"version {version} of the metadata is not what others have seen as that version")

    def _wants(self, event: Event, client: _Client | None) -> None:
        if client is not None and event.parameters["version"] is not None:
            client.base = event.parameters["version"]

    def _receives_metadata(self, event: Event) -> None:
        self._told(event)
        client, metadata = self._client(event), event.parameters["metadata"]
        if client is None or metadata is None:
            return
        version = event.parameters["version"]
        if event.parameters["written"] and client.base is not None and version != client.base + 1:
            self._object(event, f"a write that replaces version {client.base} has made version {version}")
        client.seen = metadata
        if isinstance(client, _Owner):
            client.is_changing = False
            for entry_id, confirmed in client.confirmed.items():
                if entry_id > client.acknowledged:
                    confirmed.intersection_update(_ensemble(metadata, entry_id))
        elif isinstance(client, _Recovery) and client.begin is None:
            client.reads_from = metadata["fragments"][-1][1]

    # -- owners ------------------------------------------------------------------------------------------------------

    def _creates(self, event: Event) -> None:
        if self._owner(event) is None:
            owner = self.clients[event.node, event.incarnation, event.actor] = _Owner(event.parameters["metadata"])
            self.owners.append(owner)
        self._wants(event, self._client(event))

    def _sends_adds(self, event: Event) -> None:
        owner = self._owner(event)
        if owner is None:
            return
        owner.adds_to(event.parameters["ensemble"])
        owner.deferred = owner.deferred or bool(event.parameters.get("deferred_sync"))
        if event.parameters["lac"] > owner.lac:
            self._object(
                event, f"it sends LAC {event.parameters['lac']}, and has acknowledged entries up to {owner.lac}"
            )

    def _hears_adds(self, event: Event) -> None:
        client = self._client(event)
        if client is not None:
            bookie, confirmed = event.parameters["bookie"], client.confirmed
            for first, last in event.parameters["entries"]:
                for entry_id in range(first, last + 1):
                    confirmed[entry_id].add(bookie)
                    if not client.has_asked(bookie, entry_id):
                        self._object(event, f"{bookie} confirms entry {entry_id}, and is not in its write set")

    def _resends(self, event: Event) -> None:
        client = self._client(event)
        if client is not None:
            client.adds_to(event.parameters["ensemble"])

    def _confirms(self, event: Event) -> None:
        owner, lac = self._owner(event), event.parameters["lac"]
        if owner is None or owner.seen is None:
            return
        lacking = owner.first_uncommitted(owner.acknowledged + 1, lac, owner.seen)
        if lacking is not None:
            count = _confirmed_by(owner.seen, lacking, owner.confirmed.get(lacking, ()))
            self._object(
                event,
                f"entry {lacking} is acknowledged with {count} of the {owner.seen['ack_quorum']} bookies of its write"
                " set that must confirm it",
            )
        elif owner.is_changing:
            self._object(event, "entries are acknowledged while the ensemble is changed")
        owner.acknowledged = max(owner.acknowledged, lac)
        if not owner.deferred:
            owner.lac = owner.acknowledged

    def _forced(self, event: Event) -> None:
        owner = self._owner(event)
        if owner is not None:
            owner.lac = max(owner.lac, event.parameters["lac"])
            if owner.lac > owner.acknowledged:
                self._object(event, f"entries are forced up to {owner.lac}, and acknowledged to {owner.acknowledged}")

    def _changes(self, event: Event) -> None:
        owner, metadata = self._owner(event), event.parameters["metadata"]
        self._wants(event, owner)
        if owner is None or owner.seen is None:
            return
        owner.is_changing = True
        before, after = owner.seen["fragments"], metadata["fragments"]
        if owner.deferred:
            return
        first = owner.lac + 1
        kept = before[:-1] if before[-1][0] == first else before
        if after[:-1] != kept or after[-1][0] != first:
            self._object(event, f"the ensemble is not changed from entry {first}, the one after the LAC")

    def _closes(self, event: Event) -> None:
        owner, last = self._owner(event), event.parameters["metadata"]["last_entry"]
        self._wants(event, owner)
        self.closing.setdefault(last, event)
        if owner is None or (owner.lac <= last <= owner.acknowledged):
            return
        self._object(event, f"the owner closes at entry {last}, and has acknowledged entries up to {owner.lac}")

    # -- recoveries --------------------------------------------------------------------------------------------------

    def _opens(self, event: Event) -> None:
        self._told(event)
        recovery = _Recovery(event.parameters["metadata"])
        if recovery.seen is not None:
            recovery.reads_from = recovery.seen["fragments"][-1][1]
        self.clients[event.node, event.incarnation, event.actor] = recovery

    def _starts_recovery(self, event: Event) -> None:
        self._wants(event, self._client(event))

    def _hears_fence(self, event: Event) -> None:
        recovery = self._recovery(event)
        if recovery is not None:
            recovery.fenced.add(event.parameters["bookie"])
            lac = event.parameters["lac"]
            if recovery.begin is None and lac is not None:
                recovery.lac = max(recovery.lac, lac)

    def _reads(self, event: Event) -> None:
        recovery, entry_id = self._recovery(event), event.parameters["entry"]
        if recovery is None or recovery.seen is None or recovery.begin is not None:
            return
        ensemble, seen = recovery.reads_from, recovery.seen
        fenced: Any = frozenset(recovery.fenced)
        for place in range(len(ensemble)):
            cohort: Any = _write_set(seen, place, ensemble)
            if not covers(fenced, cohort, seen["ack_quorum"]):
                self._object(event, f"a recovery reads with {len(fenced)} bookies fenced, and an ack quorum has none")
                break
        recovery.begin = max(recovery.lac, seen["fragments"][-1][0] - 1) + 1
        if entry_id > recovery.begin:
            self._object(event, f"a recovery begins to read at entry {entry_id}, and not at {recovery.begin}")

    def _hears_read(self, event: Event) -> None:
        recovery, entry_id = self._recovery(event), event.parameters["entry"]
        if recovery is None:
            return
        if event.parameters["found"]:
            recovery.found.add(entry_id)
        else:
            recovery.denied[entry_id].add(event.parameters["bookie"])

    def _writes_back(self, event: Event) -> None:
        recovery = self._recovery(event)
        if recovery is None:
            return
        recovery.adds_to(event.parameters["ensemble"])
        for entry_id in _ids(event):
            if entry_id not in recovery.found:
                self._object(event, f"a recovery writes entry {entry_id} back, and has not read it")
        lac = event.parameters["lac"]
        if lac > recovery.lac and lac > (reached := recovery.reached()):
            self._object(event, f"a recovery sends LAC {lac}, and knows entries up to {reached} as committed")

    def _recovery_changes(self, event: Event) -> None:
        recovery = self._recovery(event)
        self._wants(event, recovery)
        if recovery is not None:
            recovery.fragments = event.parameters["metadata"]["fragments"]

    def _recovery_closes(self, event: Event) -> None:
        recovery, metadata = self._recovery(event), event.parameters["metadata"]
        last = metadata["last_entry"]
        self._wants(event, recovery)
        self.closing.setdefault(last, event)
        if recovery is None:
            return
        begin = recovery.lac + 1 if recovery.begin is None else recovery.begin
        lacking = recovery.first_uncommitted(begin, last, metadata)
        asked: Any = _write_set(metadata, last + 1, recovery.reads_from)
        denied: Any = frozenset(recovery.denied.get(last + 1, ()))
        if last < begin - 1:
            self._object(event, f"a recovery closes at entry {last}, before the LAC {begin - 1} that bookies have told")
        elif lacking is not None:
            self._object(event, f"a recovery closes at entry {last}, and entry {lacking} has no ack quorum")
        elif not covers(denied, asked, metadata["ack_quorum"]):
            self._object(
                event,
                f"a recovery closes at entry {last}, and {len(denied)} bookies have denied entry {last + 1}: it may be"
                " committed",
            )

    # -- readers, and the whole --------------------------------------------------------------------------------------

    def _learns_lac(self, event: Event) -> None:
        self.readers.append(event)

    def _receives_entry(self, event: Event) -> None:
        last = max((end for _, end in event.parameters["entries"]), default=-1)
        if self.last_read is None or last > self.last_read[0]:
            self.last_read = last, event

    def _conclude(self) -> None:
        """What holds in any order of the nodes."""
        if self.is_deleted:
            return
        self.objections += self.denials
        self._look_at_versions()
        lac = max((owner.lac for owner in self.owners), default=-1)
        if self.owners:
            for event in self.readers:
                if event.parameters["lac"] > lac:
                    self._object(event, f"a reader learns LAC {event.parameters['lac']}, which no owner has reached")
        ends = {metadata["last_entry"]: event for event, metadata in self._closed()}
        for end, event in ends.items():
            told = self.closing.get(end, event)
            if lac > end:
                self._object(told, f"the ledger is closed at entry {end}, and entry {lac} was acknowledged")
            if self.last_read is not None and self.last_read[0] > end:
                self._object(told, f"the ledger is closed at entry {end}, and entry {self.last_read[0]} was read")

    def _closed(self) -> Iterator[tuple[Event, Metadata]]:
        return (each for each in self.versions.values() if each[1]["state"] == CLOSED)

    def _look_at_versions(self) -> None:
        for version, (event, after) in self.versions.items():
            if version - 1 in self.versions:
                wrong = _wrong_change(self.versions[version - 1][1], after)
                if wrong:
                    self._object(event, f"version {version} of the metadata {wrong}")


def _wrong_change(before: Metadata, after: Metadata) -> str:
    """How metadata must not follow on others, if they do."""
    if before["state"] == CLOSED:
        same = after["state"] == CLOSED and after["last_entry"] == before["last_entry"]
        return "" if same else "changes a closed ledger"
    if _STATES.index(after["state"]) < _STATES.index(before["state"]):
        return f"is {after['state']} after {before['state']}"
    complete = before["fragments"][:-1]
    return "" if after["fragments"][: len(complete)] == complete else "changes a complete fragment"


_OF_ALL = ("started", "journal_synced")
"""The events about all ledgers that the monitor looks at."""

_LOOKS: Mapping[str, Callable[[Monitor, Event], None]] = by_action(
    {
        "started": Monitor._started,
        "journal_synced": Monitor._synced,
        "bookie_sends_add_confirmed_response": Monitor._bookie_adds,
        "bookie_is_fenced": Monitor._bookie_fenced,
        "bookie_recovers": Monitor._bookie_recovers,
        "bookie_sends_fencing_read_lac_response": Monitor._answers_fence,
        "bookie_sends_read_response": Monitor._bookie_reads,
        "bookie_crashes bookie_is_wiped bookie_may_lack_entries": Monitor._bookie_loses,
        "metadata_written reader_reads_metadata": Monitor._told,
        "metadata_deleted": Monitor._deleted,
        "client_receives_metadata": Monitor._receives_metadata,
        "client_creates_ledger client_adopts_ledger": Monitor._creates,
        "client_sends_add_entry_requests": Monitor._sends_adds,
        "client_receives_add_confirmed_response recovery_client_receives_add_confirmed_response": Monitor._hears_adds,
        "client_resends_pending_add_op recovery_client_sends_pending_add_op": Monitor._resends,
        "client_confirms": Monitor._confirms,
        "client_receives_force_response": Monitor._forced,
        "client_changes_ensemble": Monitor._changes,
        "client_keeps_ensemble client_starts_recovery": Monitor._starts_recovery,
        "client_closes_ledger": Monitor._closes,
        "client_opens_ledger": Monitor._opens,
        "client_receives_fencing_read_lac_response": Monitor._hears_fence,
        "client_sends_recovery_read_requests": Monitor._reads,
        "client_receives_recovery_read_response": Monitor._hears_read,
        "client_writes_back_entry": Monitor._writes_back,
        "recovery_client_changes_ensemble": Monitor._recovery_changes,
        "recovery_client_closes_ledger": Monitor._recovery_closes,
        "reader_learns_lac": Monitor._learns_lac,
        "reader_receives_entry": Monitor._receives_entry,
    }
)
