from fencepost import ModelValue, Protocol, action, invariant, model_values, require, state


class Locks(Protocol):
    """A lock that clients hold one after the other, in the order in which they asked."""

    clients = model_values("c", 3)
    holder: ModelValue | None = state(None)
    waiting: tuple[ModelValue, ...] = state(())

    @action(c=clients)
    def acquires(self, c: ModelValue) -> None:
        require(c != self.holder and c not in self.waiting)
        if self.holder is None:
            self.holder = c
        else:
            self.waiting += (c,)

    @action(c=clients)
    def releases(self, c: ModelValue) -> None:
        require(c == self.holder)
        self.holder = self.waiting[0] if self.waiting else None
        self.waiting = self.waiting[1:]

    @action(c=clients)
    def hangs_up(self, c: ModelValue) -> None:
        require(c in self.waiting)
        self.waiting = tuple(other for other in self.waiting if other != c)

    @invariant
    def nobody_waits_for_a_free_lock(self) -> bool:
        return self.holder is not None or not self.waiting
