from __future__ import annotations

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    action,
    configuration,
    constant,
    model_values,
    network,
    per_key,
    refines,
    require,
    state,
)

SERVER = ModelValue("server")


class Lock(Protocol):
    """A lock, which one client has at a time."""

    clients: tuple[ModelValue, ...] = model_values("c", 2)

    held: PerKey[ModelValue, bool] = per_key(clients, False)

    @action(c=clients)
    def acquire(self, c: ModelValue) -> None:
        require(not any(self.held[other] for other in self.clients))
        self.held[c] = True

    @action(c=clients)
    def release(self, c: ModelValue) -> None:
        require(self.held[c])
        self.held[c] = False


class Ask(Message):
    """Give me the lock."""


class Grant(Message):
    """It is yours."""


class GiveBack(Message):
    """I do not need it any more."""


class LockService(Protocol):
    """A server that gives a lock to one client after the other, by messages."""

    configurations = {
        "default": configuration(),
        "impatient": configuration(impatient=True, expect="as_lock"),
    }

    clients: tuple[ModelValue, ...] = model_values("c", 3)
    impatient: bool = constant(False, "the server may take the lock from a client that does not give it back")

    granted: ModelValue | None = state(None, held_by="server")
    at_work: PerKey[ModelValue, bool] = per_key(clients, False)
    network: Network = network({Ask: (clients, SERVER), Grant: (SERVER, clients), GiveBack: (clients, SERVER)})

    @action(c=clients)
    def asks(self, c: ModelValue) -> None:
        require(not self.at_work[c])
        self.network.send(Ask(), c, SERVER)

    @action(c=clients, by="server")
    def grants(self, c: ModelValue) -> None:
        require(self.granted is None)
        self.network.reply(self.network.receive(Ask, to=SERVER, source=c), Grant())
        self.granted = c

    @action(c=clients)
    def begins(self, c: ModelValue) -> None:
        self.network.receive(Grant, to=c)
        self.at_work[c] = True

    @action(c=clients)
    def ends(self, c: ModelValue) -> None:
        require(self.at_work[c])
        self.at_work[c] = False
        self.network.send(GiveBack(), c, SERVER)

    @action(c=clients, by="server")
    def has_it_back(self, c: ModelValue) -> None:
        self.network.receive(GiveBack, to=SERVER, source=c)
        if self.granted == c:
            self.granted = None

    @action(by="server")
    def takes_it_away(self) -> None:
        require(self.impatient and self.granted is not None)
        self.granted = None

    as_lock = refines(Lock, {"held": "at_work"}, doc="Clients see one lock.")
