from fencepost import ModelValue, Protocol, Table, action, invariant, model_values, require, state, table


class LostUpdate(Protocol):
    """Clients add one to a counter: read it, then write back what was read plus one."""

    clients = model_values("c", 2)

    counter: int = state(0)
    seen: Table[ModelValue, int] = table()
    done: frozenset[ModelValue] = state(frozenset())

    @action(c=clients)
    def reads(self, c: ModelValue) -> None:
        require(c not in self.seen)
        self.seen[c] = self.counter

    @action(c=clients)
    def writes(self, c: ModelValue) -> None:
        require(c in self.seen and c not in self.done)
        self.counter = self.seen[c] + 1
        self.done |= {c}

    @invariant
    def no_update_is_lost(self) -> bool:
        return self.counter == len(self.done)
