"""What a bookie counts, with BookKeeper's names: see :mod:`fencepost.monitoring.table`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fencepost.ledger import messages as m
from fencepost.monitoring import metrics
from fencepost.monitoring.table import PARTS

OPERATIONS: dict[type[Any], str] = {
    m.AddEntryResponse: "ADD_ENTRY",
    m.ReadEntryResponse: "READ_ENTRY",
    m.BatchReadResponse: "BATCH_READ_ENTRY",
    m.ReadLacResponse: "READ_LAC",
    m.WriteLacResponse: "WRITE_LAC",
    m.ForceLedgerResponse: "FORCE_LEDGER",
    m.ListEntriesResponse: "GET_LIST_OF_ENTRIES_OF_LEDGER",
    m.GetBookieInfoResponse: "GET_BOOKIE_INFO",
}
"""BookKeeper's names of operations, by the types of their responses."""

OF_STORAGE = {"journal sync": "bookie_journal_JOURNAL_SYNC", "checkpoint": "bookie_flush"}
"""BookKeeper's names of the operations of the storage."""


class Metrics(metrics.Metrics):
    """The metrics of a bookie. The server increases ``answered`` and ``refused`` once per batch."""

    def __init__(self) -> None:
        super().__init__("bookie", PARTS["bookie"])
        self.answered: defaultdict[type[Any], int] = defaultdict(int)
        self.refused: defaultdict[type[Any], int] = defaultdict(int)
        """Answers by the type of the response: ``answered`` has all, ``refused`` those with a code other than OK."""
        self.gauges["bookkeeper_server_requests_total"] = self._requests

    def storage_took(self, what: str, seconds: float) -> None:
        """An operation of the storage took this long."""
        self.took(OF_STORAGE[what], seconds)

    def _requests(self) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for kind, count in list(self.answered.items()):
            name, refused = OPERATIONS.get(kind, kind.__name__), self.refused[kind]
            found |= {(name, "true"): count - refused, (name, "false"): refused}
        return found
