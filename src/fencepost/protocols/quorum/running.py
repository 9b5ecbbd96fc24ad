"""The quorum as it runs: `quorum`, in steps as small as the events that replicas trace.

Traces of running quorums are validated with this protocol. Every decision is made by a function of
:mod:`fencepost.quorum.rules`, and states change by the table of :mod:`fencepost.quorum.transitions`, as in `quorum`.
The steps are those of the role and of its driver: a decision, when it became durable, and when a replica first sent it.

The state of the protocol:

- **A log is reduced to the starts of its epochs, its configurations, and its end.** No two replicas have different
  records of the same offset and epoch, so this identifies a log. Records of leaders and of voters take up offsets in
  it, as in the logs of replicas. It is the whole log, even where a replica has only a snapshot of its beginning. The
  values that clients write are left out.
- **Many records in one step.** A leader appends any number, and a follower gets any stretch of its leader's log.
- **No message is a part of the state.** Everything that replicas learn of each other stays true: that a replica stands
  in an epoch with a log of this end, has voted, or leads; how far the log of an epoch's leader goes, and what of it is
  committed; and that a replica has fetched from an offset, with everything ahead of it durable. So a message that is
  late, lost or repeated is a fact that a replica learns late, never, or twice.
- **Deciding, storing and sending are three steps.** A replica that goes to an epoch, votes or finds a leader must store
  that before it does anything else. Then it sends messages about it. After a crash it has what it had stored, or was
  about to store.
- **A crash** leaves any log that the writes since the last sync, in their order, may have left.
- **Pre-votes** commit nobody to anything. A candidate counts those that were given in its epoch.
- **A single voter** elects itself by the usual steps.
- **Snapshots** have what is committed. A replica may have made one up to any committed offset. A fetched one replaces
  its log.
- **A lost disk** leaves a replica that does nothing any more. The same host goes on with another one.
- **An observer** is a replica that is not among the voters of any configuration.
- **Nothing depends on time.** A replica may time out at any time, and a leader may resign at any time.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
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
from fencepost.quorum import rules
from fencepost.quorum.rules import ALL, Election, Error, Learnt, Position, Protections
from fencepost.quorum.transitions import Cause, State, transition

Voters = frozenset[ModelValue]

NOBODY: Voters = frozenset()


class Log(Record):
    """A log: for each epoch with records, its start as (offset, epoch); the configurations, as (offset, voters); and
    the end offset.
    """

    epochs: tuple[tuple[int, int], ...] = ()
    configurations: tuple[tuple[int, Voters], ...] = ()
    end: int = 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or 0 without one."""
        return self.epochs[-1][1] if self.epochs else 0

    @property
    def place(self) -> tuple[int, int]:
        """The end: offset, and epoch of the last record."""
        return self.end, self.last_epoch

    @property
    def voters_offset(self) -> int:
        """The offset of the last configuration, or -1 without one."""
        return self.configurations[-1][0] if self.configurations else -1

    def epoch_ahead_of(self, offset: int) -> int:
        """The epoch of the record ahead of an offset."""
        return next((epoch for start, epoch in reversed(self.epochs) if start < offset), 0)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The end of the records of this epoch or earlier ones: the offset, and the epoch of the last of them."""
        end = next((start for start, later in self.epochs if later > epoch), self.end)
        return end, self.epoch_ahead_of(end)

    def start_of_epoch(self, epoch: int) -> int:
        """The offset of the first record of an epoch, or where it would be."""
        return next((start for start, found in self.epochs if found >= epoch), self.end)

    def has(self, offset: int, epoch: int) -> bool:
        """Whether the log has the record of this epoch ahead of an offset."""
        return offset <= self.end and self.epoch_ahead_of(offset) == epoch

    def before(self, offset: int) -> Log:
        """The part of the log ahead of an offset."""
        if offset >= self.end:
            return self
        epochs = tuple([each for each in self.epochs if each[0] < offset])
        return Log(epochs, tuple([each for each in self.configurations if each[0] < offset]), offset)

    def begins(self, longer: Log) -> bool:
        """Whether the other log begins with this one."""
        return self.end <= longer.end and longer.before(self.end) == self

    def appended(self, epoch: int, count: int = 1, voters: Voters | None = None) -> Log:
        """The log with this number of records more, of one epoch; or with one more that is a configuration."""
        epochs = self.epochs if self.last_epoch == epoch else (*self.epochs, (self.end, epoch))
        configurations = self.configurations if voters is None else (*self.configurations, (self.end, voters))
        return Log(epochs, configurations, self.end + count)


class Stored(Record):
    """An election state that a replica has stored, or will store."""

    epoch: int = 0
    voted: ModelValue | None = None
    leader: ModelValue | None = None


class Left(Record):
    """A log that a crash may leave: the part of a log ahead of any offset from ``durable`` on."""

    log: Log
    durable: int


class Member(Record):
    """A replica: the parts of :class:`fencepost.quorum.roles.replica.Replica`, and what is durable.

    ``log`` is None before its first start. ``left``: what a crash may leave; the last one is the current log.
    ``first_voters``: the configuration that it began with. ``voters``: the one that it uses. ``stored`` is durable;
    ``to_store`` will be, in order. ``stands_with``: the end of its log when it stood for election. ``installing``: the
    log of a fetched snapshot.
    """

    host: int = 0
    state: State = State.UNATTACHED
    epoch: int = 0
    voted: ModelValue | None = None
    leader: ModelValue | None = None
    stored: Stored | None = None
    to_store: tuple[Stored, ...] = ()
    granted: Voters = NOBODY
    stands_with: tuple[int, int] | None = None
    heard: bool = False
    log: Log | None = None
    left: tuple[Left, ...] = ()
    stored_end: int = 0
    first_voters: Voters = NOBODY
    voters: Voters = NOBODY
    high_watermark: int = 0
    snapshot: int = 0
    installing: Log | None = None


class Progress(Record):
    """The end of another replica's log, as the leader of an epoch knows it."""

    epoch: int = 0
    end: int = 0
    end_before: int | None = None
    caught_up: bool = False


class Fetched(Record):
    """The fetches of a replica in an epoch: it has all of the leader's log ahead of ``end``. ``places``: the ends of
    its log in the fetches that it sent without knowing the leader.
    """

    end: int = -1
    places: frozenset[tuple[int, int]] = frozenset()


@cache
def _without(name: str) -> Protections:
    return ALL.replace(**{name: False}) if name else ALL


def _epochs(protocol: RunningQuorum) -> range:
    return range(protocol.epochs)


class RunningQuorum(Protocol):
    """The life of one quorum in a running system."""

    name: ClassVar[str] = "running-quorum"

    replicas: tuple[ModelValue, ...] = model_values("r", 2, "replicas ever started, each with a disk of its own")
    first_voters: int = constant(2, "voters at the beginning, of those that have started then")
    epochs: int = constant(2, "epochs are numbered below this")
    max_records: int = constant(3, "offsets below which clients may write")
    max_changes: int = constant(0, "changes of the voters")
    max_restarts: int = constant(0, "restarts")
    max_snapshots: int = constant(0, "snapshots that are made or fetched")
    is_traced: bool = constant(
        False, "whether steps come from a trace: nothing limits them, and no replica has started"
    )

    without: str = constant("", "the protection that is left out")
    stores_before_speaking: bool = constant(True, "whether a replica sends only what it has stored")
    syncs_before_fetching: bool = constant(True, "whether a replica fetches only from what it has synced")

    member: PerKey[ModelValue, Member] = per_key(replicas, Member)
    progress: PerKey[ModelValue, PerKey[ModelValue, Progress]] = per_key(
        replicas, per_key(lambda protocol: protocol.replicas, Progress)
    )

    told_epoch: PerKey[int, bool] = per_key(_epochs, False)
    """Whether a replica has reported that it is in an epoch."""
    stood: PerKey[int, frozenset[tuple[ModelValue, int, int]]] = per_key(_epochs, frozenset())
    """The candidates of an epoch, each with the end of its log: offset and epoch."""
    votes: PerKey[int, frozenset[tuple[ModelValue, ModelValue]]] = per_key(_epochs, frozenset())
    """The votes of an epoch: the voter and its candidate."""
    pre_votes: PerKey[int, frozenset[tuple[ModelValue, ModelValue]]] = per_key(_epochs, frozenset())
    leaders: PerKey[int, tuple[ModelValue, ...]] = per_key(_epochs, ())
    """The leaders of an epoch, one for each time that a replica has become its leader."""
    told_leader: PerKey[int, Voters] = per_key(_epochs, NOBODY)
    """The replicas that have announced themselves as leaders of an epoch."""
    told_end: PerKey[int, bool] = per_key(_epochs, False)
    """Whether the leader of an epoch has announced that it leads no more."""
    leader_log: PerKey[int, Log | None] = per_key(_epochs, None)
    """The log of the leader of an epoch, at its longest while it led."""
    leader_committed: PerKey[int, int] = per_key(_epochs, 0)
    """The high watermark of the leader of an epoch."""
    fetched: PerKey[ModelValue, PerKey[int, Fetched]] = per_key(replicas, per_key(_epochs, Fetched))
    configurations_of: frozenset[Voters] = state(frozenset())
    """All configurations that ever existed."""
    committed: Log | None = state(None)
    """The longest log that was committed. Not kept for a trace."""

    restarts: int = state(0)
    changes: int = state(0)
    snapshots: int = state(0)

    configurations = {
        "default": configuration(doc="two voters, one election and a record"),
        "elections": configuration(epochs=3, max_records=0, doc="two voters that are elected one after the other"),
        "restart": configuration(
            max_restarts=1, max_records=0, doc="a replica restarts, and has lost what it had not synced"
        ),
        "alone": configuration(
            replicas=1, first_voters=1, epochs=3, max_records=4, max_restarts=1, doc="a single voter, which restarts"
        ),
        "adding": configuration(first_voters=1, max_changes=1, max_records=0, doc="an observer is made a voter"),
        "removal": configuration(max_changes=1, max_records=0, doc="one of two voters is removed, possibly the leader"),
        "snapshots": configuration(
            first_voters=1, max_snapshots=1, doc="a voter or an observer makes a snapshot, or the observer fetches one"
        ),
        "voted-twice": configuration(
            replicas=3,
            first_voters=3,
            max_records=0,
            without="one_vote_an_epoch",
            expect="one_leader_an_epoch",
            doc="a replica votes for every candidate",
        ),
        "spoken-early": configuration(
            max_restarts=1,
            max_records=0,
            stores_before_speaking=False,
            expect="one_leader_an_epoch",
            doc="a replica sends its vote before it has stored it, and restarts",
        ),
    }

    @property
    def protections(self) -> Protections:
        """The protections that are on."""
        return _without(self.without)

    @initial
    def begun(self) -> None:
        """The first replicas, voters and observers, have started. For a trace none has."""
        if self.is_traced:
            return
        voters = frozenset(self.replicas[: self.first_voters])
        for number, s in enumerate(self.replicas):
            self._begin(s, number, voters if s in voters else NOBODY)

    # -- state and rules -----------------------------------------------------------------------------------------------

    def _log(self, s: ModelValue) -> Log:
        log = self.member[s].log
        require(log is not None)
        assert log is not None
        return log

    def _ready(self, s: ModelValue) -> Log:
        """The log of a replica that has nothing to store. Otherwise the action is not enabled."""
        require(not (self.stores_before_speaking and self.member[s].to_store))
        return self._log(s)

    def _may_campaign(self, s: ModelValue) -> bool:
        me, log = self.member[s], self._ready(s)
        before = log.configurations[-2][1] if len(log.configurations) > 1 else me.first_voters
        was_voter = bool(log.configurations) and s in before
        return rules.may_campaign(s in me.voters, was_voter, log.voters_offset < me.high_watermark, self.protections)

    def _to_be_stored(self, s: ModelValue) -> Stored:
        """The election state that is stored once everything is stored."""
        me = self.member[s]
        last = me.to_store[-1] if me.to_store else me.stored
        assert last is not None
        return last

    def _leading(self, s: ModelValue) -> Log:
        """The log of a replica that leads and is not about to resign."""
        me, log = self.member[s], self._ready(s)
        require(me.state is State.LEADER)
        is_voter = s in me.voters
        require(not rules.resigns_when_committed(is_voter, log.voters_offset, me.high_watermark, self.protections))
        return log

    def _log_of_leader(self, s: ModelValue) -> Log:
        """The log of the leader that a replica follows."""
        me = self.member[s]
        self._ready(s)
        require(me.state is State.FOLLOWER)
        log = self.leader_log[me.epoch]
        require(log is not None)
        assert log is not None
        return log

    def _chosen(self, log: Log, offsets: range) -> int:
        """An offset in a log. A trace gives the epoch of the record ahead of it, too."""
        offset = one_of(offsets)
        if self.is_traced:
            require(log.epoch_ahead_of(offset) == one_of(range(self.epochs)))
        return offset

    # -- transitions ---------------------------------------------------------------------------------------------------

    def _go(self, s: ModelValue, cause: Cause, epoch: int, voted: ModelValue | None, leader: ModelValue | None) -> None:
        """Make a transition of the table. What must not be forgotten will be stored."""
        me = self.member[s]
        me.state = transition(me.state, cause, me.epoch, epoch)
        me.epoch, me.voted, me.leader = epoch, voted, leader
        me.granted, me.heard = NOBODY, False
        if me.state not in (State.PROSPECTIVE, State.RESIGNED):
            stored = Stored(epoch, voted, leader)
            if stored != self._to_be_stored(s):
                me.to_store = (*me.to_store, stored)

    def _write(self, s: ModelValue, log: Log, is_cut: bool = False) -> None:
        """Replace the log. The new one continues the old one unless ``is_cut``; then a crash may leave the old one,
        too.
        """
        me = self.member[s]
        me.log = log
        me.voters = log.configurations[-1][1] if log.configurations else me.first_voters
        if is_cut:
            me.left = (*me.left, Left(log, log.end))
        else:
            me.left = (*me.left[:-1], Left(log, me.left[-1].durable))

    def _append(self, s: ModelValue, count: int = 1, voters: Voters | None = None) -> None:
        """A leader appends."""
        me = self.member[s]
        log = self._log(s).appended(me.epoch, count, voters)
        self._write(s, log)
        self.leader_log[me.epoch] = log
        if voters is not None:
            self.configurations_of |= {voters}

    def _commit(self, s: ModelValue, offset: int) -> None:
        self.member[s].high_watermark = offset
        if not self.is_traced and (self.committed is None or self.committed.end < offset):
            self.committed = self._log(s).before(offset)

    # -- starts and restarts -------------------------------------------------------------------------------------------

    def _begin(self, s: ModelValue, host: int, voters: Voters) -> None:
        me = self.member[s]
        me.host, me.first_voters, me.voters, me.stored = host, voters, voters, Stored()
        me.log, me.left = Log(), (Left(Log(), 0),)
        if voters:
            self.configurations_of |= {voters}

    @action(s=replicas, host=(0,))
    def start(self, s: ModelValue, host: int) -> None:
        """A replica starts for the first time, with an empty disk: as a voter of the first configuration or of a later
        one, or as an observer.
        """
        require(self.is_traced)
        voters = one_of(_AnyOf(self.replicas))
        require(self.member[s].log is None)
        require(not voters or s in voters)
        require(not voters or not self.configurations_of or voters in self.configurations_of)
        self._begin(s, host, voters)

    @action(s=replicas)
    def restart_with_state(self, s: ModelValue) -> None:
        """A replica ends, cleanly or not, and restarts from its disk. It has the election state that it had stored, or
        was about to store; of its log, what the unsynced writes have left; and a snapshot, which it may just have made
        or fetched, or an older one if that is damaged. The log ahead of the snapshot is dropped if it does not reach
        the snapshot.
        """
        me, log = self.member[s], self._log(s)
        require(self.is_traced or self.restarts < self.max_restarts)
        stored = one_of((me.stored, *me.to_store[:1]))
        assert stored is not None
        installing = me.installing or Log()
        latest = max(me.snapshot, installing.end)
        makes = self.is_traced or self.snapshots < self.max_snapshots
        oldest = 0 if self.is_traced else me.snapshot
        snapshot = one_of(range(oldest, max(me.high_watermark, latest) + 1) if makes else (me.snapshot,))
        require(snapshot <= max(min(me.high_watermark, log.end), latest))
        of_snapshot = (installing if snapshot == installing.end else log).before(snapshot)
        require(not self.is_traced or of_snapshot.last_epoch == one_of(range(self.epochs)))
        least, most = min(left.durable for left in me.left), max(left.log.end for left in me.left)
        end = one_of(range(min(least, snapshot), max(most, snapshot) + 1))
        epoch = one_of(range(self.epochs))
        found = [
            left.log.before(end)
            for left in me.left
            if left.durable <= end and left.log.has(end, epoch) and left.log.has(*of_snapshot.place) and end > snapshot
        ]
        if end == snapshot and epoch == of_snapshot.last_epoch:
            found += [
                of_snapshot for left in me.left if left.durable <= snapshot or not left.log.has(*of_snapshot.place)
            ]
        require(len(found) > 0)
        me.stored, me.to_store = stored, ()
        me.log = found[0]
        me.left, me.stored_end = (Left(me.log, me.log.end),), me.log.end
        me.voters = me.log.configurations[-1][1] if me.log.configurations else me.first_voters
        if not self.is_traced:
            self.restarts += 1
            self.snapshots += snapshot != me.snapshot
        me.snapshot = me.high_watermark = snapshot
        me.epoch, me.voted, me.leader = stored.epoch, stored.voted, stored.leader
        if me.log.last_epoch > me.epoch:
            me.epoch, me.voted, me.leader = me.log.last_epoch, None, None
        me.state = rules.restarts_as(me.leader == s, me.voted is not None, me.leader is not None)
        if me.state is not State.FOLLOWER:
            me.leader = None
        if me.state is State.RESIGNED:
            self.told_end[me.epoch] = True
        me.granted, me.heard, me.stands_with, me.installing = NOBODY, False, None, None

    # -- storing and sending -------------------------------------------------------------------------------------------

    @action(s=replicas)
    def store_election(self, s: ModelValue) -> None:
        """An election state becomes durable. One that was stored before may be stored again."""
        me = self.member[s]
        require(me.stored is not None)
        stored = one_of((*me.to_store[:1], *((me.stored,) if self.is_traced else ())))
        if stored != me.stored:
            require(stored == me.to_store[0])
            me.stored, me.to_store = stored, me.to_store[1:]

    @action(s=replicas, epoch=_epochs, votes=(False, True))
    def speak(self, s: ModelValue, epoch: int, votes: bool) -> None:
        """A replica first sends its epoch, its vote (perhaps for itself) and its leader.

        It sends nothing while anything is to be stored.
        """
        me = self.member[s]
        self._ready(s)
        spoken = me.stored if self.stores_before_speaking else self._to_be_stored(s)
        assert spoken is not None
        require(epoch == spoken.epoch)
        self.told_epoch[epoch] = True
        leader = one_of((spoken.leader, None) if self.is_traced else (spoken.leader,))
        require(self.is_traced or votes == (spoken.voted is not None))
        if votes:
            require(spoken.voted is not None)
            assert spoken.voted is not None
            if spoken.voted != s:
                self.votes[epoch] |= {(s, spoken.voted)}
            elif me.stands_with is not None:
                self.stood[epoch] |= {(s, *me.stands_with)}
        if leader == s:
            self.told_leader[epoch] |= {s}

    @action(s=replicas)
    def sync(self, s: ModelValue) -> None:
        """The log of a replica becomes durable up to some offset, with all earlier writes."""
        me, log = self.member[s], self._ready(s)
        offset = self._chosen(
            log, range(me.stored_end + 1, log.end + 1) if self.is_traced else range(log.end, log.end + 1)
        )
        require(offset > me.stored_end)
        self._synced(s, offset)

    def _synced(self, s: ModelValue, offset: int) -> None:
        me, log = self.member[s], self._log(s)
        me.stored_end = offset
        epoch = log.epoch_ahead_of(offset)
        kept: list[Left] = []
        for left in reversed(me.left):
            if not left.log.has(offset, epoch):
                break
            kept.append(Left(left.log, max(left.durable, offset)))
        me.left = tuple(reversed(kept))

    # -- epochs and leaders --------------------------------------------------------------------------------------------

    def _learns(self, s: ModelValue, epoch: int, leader: ModelValue | None) -> Learnt:
        me = self.member[s]
        mine = s if me.state is State.LEADER else me.leader
        return rules.learns(me.epoch, mine, epoch, leader, s)

    @action(s=replicas, epoch=_epochs)
    def learn_epoch(self, s: ModelValue, epoch: int) -> None:
        """A replica learns of a later epoch."""
        require(self.told_epoch[epoch])
        self._ready(s)
        require(self._learns(s, epoch, None) is Learnt.UNATTACHED)
        self._go(s, Cause.LATER_EPOCH, epoch, None, None)

    @action(s=replicas, leader=replicas, epoch=_epochs, asked=(None,))
    def follow(self, s: ModelValue, leader: ModelValue, epoch: int, asked: ModelValue | None) -> None:
        """A replica learns the leader of its epoch, or of a later one. ``asked``: the replica that the leader has
        notified, if any.
        """
        me = self.member[s]
        self._ready(s)
        require(leader in self.told_leader[epoch])
        require(asked is None or rules.is_meant_for(asked, s, self.protections))
        require(self._learns(s, epoch, leader) is Learnt.FOLLOW)
        self._go(s, Cause.LEADER_FOUND, epoch, me.voted if epoch == me.epoch else None, leader)

    @action(s=replicas)
    def hear_leader(self, s: ModelValue) -> None:
        """The leader that a replica follows answers a fetch."""
        self._log_of_leader(s)
        me = self.member[s]
        require(self.is_traced or (not me.heard and self.protections.pre_votes))
        me.heard = True

    @action(s=replicas)
    def hear_end_of_epoch(self, s: ModelValue) -> None:
        """The leader that a replica follows leads no more."""
        me = self.member[s]
        self._ready(s)
        require(me.state is State.FOLLOWER)
        require(self.told_end[me.epoch])
        require(self.is_traced or me.heard)
        me.heard = False

    @action(s=replicas)
    def lose_leader(self, s: ModelValue) -> None:
        """An observer, or a removed leader, looks for another leader. It remembers its vote."""
        me = self.member[s]
        require(not self._may_campaign(s))
        require(me.state in (State.FOLLOWER, State.RESIGNED))
        self._go(s, Cause.LEADER_LOST, me.epoch, me.voted if self.protections.votes_are_kept else None, None)

    @action(s=replicas)
    def look_for_leader(self, s: ModelValue) -> None:
        """A replica that may not stand for election asks others for the leader."""
        require(self.is_traced)
        require(not self._may_campaign(s))

    # -- elections -----------------------------------------------------------------------------------------------------

    @action(s=replicas)
    def ask_for_pre_votes(self, s: ModelValue) -> None:
        """A voter has waited long enough for a leader or for votes, and asks whether it would be elected."""
        me = self.member[s]
        require(self._may_campaign(s))
        require(me.state is not State.LEADER)
        require(self.is_traced or (me.state is not State.PROSPECTIVE and me.epoch + 1 < self.epochs))
        require(me.installing is None)
        self._go(s, Cause.TIMED_OUT, me.epoch, me.voted, me.leader)
        me.granted = frozenset({s})

    @action(s=replicas, candidate=replicas, asked=(None,), epoch=_epochs, pre_vote=(False, True), granted=(True,))
    def handle_vote_request(
        self, s: ModelValue, candidate: ModelValue, asked: ModelValue | None, epoch: int, pre_vote: bool, granted: bool
    ) -> None:
        """A replica, voter or observer, is asked for its vote or a pre-vote, and grants it or not. ``asked``: the
        replica that the request is for.
        """
        me, log = self.member[s], self._ready(s)
        if not self.is_traced:
            require(candidate != s)
            require(me.epoch == epoch)
            if pre_vote:
                stands = self.member[candidate]
                require(stands.state is State.PROSPECTIVE and stands.epoch == epoch)
                require((s, candidate) not in self.pre_votes[epoch])
        require(asked is None or rules.is_meant_for(asked, s, self.protections))
        require(epoch >= me.epoch)
        require(epoch == me.epoch)
        if self.is_traced:
            end = one_of(range(1 << 62)), one_of(range(self.epochs))
            require(pre_vote or (candidate, *end) in self.stood[epoch])
        elif pre_vote:
            end = self._log(candidate).place
        else:
            end = one_of([each[1:] for each in sorted(self.stood[epoch], key=repr) if each[0] == candidate])
        up_to_date = rules.is_up_to_date((end[1], end[0]), (log.last_epoch, log.end), self.protections)
        if pre_vote:
            require(granted == rules.grants_pre_vote(me.state, me.heard, up_to_date, self.protections))
            if granted:
                self.pre_votes[epoch] |= {(s, candidate)}
            return
        require((candidate, *end) in self.stood[epoch])
        require(granted == rules.grants_vote(me.state, me.voted, me.leader, candidate, up_to_date, self.protections))
        if granted and me.state is not State.VOTED:
            self._go(s, Cause.VOTE_GIVEN, epoch, candidate, None)
        elif granted and me.voted != candidate:  # only without its protection
            me.voted = candidate
            me.to_store = (*me.to_store, Stored(epoch, candidate, None))

    @action(s=replicas, peer=replicas)
    def get_pre_vote(self, s: ModelValue, peer: ModelValue) -> None:
        """Another replica would vote for a prospective one."""
        me = self.member[s]
        self._ready(s)
        require(me.state is State.PROSPECTIVE)
        require((peer, s) in self.pre_votes[me.epoch])
        require(self.is_traced or peer not in me.granted)
        me.granted |= {peer}

    @action(s=replicas, peer=replicas)
    def get_vote(self, s: ModelValue, peer: ModelValue) -> None:
        """A candidate gets a vote."""
        me = self.member[s]
        self._ready(s)
        require(me.state is State.CANDIDATE)
        require((peer, s) in self.votes[me.epoch])
        require(self.is_traced or peer not in me.granted)
        me.granted |= {peer}

    def _has_won(self, s: ModelValue) -> bool:
        me = self.member[s]
        return rules.count_votes(me.granted, NOBODY, me.voters, self.protections) is Election.WON

    @action(s=replicas)
    def return_to_leader(self, s: ModelValue) -> None:
        """A prospective replica that knows a leader goes on fetching from it."""
        me = self.member[s]
        self._ready(s)
        require(me.state is State.PROSPECTIVE)
        require(me.leader is not None)
        self._go(s, Cause.PRE_VOTES_LOST, me.epoch, me.voted, me.leader)

    @action(s=replicas)
    def send_request_vote(self, s: ModelValue) -> None:
        """A replica with the pre-votes of a majority stands for election in the next epoch, and votes for itself."""
        me, log = self.member[s], self._ready(s)
        require(me.state is State.PROSPECTIVE)
        require(self._has_won(s))
        require(self.is_traced or me.epoch + 1 < self.epochs)
        self._go(s, Cause.PRE_VOTES_WON, me.epoch + 1, s, None)
        me.granted = frozenset({s})
        me.stands_with = log.place

    @action(s=replicas, renews=(None,))
    def become_leader(self, s: ModelValue, renews: bool | None) -> None:
        """A candidate has the votes of a majority. It begins its epoch with a record of its own. The first leader
        appends another one with the configuration, and so does a leader whose endpoint has changed (``renews``).
        """
        me, log = self.member[s], self._ready(s)
        require(me.state is State.CANDIDATE)
        require(self._has_won(s))
        self._go(s, Cause.VOTES_WON, me.epoch, me.voted, s)
        self.leaders[me.epoch] = (*self.leaders[me.epoch], s)
        self.leader_committed[me.epoch] = me.high_watermark
        self._append(s)
        if renews or (renews is None and not log.configurations and s in me.voters):
            self._append(s, voters=me.voters)

    @action(s=replicas)
    def check_quorum_resign(self, s: ModelValue) -> None:
        """A leader leads no more: too few voters fetch from it, it was removed, or it is about to end."""
        me = self.member[s]
        self._ready(s)
        require(me.state is State.LEADER)
        self._go(s, Cause.RESIGNS, me.epoch, me.voted, None)
        self.told_end[me.epoch] = True

    @action(s=replicas)
    def keep_leading(self, s: ModelValue) -> None:
        """A leader has checked that a majority fetches from it, and leads on."""
        require(self.is_traced)
        self._leading(s)
        fetched = one_of(_AnyOf(self.replicas))
        require(not rules.has_lost_majority(fetched, self.member[s].voters, s, self.protections))

    # -- writing and fetching ------------------------------------------------------------------------------------------

    @action(s=replicas, count=(1,))
    def client_request(self, s: ModelValue, count: int) -> None:
        """A leader that is a voter appends values of clients."""
        log = self._leading(s)
        if self.is_traced:
            require(log.end == one_of(range(1 << 62)))
        require(s in self.member[s].voters)
        require(self.is_traced or log.end < self.max_records)
        self._append(s, count)

    @action(s=replicas)
    def send_fetch_request(self, s: ModelValue) -> None:
        """A replica fetches: a follower once its whole log is durable, and one that looks for its leader from the end
        of what is durable.
        """
        me, log = self.member[s], self._ready(s)
        end = log.end if me.state is State.FOLLOWER else max(me.stored_end, me.snapshot)
        self._chosen(log, range(end, end + 1))
        require(not self.syncs_before_fetching or me.stored_end >= end)
        of_leader = self.leader_log[me.epoch]
        fetched = self.fetched[s][me.epoch]
        if me.state is State.FOLLOWER:
            if of_leader is not None and log.before(end).begins(of_leader):
                fetched.end = max(fetched.end, end)
        else:
            require(self.is_traced)
            fetched.places |= {log.before(end).place}

    @action(s=replicas, peer=replicas)
    def accept_fetch_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A leader learns the end of another replica's log, which is equal to its own up to there."""
        me, log = self.member[s], self._leading(s)
        fetched = self.fetched[peer][me.epoch]
        end = one_of(range(1 << 62) if self.is_traced else (max(0, fetched.end),))
        epoch = one_of(range(self.epochs) if self.is_traced else (log.epoch_ahead_of(end),))
        same = log.end_of_epoch(epoch)
        require(rules.position_of((end, epoch), (0, 0), same, (0, 0), self.protections) is Position.VALID)
        require(end <= fetched.end or (end, epoch) in fetched.places)
        progress = self.progress[s][peer]
        end_before = progress.end_before if progress.epoch == me.epoch else None
        caught_up = rules.has_caught_up(end, log.end, end_before)
        self.progress[s][peer] = Progress(me.epoch, end, log.end, caught_up)

    @action(s=replicas, peer=replicas, asked=_epochs, error=(Error.NONE,))
    def refuse_fetch(self, s: ModelValue, peer: ModelValue, asked: int, error: Error) -> None:
        """A leader does not answer a fetch in an epoch that is not its own."""
        me = self.member[s]
        require(self.is_traced)
        self._ready(s)
        leads = me.state is State.LEADER
        require(rules.refuses_fetch(leads, me.epoch, asked, peer in me.voters, self.protections) is error)

    @action(s=replicas)
    def commit(self, s: ModelValue) -> None:
        """A leader commits what a majority of the voters has."""
        me, log = self.member[s], self._leading(s)
        ends = []
        for peer in sorted(me.voters - {s}, key=str):
            progress = self.progress[s][peer]
            ends.append(progress.end if progress.epoch == me.epoch else 0)
        counted = rules.counted_end(s in me.voters, log.end, me.stored_end, self.protections)
        if counted is not None:
            ends.append(counted)
        agreed = rules.high_watermark(me.high_watermark, ends, log.start_of_epoch(me.epoch), self.protections)
        require(agreed > me.high_watermark)
        self._commit(s, agreed)
        self.leader_committed[me.epoch] = agreed

    @action(s=replicas)
    def learn_commit(self, s: ModelValue) -> None:
        """A follower learns what its leader has committed."""
        self._log_of_leader(s)
        me, log = self.member[s], self._log(s)
        most = rules.follower_high_watermark(me.high_watermark, self.leader_committed[me.epoch], log.end)
        offset = one_of(range(me.high_watermark + 1, most + 1))
        self._commit(s, offset)

    @action(s=replicas)
    def append_fetched(self, s: ModelValue) -> None:
        """A follower whose whole log is durable appends the next part of the leader's."""
        of_leader, log = self._log_of_leader(s), self._log(s)
        require(self.member[s].installing is None)
        require(log.begins(of_leader))
        end = self._chosen(of_leader, range(log.end + 1, of_leader.end + 1))
        self._write(s, of_leader.before(end))

    @action(s=replicas)
    def truncate(self, s: ModelValue) -> None:
        """A follower truncates its log where it diverges from the leader's."""
        of_leader, me, log = self._log_of_leader(s), self.member[s], self._log(s)
        same = of_leader.end_of_epoch(log.last_epoch)
        require(rules.position_of(log.place, (0, 0), same, (0, 0)) is Position.DIVERGING)
        end = rules.truncation_point(same, log.end_of_epoch(same[1]))
        require(end < log.end)
        self._chosen(log, range(end, end + 1))
        self._write(s, log.before(end), is_cut=True)
        me.stored_end = min(me.stored_end, end)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    @action(s=replicas)
    def take_snapshot(self, s: ModelValue) -> None:
        """A replica has made a snapshot of what it has committed."""
        me, log = self.member[s], self._ready(s)
        require(self.is_traced or self.snapshots < self.max_snapshots)
        me.snapshot = self._chosen(log, range(me.snapshot + 1, min(me.high_watermark, log.end) + 1))
        self.snapshots += not self.is_traced

    @action(s=replicas)
    def install_snapshot(self, s: ModelValue) -> None:
        """A follower has fetched a snapshot of its leader, which has what the leader has committed."""
        of_leader, me = self._log_of_leader(s), self.member[s]
        require(self.is_traced or (me.installing is None and self.snapshots < self.max_snapshots))
        first = 0 if self.is_traced else self._log(s).end + 1
        end = self._chosen(of_leader, range(first, min(of_leader.end, self.leader_committed[me.epoch]) + 1))
        me.installing = of_leader.before(end)
        self.snapshots += not self.is_traced

    @action(s=replicas, is_whole=(True,))
    def snapshot_installed(self, s: ModelValue, is_whole: bool) -> None:
        """A fetched snapshot is durable, and replaces the log of the replica. If not ``is_whole``, it cannot be
        read.
        """
        me = self.member[s]
        installing = me.installing
        require(installing is not None)
        assert installing is not None
        if self.is_traced:
            require(installing.place == (one_of(range(1 << 62)), one_of(range(self.epochs))))
        if is_whole:
            self._write(s, installing, is_cut=True)
            me.stored_end = me.snapshot = installing.end
            me.high_watermark = max(me.high_watermark, installing.end)
        me.installing = None

    # -- reconfiguration -----------------------------------------------------------------------------------------------

    @action(s=replicas, peer=replicas)
    def accept_add_voter_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A leader makes another replica a voter, which has caught up."""
        me, change, progress = self.member[s], self._refuses_change(s), self.progress[s][peer]
        is_member = any(self.member[voter].host == self.member[peer].host for voter in sorted(me.voters, key=str))
        caught_up = progress.epoch == me.epoch and progress.caught_up
        refusal = rules.refuses_to_add(True, is_member, change, caught_up)
        require(refusal is Error.NONE)
        self._change_voters(s, me.voters | {peer})

    @action(s=replicas, peer=replicas)
    def accept_remove_voter_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A leader removes a voter, another replica or itself."""
        me, change = self.member[s], self._refuses_change(s)
        refusal = rules.refuses_to_remove(True, peer in me.voters, change, len(me.voters))
        require(refusal is Error.NONE)
        self._change_voters(s, me.voters - {peer})

    @action(s=replicas, peer=replicas)
    def accept_update_voter_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A leader records the new endpoint of a voter: a configuration of the same voters."""
        me, change = self.member[s], self._refuses_change(s)
        refusal = rules.refuses_to_update(Error.NONE, peer in me.voters, change)
        require(refusal is Error.NONE)
        self._change_voters(s, me.voters)

    def _refuses_change(self, s: ModelValue) -> Error:
        me, log = self.member[s], self._leading(s)
        start = log.start_of_epoch(me.epoch)
        return rules.refuses_change(me.high_watermark, start, log.voters_offset, self.protections)

    def _change_voters(self, s: ModelValue, voters: Voters) -> None:
        require(self.is_traced or self.changes < self.max_changes)
        self._append(s, voters=voters)
        self.changes += not self.is_traced

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant(epoch=_epochs)
    def one_leader_an_epoch(self, epoch: int) -> bool:
        """No replica leads an epoch that already had a leader, not even the same replica."""
        return len(self.leaders[epoch]) <= 1

    @invariant(s=replicas)
    def leaders_have_what_is_committed(self, s: ModelValue) -> bool:
        """A leader has everything that was committed in earlier epochs."""
        me, committed = self.member[s], self.committed
        if me.state is not State.LEADER or committed is None or me.log is None or committed.last_epoch >= me.epoch:
            return True
        return committed.begins(me.log)

    @invariant(s=replicas, other=replicas)
    def logs_match(self, s: ModelValue, other: ModelValue) -> bool:
        """If two logs have a record of the same epoch at the same offset, they are equal up to there."""
        one, two = self.member[s].log, self.member[other].log
        if one is None or two is None or str(s) >= str(other):
            return True
        for end in range(min(one.end, two.end), 0, -1):
            if one.epoch_ahead_of(end) == two.epoch_ahead_of(end):
                return one.before(end) == two.before(end)
        return True

    @invariant(s=replicas)
    def what_is_committed_stays(self, s: ModelValue) -> bool:
        """Records that a replica considers committed are equal to those of the others, and stay in its log."""
        me, committed = self.member[s], self.committed
        if me.log is None or committed is None:
            return True
        return me.high_watermark <= me.log.end and me.log.before(me.high_watermark).begins(committed)


class _AnyOf(tuple[Any, ...]):
    """All sets of some replicas, as options; a trace names one of them."""

    def __contains__(self, some: object) -> bool:
        return isinstance(some, frozenset) and all(tuple.__contains__(self, each) for each in some)
