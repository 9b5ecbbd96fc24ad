from __future__ import annotations

from typing import Any

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    action,
    configuration,
    constant,
    invariant,
    model_values,
    per_key,
    require,
    state,
)
from fencepost.language.linearizability import History, Sequential, history


class Mutex(Sequential):
    """A lock. A client that acquires it while it is held waits."""

    holder: Any = None

    def acquire(self, who: Any) -> tuple[Mutex, None] | None:
        return (self.replace(holder=who), None) if self.holder is None else None

    def release(self) -> tuple[Mutex, None]:
        return self.replace(holder=None), None


class LeaseLock(Protocol):
    """A lock service that may take the lock from a client which does not give it back."""

    configurations = {
        "default": configuration(),
        "impatient": configuration(impatient=True, expect="linearizable"),
    }

    clients = model_values("c", 2, symmetric=True)
    impatient: bool = constant(False, "a lease can run out while the client is at work")

    holder: ModelValue | None = state(None)
    at_work: PerKey[ModelValue, bool] = per_key(clients, False)
    lock: History = history(Mutex())

    @action(c=clients)
    def asks(self, c: ModelValue) -> None:
        require(c not in self.lock.calls and not self.at_work[c])
        self.lock.invoke(c, "acquire", c)

    @action(c=clients)
    def gets_it(self, c: ModelValue) -> None:
        require(self.holder is None and c in self.lock.calls and self.lock.calls[c].operation == "acquire")
        self.holder = c
        self.at_work[c] = True
        self.lock.respond(c, None)

    @action(c=clients)
    def gives_it_back(self, c: ModelValue) -> None:
        require(self.at_work[c])
        self.at_work[c] = False
        self.lock.invoke(c, "release")

    @action(c=clients)
    def has_given_it_back(self, c: ModelValue) -> None:
        require(c in self.lock.calls and self.lock.calls[c].operation == "release")
        if self.holder == c:
            self.holder = None
        self.lock.respond(c, None)

    @action
    def lease_runs_out(self) -> None:
        require(self.impatient and self.holder is not None)
        self.holder = None

    @invariant
    def linearizable(self) -> bool:
        """To its clients, the service is a lock."""
        return self.lock.is_linearizable
