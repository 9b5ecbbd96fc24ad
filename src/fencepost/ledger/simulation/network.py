"""A network of connections. As with TCP, messages in one direction arrive in order or not at all.

Messages on different connections overtake each other. A connection breaks with everything in flight on it; one side may
not notice (a half-open connection). A clogged link holds messages until it is free; a partition clogs all links between
its sides.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Protocol

from fencepost.ledger.messages import Request, Response
from fencepost.ledger.simulation.story import Story
from fencepost.ledger.simulation.wire import Wire
from fencepost.simulation.links import Links
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace

PATIENCE = 200_000
"""The client's timeout for an answer, in microseconds."""


class Client(Protocol):
    """A process that opens connections."""

    name: str
    alive: bool
    connections: dict[str, Connection]

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """A request was answered."""

    def unanswered(self, txn: int, bookie: str) -> None:
        """A request will not be answered."""

    def disconnected(self, bookie: str) -> None:
        """A connection is gone."""


class Server(Protocol):
    """A process that takes connections. ``starts`` counts its starts."""

    name: str
    alive: bool
    starts: int

    def asked(self, connection: Connection, txn: int, request: Request) -> None:
        """A request arrived."""

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""


class Connection:
    """A connection from a client to a server. ``waiting``: the numbers of unanswered requests."""

    __slots__ = (
        "arrives_down",
        "arrives_up",
        "checking",
        "client",
        "deadlines",
        "number",
        "open",
        "server",
        "start",
        "usable",
        "waiting",
        "wire",
    )

    def __init__(self, number: int, client: Client, server: Server, wire: Wire) -> None:
        self.number = number
        self.wire = wire
        self.client = client
        self.server = server
        self.start = server.starts
        self.open = True  # whether messages arrive
        self.usable = True  # whether the client believes that it is open
        self.arrives_up = 0
        self.arrives_down = 0
        self.waiting: set[int] = set()
        self.deadlines: deque[tuple[int, int]] = deque()
        self.checking = False


class SimNetwork(Links):
    """The connections of a cluster. ``version_2``: they use that version for all requests that it can express."""

    def __init__(
        self,
        schedule: Schedule,
        random: Random,
        story: Story | None,
        slow: float,
        version_2: bool = False,
        trace: SimTrace | None = None,
    ) -> None:
        super().__init__(schedule, random, slow)
        self.story = story
        self.trace = trace or SimTrace()
        self.version_2 = version_2
        self.servers: dict[str, Server] = {}
        self.connections: dict[int, Connection] = {}
        self.labels: list[str] = [""]
        self._count = 0

    # -- what clients and servers do ----------------------------------------------------------------------------------

    def request(self, client: Client, server_name: str, txn: int, request: Request) -> None:
        """Send a request to a server, opening a connection if necessary."""
        connection = client.connections.get(server_name)
        if connection is None or not connection.usable:
            connection = self._connect(client, self.servers[server_name])
        now = self.schedule.now
        connection.waiting.add(txn)
        connection.deadlines.append((now + PATIENCE, txn))
        if not connection.checking:
            connection.checking = True
            self.schedule.at(connection.deadlines[0][0], self._check, connection)
        if self.story is not None:
            self.story.sent(client.name, server_name, (connection.number, txn, True), request)
        if connection.open:
            arrives = connection.arrives_up = self.arrival(client.name, server_name, connection.arrives_up)
            self.schedule.at(arrives, self._arrive_up, connection, txn, connection.wire.request(txn, request))
        elif connection.server.alive and connection.server.starts != connection.start:
            self.lose(connection, noticed=True)  # a restarted server does not know the connection, and resets it

    def respond(self, number: int, txn: int, response: Response) -> None:
        """Answer a request over its connection, if that still exists."""
        connection = self.connections.get(number)
        if connection is None:
            return
        server, client = connection.server, connection.client
        if self.story is not None:
            self.story.sent(server.name, client.name, (number, txn, False), response)
        if connection.open:
            arrives = connection.arrives_down = self.arrival(server.name, client.name, connection.arrives_down)
            self.schedule.at(arrives, self._arrive_down, connection, txn, connection.wire.response(txn, response))

    def label(self, number: int) -> str:
        """The name of a connection: client, server and number."""
        return self.labels[number]

    # -- breaking connections -----------------------------------------------------------------------------------------

    def lose(self, connection: Connection, noticed: bool) -> None:
        """Break a connection, and lose its messages in flight. Unless the client notices, its requests wait in vain."""
        connection.open = False
        self.connections.pop(connection.number, None)
        if noticed:
            client, server = connection.client.name, connection.server.name
            self.schedule.at(self.arrival(client, server, 0), connection.server.closed, connection)
            self.schedule.at(self.arrival(server, client, 0), self._reset, connection)

    def lose_all(self, name: str, noticed: bool) -> None:
        """Break all connections of a process."""
        for connection in [c for c in self.connections.values() if name in (c.client.name, c.server.name)]:
            self.lose(connection, noticed)

    def _connect(self, client: Client, server: Server) -> Connection:
        self._count += 1
        connection = client.connections[server.name] = Connection(self._count, client, server, Wire(self.version_2))
        self.connections[connection.number] = connection
        self.labels.append(f"{client.name}>{server.name}#{self._count}")
        self._trace("connected", connection)
        if not server.alive:
            self.lose(connection, noticed=True)
        return connection

    def _trace(self, what: str, connection: Connection) -> None:
        """Trace that a client opened or lost a connection."""
        fields = {"bookie": connection.server.name, "connection": self.labels[connection.number]}
        self.trace.node_did(connection.client.name, what, fields)

    def _arrive_up(self, connection: Connection, txn: int, request: Request) -> None:
        server = connection.server
        if not connection.open:
            return
        if self.story is not None:
            self.story.received((connection.number, txn, True))
        server.asked(connection, txn, request)

    def _arrive_down(self, connection: Connection, txn: int, response: Response) -> None:
        client = connection.client
        if not connection.open or txn not in connection.waiting:
            return
        connection.waiting.remove(txn)
        if client.alive:
            if self.story is not None:
                self.story.received((connection.number, txn, False))
            client.answered(txn, connection.server.name, response)

    def _reset(self, connection: Connection) -> None:
        """The client notices that a connection is gone, and that its requests are unanswered."""
        usable, connection.usable = connection.usable, False
        unanswered = sorted(connection.waiting)
        if usable and connection.client.alive:
            self._trace("disconnected", connection)
            connection.client.disconnected(connection.server.name)
        for txn in unanswered:
            self._give_up(connection, txn)

    def _check(self, connection: Connection) -> None:
        """Time out overdue requests. This is how a client notices a half-open connection."""
        connection.checking = False
        deadlines, waiting, now = connection.deadlines, connection.waiting, self.schedule.now
        while deadlines and (deadlines[0][1] not in waiting or deadlines[0][0] <= now):
            _, txn = deadlines.popleft()
            if txn in waiting and connection.open:
                self._give_up(connection, txn)
            elif txn in waiting:
                self._reset(connection)
        if deadlines and not connection.checking:
            connection.checking = True
            self.schedule.at(deadlines[0][0], self._check, connection)

    def _give_up(self, connection: Connection, txn: int) -> None:
        if txn in connection.waiting:
            connection.waiting.remove(txn)
            if connection.client.alive:
                connection.client.unanswered(txn, connection.server.name)
