"""The offsets of a streaming query in each ledger, and the limits of a batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec

from fencepost.errors import SystemFailure

FORMAT = 1

Count = Annotated[int, msgspec.Meta(ge=0)]


class Offsets(msgspec.Struct, frozen=True):
    """For each ledger, the entry before which everything was read: of open ledgers (``ledgers``), and of closed ones
    that were read to their end (``ended``). The driver does not look at the latter again.
    """

    ledgers: Mapping[int, int] = {}
    ended: Mapping[int, int] = {}

    def stop(self, ledger: int) -> int:
        """The entry before which everything was read; 0 in a ledger that is new to the query."""
        return self.ledgers.get(ledger, self.ended.get(ledger, 0))

    def all(self) -> dict[int, int]:
        """Every ledger with the entry before which everything was read, in the order of ledger ids."""
        return dict(sorted({**self.ledgers, **self.ended}.items()))

    def to_json(self) -> dict[str, Any]:
        """The content for Spark's checkpoint. Equal offsets have equal text."""
        ledgers, ended = ({str(ledger): each[ledger] for ledger in sorted(each)} for each in (self.ledgers, self.ended))
        return {"format": FORMAT, "ledgers": ledgers, "ended": ended}

    @classmethod
    def of_json(cls, content: Any) -> Offsets:
        """Parse the content of :meth:`to_json`. Raises :class:`fencepost.SystemFailure` for other content."""
        try:
            if content["format"] != FORMAT:
                raise ValueError
            parts = [content["ledgers"], content["ended"]]
            return cls(*msgspec.convert(parts, list[dict[Count, Count]], str_keys=True))
        except (KeyError, TypeError, ValueError, msgspec.ValidationError):
            raise SystemFailure(
                f"the checkpoint has offsets that are not of this source or version, {str(content)[:80]!r}: begin with"
                " another checkpointLocation"
            ) from None


def moved(start: Offsets, available: Offsets, stops: Mapping[int, int]) -> Offsets:
    """The offsets of a query that has read up to the ``stops``. A closed ledger ends once it is read to its end."""
    reached = {**start.all(), **stops}
    ended = {
        ledger: stop
        for ledger, stop in reached.items()
        if stop == available.ended.get(ledger) or start.ended.get(ledger) == stop
    }
    return Offsets({ledger: stop for ledger, stop in reached.items() if ledger not in ended}, ended)


def capped(available: Offsets, cap: Offsets | None) -> Offsets:
    """The available offsets, limited to the ``cap``, which are earlier ones; without it, all of them."""
    if cap is None:
        return available
    stops = {ledger: min(stop, available.stop(ledger)) for ledger, stop in cap.all().items()}
    ended = {ledger: stop for ledger, stop in stops.items() if available.ended.get(ledger) == stop}
    return Offsets({ledger: stop for ledger, stop in stops.items() if ledger not in ended}, ended)


def shares(available: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide ``limit`` in proportion to the available amounts. The shares add up to the limit, or to the total if that
    is less.
    """
    total = sum(available.values())
    if total <= limit:
        return dict(available)
    shared = {each: amount * limit // total for each, amount in available.items()}
    left = limit - sum(shared.values())
    for each, amount in available.items():
        if left and shared[each] < amount:
            shared[each] += 1
            left -= 1
    return shared


async def stop_within(
    first: int, stop: int, room: int, length_before: int, length_of: Callable[[int], Awaitable[int]]
) -> int:
    """The entry to stop before, so that the entries from ``first`` on have at most ``room`` bytes of data; at most
    ``stop``.

    ``length_of``: the bytes of data of the ledger up to and including an entry; it is called a logarithmic number of
    times. ``length_before``: the bytes before ``first``.
    """
    low, high = first, stop  # all before `low` fit; the entry at `high` does not, unless `high` is the end
    while low < high:
        middle = (low + high) // 2
        if await length_of(middle) - length_before <= room:
            low = middle + 1
        else:
            high = middle
    return low
