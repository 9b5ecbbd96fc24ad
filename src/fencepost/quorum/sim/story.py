"""One run, step by step, as lines for people."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.quorum.messages import Vote
from fencepost.quorum.roles.interface import (
    Append,
    BecameLeader,
    Commit,
    DeleteBefore,
    Effect,
    InstallSnapshot,
    LostLeadership,
    Send,
    StoreState,
    Truncate,
)

Tell = Callable[[int, str, str], None]
"""Takes a step of a run: the virtual time in microseconds, where it happens, and what."""


def step_of(effect: Effect) -> str:
    """The step of a replica, in words. Empty for the steps of every moment: fetches and their answers, and timers."""
    match effect:
        case StoreState(election=election):
            vote = f", votes for {election.voted}" if election.voted is not None else ""
            leader = f", follows {election.leader.key}" if election.leader is not None else ""
            return f"stores epoch {election.epoch}{vote}{leader}"
        case Append(batches=batches):
            epochs = "..".join(map(str, sorted({batch.epoch for batch in batches})))
            return f"appends {batches[0].base_offset}..{batches[-1].end_offset - 1} of epoch {epochs}"
        case Truncate(end_offset=offset):
            return f"cuts off its log at {offset}"
        case Commit(offset=offset):
            return f"commits up to {offset}"
        case BecameLeader(epoch=epoch):
            return f"leads epoch {epoch}"
        case LostLeadership(epoch=epoch):
            return f"leads epoch {epoch} no more"
        case InstallSnapshot(snapshot=end):
            return f"installs the snapshot at {end.offset} of epoch {end.epoch}"
        case DeleteBefore(offset=offset):
            return f"starts its log at {offset}"
        case Send(endpoint=endpoint, request=Vote() as request):
            return f"asks {endpoint} for a {'pre-vote' if request.pre_vote else 'vote'} in epoch {request.epoch}"
    return ""
