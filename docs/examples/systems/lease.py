from fencepost import ModelValue, Protocol, action, constant, model_values, require, state


class Lease(Protocol):
    """A lock that one client has, for a time. It can have it for longer while it has it."""

    clients = model_values("c", 2)
    timeout: int = constant(2, "seconds for which a client gets the lock")
    longest: int = constant(3, "most seconds that are left at any time, to keep the state space small")

    holder: ModelValue | None = state(None)
    left: int = state(0)

    @action(c=clients)
    def acquires(self, c: ModelValue) -> None:
        require(self.holder is None)
        self.holder = c
        self.left = self.timeout

    @action(c=clients)
    def releases(self, c: ModelValue) -> None:
        require(self.holder == c)
        self.holder = None
        self.left = 0

    @action(c=clients)
    def extends(self, c: ModelValue) -> None:
        require(self.holder == c and self.left < self.longest)
        self.left += 1

    @action(c=clients)
    def extends_to(self, c: ModelValue) -> None:
        require(self.holder == c)
        self.left = self.longest

    @action(c=clients)
    def reacquires(self, c: ModelValue) -> None:
        require(self.holder == c)
        self.left = self.timeout

    @action
    def second_passes(self) -> None:
        require(self.holder is not None)
        self.left -= 1
        if self.left == 0:
            self.holder = None
