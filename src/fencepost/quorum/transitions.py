"""The states of a replica in an epoch, and the table by which they change: that of Kafka's ``QuorumState``, with
pre-votes.

The table drives. A replica changes its state by :func:`transition` alone, which looks up what comes of a cause, and
raises where the table has nothing. Whether a replica is a voter or an observer is said by the last configuration in its
log, and is no state: PROSPECTIVE and CANDIDATE are for voters, and all others for both. An observer can lead: it was a
voter, and leads until its own removal is committed.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping


class State(enum.Enum):
    """Where a replica stands in its epoch."""

    UNATTACHED = "unattached"
    """It knows of no leader."""
    VOTED = "voted"
    """It has given its vote, and waits to hear who leads. (Kafka: unattached, with a vote.)"""
    PROSPECTIVE = "prospective"
    """It asks whether it would be elected, before it goes to another epoch: KIP-996."""
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """It has led this epoch, and leads it no more."""


class Cause(enum.Enum):
    """Why a state changes."""

    LATER_EPOCH = "it learns of a later epoch"
    LEADER_FOUND = "it learns who leads its own epoch or a later one"
    VOTE_GIVEN = "it gives its vote"
    TIMED_OUT = "it has waited long enough for a leader or for votes"
    PRE_VOTES_WON = "a majority would vote for it"
    PRE_VOTES_LOST = "no majority would vote for it, and it knew a leader"
    VOTES_WON = "a majority has voted for it"
    RESIGNS = "it leads no more"
    LEADER_LOST = "it is an observer, and has waited long enough for its leader"


class IllegalTransition(Exception):
    """A change of state that the table does not have: a defect, or a replica whose disk has forgotten something."""


Epochs = Callable[[int, int], bool]
"""How the epoch before and the epoch after compare."""


def _next(before: int, after: int) -> bool:
    return after == before + 1


_SAME: Epochs = operator.eq
_LATER: Epochs = operator.lt
_SAME_OR_LATER: Epochs = operator.le
_NEXT: Epochs = _next

_WAITING: Mapping[Cause, tuple[State, Epochs]] = {
    Cause.LATER_EPOCH: (State.UNATTACHED, _LATER),
    Cause.LEADER_FOUND: (State.FOLLOWER, _SAME_OR_LATER),
    Cause.TIMED_OUT: (State.PROSPECTIVE, _SAME),
}

TABLE: Mapping[State, Mapping[Cause, tuple[State, Epochs]]] = {
    State.UNATTACHED: {**_WAITING, Cause.VOTE_GIVEN: (State.VOTED, _SAME)},
    State.VOTED: _WAITING,
    State.PROSPECTIVE: {
        **_WAITING,
        Cause.VOTE_GIVEN: (State.VOTED, _SAME),
        Cause.PRE_VOTES_WON: (State.CANDIDATE, _NEXT),
        Cause.PRE_VOTES_LOST: (State.FOLLOWER, _SAME),
    },
    State.CANDIDATE: {**_WAITING, Cause.VOTES_WON: (State.LEADER, _SAME)},
    State.LEADER: {
        Cause.LATER_EPOCH: (State.UNATTACHED, _LATER),
        Cause.LEADER_FOUND: (State.FOLLOWER, _LATER),
        Cause.RESIGNS: (State.RESIGNED, _SAME),
    },
    State.FOLLOWER: {
        Cause.LATER_EPOCH: (State.UNATTACHED, _LATER),
        Cause.LEADER_FOUND: (State.FOLLOWER, _LATER),
        Cause.TIMED_OUT: (State.PROSPECTIVE, _SAME),
        Cause.LEADER_LOST: (State.UNATTACHED, _SAME),
    },
    State.RESIGNED: {
        Cause.LATER_EPOCH: (State.UNATTACHED, _LATER),
        Cause.LEADER_FOUND: (State.FOLLOWER, _LATER),
        Cause.TIMED_OUT: (State.PROSPECTIVE, _SAME),
        Cause.LEADER_LOST: (State.UNATTACHED, _SAME),
    },
}
"""The state after each cause in each state, and how the epoch changes with it.

It differs from the published table (Kafka 3, in the seed of `kraft-kip-853`) in this: a voter asks for pre-votes before
it goes to the next epoch; whoever has voted, or stands for election, follows the leader of its own epoch when it hears
of it; and observers are in the table.
"""


def transition(state: State, cause: Cause, epoch: int, later: int) -> State:
    """The state that comes after ``state`` for a cause, where the epoch goes from ``epoch`` to ``later``.

    Raises :class:`IllegalTransition` if the table does not have it.
    """
    found = TABLE[state].get(cause)
    if found is None or not found[1](epoch, later):
        raise IllegalTransition(f"{state.value} in epoch {epoch}: {cause.value}, in epoch {later}")
    return found[0]
