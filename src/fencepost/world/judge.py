"""The judges of a world: that of ledgers and that of the quorum, each a history for all of them, and that of logs."""

from __future__ import annotations

from typing import NoReturn

from fencepost.ledger.simulation.judge import History, Judge, Violation
from fencepost.log.chain import Position


class Histories(dict[int, History]):
    """The history of each ledger from its first mention on: bookies are asked of one before it is there."""

    def __missing__(self, ledger: int) -> History:
        self[ledger] = History(b"")
        return self[ledger]


class LedgerJudge(Judge):
    """The judge of all ledgers. ``found`` is the first violation: whoever it is raised in may swallow it."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers = Histories()
        self.found: Violation | None = None

    def created(self, ledger: int, key: bytes) -> None:
        """See :class:`.Judge`."""
        self.ledgers[ledger].key = key

    def _broken(self, promise: str, what: str) -> NoReturn:
        violation = Violation(promise, what)
        self.found = self.found or violation
        raise violation


class LogHistory:
    """What was appended to a log, and what became of it.

    ``appends``: what was acknowledged when each entry was appended. ``failed``: whether it was certain of an entry that
    failed that it is not in the log. ``readers``: what each reader has found.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.appends: dict[str, frozenset[str]] = {}
        self.acknowledged: dict[str, Position] = {}
        self.failed: dict[str, bool] = {}
        self.writers: list[str] = []
        self.leader = ""
        """The process that believes to lead, or did so last."""
        self.readers: dict[str, list[tuple[Position, str]]] = {}
