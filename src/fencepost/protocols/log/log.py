"""The chained log: `ledger-chaining` with several entries in a ledger, by the rules of the log's writers.

A function of :mod:`fencepost.log.rules` makes every decision of a leader; the role calls it too. It decides the step
after reading the chain and after closing a ledger, whether the chain accepts an update, and what became of a refused or
unanswered one. It decides when entries may be written, which of them a closed ledger has, and which are written again.
A ledger is one object here; `store` covers its inside. When it is closed it has all confirmed entries, and any of the
others that were sent before.

An entry is numbered when it is first written. So a log is in order, without duplicates, if its numbers ascend.

A batch is written to two ledgers of its own, perhaps several times by several clients. A client that has closed the
last ledger attaches it. A batch has no entries here: only its ledgers matter.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, ClassVar

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
    assumption,
    configuration,
    constant,
    constraint,
    initial,
    invariant,
    leads_to,
    model_values,
    one_of,
    per_key,
    refines,
    require,
    state,
    weak,
)
from fencepost.language.declarations import Configuration, varied
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.log.chain import Batch, Chain
from fencepost.log.rules import (
    After,
    Attaching,
    Failure,
    Protections,
    Status,
    Update,
    after_closing,
    after_failure,
    after_reading,
    after_update,
    appended_by,
    before_attaching,
    fences,
    may_write,
    never_attached,
    takes_unanswered_for_done,
    takes_update,
    with_batch,
)
from fencepost.protocols.ledger_chaining import NO_ENTRY, ClientStatus, LedgerChaining, LedgerOnBookies
from fencepost.protocols.protections import switched_on
from fencepost.protocols.types import Types, at_least, each, one_of_kind, typed


class Client(Record):
    """A client that may lead: whether it believes that it leads, and what it last read of the chain.

    ``ledger``: the last one, which it closes, or its own. ``saw_open``: whether that was open when it read the chain.
    ``has_fenced``: it recovers the last ledger. ``seals``: its update of the chain is the seal. ``again``: entries that
    its last ledger was closed without. ``ended``: it has found the log sealed. ``late``: an update, of the version
    ``late_version``, that it has given up and that may still be carried out.
    """

    leader: bool = False
    status: Status = Status.WAITING
    chain: Chain = Chain()
    version: int = -1
    ledger: int = 0
    saw_open: bool = False
    has_fenced: bool = False
    seals: bool = False
    again: tuple[int, ...] = ()
    ended: bool = False
    late: Chain | None = None
    late_version: int = -1


class Ledger(Record):
    """A ledger; without a status it does not exist. ``entries`` were sent before it was fenced. ``confirmed``: the
    number of them that its writer knows to be confirmed.
    """

    status: LedgerStatus | None = None
    entries: tuple[int, ...] = ()
    confirmed: int = 0
    last_entry: int = -1
    fenced: bool = False


BATCH = Batch("q", 0)


class Attempt(Record):
    """A batch was written to these ledgers. ``withdrawn``: they are to be deleted, and may not be attached. ``over``:
    no client uses them any more.
    """

    ledgers: tuple[int, ...] = ()
    withdrawn: bool = False
    over: bool = False
    batch: Batch | None = BATCH


class Attachment(Record):
    """The work of a client on a batch, or on an attempt at it; 0 if it has written none. ``chain`` and ``version``: the
    basis of the update that it has sent; -1 if it has sent none.
    """

    attempt: int = 0
    chain: Chain = Chain()
    version: int = -1


class Becomes(enum.Enum):
    """What becomes of an unanswered update."""

    DONE = "done"
    LOST = "lost"
    LATE = "late"


def ledger_ids(protocol: Any) -> Iterable[int]:
    """The ids that ledgers may have."""
    return range(1, protocol.next_ledger_limit)


def _entry_ids(protocol: Log) -> Iterable[int]:
    return range(1, protocol.entries + 1)


TYPES: Types = {
    "client.chain.settings": lambda protocol, settings: settings == (),
    "client.version": at_least(-1),
    "client.again": each(at_least(1)),
    "client.late_version": at_least(-1),
    "chain.settings": lambda protocol, settings: settings == (),
    "version": at_least(0),
    "trimmed": each(at_least(1)),
    "elected": lambda protocol, elected: elected in protocol.clients,
    "next_ledger": at_least(1),
    "next_entry": at_least(1),
    "begun": each(at_least(1)),
    "ledgers.entries": each(at_least(1)),
    "ledgers.last_entry": at_least(-1),
    "attachment.chain.settings": lambda protocol, settings: settings == (),
    "attachment.version": at_least(-1),
    "attempts": each(one_of_kind(Attempt)),
    "acknowledged": each(at_least(1)),
    "denied": each(at_least(1)),
}


UNPROTECTED: Mapping[str, Configuration] = {
    "last-ledger-left-open": configuration(
        "only_the_last_ledger_is_open", "a leader does not close the last ledger", last_ledger_is_closed=False
    ),
    "not-fenced": configuration(
        "acknowledged_entries_are_in_the_log",
        "an old leader is not fenced, and bookies still accept its writes",
        closing_fences=False,
    ),
    "written-before-chained": configuration(
        "what_is_written_is_in_the_chain",
        "a leader writes to a ledger that may never be in the chain",
        chain_precedes_entries=False,
    ),
    "unconditional-updates": configuration(
        "what_is_written_is_in_the_chain",
        "a leader that has not seen another's ledger removes it from the chain",
        updates_are_conditional=False,
    ),
    "rivals-ignored": configuration(
        "only_the_last_ledger_is_open", "a leader goes on after another's ledger", rivals_prevail=False
    ),
    "taken-for-done": configuration(
        "what_is_written_is_in_the_chain",
        "an unanswered update of the chain counts as done",
        unanswered_is_looked_up=False,
    ),
    "all-written-again": configuration(
        "denied_entries_are_not_in_the_log",
        "an unacknowledged entry counts as not appended, although the closed ledger has it",
        last_entry_decides=False,
    ),
    "appended-after-the-seal": configuration(
        "a_sealed_log_is_closed",
        "a leader goes on with a sealed log",
        sealing=True,
        seal_is_final=False,
    ),
}
"""Configurations without a protection, and the invariant that is violated."""


class ChainedLedgers:
    """The part of a protocol about a chain and its ledgers, whatever writes them."""

    next_ledger_limit: int
    chain: Chain
    trimmed: tuple[int, ...]
    next_ledger: int
    ledgers: PerKey[int, Ledger]

    def all_ledgers(self) -> list[int]:
        """The ledgers of the log in order, including trimmed ones."""
        return [*self.trimmed, *[link.ledger for link in self.chain.links]]

    def in_the_log(self, ledger: int) -> tuple[int, ...]:
        """The entries that a ledger has, or may still have if it is not closed."""
        found = self.ledgers[ledger]
        return found.entries[: found.last_entry + 1] if found.status is LedgerStatus.CLOSED else found.entries

    @constraint
    def ledger_limit(self) -> bool:
        """Limits the number of ledgers, and so the number of states."""
        return self.next_ledger < self.next_ledger_limit

    @invariant(ledger=ledger_ids)
    def what_is_written_is_in_the_chain(self, ledger: int) -> bool:
        """A ledger with entries is in the chain, or was: nothing is written where no reader would look."""
        return not self.ledgers[ledger].entries or ledger in self.all_ledgers()

    @invariant
    def only_the_last_ledger_is_open(self) -> bool:
        """Of the ledgers in the chain only the last may still change."""
        return all(self.ledgers[link.ledger].status is LedgerStatus.CLOSED for link in self.chain.links[:-1])

    @invariant
    def a_sealed_log_is_closed(self) -> bool:
        """A sealed log has no open ledger, so a reader knows its end."""
        return not self.chain.sealed or all(
            self.ledgers[link.ledger].status is LedgerStatus.CLOSED for link in self.chain.links
        )

    @invariant
    def ledgers_of_the_log_are_there(self) -> bool:
        """No ledger of the log is deleted."""
        return all(self.ledgers[ledger].status is not None for ledger in self.all_ledgers())


# -- the state of `ledger-chaining` ------------------------------------------------------------------------------------


def _is_chained(self: Log, c: ModelValue) -> bool:
    """Whether the chain has the ledger of a client that does not know it yet."""
    client = self.client[c]
    if client.seals or client.status not in (Status.PENDING_APPEND_LEDGER, Status.LOOK_UP_CHAIN):
        return False
    return client.ledger in self.all_ledgers()


STATUSES: Mapping[Status, ClientStatus] = {
    Status.WAITING: ClientStatus.WAITING,
    Status.GET_MD_FOR_CLOSING: ClientStatus.GET_MD_FOR_CLOSING,
    Status.CLOSE_LAST_LEDGER: ClientStatus.CLOSE_LAST_LEDGER,
    Status.PENDING_CREATE_LEDGER: ClientStatus.PENDING_CREATE_LEDGER,
    Status.PENDING_APPEND_LEDGER: ClientStatus.PENDING_APPEND_LEDGER,
    Status.LOOK_UP_CHAIN: ClientStatus.PENDING_APPEND_LEDGER,
    Status.HAS_OPEN_LEDGER: ClientStatus.HAS_OPEN_LEDGER,
    Status.CLOSE_OWN_LEDGER: ClientStatus.HAS_OPEN_LEDGER,
}


def _status(self: Log, c: ModelValue) -> ClientStatus:
    """The status of a client in `ledger-chaining`. There a ledger is closed when it is fenced, and its leader knows at
    once that it is in the list.
    """
    client = self.client[c]
    if client.seals or (client.status is Status.CLOSE_LAST_LEDGER and client.has_fenced):
        return ClientStatus.PENDING_CREATE_LEDGER
    return ClientStatus.HAS_OPEN_LEDGER if _is_chained(self, c) else STATUSES[client.status]


def _llist(self: Log, c: ModelValue) -> tuple[int, ...]:
    client = self.client[c]
    seen = (*self.trimmed[: client.chain.trimmed], *(link.ledger for link in client.chain.links))
    return (*seen, client.ledger) if _is_chained(self, c) else seen


def _llist_version(self: Log, c: ModelValue) -> int:
    return -1 if self.client[c].version < 0 else len(_llist(self, c))


def _version_seen(self: Log, c: ModelValue) -> int:
    client = self.client[c]
    return -1 if not client.ledger else 0 if client.saw_open else 1


def _version(self: Log, ledger: int) -> int:
    status = self.ledgers[ledger].status
    return -1 if status is None else 0 if status is LedgerStatus.OPEN else 1


def _on_bookies(self: Log, ledger: int) -> LedgerOnBookies | None:
    """The first entry of a ledger, numbered among all first entries in the order in which they were written."""
    found = self.ledgers[ledger]
    if not found.entries and not found.fenced:
        return None
    return LedgerOnBookies(self.begun.index(ledger) if found.entries else NO_ENTRY, found.fenced)


AS_CHAINING: Mapping[str, Any] = {
    "c_state.leader": "client.leader",
    "c_state.status": _status,
    "c_state.llist": _llist,
    "c_state.llist_version": _llist_version,
    "c_state.ledger.id": lambda self, c: self.client[c].ledger,
    "c_state.ledger.open": lambda self, c: self.client[c].saw_open,
    "c_state.ledger.version": _version_seen,
    "md_llist": lambda self: tuple(self.all_ledgers()),
    "md_llist_version": lambda self: self.chain.length,
    "md_ledgers.id": lambda self, ledger: 0 if self.ledgers[ledger].status is None else ledger,
    "md_ledgers.open": lambda self, ledger: self.ledgers[ledger].status is LedgerStatus.OPEN,
    "md_ledgers.version": _version,
    "md_leader": "elected",
    "md_next_lid": "next_ledger",
    "b_ledgers": _on_bookies,
    "next_entry_id": lambda self: len(self.begun),
}
"""The variables of `ledger-chaining` in a state of `log`. Its list includes trimmed ledgers."""

BATCHES: Mapping[str, Any] = {"next_ledger_limit": 6}


class Log(ChainedLedgers, Protocol):
    """Clients take turns as leader of one log, by the rules of the log's writers."""

    name: ClassVar[str] = "log"

    clients: tuple[ModelValue, ...] = model_values("c", 2, "the clients that can be elected leader", symmetric=True)
    next_ledger_limit: int = constant(4, "states are explored while the next ledger's id is below this")
    entries: int = constant(2, "entries that are appended, in total")
    lost_answers: bool = constant(False, "whether updates of the chain may go unanswered, done or not")
    late_updates: bool = constant(
        False, "whether such an update may also be carried out later, whatever its client is doing"
    )
    trims: bool = constant(False, "whether the oldest ledgers are trimmed")
    sealing: bool = constant(False, "whether leaders seal the log")
    most_attempts: int = constant(0, "how often a batch of two ledgers is written, at most")

    last_ledger_is_closed: bool = constant(True, "whether a leader closes the last ledger before it creates one")
    closing_fences: bool = constant(True, "whether a leader that closes another's ledger fences it")
    chain_precedes_entries: bool = constant(True, "whether a leader writes only to a ledger that is in the chain")
    updates_are_conditional: bool = constant(True, "whether the chain is replaced only if nobody has changed it")
    rivals_prevail: bool = constant(
        True, "whether a leader that finds another's ledger at the end of the chain steps down"
    )
    unanswered_is_looked_up: bool = constant(True, "whether an unanswered update is looked up, or counts as done")
    last_entry_decides: bool = constant(True, "whether the last entry of a closed ledger decides what is written again")
    seal_is_final: bool = constant(True, "whether nothing is appended to the chain of a sealed log")
    batches_are_remembered: bool = constant(True, "whether a batch that is in the log is not attached again")
    batches_are_whole: bool = constant(True, "whether all ledgers of a batch are attached by one update")
    withdrawals_are_noticed: bool = constant(True, "whether nobody attaches a ledger that is to be deleted")

    client: PerKey[ModelValue, Client] = per_key(clients, Client)

    chain: Chain = state(Chain(), held_by="metadata")
    version: int = state(0, held_by="metadata")
    elected: ModelValue | None = state(None, held_by="metadata")
    next_ledger: int = state(1, held_by="metadata")
    trimmed: tuple[int, ...] = state(())
    """The trimmed ledgers. For the properties; no client needs them."""

    ledgers: PerKey[int, Ledger] = state(per_key(ledger_ids, Ledger), held_by="bookies")
    next_entry: int = state(1)
    begun: tuple[int, ...] = state(())
    """The ledgers that were written to, in the order of their first writes."""
    acknowledged: tuple[int, ...] = state(())
    """The entries that were acknowledged to a client as in the log, sorted."""
    denied: tuple[int, ...] = state(())
    """The entries that were reported to a client as not in the log, sorted."""

    attachment: PerKey[ModelValue, Attachment] = per_key(clients, Attachment)
    attempts: tuple[Attempt, ...] = state((), held_by="metadata")
    """The attempts to write the batch, in order."""

    configurations = {
        "default": configuration(doc="two clients, two entries, two ledgers"),
        "three-clients": configuration(clients=3, entries=1, doc="three clients, one entry, two ledgers"),
        "three-entries": configuration(entries=3, doc="three entries, so that a ledger may lack two"),
        "one-client": configuration(
            clients=1, entries=4, next_ledger_limit=6, doc="one client that rolls over from ledger to ledger"
        ),
        "lost-answers": configuration(
            lost_answers=True, entries=1, doc="updates of the chain go unanswered, done or not"
        ),
        "late-updates": configuration(
            lost_answers=True,
            late_updates=True,
            entries=1,
            doc="updates are done after their clients have given up waiting",
        ),
        "trims": configuration(trims=True, entries=1, doc="the oldest ledger is trimmed whenever another follows it"),
        "trimmed-behind": configuration(
            trims=True,
            entries=0,
            next_ledger_limit=5,
            doc="no entry, three ledgers: one is trimmed and another appended while a leader waits to append its own",
        ),
        "seals": configuration(sealing=True, doc="leaders seal the log"),
        "seals-unanswered": configuration(
            sealing=True,
            lost_answers=True,
            entries=0,
            doc="no entry; the log is sealed after a ledger whose leader does not know yet that it is in the chain",
        ),
        "all-at-once": configuration(
            lost_answers=True,
            trims=True,
            sealing=True,
            entries=1,
            doc="answers are lost, and the log is trimmed and sealed",
        ),
        "batches": configuration(
            most_attempts=2,
            entries=0,
            doc="a batch is written twice, attached, withdrawn, and its unused ledgers deleted",
            **BATCHES,
        ),
        "unanswered-batches": configuration(
            clients=1,
            most_attempts=2,
            lost_answers=True,
            entries=0,
            doc="one client that writes a batch twice; updates go unanswered, done or not",
            **BATCHES,
        ),
        "late-batches": configuration(
            clients=1,
            most_attempts=2,
            lost_answers=True,
            late_updates=True,
            entries=0,
            doc="one client that writes a batch twice; updates are done after it has given up waiting",
            **BATCHES,
        ),
        **UNPROTECTED,
        **varied(UNPROTECTED, {"taken-for-done": {"lost_answers": True, "entries": 1}}),
        "batch-forgotten": configuration(
            most_attempts=2,
            batches_are_remembered=False,
            entries=0,
            expect="the_batch_is_in_the_log_once_and_whole",
            doc="a batch that was attached is written and attached again",
            **BATCHES,
        ),
        "batch-in-parts": configuration(
            most_attempts=1,
            batches_are_whole=False,
            entries=0,
            expect="the_batch_is_in_the_log_once_and_whole",
            doc="the ledgers of a batch are attached one by one",
            **BATCHES,
        ),
        "withdrawal-overlooked": configuration(
            most_attempts=1,
            withdrawals_are_noticed=False,
            entries=0,
            expect="ledgers_of_the_log_are_there",
            doc="a batch is attached whose ledgers are being deleted",
            **BATCHES,
        ),
    }

    @assumption
    def there_is_a_ledger_to_create(self) -> bool:
        """With a limit below 2 even the initial state is outside the state constraint."""
        return self.next_ledger_limit >= 2

    @assumption
    def late_updates_are_not_answered(self) -> bool:
        """An update can be late only if its answer can be lost."""
        return self.lost_answers or not self.late_updates

    @property
    def protections(self) -> Protections:
        """The protections that are on."""
        return switched_on(self, Protections)

    @initial
    def no_ledgers(self) -> None:
        """No ledger exists. One client is elected but does not know it yet."""
        self.elected = self.clients[0]

    # -- becoming and being leader -------------------------------------------------------------------------------------

    @action(c=clients, by="metadata")
    def leader_chosen(self, c: ModelValue) -> None:
        """Another client is elected, for any reason. No client is notified."""
        require(self.elected != c)
        self.elected = c

    @action(c=clients)
    def become_leader(self, c: ModelValue) -> None:
        """The elected client finds out, and reads the chain next."""
        client = self.client[c]
        require(not client.leader)
        require(self.elected == c)
        client.leader = True
        client.status = Status.GET_MD_FOR_CLOSING

    @action(c=clients)
    def abdicate(self, c: ModelValue) -> None:
        """A client finds out that it is no longer the leader. It leaves its ledger open: the next leader will close
        it.
        """
        client = self.client[c]
        require(client.leader)
        require(self.elected != c)
        self._step_down(c)

    def _step_down(self, c: ModelValue) -> None:
        """Step down. A batch that was written to no open ledger is not in the log; of the others the client does not
        know.
        """
        client = self.client[c]
        if _is_chained(self, c):
            client.chain = client.chain.appended(client.ledger, 0)
        self._deny(client.again)
        client.leader = False
        client.status = Status.WAITING
        client.again = ()
        client.seals = client.has_fenced = client.ended = False

    def _acknowledge(self, entries: tuple[int, ...]) -> None:
        self.acknowledged = tuple(sorted({*self.acknowledged, *entries}))

    def _deny(self, entries: tuple[int, ...]) -> None:
        self.denied = tuple(sorted({*self.denied, *entries}))

    def _leading(self, c: ModelValue, status: Status) -> Client:
        """The client, if it believes that it leads and has reached ``status``."""
        client = self.client[c]
        require(client.status is status)
        require(client.leader)
        require(not client.ended)
        return client

    # -- closing the last ledger ---------------------------------------------------------------------------------------

    @action(c=clients)
    def get_last_ledger(self, c: ModelValue) -> None:
        """A new leader reads the chain. Without a ledger there is nothing to close, and a sealed log cannot be
        written.
        """
        client = self._leading(c, Status.GET_MD_FOR_CLOSING)
        step = after_reading(self.chain, protections=self.protections)
        if step is None:
            client.ended = True
            return
        client.chain, client.version = self.chain, self.version
        client.status = step
        if self.chain.last is not None:
            client.ledger = self.chain.last
            client.saw_open = self.ledgers[client.ledger].status is LedgerStatus.OPEN

    @action(c=clients)
    def fence_last_ledger(self, c: ModelValue) -> None:
        """The leader marks the last ledger as in recovery and fences it, so its writer gets no more entries
        confirmed.
        """
        client = self._leading(c, Status.CLOSE_LAST_LEDGER)
        require(not client.has_fenced)
        ledger = self.ledgers[client.ledger]
        require(ledger.status is not LedgerStatus.CLOSED)
        ledger.status = LedgerStatus.IN_RECOVERY
        ledger.fenced = fences(self.protections)
        client.has_fenced = True

    @action(c=clients)
    def close_last_ledger(self, c: ModelValue) -> None:
        """The leader closes the ledger that it has fenced, at any entry that is not before a confirmed one."""
        client = self._leading(c, Status.CLOSE_LAST_LEDGER)
        require(client.has_fenced)
        ledger = self.ledgers[client.ledger]
        require(ledger.status is LedgerStatus.IN_RECOVERY)
        self._close(client.ledger)
        self._closed_last(c)

    @action(c=clients)
    def last_ledger_already_closed(self, c: ModelValue) -> None:
        """The last ledger is closed already, by its writer or by a client that recovered it. The leader goes on to
        create one.
        """
        client = self._leading(c, Status.CLOSE_LAST_LEDGER)
        require(self.ledgers[client.ledger].status is LedgerStatus.CLOSED)
        self._closed_last(c)

    def _closed_last(self, c: ModelValue) -> None:
        self.client[c].status = after_closing()
        self.client[c].has_fenced = False

    def _close(self, number: int) -> None:
        ledger = self.ledgers[number]
        ledger.last_entry = one_of(range(ledger.confirmed - 1, len(ledger.entries)))
        ledger.status = LedgerStatus.CLOSED

    # -- chaining a new ledger -----------------------------------------------------------------------------------------

    @action(c=clients)
    def create_ledger(self, c: ModelValue) -> None:
        """The leader creates a ledger. Nobody can find it until it is in the chain."""
        client = self._leading(c, Status.PENDING_CREATE_LEDGER)
        self.ledgers[self.next_ledger].status = LedgerStatus.OPEN
        client.ledger, client.saw_open = self.next_ledger, True
        client.status = Status.PENDING_APPEND_LEDGER
        self.next_ledger += 1

    @action(c=clients)
    def append_ledger(self, c: ModelValue) -> None:
        """The chain is as the leader last read it. The leader appends its ledger."""
        client = self._leading(c, Status.PENDING_APPEND_LEDGER)
        require(takes_update(client.version, self.version, self.protections))
        self._replace_chain(client.chain.appended(client.ledger, 0))
        client.chain, client.version = self.chain, self.version
        client.status = Status.HAS_OPEN_LEDGER

    @action(c=clients)
    def append_ledger_unanswered(self, c: ModelValue) -> None:
        """The update is not answered. It may have been done or not."""
        require(self.lost_answers)
        client = self._leading(c, Status.PENDING_APPEND_LEDGER)
        require(client.late is None)
        updated, version = client.chain.appended(client.ledger, 0), client.version
        if takes_unanswered_for_done(self.protections):
            client.chain, client.version = updated, client.version + 1
            client.status = Status.HAS_OPEN_LEDGER
        else:
            client.status = Status.LOOK_UP_CHAIN
        becomes = one_of(Becomes if self.late_updates else (Becomes.DONE, Becomes.LOST))
        if becomes is Becomes.LATE:
            client.late, client.late_version = updated, version
        elif becomes is Becomes.DONE and takes_update(version, self.version, self.protections):
            self._replace_chain(updated)

    @action(c=clients, by="metadata")
    def late_update(self, c: ModelValue) -> None:
        """The metadata service carries out an update that its client has given up, or refuses it."""
        client = self.client[c]
        late = client.late
        require(late is not None)
        if late is not None and takes_update(client.late_version, self.version, self.protections):
            self._replace_chain(late)
        client.late, client.late_version = None, -1

    @action(c=clients)
    def append_ledger_bad_version(self, c: ModelValue) -> None:
        """Somebody else has changed the chain since. The leader looks it up."""
        client = self._leading(c, Status.PENDING_APPEND_LEDGER)
        require(not takes_update(client.version, self.version, self.protections))
        client.status = Status.LOOK_UP_CHAIN

    @action(c=clients)
    def look_up_chain(self, c: ModelValue) -> None:
        """The leader reads the chain, and learns whether its update was done or can be tried again, another leader's
        ledger is at the end, or the log is sealed.
        """
        client = self._leading(c, Status.LOOK_UP_CHAIN)
        update = after_update(client.chain, None if client.seals else client.ledger, self.chain, self.protections)
        if update is Update.LOST:
            self._step_down(c)
            return
        if update is Update.SEALED or (update is Update.DONE and client.seals):
            client.ended = True
            return
        client.chain, client.version = self.chain, self.version
        if update is Update.DONE:
            client.status = Status.HAS_OPEN_LEDGER
        else:
            client.status = Status.PENDING_CREATE_LEDGER if client.seals else Status.PENDING_APPEND_LEDGER
            client.seals = False

    def _replace_chain(self, chain: Chain) -> None:
        self.chain = chain
        self.version += 1

    # -- writing -------------------------------------------------------------------------------------------------------

    @action(c=clients)
    def write_entry(self, c: ModelValue) -> None:
        """The leader writes the next entry, unless its ledger is fenced. Entries that its last ledger was closed
        without come first.
        """
        client = self._writing(c)
        ledger = self.ledgers[client.ledger]
        require(not ledger.fenced)
        if client.again:
            entry, client.again = client.again[0], client.again[1:]
        else:
            require(self.next_entry <= self.entries)
            entry = self.next_entry
            self.next_entry += 1
        if not ledger.entries:
            self.begun = (*self.begun, client.ledger)
        ledger.entries = (*ledger.entries, entry)

    @action(c=clients)
    def acknowledge_entry(self, c: ModelValue) -> None:
        """The leader learns that the next entry is confirmed, perhaps late, but not of an entry that the ledger was
        closed without.
        """
        client = self._writing(c)
        ledger = self.ledgers[client.ledger]
        require(ledger.confirmed < len(ledger.entries))
        require(not ledger.fenced or ledger.status is not LedgerStatus.CLOSED or ledger.confirmed <= ledger.last_entry)
        self._acknowledge((ledger.entries[ledger.confirmed],))
        ledger.confirmed += 1

    def _writing(self, c: ModelValue) -> Client:
        client = self.client[c]
        require(client.leader)
        require(not client.ended)
        require(may_write(client.status, self.protections))
        return client

    @action(c=clients)
    def ledger_fenced(self, c: ModelValue) -> None:
        """A bookie reports that the ledger is fenced. The leader steps down, and does not know what became of
        unconfirmed entries.
        """
        client = self._leading(c, Status.HAS_OPEN_LEDGER)
        require(self.ledgers[client.ledger].fenced)
        if after_failure(Failure.FENCED) is After.STEP_DOWN:
            self._step_down(c)
        else:
            self.client[c].status = after_closing()  # as if the ledger were still its own

    # -- rolling over --------------------------------------------------------------------------------------------------

    @action(c=clients)
    def close_own_ledger(self, c: ModelValue) -> None:
        """The leader closes its own ledger, because it is large enough or bookies fail. Its entries are appended, and
        the others are written again.
        """
        client = self._leading(c, Status.HAS_OPEN_LEDGER)
        require(self.ledgers[client.ledger].status is LedgerStatus.OPEN)
        self._close(client.ledger)
        self._reconcile(c)
        client.status = after_closing()

    @action(c=clients)
    def close_own_ledger_bad_version(self, c: ModelValue) -> None:
        """Somebody else has closed the ledger. The leader steps down, and knows which entries are in the log and which
        are not.
        """
        client = self._leading(c, Status.HAS_OPEN_LEDGER)
        ledger = self.ledgers[client.ledger]
        require(ledger.status is LedgerStatus.CLOSED)
        self._reconcile(c)
        self._step_down(c)

    def _reconcile(self, c: ModelValue) -> None:
        client = self.client[c]
        ledger = self.ledgers[client.ledger]
        entries = ledger.entries
        there = appended_by(ledger.last_entry, len(entries), ledger.confirmed, self.protections)
        self._acknowledge(entries[ledger.confirmed : there])
        client.again = (*entries[there:], *client.again)
        ledger.confirmed = there

    # -- sealing and trimming ------------------------------------------------------------------------------------------

    @action(c=clients)
    def seal(self, c: ModelValue) -> None:
        """A leader with nothing to write and no open ledger seals the log. If the chain was changed, it looks it up."""
        require(self.sealing)
        client = self._leading(c, Status.PENDING_CREATE_LEDGER)
        require(not client.again)
        client.seals = True
        client.status = Status.LOOK_UP_CHAIN
        if takes_update(client.version, self.version, self.protections):
            self._replace_chain(client.chain.as_sealed())

    @action(by="metadata")
    def trim(self) -> None:
        """A client trims the oldest ledger, if another follows it."""
        require(self.trims)
        require(len(self.chain.links) > 1)
        self.trimmed = (*self.trimmed, self.chain.links[0].ledger)
        self._replace_chain(self.chain.without_first(1))

    # -- batches -------------------------------------------------------------------------------------------------------

    @action(c=clients)
    def write_batch(self, c: ModelValue) -> None:
        """A client writes the batch to ledgers of its own, and closes them. Other clients may write the same batch
        before or after.
        """
        require(len(self.attempts) < self.most_attempts)
        require(not self.attachment[c].attempt)
        require(self.next_ledger + 1 < self.next_ledger_limit)
        ledgers = (self.next_ledger, self.next_ledger + 1)
        for number in ledgers:
            self.ledgers[number].status = LedgerStatus.CLOSED
        self.next_ledger += 2
        self.attempts = (*self.attempts, Attempt(ledgers))
        self.attachment[c].attempt = len(self.attempts)

    @action(c=clients)
    def look_up_batch(self, c: ModelValue) -> None:
        """A leader that has closed the last ledger and has a batch looks up whether it is in the log or withdrawn. If
        neither, it sends the update.
        """
        client = self._leading(c, Status.PENDING_CREATE_LEDGER)
        attachment = self.attachment[c]
        require(attachment.attempt > 0)
        require(attachment.version < 0)
        attempt = self.attempts[attachment.attempt - 1]
        are_pending = not attempt.withdrawn
        step = before_attaching(client.chain, attempt.batch, attempt.ledgers, are_pending, self.protections)
        if step is Attaching.ATTACH:
            attachment.chain, attachment.version = client.chain, client.version
        else:
            attachment.attempt = 0

    @action(c=clients)
    def attach_batch(self, c: ModelValue) -> None:
        """The chain is as the client last read it. The client appends the ledgers of the batch."""
        attachment = self.attachment[c]
        require(attachment.version >= 0)
        require(takes_update(attachment.version, self.version, self.protections))
        self._replace_chain(self._with_batch(attachment))
        attachment.attempt, attachment.chain, attachment.version = 0, Chain(), -1
        self._read_again(c)

    @action(c=clients)
    def attach_batch_bad_version(self, c: ModelValue) -> None:
        """Somebody has changed the chain since. The client reads it again."""
        attachment = self.attachment[c]
        require(attachment.version >= 0)
        require(not takes_update(attachment.version, self.version, self.protections))
        attachment.chain, attachment.version = Chain(), -1
        self._read_again(c)

    @action(c=clients)
    def attach_batch_unanswered(self, c: ModelValue) -> None:
        """The update is not answered. It was done, or will be, or not. The client reads the chain again, or fails."""
        require(self.lost_answers)
        attachment, client = self.attachment[c], self.client[c]
        require(attachment.version >= 0)
        require(client.late is None)
        updated, version = self._with_batch(attachment), attachment.version
        becomes = one_of(Becomes if self.late_updates else (Becomes.DONE, Becomes.LOST))
        if becomes is Becomes.LATE:
            client.late, client.late_version = updated, version
        elif becomes is Becomes.DONE and takes_update(version, self.version, self.protections):
            self._replace_chain(updated)
        attachment.chain, attachment.version = Chain(), -1
        self._read_again(c)

    def _with_batch(self, attachment: Attachment) -> Chain:
        attempt = self.attempts[attachment.attempt - 1]
        return with_batch(attachment.chain, attempt.batch, attempt.ledgers, 0, self.protections)

    def _read_again(self, c: ModelValue) -> None:
        client = self.client[c]
        if client.leader and client.status is Status.PENDING_CREATE_LEDGER:
            client.status = Status.GET_MD_FOR_CLOSING

    @action(c=clients)
    def batch_fails(self, c: ModelValue) -> None:
        """The client forgets the batch, like a process that is killed. Its ledgers stay."""
        attachment = self.attachment[c]
        require(attachment.attempt > 0)
        require(attachment.version < 0)
        attachment.attempt = 0

    @action(by="metadata")
    def withdraw_batch(self) -> None:
        """A client records that the ledgers of an attempt are to be deleted, even if another is about to attach
        them.
        """
        which = one_of(range(len(self.attempts)))
        attempt = self.attempts[which]
        require(not attempt.withdrawn)
        require(not attempt.over)
        self._replace_attempt(which, attempt.replace(withdrawn=True))

    @action(by="metadata")
    def delete_withdrawn_batch(self) -> None:
        """A client changes the version of the chain, so that no update arrives that ignores the withdrawal. Then the
        ledgers that are not in the chain are deleted.
        """
        which = one_of(range(len(self.attempts)))
        attempt = self.attempts[which]
        require(attempt.withdrawn)
        require(not attempt.over)
        self.version += 1
        self._delete(which)

    @action(by="metadata")
    def delete_superseded_batch(self) -> None:
        """Another attempt at the batch is in the log. The remaining ledgers of this one are deleted."""
        which = one_of(range(len(self.attempts)))
        attempt = self.attempts[which]
        require(not attempt.over)
        require(all(never_attached(self.chain, BATCH, ledger) for ledger in attempt.ledgers))
        self._delete(which)

    def _delete(self, which: int) -> None:
        attempt = self.attempts[which]
        for number in attempt.ledgers:
            if number not in self.all_ledgers():
                self.ledgers[number] = Ledger()
        self._replace_attempt(which, attempt.replace(over=True))

    def _replace_attempt(self, which: int, attempt: Attempt) -> None:
        self.attempts = (*self.attempts[:which], attempt, *self.attempts[which + 1 :])

    # -- what must hold ------------------------------------------------------------------------------------------------

    type_ok = typed(lambda: TYPES)

    @invariant(entry=_entry_ids)
    def acknowledged_entries_are_in_the_log(self, entry: int) -> bool:
        """An acknowledged entry is in a ledger of the log, and stays there."""
        if entry not in self.acknowledged:
            return True
        return any(entry in self.in_the_log(ledger) for ledger in self.all_ledgers())

    @invariant(entry=_entry_ids)
    def denied_entries_are_not_in_the_log(self, entry: int) -> bool:
        """An entry that was reported to its client as not in the log is not in it."""
        if entry not in self.denied:
            return True
        return not any(entry in self.in_the_log(ledger) for ledger in self.all_ledgers())

    @invariant
    def the_log_is_in_order(self) -> bool:
        """Read ledger by ledger, the entries are in the order in which they were first written, without duplicates."""
        last = 0
        for ledger in self.all_ledgers():
            for entry in self.in_the_log(ledger):
                if entry <= last:
                    return False
                last = entry
        return True

    @invariant(c=clients, when=lambda protocol: protocol.seal_is_final)
    def nobody_goes_on_with_a_sealed_log(self, c: ModelValue) -> bool:
        """A client that has seen the seal does not change the chain: it neither writes to a ledger of it nor appends
        one.
        """
        return not self.client[c].chain.sealed

    @invariant
    def the_batch_is_in_the_log_once_and_whole(self) -> bool:
        """Ledgers of at most one attempt at a batch are in the log, and then all of them, one after another."""
        log = self.all_ledgers()
        there = [attempt for attempt in self.attempts if any(ledger in log for ledger in attempt.ledgers)]
        remembered = [attempt.batch for attempt in there if attempt.batch is not None]
        if len({*remembered}) != len(remembered):
            return False
        places = [
            [log.index(ledger) if ledger in log else -2 * len(log) for ledger in attempt.ledgers] for attempt in there
        ]
        return all(second == first + 1 for each in places for first, second in pairwise(each))

    @invariant(when=lambda protocol: protocol.most_attempts > 0)
    def what_is_left_over_is_deleted(self) -> bool:
        """Of an attempt that is over, only the ledgers in the log exist."""
        log = self.all_ledgers()
        return all(
            ledger in log or self.ledgers[ledger].status is None
            for attempt in self.attempts
            if attempt.over
            for ledger in attempt.ledgers
        )

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        weak(become_leader),
        weak(abdicate),
        weak(get_last_ledger),
        weak(fence_last_ledger),
        weak(close_last_ledger),
        weak(last_ledger_already_closed),
        weak(create_ledger),
        weak(append_ledger),
        weak(append_ledger_bad_version),
        weak(look_up_chain),
        weak(ledger_fenced),
        weak(close_own_ledger_bad_version),
    ]
    """As for `ledger-chaining`: weak fairness of every action but elections, rolling over, sealing and trimming."""

    def _accepts_writes(self, c: ModelValue) -> bool:
        """Whether the client has a ledger in the chain whose bookies accept entries."""
        client = self.client[c]
        return client.status is Status.HAS_OPEN_LEDGER and self.ledgers[client.ledger].status is LedgerStatus.OPEN

    @leads_to(c=clients, when=lambda protocol: False)
    def stable_leader_accepts_writes(self, c: ModelValue) -> tuple[bool, bool]:
        """A client that is elected and stays elected eventually accepts writes, unless the log is sealed."""
        return self.elected == c, self.elected != c or self.chain.sealed or self._accepts_writes(c)

    # -- refinement ----------------------------------------------------------------------------------------------------

    @property
    def is_published(self) -> bool:
        """Whether all protections are on, and no action can happen that `ledger-chaining` has no step for. There is
        none for a leader that wants to seal and steps down for a rival without a ledger of its own, and none for a late
        update of a client that may no longer lead.
        """
        return not (self.sealing or self.late_updates or self.most_attempts) and all(
            getattr(self, name) for name in Protections._fields
        )

    refines_ledger_chaining = refines(
        LedgerChaining,
        AS_CHAINING,
        constants={"closed_by_another_will_do": True, "closes_unwritten_ledgers": True},
        when=lambda protocol: protocol.is_published,
        doc="Every step is a step of ledger-chaining, or changes nothing there.",
    )
