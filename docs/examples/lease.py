"""The PlusCal side of from-tla.md in Fencepost: Lease.tla, label by label, with the same number of states."""

from enum import Enum

from fencepost import ModelValue, PerKey, Protocol, Record, action, model_values, one_of, per_key, require, state


class At(Enum):
    """The labels of a client."""

    ENTER = "enter"
    WORK = "work"
    READ = "read"
    WRITE = "write"
    LEAVE = "leave"
    DONE = "done"


class Client(Record):
    """A process: its label and its local variables."""

    at: At = At.ENTER
    n: int = 0
    seen: int = 0
    returns_to: At = At.DONE


class Lease(Protocol):
    """Clients add to a counter while they hold a lease, which may run out too soon."""

    clients = model_values("c", 2)

    holder: ModelValue | None = state(None)
    counter: int = state(0)
    client: PerKey[ModelValue, Client] = per_key(clients, Client)
    expired: bool = state(False)

    def acquire(self, who: ModelValue) -> None:
        require(self.holder is None)
        self.holder = who

    @action(c=clients)
    def enter(self, c: ModelValue) -> None:
        me = self.client[c]
        require(me.at is At.ENTER)
        if one_of([True, False]):
            self.acquire(c)
            me.at = At.WORK
        else:
            me.at = At.DONE

    @action(c=clients)
    def work(self, c: ModelValue) -> None:
        me = self.client[c]
        require(me.at is At.WORK)
        self.call_add(me, one_of([1, 2]), returns_to=At.LEAVE)

    def call_add(self, me: Client, n: int, returns_to: At) -> None:
        me.n = n
        me.returns_to = returns_to
        me.at = At.READ

    @action(c=clients)
    def read(self, c: ModelValue) -> None:
        me = self.client[c]
        require(me.at is At.READ)
        me.seen = self.counter
        me.at = At.WRITE

    @action(c=clients)
    def write(self, c: ModelValue) -> None:
        me = self.client[c]
        require(me.at is At.WRITE)
        self.counter = me.seen + me.n
        self.client[c] = Client(at=me.returns_to)

    @action(c=clients)
    def leave(self, c: ModelValue) -> None:
        me = self.client[c]
        require(me.at is At.LEAVE)
        if self.holder == c:
            self.holder = None
        me.at = At.DONE

    @action
    def expire(self) -> None:
        require(not self.expired)
        require(self.holder is not None)
        self.holder = None
        self.expired = True
