"""Requests of one ledger that came together, as a bookie's role and its driver speak of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class AddRows:
    """Adds of one ledger (:class:`fencepost.store.roles.interface.Adds`).

    ``requests``: int64, shape (adds, 2), their numbers and entry ids; ``low`` and ``high``: the lowest and the highest id. ``first``: their place among
    all that came together, ``size``: the bytes of all bodies.
    """

    ledger: int
    master_key: bytes
    recovery: bool
    deferred_sync: bool
    lac: int
    requests: NDArray[np.int64]
    low: int
    high: int
    first: int
    size: int

    def __len__(self) -> int:
        return len(self.requests)

    def last_place(self, entry_id: int) -> int:
        """The place among them of the last add of an entry, -1 if there is none."""
        if not self.low <= entry_id <= self.high:
            return -1
        places = np.flatnonzero(self.requests[:, 1] == entry_id)
        return int(places[-1]) if len(places) else -1
