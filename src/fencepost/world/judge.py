"""The judges of a world: of ledgers and of the quorum, shared by all processes, and of logs."""

from __future__ import annotations

from typing import NoReturn

from fencepost.ledger.simulation.judge import Asked, History, Judge, Violation
from fencepost.log.chain import Position


class Histories(dict[int, History]):
    """The histories of ledgers, created on first mention: a bookie may be asked about a ledger before it exists."""

    def __missing__(self, ledger: int) -> History:
        self[ledger] = History(b"")
        return self[ledger]


class LedgerJudge(Judge):
    """The judge of all ledgers. ``found``: the first violation, kept because its caller may swallow the exception."""

    def __init__(self, asked: Asked | None = None) -> None:
        super().__init__(asked=asked)
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
    """The appends to a log, and their results.

    ``appends``: for each entry, what had been acknowledged when it was appended. ``failed``: for each failed entry,
    whether the writer was certain that it is not in the log. ``readers``: the entries that each reader found.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.appends: dict[str, frozenset[str]] = {}
        self.acknowledged: dict[str, Position] = {}
        self.failed: dict[str, bool] = {}
        self.writers: list[str] = []
        self.leader = ""
        """The latest process that believed to lead."""
        self.readers: dict[str, list[tuple[Position, str]]] = {}
