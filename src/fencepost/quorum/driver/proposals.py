"""Clients' proposals, from when they are gathered until the log has committed them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from fencepost.quorum.log import OffsetAndEpoch

Outcome: TypeAlias = asyncio.Future[OffsetAndEpoch]


class NotLeader(Exception):
    """This replica does not lead. The proposal is not in the log."""


class OutcomeUnknown(Exception):
    """This replica no longer leads. The next leader may commit the proposal, or not."""


class Proposals:
    """The uncommitted proposals. Each gets its end offset and epoch, or one of the two exceptions."""

    def __init__(self) -> None:
        self.gathered: deque[tuple[Sequence[bytes], Outcome | None]] = deque()
        """The proposals that the role has not seen yet: records, and the future if somebody waits for it."""
        self._proposed: dict[int, list[tuple[int, Outcome]]] = {}
        """By token, the proposals that the role has yet to accept or refuse: futures, each with its distance from the
        end of the batch, as a negative number of records.
        """
        self._accepted: deque[tuple[int, int, Outcome]] = deque()
        """The end offset, epoch and future of each appended proposal, in order."""

    def take(self, token: int, most_bytes: int) -> tuple[bytes, ...]:
        """The records of the next proposals, for one batch with this token: at least one proposal, and no more once
        there are ``most_bytes``.
        """
        records: list[bytes] = []
        waiting: list[tuple[int, Outcome]] = []
        size = 0
        while self.gathered and (not records or size < most_bytes):
            some, outcome = self.gathered.popleft()
            records += some
            size += sum(map(len, some))
            if outcome is not None:
                waiting.append((len(records), outcome))
        self._proposed[token] = [(count - len(records), outcome) for count, outcome in waiting]
        return tuple(records)

    def accept(self, token: int, end_offset: int, epoch: int) -> None:
        """The batch with this token was appended."""
        for place, outcome in self._proposed.pop(token):
            self._accepted.append((end_offset + place, epoch, outcome))

    def refuse(self, token: int) -> None:
        """The batch with this token is not in the log."""
        for _, outcome in self._proposed.pop(token):
            _fail(outcome, NotLeader())

    def commit(self, offset: int) -> None:
        """Everything before an offset is committed and applied."""
        while self._accepted and self._accepted[0][0] <= offset:
            end_offset, epoch, outcome = self._accepted.popleft()
            if not outcome.done():
                outcome.set_result(OffsetAndEpoch(end_offset, epoch))

    def lose(self) -> None:
        """The replica no longer leads: the fate of uncommitted proposals is unknown."""
        accepted, self._accepted = self._accepted, deque()
        for _, _, outcome in accepted:
            _fail(outcome, OutcomeUnknown())

    def fail(self) -> None:
        """The replica stops."""
        gathered, self.gathered = self.gathered, deque()
        for _, outcome in gathered:
            if outcome is not None:
                _fail(outcome, NotLeader())
        self.lose()


def _fail(outcome: Outcome, error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)
