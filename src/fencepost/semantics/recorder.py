"""Records an evaluation of the author's Python: its reads, choices and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.errors import Misbehaved
from fencepost.language.context import FROM_HERE, THROUGHOUT, Event, InOrder, Reliance, Sieve, Slot
from fencepost.language.values import NotAValue, Value, freeze
from fencepost.semantics.state import ValueTable


@dataclass
class Path:
    """What one evaluation did, with its choices fixed. ``labels``: the options that it took. ``writes``: the new value
    number of each slot.
    """

    # ("read", slot, value) or ("choose", options, taken)
    trail: list[tuple[str, int, int]] = field(default_factory=list)
    labels: list[Value] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    enabled: bool = True
    writes: dict[int, int] = field(default_factory=dict)
    relied: dict[int, Reliance] = field(default_factory=dict, compare=False)
    """What the evaluation relied on, by the id of the universe."""


class NoSuchOption(Misbehaved):
    """A choice has fewer options than the script expects."""


class Recorder:
    """Gives an evaluation the values of a state, and records what it does in ``path``.

    ``ids``: the state, as value numbers slot by slot. ``script``: the option to take at each choice; after its end, the
    first. ``lane``: for a property of a step, 0 in the state before the step and 1 in the state after it; otherwise
    None. ``options``: the options at each choice of the earlier evaluation, which this one replaces by its own.
    """

    def __init__(
        self,
        store: ValueTable,
        ids: Sequence[int],
        script: Sequence[int],
        path: Path,
        lane: int | None = None,
        options: list[Sequence[Value]] | None = None,
    ) -> None:
        self.store = store
        self.ids = ids
        self.script = script
        self.path = path
        self.lane = lane
        self.seen: set[int] = set()
        self._held: dict[int, Value] = {}
        """What was read since the last write, by the id of the slot."""
        self.taken = 0
        """The number of choices so far."""
        self.options: list[Sequence[Value]] = [] if options is None else options
        self.read_only = lane is not None
        self.disabled = False

    def branch(self) -> Recorder:
        """A recorder that has written the same so far."""
        return Recorder(self.store, self.ids, (), Path(writes=dict(self.path.writes)))

    def read(self, slot: Slot) -> Value:
        held = self._held.get(id(slot), self)
        if held is self:
            held = self._held[id(slot)] = self._read(self.store.slot(slot))
        return held

    def _read(self, index: int) -> Value:
        if self.lane is None and index in self.path.writes:
            return self.store.values[index][self.path.writes[index]]
        number = int(self.ids[index]) if index < len(self.ids) else 0
        if index not in self.seen:
            self.seen.add(index)
            self.path.trail.append(("read", index if self.lane is None else 2 * index + self.lane, number))
        return self.store.values[index][number]

    def universe(self, path: tuple[Any, ...], sieve: Sieve | None = None, place: int = FROM_HERE) -> Sequence[Slot]:
        known = self.store.universe(path)
        if place != THROUGHOUT:
            self.read(self.store.marker(known, place))
        relied = self.path.relied.get(id(known))
        if relied is None:
            sieves = None if sieve is None else {sieve.key: sieve}
            self.path.relied[id(known)] = Reliance(known, len(known.slots), sieves)
        elif relied.sieves is not None and (sieve is None or sieve.key not in relied.sieves):
            relied.add(None if sieve is None else {sieve.key: sieve})
        return known.slots

    def write(self, slot: Slot, value: Value) -> None:
        if self.read_only:
            raise NotAValue("a property cannot assign to the state")
        index = self.store.slot(slot)
        try:
            frozen = freeze(value)
        except NotAValue as error:
            raise NotAValue(f"{slot.name} is assigned {error}") from None
        # Reading the old value makes the effect on the fingerprint constant for the path.
        self.read(slot)
        self.path.writes[index] = self.store.intern(index, frozen)
        self._held.clear()

    def choose(self, options: Sequence[Value]) -> Value:
        if self.read_only:
            raise NotAValue("a property cannot choose")
        taken = self.script[self.taken] if self.taken < len(self.script) else 0
        options = self._sorted_before(options)
        if taken >= len(options):
            raise NoSuchOption("was not deterministic: the same choice had fewer options the second time")
        self.taken += 1
        self.path.trail.append(("choose", len(options), taken))
        try:
            self.path.labels.append(freeze(options[taken]))
        except NotAValue as error:
            raise NotAValue(f"an option of one_of(...) is {error}") from None
        return options[taken]

    def _sorted_before(self, options: Sequence[Value]) -> Sequence[Value]:
        """The options as an earlier evaluation sorted them, if it reached this choice. It saves sorting them again."""
        known = self.options[self.taken] if self.taken < len(self.options) else None
        if isinstance(known, InOrder) and isinstance(options, InOrder) and len(known) == len(options):
            return known
        self.options[self.taken :] = [options]
        return options

    def emit(self, event: Event) -> None:
        self.path.events.append(event)
