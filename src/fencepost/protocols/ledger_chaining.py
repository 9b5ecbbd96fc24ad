"""Ledger chaining: how clients that take turns as leader chain ledgers into one log.

A log outlives its ledgers. A new leader closes the last ledger, creates a new one and appends it to the list of
ledgers. Only then does it write. An election notifies nobody: an old leader goes on until it finds out, so any number
of clients may believe that they lead. Conditional updates protect the log: every change of metadata names the version
that its author last read.

Variables, actions and enabling conditions are those of ``LedgerChaining.tla`` (Jack Vanlightly, 2021). So are the names
and the number of states. How leaders are elected and how failures are detected is left out. One entry per ledger is
enough to check the order of the log.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from itertools import combinations
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
    constraint,
    initial,
    invariant,
    leads_to,
    model_values,
    per_key,
    require,
    state,
    step_invariant,
    weak,
)
from fencepost.protocols.types import Types, at_least, each, or_none, typed

NO_ENTRY = -1


class ClientStatus(enum.Enum):
    """How far a client is between being elected and writing."""

    WAITING = "waiting"
    GET_MD_FOR_CLOSING = "get metadata for closing"
    CLOSE_LAST_LEDGER = "close last ledger"
    PENDING_CREATE_LEDGER = "pending create ledger"
    PENDING_APPEND_LEDGER = "pending append ledger"
    HAS_OPEN_LEDGER = "has open ledger"


class LedgerMetadata(Record):
    """One ledger in the metadata store. The defaults are those of a ledger that was never created."""

    id: int = 0
    open: bool = False
    version: int = -1


class Client(Record):
    """One client: whether it believes that it leads, and what it last read of the list and of its ledger."""

    leader: bool = False
    status: ClientStatus = ClientStatus.WAITING
    llist: tuple[int, ...] = ()
    llist_version: int = -1
    ledger: LedgerMetadata = LedgerMetadata()


class LedgerOnBookies(Record):
    """One ledger on the bookies: its only entry, or none if it was fenced before anything was written to
    it.
    """

    entry: int
    fenced: bool


def _ledger_ids(protocol: LedgerChaining) -> Iterable[int]:
    """The ids that a ledger can get within the state constraint."""
    return range(1, protocol.next_ledger_limit)


def _are_of_the_ids_given_out(protocol: LedgerChaining, ledgers: PerKey[int, LedgerMetadata]) -> bool:
    """Every ledger that was created has metadata under its own id; no other id has any."""
    return all(
        ledger.id == ledger_id and ledger.version >= 0
        if ledger_id < protocol.md_next_lid
        else ledger == LedgerMetadata()
        for ledger_id, ledger in ledgers.items()
    )


TYPES: Types = {
    "c_state.llist": each(at_least(1)),
    "c_state.llist_version": at_least(-1),
    "c_state.ledger.version": at_least(-1),
    "md_llist": each(at_least(1)),
    "md_llist_version": at_least(0),
    "md_ledgers": _are_of_the_ids_given_out,
    "md_leader": lambda protocol, leader: leader in protocol.clients,
    "md_next_lid": at_least(1),
    "b_ledgers": or_none(lambda protocol, ledger: ledger.entry >= NO_ENTRY and type(ledger.fenced) is bool),
    "next_entry_id": at_least(0),
}


class LedgerChaining(Protocol):
    """Clients take turns as leader and chain ledgers into one log."""

    name: ClassVar[str] = "ledger-chaining"

    clients: tuple[ModelValue, ...] = model_values("c", 3, "the clients that can be elected leader", symmetric=True)
    next_ledger_limit: int = constant(4, "states are explored while the next ledger's id is below this")
    closed_by_another_will_do: bool = constant(
        False, "whether a leader that finds the last ledger closed by another goes on, or reads the list again"
    )
    closes_unwritten_ledgers: bool = constant(
        False, "whether a leader may close its own ledger before it has written to it"
    )

    c_state: PerKey[ModelValue, Client] = per_key(clients, Client)

    md_llist: tuple[int, ...] = state((), held_by="zk")
    md_llist_version: int = state(0, held_by="zk")
    md_ledgers: PerKey[int, LedgerMetadata] = state(per_key(_ledger_ids, LedgerMetadata), held_by="zk")
    md_leader: ModelValue | None = state(None, held_by="zk")
    md_next_lid: int = state(1, held_by="zk")

    b_ledgers: PerKey[int, LedgerOnBookies | None] = state(per_key(_ledger_ids, None), held_by="bookies")

    next_entry_id: int = state(0)

    configurations = {
        "published": configuration(doc="the published configuration: three clients, two ledgers"),
        "small": configuration(clients=2, doc="two clients, two ledgers"),
        "as-the-log": configuration(
            clients=2,
            closed_by_another_will_do=True,
            closes_unwritten_ledgers=True,
            doc="the same, where leaders are as free as those of log are",
        ),
        "false-alarm": configuration(
            clients=2,
            next_ledger_limit=6,
            doc="large enough for the published rule on open ledgers to raise a false alarm",
        ),
    }

    @assumption
    def there_is_a_ledger_to_create(self) -> bool:
        """With a limit below 2 even the initial state is outside the state constraint."""
        return self.next_ledger_limit >= 2

    @initial
    def no_ledgers(self) -> None:
        """No ledger exists. One client is elected but does not know it yet."""
        self.md_leader = self.clients[0]

    # -- becoming and being leader -------------------------------------------------------------------------------------

    @action(c=clients, by="zk")
    def leader_chosen(self, c: ModelValue) -> None:
        """Another client is elected, for any reason. Nobody is notified."""
        require(self.md_leader != c)
        self.md_leader = c

    @action(c=clients)
    def become_leader(self, c: ModelValue) -> None:
        """The elected client finds out, and looks for a ledger to close."""
        client = self.c_state[c]
        require(not client.leader)
        require(self.md_leader == c)
        client.leader = True
        client.status = ClientStatus.GET_MD_FOR_CLOSING

    @action(c=clients)
    def abdicate(self, c: ModelValue) -> None:
        """A client finds out that it is no longer the leader. It leaves its ledger open: the next leader will close
        it.
        """
        client = self.c_state[c]
        require(client.leader)
        require(self.md_leader != c)
        self._step_down(client)

    def _step_down(self, client: Client) -> None:
        client.leader = False
        client.status = ClientStatus.WAITING

    def _leading(self, c: ModelValue, status: ClientStatus) -> Client:
        """The client, if it believes that it leads and has reached ``status``."""
        client = self.c_state[c]
        require(client.status is status)
        require(client.leader)
        return client

    # -- closing the last ledger ---------------------------------------------------------------------------------------

    @action(c=clients)
    def get_last_ledger(self, c: ModelValue) -> None:
        """A new leader reads the list and the metadata of its last ledger. If the list is empty, there is nothing to
        close.

        It remembers the version of the list. A rival that appends in the meantime changes that version.
        """
        client = self._leading(c, ClientStatus.GET_MD_FOR_CLOSING)
        client.llist = self.md_llist
        client.llist_version = self.md_llist_version
        if self.md_llist:
            client.ledger = self.md_ledgers[self.md_llist[-1]]
            client.status = ClientStatus.CLOSE_LAST_LEDGER
        else:
            client.status = ClientStatus.PENDING_CREATE_LEDGER

    @action(c=clients)
    def ledger_already_closed(self, c: ModelValue) -> None:
        """The last ledger was closed already. The leader goes on to create one."""
        client = self._leading(c, ClientStatus.CLOSE_LAST_LEDGER)
        require(not client.ledger.open)
        client.status = ClientStatus.PENDING_CREATE_LEDGER

    @action(c=clients)
    def close_last_ledger_success(self, c: ModelValue) -> None:
        """Nobody has changed the last ledger since the leader read its metadata. The leader fences and closes it."""
        client = self._leading(c, ClientStatus.CLOSE_LAST_LEDGER)
        require(client.ledger.open)
        ledger_id = client.ledger.id
        require(client.ledger.version == self.md_ledgers[ledger_id].version)
        self._close(ledger_id)
        self._fence(ledger_id)
        client.status = ClientStatus.PENDING_CREATE_LEDGER

    @action(c=clients)
    def close_last_ledger_bad_version(self, c: ModelValue) -> None:
        """Somebody else has updated the last ledger. The leader starts over and reads the list again.

        With ``closed_by_another_will_do`` it goes on, since it only needs the ledger closed. If the list has changed
        too, its version will show it.
        """
        client = self._leading(c, ClientStatus.CLOSE_LAST_LEDGER)
        require(client.ledger.open)
        require(client.ledger.version < self.md_ledgers[client.ledger.id].version)
        client.status = (
            ClientStatus.PENDING_CREATE_LEDGER if self.closed_by_another_will_do else ClientStatus.GET_MD_FOR_CLOSING
        )

    def _close(self, ledger_id: int) -> None:
        self.md_ledgers[ledger_id].open = False
        self.md_ledgers[ledger_id].version += 1

    def _fence(self, ledger_id: int) -> None:
        """Fence a ledger. If the bookies do not have the ledger, this creates it, empty and fenced."""
        stored = self.b_ledgers[ledger_id]
        self.b_ledgers[ledger_id] = stored.replace(fenced=True) if stored else LedgerOnBookies(NO_ENTRY, fenced=True)

    # -- chaining a new ledger -----------------------------------------------------------------------------------------

    @action(c=clients)
    def create_ledger(self, c: ModelValue) -> None:
        """The leader creates a ledger. Nobody can find it until it is in the list."""
        client = self._leading(c, ClientStatus.PENDING_CREATE_LEDGER)
        created = LedgerMetadata(id=self.md_next_lid, open=True, version=0)
        self.md_ledgers[created.id] = created
        self.md_next_lid += 1
        client.ledger = created
        client.status = ClientStatus.PENDING_APPEND_LEDGER

    @action(c=clients)
    def append_ledger_success(self, c: ModelValue) -> None:
        """The list is as the leader last read it. The leader appends its ledger."""
        client = self._leading(c, ClientStatus.PENDING_APPEND_LEDGER)
        require(client.llist_version == self.md_llist_version)
        self.md_llist = client.llist = (*client.llist, client.ledger.id)
        self.md_llist_version = client.llist_version = self.md_llist_version + 1
        client.status = ClientStatus.HAS_OPEN_LEDGER

    @action(c=clients)
    def append_ledger_bad_version(self, c: ModelValue) -> None:
        """Somebody else has appended a ledger since. The client steps down. Its new ledger stays out of the list,
        empty.
        """
        client = self._leading(c, ClientStatus.PENDING_APPEND_LEDGER)
        require(client.llist_version < self.md_llist_version)
        self._step_down(client)

    # -- writing -------------------------------------------------------------------------------------------------------

    @action(c=clients)
    def write_to_ledger(self, c: ModelValue) -> None:
        """The leader writes the one entry of its ledger, unless the ledger is fenced."""
        client = self._leading(c, ClientStatus.HAS_OPEN_LEDGER)
        ledger_id = client.ledger.id
        require(self.b_ledgers[ledger_id] is None)
        self.b_ledgers[ledger_id] = LedgerOnBookies(entry=self.next_entry_id, fenced=False)
        self.next_entry_id += 1

    @action(c=clients)
    def close_own_ledger_success(self, c: ModelValue) -> None:
        """The leader closes its own ledger after writing to it, so that it can chain another."""
        client = self._leading(c, ClientStatus.HAS_OPEN_LEDGER)
        ledger_id = client.ledger.id
        require(self.closes_unwritten_ledgers or self.b_ledgers[ledger_id] is not None)
        require(client.ledger.version == self.md_ledgers[ledger_id].version)
        self._close(ledger_id)
        client.status = ClientStatus.PENDING_CREATE_LEDGER

    @action(c=clients)
    def close_own_ledger_bad_version(self, c: ModelValue) -> None:
        """Somebody else has closed the ledger in the meantime. The client steps down."""
        client = self._leading(c, ClientStatus.HAS_OPEN_LEDGER)
        ledger_id = client.ledger.id
        require(self.b_ledgers[ledger_id] is not None)
        require(client.ledger.version < self.md_ledgers[ledger_id].version)
        self._step_down(client)

    # -- what must hold ------------------------------------------------------------------------------------------------

    @constraint
    def ledger_limit(self) -> bool:
        """Limits the number of ledgers, and so the number of states."""
        return self.md_next_lid < self.next_ledger_limit

    type_ok = typed(lambda: TYPES, whole=("md_ledgers",))

    @invariant(ledger_id=_ledger_ids)
    def all_non_empty_ledgers_in_ledger_list(self, ledger_id: int) -> bool:
        """Every ledger that the bookies have is in the list: nothing was written where no reader would look."""
        return self.b_ledgers[ledger_id] is None or ledger_id in self.md_llist

    @invariant(pair=lambda protocol: combinations(_ledger_ids(protocol), 2))
    def entry_order_maintained(self, pair: tuple[int, int]) -> bool:
        """Entries are written in the order in which their ledgers were created: read ledger by ledger, the log is in
        order.
        """
        first, second = (self.b_ledgers[ledger_id] for ledger_id in pair)
        if first is None or second is None or first.entry == NO_ENTRY or second.entry == NO_ENTRY:
            return True
        return first.entry <= second.entry

    @invariant(pair=lambda protocol: combinations(_ledger_ids(protocol), 2))
    def no_entry_is_written_twice(self, pair: tuple[int, int]) -> bool:
        """No two ledgers have the same entry."""
        first, second = (self.b_ledgers[ledger_id] for ledger_id in pair)
        return first is None or second is None or first.entry == NO_ENTRY or first.entry != second.entry

    @invariant(when=lambda protocol: protocol.next_ledger_limit <= 4)
    def only_one_ledger_open_at_a_time(self) -> bool:
        """The published rule: at most one ledger in the list is open. It uses a position in the list as a ledger id.

        The two are equal while every created ledger gets into the list. With more ledgers the rule raises false alarms,
        so it is off by default above a limit of 4. :meth:`only_one_listed_ledger_open_at_a_time` is the intended rule.
        """
        positions = range(1, len(self.md_llist) + 1)
        return sum(self.md_ledgers[position].open for position in positions) <= 1

    @invariant
    def only_one_listed_ledger_open_at_a_time(self) -> bool:
        """At most one ledger in the list is open, so the log has one end."""
        return sum(self.md_ledgers[ledger_id].open for ledger_id in self.md_llist) <= 1

    @step_invariant(ledger_id=_ledger_ids)
    def what_is_closed_stays_as_it_is(self, after: LedgerChaining, ledger_id: int) -> bool:
        """The metadata of a closed ledger do not change: nobody closes it again from an outdated version, at another
        end.
        """
        before = self.md_ledgers[ledger_id]
        return before.open or before == LedgerMetadata() or after.md_ledgers[ledger_id] == before

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        weak(become_leader),
        weak(abdicate),
        weak(get_last_ledger),
        weak(ledger_already_closed),
        weak(close_last_ledger_success),
        weak(close_last_ledger_bad_version),
        weak(create_ledger),
        weak(append_ledger_success),
        weak(append_ledger_bad_version),
        weak(write_to_ledger),
        weak(close_own_ledger_bad_version),
    ]
    """Weak fairness of every action but elections and closing one's own written ledger.

    The original has no fairness. A leader that needs one more ledger than the state constraint allows has no fair
    action left, so behaviours that get there are not judged. The properties hold for those that need no more ledgers.
    """

    def _accepts_writes(self, c: ModelValue) -> bool:
        """Whether the client has a ledger in the list whose entry the bookies took, and which is not fenced."""
        client = self.c_state[c]
        if client.status is not ClientStatus.HAS_OPEN_LEDGER:
            return False
        stored = self.b_ledgers[client.ledger.id]
        return stored is not None and not stored.fenced

    @leads_to(c=clients, when=lambda protocol: False)
    def stable_leader_accepts_writes(self, c: ModelValue) -> tuple[bool, bool]:
        """A client that is elected and stays elected eventually accepts writes, even if old leaders interfere."""
        return self.md_leader == c, self.md_leader != c or self._accepts_writes(c)

    @leads_to(c=clients, when=lambda protocol: False)
    def elected_client_accepts_writes(self, c: ModelValue) -> tuple[bool, bool]:
        """Every elected client eventually accepts writes, whether or not it stays elected. This is false: it may lose
        the next election first.
        """
        return self.md_leader == c, self._accepts_writes(c)
