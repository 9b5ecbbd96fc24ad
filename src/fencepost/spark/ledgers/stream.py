"""The driver's side of a streaming query: it plans the next batch from the query's offsets."""

from __future__ import annotations

import time
from typing import Any

from fencepost.ledger.client.client import LedgerClient
from fencepost.spark.ledgers.offsets import Offsets, capped
from fencepost.spark.ledgers.options import ReadOptions
from fencepost.spark.ledgers.parts import Range
from fencepost.spark.ledgers.planning import Ledgers
from fencepost.spark.ledgers.reading import store_at

PAUSE = 0.05
"""The least seconds between two look-ups of confirmed entries. Spark asks again at once."""


class Stream:
    """A streaming query, which follows ledgers from its first batch on. Offsets are in the form of Spark's checkpoint,
    see :class:`.Offsets`.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.store = store_at(options.metadata)
        self.ledgers = self.store.run(self._begin)
        self.cap: Offsets | None = None
        """The offsets at which the query ends, if it ends with the entries that are confirmed when it begins."""
        self.seen: dict[str, Any] | None = None
        """The offsets that were last available."""
        self._asked_at = 0.0

    async def _begin(self, store: LedgerClient) -> Ledgers:
        return Ledgers(store, self.options)

    def begin(self) -> dict[str, Any]:
        """The offsets of a new query."""
        return self.store.run(lambda _: self.ledgers.at(self.options.start)).to_json()

    def end_at_present(self) -> None:
        """End with the entries that are confirmed now."""
        self.cap = self._available(None)

    def pause(self) -> None:
        """Wait until the next look-up is due."""
        pause = self._asked_at + PAUSE - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        self._asked_at = time.monotonic()

    def after(self, start: dict[str, Any], max_entries: int | None, max_bytes: int | None) -> dict[str, Any]:
        """The offsets after the next batch."""
        self.pause()
        offsets = Offsets.of_json(start)
        available = capped(self._available(offsets), self.cap)
        self.seen = available.to_json()
        return self.store.run(lambda _: self.ledgers.limited(offsets, available, max_entries, max_bytes)).to_json()

    def _available(self, start: Offsets | None) -> Offsets:
        async def available(_: LedgerClient) -> Offsets:
            ledgers = {*await self.ledgers.present(), *(start.ledgers if start else ())}
            return await self.ledgers.available(sorted(ledgers), start)

        return self.store.run(available)

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Range, ...]]:
        """The partitions of a batch."""
        begins, ends = Offsets.of_json(start), Offsets.of_json(end)
        stops = {ledger: stop for ledger, stop in ends.all().items() if stop > begins.stop(ledger)}
        starts = {ledger: begins.stop(ledger) for ledger in stops}
        return self.store.run(lambda _: self.ledgers.parts(starts, stops))

    def committed(self, end: dict[str, Any]) -> None:
        """Spark has committed the batches up to ``end``."""

    def close(self) -> None:
        """Stop following the ledgers."""
        self.store.run(lambda _: self.ledgers.close())
