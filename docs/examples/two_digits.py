from __future__ import annotations

from fencepost import Protocol, action, configuration, constant, refines, require, state


class Counter(Protocol):
    """Counts to a limit, one by one."""

    limit: int = constant(9)

    value: int = state(0)

    @action
    def count(self) -> None:
        require(self.value < self.limit)
        self.value += 1


class TwoDigits(Protocol):
    """A counter of two digits with a deferred carry."""

    configurations = {
        "default": configuration(),
        "hasty": configuration(carries_later=True, expect="as_counter"),
    }

    carries_later: bool = constant(False, "the digits are not changed in one step")

    tens: int = state(0)
    ones: int = state(0)
    carry: bool = state(False)

    @action
    def count(self) -> None:
        require(self.ones < 9 and not self.carry)
        self.ones += 1

    @action
    def count_ten(self) -> None:
        require(self.ones == 9 and self.tens < 9)
        self.ones = 0
        if self.carries_later:
            self.carry = True
        else:
            self.tens += 1

    @action
    def carry_over(self) -> None:
        require(self.carry)
        self.carry = False
        self.tens += 1

    as_counter = refines(Counter, {"value": lambda self: 10 * self.tens + self.ones}, constants={"limit": 99})
