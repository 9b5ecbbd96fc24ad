"""The states of a replica in an epoch, and the table of their transitions: Kafka's ``QuorumState``, with pre-votes.

A replica changes its state only by :func:`transition`, which looks up the cause in the table, and raises if it has no
entry. Being a voter or an observer is no state: it depends on the last configuration in the log. PROSPECTIVE and
CANDIDATE are for voters, and all others for both. An observer can lead: it was a voter, and leads until its own removal
is committed.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping


class State(enum.Enum):
    """The state of a replica in its epoch."""

    UNATTACHED = "unattached"
    """It knows of no leader."""
    VOTED = "voted"
    """It has voted, and waits to hear who leads. (Kafka: unattached, with a vote.)"""
    PROSPECTIVE = "prospective"
    """It asks whether it would be elected, before it begins another epoch: KIP-996."""
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """It led this epoch, and has resigned."""


class Cause(enum.Enum):
    """The cause of a transition."""

    LATER_EPOCH = "it learns of a later epoch"
    LEADER_FOUND = "it learns who leads its own epoch or a later one"
    VOTE_GIVEN = "it gives its vote"
    TIMED_OUT = "it has waited too long for a leader or for votes"
    PRE_VOTES_WON = "a majority would vote for it"
    PRE_VOTES_LOST = "no majority would vote for it, and it knew a leader"
    VOTES_WON = "a majority has voted for it"
    RESIGNS = "it resigns"
    LEADER_LOST = "it is an observer, and has waited too long for its leader"


class IllegalTransition(Exception):
    """A transition that is not in the table: a defect, or a replica whose disk lost something."""


Epochs = Callable[[int, int], bool]
"""A comparison of the epochs before and after."""


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
"""The next state for each state and cause, and how the epoch may change.

It differs from the published table (Kafka 3, in the seed of `kraft-kip-853`). A voter asks for pre-votes before it
begins the next epoch. A replica that has voted, or stands for election, follows the leader of its own epoch when it
hears of it. Observers are in the table.
"""


def transition(state: State, cause: Cause, epoch: int, later: int) -> State:
    """The state that follows ``state`` for a cause, while the epoch goes from ``epoch`` to ``later``.

    Raises :class:`IllegalTransition` if the table has no entry.
    """
    entry = TABLE[state].get(cause)
    if entry is None or not entry[1](epoch, later):
        raise IllegalTransition(f"{state.value} in epoch {epoch}: {cause.value}, in epoch {later}")
    return entry[0]
