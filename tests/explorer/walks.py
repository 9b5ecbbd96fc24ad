"""Protocols that are walked through in these tests."""

from __future__ import annotations

from fencepost import (
    Protocol,
    action,
    always_eventually,
    constant,
    constraint,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    sometimes,
    state,
    step_invariant,
)


class Lamp(Protocol):
    """A lamp that is switched on and off and may break; some things about it go wrong on purpose."""

    people = model_values("p", 2)
    faulty: bool = constant(False)
    on: bool = state(False)
    broken: bool = state(False)
    pressed: int = state(0)

    @action(p=people, by="p")
    def press(self, p: object) -> None:
        """Press the switch."""
        require(not self.broken)
        self.on = not self.on

    @action
    def breaks(self) -> None:
        require(self.on)
        self.broken = one_of([True, False])
        self.on = False

    @action
    def counts(self) -> None:
        """Only what is counted is bounded."""
        require(self.broken)
        self.pressed += 1

    @action
    def fails(self) -> None:
        require(self.faulty and self.on)
        raise ValueError("this is not for the lamp")

    @sometimes(p=people, times=(1, 2))
    def is_counted(self, p: object, times: int) -> bool:
        """Somebody may count."""
        return self.pressed == times

    @constraint
    def few(self) -> bool:
        return self.pressed < 3

    @invariant
    def never_broken(self) -> bool:
        """A lamp lasts."""
        return not self.broken

    @invariant(p=people)
    def can_be_told(self, p: object) -> bool:
        if self.pressed == 2:
            raise KeyError("nobody knows")
        return True

    @step_invariant
    def once_broken_never_on(self, after: Lamp) -> bool:
        return not (self.on and after.broken)

    @always_eventually
    def shines(self) -> bool:
        return self.on


class Coin(Protocol):
    """Begins with either side up."""

    heads: bool = state(True)

    @initial
    def thrown(self) -> None:
        self.heads = one_of([False, True])

    @action(by="wind")
    def turns(self) -> None:
        self.heads = not self.heads


class Wide(Protocol):
    """Many parts of the state, and a walk without an end."""

    cells = model_values("c", 300)
    cell = per_key(cells, 0)
    at: int = state(0)

    @action(by="pen")
    def write(self) -> None:
        c = self.cells[self.at % 300]
        self.cell[c] = self.at
        self.at += 1

    @invariant
    def small(self) -> bool:
        return self.at < 700


class Ticking(Protocol):
    """Two clocks that never stop: a search never ends."""

    clocks = model_values("c", 2)
    ticks = per_key(clocks, 0)

    @action(c=clocks, by="c")
    def tick(self, c: object) -> None:
        self.ticks[c] += 1
