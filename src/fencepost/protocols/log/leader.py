"""The leader of a log itself: the role that a writer of a log runs, explored state by state.

The role is not modelled again. Each client has a :class:`fencepost.log.roles.leader.Leader`. Every step gives it an
event, or moves the world around it: the metadata service with the chain, bookies with ledgers, elections. `log` covers
the same by the rules alone, with fewer states; this protocol adds the order in which the role calls the rules, with
answers in flight while other events happen.

The world is a driver's. A request of the leader is carried out at one time and answered at another. It may be carried
out after the leader has given it up. A write is stored unless its ledger is fenced. A ledger is closed at any entry
that is not before a confirmed one.

The numbers of requests and timers grow without limit, but a leader only checks whether one is its latest. So the latest
is 0 in every state, and all older ones share another number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
    actor,
    configuration,
    constant,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.language.declarations import varied
from fencepost.ledger.roles.interface import Effect, Event, Outcome, SetTimer, TimerFired
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.log.chain import Chain
from fencepost.log.roles import leader as role
from fencepost.log.rules import Failure, Limits, Protections, Status, fences, takes_update
from fencepost.protocols.log.log import UNPROTECTED, ChainedLedgers, Ledger, ledger_ids
from fencepost.protocols.protections import switched_on

LATEST, PAST = 0, -1
"""The number of a leader's latest request, and the number of all older ones."""

AGE = 1
"""The time at which a ledger is old enough, where ledgers age. Everything else happens at time 0."""

Request = role.ReadChain | role.WriteChain | role.CreateLedger | role.CloseLedger
Answer = role.ChainRead | role.ChainWritten | role.LedgerCreated | role.LedgerClosed


class Desk:
    """The messages in flight between a leader and the world.

    ``requests``: those not carried out. ``answer``: to the latest request. ``timer``: the latest. ``ages``: ledgers
    whose age is timed. ``handles``: ledgers that it has open. ``appends``: the entries that it has accepted, by their
    numbers.
    """

    def __init__(self) -> None:
        self.requests: tuple[Request, ...] = ()
        self.answer: Answer | None = None
        self.timer: str | None = None
        self.ages: frozenset[int] = frozenset()
        self.handles: frozenset[int] = frozenset()
        self.appends: tuple[int, ...] = ()


class Acknowledgement(Record):
    """An entry was acknowledged as the entry ``place`` of a ledger."""

    entry: int
    ledger: int
    place: int


class LogLeader(ChainedLedgers, Protocol):
    """Clients take turns as leader of one log, each with the role that the log's writers run."""

    name: ClassVar[str] = "log-leader"

    clients: tuple[ModelValue, ...] = model_values("c", 2, "the clients that can be elected leader", symmetric=True)
    next_ledger_limit: int = constant(4, "states are explored while the next ledger's id is below this")
    entries: int = constant(1, "entries that are appended, in total")
    elections: int = constant(2, "how often another client is elected")
    failures: int = constant(0, "how often a request fails, or a ledger accepts no more entries")
    lost_answers: int = constant(0, "how many updates of the chain go unanswered, done or not, or yet to be done")
    trims: bool = constant(False, "whether the oldest ledgers are trimmed")
    sealing: bool = constant(False, "whether leaders are asked to seal the log")
    closing: bool = constant(False, "whether leaders are asked to end")
    deletion: bool = constant(False, "whether the log is deleted")
    most_entries: int = constant(0, "entries after which a leader rolls over, 0 for none")
    ages: bool = constant(False, "whether ledgers grow so old that leaders roll over")
    impatient: bool = constant(False, "whether a leader steps down as soon as anything fails")
    refusals: bool = constant(False, "whether one entry may wait, and more are appended, also at a leader that ends")

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

    leader: PerKey[ModelValue, role.Leader] = per_key(
        clients, actor(lambda protocol, c: role.Leader(protocol.settings, protocol.protections))
    )
    desk: PerKey[ModelValue, Desk] = per_key(clients, actor(lambda protocol, c: Desk()))

    chain: Chain = state(Chain(), held_by="metadata")
    version: int = state(0, held_by="metadata")
    elected: ModelValue | None = state(None, held_by="metadata")
    next_ledger: int = state(1, held_by="metadata")
    trimmed: tuple[int, ...] = state(())
    """The trimmed ledgers. For the properties; no client needs them."""
    deleted: bool = state(False, held_by="metadata")
    sealer: ModelValue | None = state(None)
    """The client whose update has sealed the log."""
    ledgers: PerKey[int, Ledger] = state(per_key(ledger_ids, Ledger), held_by="bookies")

    next_entry: int = state(1)
    acknowledged: tuple[Acknowledgement, ...] = state(())
    """Acknowledgements in order."""
    failed: frozenset[int] = state(frozenset())
    """Entries that a client knows not to be in the log."""
    unknown: frozenset[int] = state(frozenset())
    """Entries that are in the log or not: no client knows."""
    elections_held: int = state(0)
    troubles: int = state(0)
    unanswered: int = state(0)

    configurations = {
        "default": configuration(doc="two clients, an entry, two ledgers, two elections"),
        "two-entries": configuration(entries=2, doc="two entries, one after the other or both at once"),
        "one-client": configuration(
            clients=1, entries=3, next_ledger_limit=5, elections=0, doc="one client that rolls over"
        ),
        "trouble": configuration(failures=1, elections=1, doc="requests fail, and bookies accept no more entries"),
        "trouble-later": configuration(
            clients=1, entries=2, failures=1, elections=0, doc="one client, whose ledger accepts no more entries"
        ),
        "lost-answers": configuration(
            lost_answers=1, elections=1, doc="an update of the chain goes unanswered, done or not, or yet to be done"
        ),
        "trims": configuration(trims=True, elections=1, doc="the oldest ledger is trimmed"),
        "seals": configuration(sealing=True, elections=1, doc="leaders seal the log"),
        "ends": configuration(closing=True, elections=1, doc="leaders are asked to end"),
        "trims-while-rolling": configuration(
            clients=1,
            entries=2,
            next_ledger_limit=5,
            elections=0,
            trims=True,
            doc="one client, whose oldest ledger is trimmed while it rolls over",
        ),
        "deleted": configuration(deletion=True, elections=1, doc="the log is deleted"),
        "deleted-at-the-end": configuration(
            clients=1,
            entries=2,
            elections=0,
            deletion=True,
            sealing=True,
            closing=True,
            refusals=True,
            doc="one client that is asked to seal the log or to end, and whose log is deleted; one entry may wait",
        ),
        "tried-again": configuration(
            clients=1, failures=3, elections=0, doc="one client, three of whose requests fail"
        ),
        "full": configuration(
            clients=1,
            entries=3,
            next_ledger_limit=5,
            elections=0,
            most_entries=2,
            doc="ledgers are full with two entries",
        ),
        "old": configuration(clients=1, entries=2, next_ledger_limit=5, elections=0, ages=True, doc="ledgers grow old"),
        "impatient": configuration(
            failures=1, elections=1, impatient=True, doc="a leader steps down as soon as anything fails"
        ),
        "refusals": configuration(
            entries=3,
            elections=0,
            closing=True,
            refusals=True,
            doc="one entry may wait, and more are appended, also at a leader that ends",
        ),
        **UNPROTECTED,
        **varied(UNPROTECTED, {"taken-for-done": {"lost_answers": 1}, "all-written-again": {"failures": 1}}),
    }

    @property
    def protections(self) -> Protections:
        """The protections that are on."""
        return switched_on(self, Protections)

    @property
    def settings(self) -> role.LeaderSettings:
        """The settings of a leader."""
        usual = role.LeaderSettings()
        return role.LeaderSettings(
            limits=Limits(entries=self.most_entries, age=AGE if self.ages else 0),
            most_appends=1 if self.refusals else usual.most_appends,
            patience=0 if self.impatient else None,
        )

    def created(self, ledger: int) -> int:
        """The time at which a ledger is created, where ledgers age."""
        return ledger if self.ages else 0

    @initial
    def no_ledgers(self) -> None:
        """No ledger exists. One client is elected but does not know it yet."""
        self.elected = self.clients[0]

    # -- the role and its driver ---------------------------------------------------------------------------------------

    def _give(self, c: ModelValue, event: Event, now: int = 0) -> None:
        """Give a leader an event, and carry out the effects."""
        leader, desk = self.leader[c], self.desk[c]
        status, ended, reminded = leader.status, leader.ended, leader._reminds_at > 0
        effects = leader.receive(event, now)
        stops = leader.ended != ended or (leader.status is Status.WAITING and status is not Status.WAITING)
        assert not stops or _has(effects, role.SteppedDown), "the leader steps down without saying so"
        leads = leader.status is Status.HAS_OPEN_LEDGER and status is not Status.HAS_OPEN_LEDGER
        assert not leads or _has(effects, role.Leads), "the leader leads without saying so"
        tries_again = any(isinstance(effect, SetTimer) and effect.key[0] == role._AGAIN for effect in effects)
        assert _has(effects, role.Waits) == (tries_again and not reminded), (
            "the leader does not report once that it waits"
        )
        latest = leader._txn
        if latest != LATEST:
            leader._txn = LATEST
            desk.requests = tuple([_past(request) for request in desk.requests if _matters(request)])
            desk.answer = desk.timer = None
        for effect in effects:
            self._do(c, effect, latest)

    def _do(self, c: ModelValue, effect: Effect, latest: int) -> None:
        desk = self.desk[c]
        match effect:
            case role.ReadChain() | role.WriteChain() | role.CreateLedger() | role.CloseLedger():
                is_latest = effect.txn == latest
                if is_latest or _matters(effect):
                    number = LATEST if is_latest else PAST
                    desk.requests = (*desk.requests, msgspec.structs.replace(effect, txn=number))
            case SetTimer():
                kind, number = effect.key
                if kind == role._AGE:
                    desk.ages = desk.ages | {number}
                elif number == latest:
                    desk.timer = kind
            case role.Abandon():
                assert effect.ledger is not None, "the leader abandons a ledger that it does not have"
                assert self.ledgers[effect.ledger].status is not None, (
                    "the leader abandons a ledger that it has deleted"
                )
                desk.handles = desk.handles - {effect.ledger}
            case role.DeleteLedger():
                self.ledgers[effect.ledger] = Ledger()
            case role.Write():
                assert effect.count > 0, "the leader writes nothing"
                self._store(effect.ledger, desk.appends[effect.first : effect.first + effect.count])
            case role.Acknowledged():
                self._acknowledge(effect, desk.appends)
            case role.SteppedDown():
                ended = self.leader[c].ended
                assert effect.reason not in role.FINAL or ended is effect.reason, "the leader ends for another reason"
            case role.Refused():
                why = self.leader[c].ended or self.leader[c].last_wish or role.Reason.NO_ROOM
                assert effect.reason is why, "the leader refuses for another reason"
                taken = self.leader[c].appended
                self.failed |= {*desk.appends[taken:]}
                desk.appends = desk.appends[:taken]
            case role.Failed():
                entries = {*desk.appends[effect.first : effect.first + effect.count]}
                assert entries, "the leader fails no entry"
                if effect.is_known:
                    self.failed |= entries
                else:
                    self.unknown |= entries

    def _store(self, number: int, entries: tuple[int, ...]) -> None:
        ledger = self.ledgers[number]
        if not ledger.fenced:
            ledger.entries = (*ledger.entries, *entries)

    def _acknowledge(self, effect: role.Acknowledged, appends: tuple[int, ...]) -> None:
        ledger, place = effect.position.ledger, effect.position.entry
        entries = appends[effect.first : effect.first + effect.count]
        assert entries, "the leader acknowledges nothing"
        acknowledged = [Acknowledgement(entry, ledger, place + index) for index, entry in enumerate(entries)]
        self.acknowledged = (*self.acknowledged, *acknowledged)

    # -- elections and calls -------------------------------------------------------------------------------------------

    @action(c=clients, by="metadata")
    def leader_chosen(self, c: ModelValue) -> None:
        """Another client is elected, for any reason. Nobody is notified."""
        require(self.elected != c)
        require(self.elections_held < self.elections)
        self.elections_held += 1
        self.elected = c

    @action(c=clients)
    def hears_of_election(self, c: ModelValue) -> None:
        """The elected client finds out."""
        require(self.elected == c)
        require(not self.leader[c].is_elected)
        self._give(c, role.Elected())

    @action(c=clients)
    def hears_of_rival(self, c: ModelValue) -> None:
        """A client finds out that it is no longer the leader."""
        require(self.elected != c)
        require(self.leader[c].is_elected)
        self._give(c, role.NotElected())

    @action(c=clients)
    def append(self, c: ModelValue) -> None:
        """A caller appends entries with this client, one, or all that are left at once."""
        require(self.next_entry <= self.entries)
        require(self.refusals or (self.leader[c].ended is None and self.leader[c].last_wish is None))
        left = self.entries + 1 - self.next_entry
        count = one_of((1, left) if left > 1 else (1,))
        self.desk[c].appends = (*self.desk[c].appends, *range(self.next_entry, self.next_entry + count))
        self.next_entry += count
        self._give(c, role.Append((1,) * count))

    @action(c=clients)
    def roll_over(self, c: ModelValue) -> None:
        """A caller asks the leader to close its ledger and start another."""
        leader = self.leader[c]
        require(leader.status is Status.HAS_OPEN_LEDGER)
        require(leader.written > leader.base)
        self._give(c, role.RollOver())

    @action(c=clients)
    def seal(self, c: ModelValue) -> None:
        """A caller seals the log."""
        require(self.sealing)
        require(self.leader[c].ended is None)
        require(self.leader[c].last_wish is None)
        self._give(c, role.Seal())

    @action(c=clients)
    def close(self, c: ModelValue) -> None:
        """A caller ends the client."""
        require(self.closing)
        require(self.leader[c].ended is None)
        require(self.leader[c].last_wish is None)
        self._give(c, role.Close())

    @action(c=clients)
    def timer_fires(self, c: ModelValue) -> None:
        """The leader's timer fires."""
        kind = self.desk[c].timer
        require(kind is not None)
        self.desk[c].timer = None
        self._give(c, TimerFired((kind, LATEST)))

    @action(c=clients)
    def ledger_is_old(self, c: ModelValue) -> None:
        """A ledger of the leader, or a former one, reaches its age."""
        number = one_of(sorted(self.desk[c].ages))
        self.desk[c].ages = self.desk[c].ages - {number}
        self._give(c, TimerFired((role._AGE, number)), AGE)

    # -- the metadata service ------------------------------------------------------------------------------------------

    def _taken(self, c: ModelValue, kind: type[Request]) -> Any:
        """Remove a request of a client from those in flight."""
        requests = self.desk[c].requests
        which = one_of(range(len(requests)))
        require(isinstance(requests[which], kind))
        self.desk[c].requests = requests[:which] + requests[which + 1 :]
        return requests[which]

    def _answer(self, c: ModelValue, asked: Request, answer: Answer) -> None:
        """Send an answer, if the leader still waits for it."""
        if asked.txn == LATEST:
            self.desk[c].answer = answer

    @action(c=clients, by="metadata")
    def chain_is_read(self, c: ModelValue) -> None:
        """The metadata service reads the chain for a leader."""
        asked = self._taken(c, role.ReadChain)
        if self.deleted:
            self._answer(c, asked, role.ChainRead(LATEST, Outcome.NO_LEDGER))
        else:
            self._answer(c, asked, role.ChainRead(LATEST, Outcome.OK, self.chain, self.version))

    @action(c=clients, by="metadata")
    def chain_is_updated(self, c: ModelValue) -> None:
        """The metadata service replaces the chain, or refuses to. The answer is sent, or lost."""
        asked = self._taken(c, role.WriteChain)
        outcome = Outcome.NO_LEDGER if self.deleted else Outcome.BAD_VERSION
        if not self.deleted and takes_update(asked.version, self.version, self.protections):
            self.chain, self.version, outcome = asked.chain, self.version + 1, Outcome.OK
            if asked.chain.sealed:
                self.sealer = c
        if asked.txn == LATEST and one_of((False, True) if self.unanswered < self.lost_answers else (False,)):
            self.unanswered += 1
            outcome = Outcome.UNKNOWN
        self._answer(c, asked, role.ChainWritten(LATEST, outcome, self.version if outcome is Outcome.OK else -1))

    @action(c=clients)
    def update_is_given_up(self, c: ModelValue) -> None:
        """The connection breaks before an update of the chain is carried out. It is carried out later, or lost."""
        require(self.unanswered < self.lost_answers)
        self.unanswered += 1
        asked = self._taken(c, role.WriteChain)
        require(asked.txn == LATEST)
        if one_of((False, True)):
            self.desk[c].requests = (*self.desk[c].requests, msgspec.structs.replace(asked, txn=PAST))
        self.desk[c].answer = role.ChainWritten(LATEST, Outcome.UNKNOWN)

    @action(c=clients, by="metadata")
    def ledger_is_created(self, c: ModelValue) -> None:
        """A ledger is created. If the leader has given up the request, it is deleted."""
        asked = self._taken(c, role.CreateLedger)
        number = self.next_ledger
        self.next_ledger += 1
        self.ledgers[number].status = LedgerStatus.OPEN
        if asked.txn == LATEST:
            self.desk[c].handles = self.desk[c].handles | {number}
            self.desk[c].answer = role.LedgerCreated(LATEST, number, self.created(number))
        else:
            self._give(c, role.LedgerCreated(PAST, number, self.created(number)))

    @action(c=clients)
    def request_fails(self, c: ModelValue) -> None:
        """A request cannot be carried out now."""
        require(self.troubles < self.failures)
        self.troubles += 1
        asked = self._taken(c, role.ReadChain | role.CreateLedger | role.CloseLedger)  # type: ignore[arg-type]
        require(asked.txn == LATEST)
        match asked:
            case role.ReadChain():
                self.desk[c].answer = role.ChainRead(LATEST, Outcome.UNKNOWN)
            case role.CreateLedger():
                self.desk[c].answer = role.LedgerCreated(LATEST, None)
            case _:
                self.desk[c].answer = role.LedgerClosed(LATEST, role.Closing.FAILED)

    @action(c=clients)
    def answer_comes(self, c: ModelValue) -> None:
        """The leader receives the answer to its latest request."""
        answer = self.desk[c].answer
        require(answer is not None)
        self.desk[c].answer = None
        assert answer is not None
        self._give(c, answer)

    @action(by="metadata")
    def trim(self) -> None:
        """A caller trims the oldest ledger, if another follows it."""
        require(self.trims)
        require(len(self.chain.links) > 1)
        self.trimmed = (*self.trimmed, self.chain.links[0].ledger)
        self.chain, self.version = self.chain.without_first(1), self.version + 1

    @action(by="metadata")
    def log_is_deleted(self) -> None:
        """A caller deletes the log."""
        require(self.deletion)
        require(not self.deleted)
        self.deleted = True

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(c=clients, by="bookies")
    def recovery_begins(self, c: ModelValue) -> None:
        """The last ledger is recovered for a leader: it is marked and fenced."""
        requests = self.desk[c].requests
        asked = requests[one_of(range(len(requests)))]
        require(isinstance(asked, role.CloseLedger))
        assert isinstance(asked, role.CloseLedger)
        require(not asked.is_own)
        ledger = self.ledgers[asked.ledger]
        require(ledger.status is LedgerStatus.OPEN)
        ledger.status = LedgerStatus.IN_RECOVERY
        ledger.fenced = fences(self.protections)

    @action(c=clients, by="bookies")
    def ledger_is_closed(self, c: ModelValue) -> None:
        """A ledger is closed for a leader, at any entry that is not before a confirmed one. Or somebody else closed it
        or recovers it. If the log is deleted, its ledgers are gone.
        """
        asked = self._taken(c, role.CloseLedger)
        if self.deleted:
            self.desk[c].handles = self.desk[c].handles - {asked.ledger}
            self._answer(c, asked, role.LedgerClosed(LATEST, role.Closing.GONE))
            return
        ledger = self.ledgers[asked.ledger]
        require(asked.is_own or ledger.status is not LedgerStatus.OPEN)
        closing, last = role.Closing.CLOSED, ledger.last_entry
        if asked.is_own and ledger.status is not LedgerStatus.OPEN:
            closing = role.Closing.BY_ANOTHER
            if ledger.status is LedgerStatus.IN_RECOVERY:
                self._answer(c, asked, role.LedgerClosed(LATEST, closing))
                return
        elif ledger.status is not LedgerStatus.CLOSED:
            last = one_of(range(ledger.confirmed - 1, len(ledger.entries)))
            ledger.last_entry, ledger.status = last, LedgerStatus.CLOSED
        if asked.is_own:
            self.desk[c].handles = self.desk[c].handles - {asked.ledger}
        self._answer(c, asked, role.LedgerClosed(LATEST, closing, last))

    @action(c=clients, by="bookies")
    def entry_is_confirmed(self, c: ModelValue) -> None:
        """The leader learns that the next entry of an open ledger is confirmed, perhaps late, but not if the ledger was
        closed without it.
        """
        number = one_of(self.desk[c].handles)
        ledger = self.ledgers[number]
        require(ledger.confirmed < len(ledger.entries))
        require(not ledger.fenced or ledger.status is not LedgerStatus.CLOSED or ledger.confirmed <= ledger.last_entry)
        ledger.confirmed += 1
        self._give(c, role.Confirmed(number, ledger.confirmed - 1))

    @action(c=clients, by="bookies")
    def fence_is_noticed(self, c: ModelValue) -> None:
        """A bookie reports to a leader that its ledger is fenced."""
        number = one_of(self.desk[c].handles)
        require(self.ledgers[number].fenced)
        self._give(c, role.WriteFailed(number, Failure.FENCED))

    @action(c=clients, by="bookies")
    def ledger_is_in_trouble(self, c: ModelValue) -> None:
        """Too few bookies accept entries for a ledger."""
        require(self.troubles < self.failures)
        self.troubles += 1
        self._give(c, role.WriteFailed(one_of(self.desk[c].handles), Failure.TROUBLE))

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant
    def acknowledged_entries_are_in_the_log(self) -> bool:
        """An acknowledged entry is in the log at its position, and stays there."""
        log = self.all_ledgers()
        return all(
            one.ledger in log and self.in_the_log(one.ledger)[one.place : one.place + 1] == (one.entry,)
            for one in self.acknowledged
        )

    @invariant
    def denied_entries_are_not_in_the_log(self) -> bool:
        """An entry that was reported to its client as not in the log is not in it."""
        return not any(self.failed & {*self.in_the_log(ledger)} for ledger in self.all_ledgers())

    @invariant
    def every_entry_is_answered_once(self) -> bool:
        """An entry is acknowledged once, or fails once."""
        acknowledged = [one.entry for one in self.acknowledged]
        return (
            len({*acknowledged}) == len(acknowledged)
            and not {*acknowledged} & (self.failed | self.unknown)
            and not (self.failed & self.unknown)
        )

    @invariant(c=clients)
    def who_is_answered_is_told(self, c: ModelValue) -> bool:
        """The entries that a leader counts as answered are those that were answered."""
        leader, appends = self.leader[c], self.desk[c].appends
        with_answer = self.failed | self.unknown | {one.entry for one in self.acknowledged}
        answered = tuple(entry for entry in appends if entry in with_answer)
        return answered == appends[: leader.acknowledged] and len(appends) == leader.appended

    @invariant(c=clients)
    def what_waits_is_counted(self, c: ModelValue) -> bool:
        """A leader counts the sizes of all entries that wait or are in flight, within its limit. Those in flight are in
        its ledger.
        """
        leader = self.leader[c]
        begins = leader.written if leader.ledger is None else leader.base
        return begins <= leader.acknowledged and leader.bytes == leader.unacknowledged <= leader.settings.most_appends

    @invariant(c=clients)
    def the_log_has_appends_in_order(self, c: ModelValue) -> bool:
        """Read ledger by ledger, the entries of a client are in the order in which it appended them, without
        duplicates.
        """
        appends = self.desk[c].appends
        there = [entry for ledger in self.all_ledgers() for entry in self.in_the_log(ledger) if entry in appends]
        return there == sorted({*there})

    @invariant
    def who_seals_has_written_all(self) -> bool:
        """A client seals the log only after everything that it has appended."""
        return self.sealer is None or not self.leader[self.sealer].unacknowledged

    @invariant
    def the_chain_tells_ages(self) -> bool:
        """A link of the chain has the time at which its ledger was created."""
        return all(link.created == self.created(link.ledger) for link in self.chain.links)

    @invariant(c=clients)
    def the_status_says_what_is_asked(self, c: ModelValue) -> bool:
        """A leader that closes another's ledger, or its own, has the status for that."""
        asked = [one for one in self.desk[c].requests if isinstance(one, role.CloseLedger) and one.txn == LATEST]
        status = self.leader[c].status
        return all(status is (Status.CLOSE_OWN_LEDGER if one.is_own else Status.CLOSE_LAST_LEDGER) for one in asked)

    @invariant(c=clients)
    def only_who_is_elected_goes_on(self, c: ModelValue) -> bool:
        """A client that knows no election, or a later one, does not act as a leader."""
        return self.leader[c].is_elected or self.leader[c].status is Status.WAITING

    @invariant(c=clients)
    def who_ends_has_a_reason(self, c: ModelValue) -> bool:
        """A client that has ended does not act as a leader. It was asked to end, or its log is sealed or deleted."""
        leader = self.leader[c]
        is_true = {
            role.Reason.CLOSED: leader.last_wish is role.Reason.CLOSED,
            role.Reason.SEALED: self.chain.sealed,
            role.Reason.NO_LOG: self.deleted,
        }
        return leader.ended is None or (is_true[leader.ended] and leader.status is Status.WAITING)

    @invariant(c=clients)
    def what_is_past_makes_no_difference(self, c: ModelValue) -> bool:
        """A leader ignores answers that it no longer waits for, old timers, ledgers that it does not have, and events
        that it knows. After it has ended it ignores everything. If such an event changes its state, the check reports
        an error, since a property must not change anything.
        """
        leader = self.leader[c]
        events = list(OF_THE_PAST)
        if leader.is_elected and leader.status is not Status.WAITING:
            events += [role.Elected()]
        if leader.status is not Status.HAS_OPEN_LEDGER or leader.written == leader.base:
            events += [role.RollOver()]
        if leader.ended is not None:
            events += [role.Seal(), role.Close(), TimerFired((role._BEGIN, LATEST))]
        return not any(leader.receive(event, 0) for event in events)

    @invariant(c=clients)
    def nothing_is_forgotten(self, c: ModelValue) -> bool:
        """A leader with an open ledger has written to it the entries that it counts as written, and all that wait."""
        leader = self.leader[c]
        if leader.status is not Status.HAS_OPEN_LEDGER or leader.ledger not in self.desk[c].handles:
            return leader.status is not Status.HAS_OPEN_LEDGER
        ledger = self.ledgers[leader.ledger]
        is_there = ledger.fenced or len(ledger.entries) == leader.written - leader.base
        return is_there and (leader.is_rolling or leader.written == leader.appended)

    @invariant(c=clients)
    def who_waits_is_answered(self, c: ModelValue) -> bool:
        """A leader that is working waits for an answer or a timer that will come."""
        leader, desk = self.leader[c], self.desk[c]
        if leader.status in (Status.WAITING, Status.HAS_OPEN_LEDGER):
            return True
        is_asked = any(request.txn == LATEST for request in desk.requests)
        return is_asked or desk.answer is not None or desk.timer is not None


NONE = 0
"""The number of no ledger."""

OF_THE_PAST: tuple[Event, ...] = (
    role.ChainRead(PAST, Outcome.OK, Chain().as_sealed(), 0),
    role.ChainRead(PAST, Outcome.UNKNOWN),
    role.ChainWritten(PAST, Outcome.OK, 0),
    role.ChainWritten(PAST, Outcome.BAD_VERSION),
    role.LedgerCreated(PAST, None),
    role.LedgerClosed(PAST, role.Closing.CLOSED, -1),
    role.LedgerClosed(PAST, role.Closing.FAILED),
    TimerFired((role._BEGIN, PAST)),
    TimerFired((role._AGAIN, PAST)),
    TimerFired((role._AGE, NONE)),
    role.Confirmed(NONE, 0),
    role.WriteFailed(NONE, Failure.FENCED),
    role.WriteFailed(NONE, Failure.TROUBLE),
)
"""Events that a leader may receive at any time."""


def _has(effects: Iterable[Effect], kind: type[Effect]) -> bool:
    return any(isinstance(effect, kind) for effect in effects)


def _matters(request: Request) -> bool:
    """Whether it matters that a request is carried out after its leader has given it up."""
    return not isinstance(request, role.ReadChain)


def _past(request: Request) -> Request:
    return msgspec.structs.replace(request, txn=PAST)
