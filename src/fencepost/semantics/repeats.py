"""Evaluations that are repeated at once, to catch a protocol that reads more than its state.

The second time, the global random generator begins elsewhere, and new objects get their addresses in another order. A
clock and a counter have gone on. The hashes of texts are the same both times: for what depends on these, see
:mod:`fencepost.checker.engines.hashseeds`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.errors import ProtocolRaised
from fencepost.language.values import encode, show
from fencepost.semantics.recorder import Path
from fencepost.semantics.roots import Root
from fencepost.semantics.state import ValueTable

FIRST, EVERY = 4, 67
"""Which evaluations of an action or a property are repeated: the first four, and then one in 67. That is a prime, so
that it does not keep step with the options of a choice.
"""

SIZES, OBJECTS = range(0, 64, 16), 6
"""The sizes in bytes of what is allocated, and how many of each."""


class RanOtherwise(ProtocolRaised):
    """An action or a property did something else when it was run again in the same state."""


class Repeats:
    """Counts the evaluations of each action and property."""

    def __init__(self) -> None:
        self._runs: dict[str, int] = {}

    def is_due(self, root: Root) -> bool:
        """Whether this evaluation of an action or a property, which is counted, is to be repeated."""
        run = self._runs[root.name] = self._runs.get(root.name, 0) + 1
        return run <= FIRST or run % EVERY == 0


@contextmanager
def elsewhere(number: int) -> Iterator[None]:
    """Within this, random numbers are others for each ``number``, and so is the order of the addresses of small new
    objects. Afterwards the generator goes on as if nothing had been drawn.
    """
    drawn = random.getstate()
    random.seed(number)
    try:
        blocks = [bytes(size) for size in SIZES for _ in range(OBJECTS)]
        random.shuffle(blocks)
        while blocks:
            blocks.pop()  # an allocator hands out first what was freed last
        yield
    finally:
        random.setstate(drawn)


def difference(store: ValueTable, kind: str, one: Path, other: Path) -> str:
    """How two evaluations of what is of a ``kind``, in one state and with the same choices, differ. "" if they do
    not.
    """
    if one.enabled != other.enabled:
        if kind in ("action", "initial"):
            return f"it was refused the {_which(other.enabled)} time only"
        return "it came to another truth"
    offers = [[(options, taken) for what, options, taken in path.trail if what == "choose"] for path in (one, other)]
    for (was, _), (now, _) in zip(*offers, strict=False):
        if was != now:
            return f"a choice had {was} options the first time and {now} the second"
    for was, now in zip(one.labels, other.labels, strict=False):
        if encode(was) != encode(now):
            return f"an option of a choice was {show(was)} the first time and {show(now)} the second"
    if len(one.labels) != len(other.labels):
        return f"it made a choice the {_which(len(one.labels) > len(other.labels))} time only"
    for slot in sorted(one.writes.keys() | other.writes.keys()):
        was, now = one.writes.get(slot), other.writes.get(slot)
        name, values = store.slots[slot].name, store.values[slot]
        if was is None or now is None:
            return f"{name} was assigned the {_which(now is None)} time only"
        if was != now:
            return f"{name} became {show(values[was])} the first time and {show(values[now])} the second"
    if one.events != other.events:
        return "it sent or received something else"
    return "" if one.trail == other.trail else "it read other parts of the state, or in another order"


def _which(is_first: bool) -> str:
    return "first" if is_first else "second"
