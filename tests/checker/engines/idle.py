"""A protocol with steps that change nothing of what its step properties read."""

from __future__ import annotations

from fencepost import Protocol, action, constant, require, state, step_constraint, step_invariant


class Idle(Protocol):
    """Actions of y change nothing that most step properties of ``kind`` read. Actions of x lead to states in which such
    idle steps are judged otherwise.
    """

    kind: str = constant("")
    loops: bool = constant(True)
    x: int = state(0)
    y: int = state(0)
    z: int = state(0)

    @action
    def up(self) -> None:
        require(self.x < 6)
        self.x += 1

    @action
    def turn(self) -> None:
        require(self.y < 3)
        self.y += 1

    @action
    def stay(self) -> None:
        require(self.loops)

    @action
    def shift(self) -> None:
        self.z = (self.z + 1) % 3

    @action
    def clear(self) -> None:
        require(self.z > 0)
        self.z = 0

    def holds(self, after: Idle) -> bool:
        match self.kind.removesuffix(" cut"):
            case "idle until":
                return self.x != 5 or after.x == 6
            case "idle but":
                return self.x != 5 or after.y != 2
            case "together":
                return self.x != 6 or self.y != 3 or self.z == after.z
            case "loop":
                return self.x != 5 or after.x + after.y + after.z != self.x + self.y + self.z
            case "late":
                return self.x < 5 or after.z != 0 or self.z != 2
            case "reads late":
                return self.x < 5 or self.z == 0
            case "an error":
                return 1 // (after.x + after.y + after.z - self.x - self.y - self.z) != 0
            case _:
                return self.x <= after.x

    @step_invariant
    def judged(self, after: Idle) -> bool:
        return self.kind.endswith("cut") or self.holds(after)

    @step_constraint
    def taken(self, after: Idle) -> bool:
        return not self.kind.endswith("cut") or self.holds(after)
