"""The simulated network and metadata service: order within a connection, what a client learns of a loss, versions,
watches and sessions.
"""

from __future__ import annotations

from random import Random

import pytest

from fencepost.ledger.messages import ReadLac, ReadLacResponse, Request, Response
from fencepost.ledger.roles import interface as i
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, marked_in_recovery
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation.judge import Judge
from fencepost.ledger.simulation.metadata import SimMetadata
from fencepost.ledger.simulation.network import PATIENCE, Connection, SimNetwork
from fencepost.simulation.schedule import Schedule


class Echo:
    """A server that answers everything at once, in order."""

    def __init__(self, name: str, network: SimNetwork) -> None:
        self.name, self.network = name, network
        self.alive, self.starts = True, 1
        self.got: list[int] = []
        self.lost: list[int] = []

    def asked(self, connection: Connection, txn: int, request: Request) -> None:
        self.got.append(txn)
        self.network.respond(connection.number, txn, ReadLacResponse(request.ledger, Code.OK))

    def closed(self, connection: Connection) -> None:
        self.lost.append(connection.number)


class Caller:
    """A client that records what it receives."""

    def __init__(self) -> None:
        self.name, self.alive = "client", True
        self.connections: dict[str, Connection] = {}
        self.told: list[object] = []

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        self.told.append(txn)

    def unanswered(self, txn: int, bookie: str) -> None:
        self.told.append(-txn)

    def disconnected(self, bookie: str) -> None:
        self.told.append(f"lost {bookie}")

    def deliver(self, event: i.Event) -> None:
        self.told.append(event)


class Net:
    """A client, two servers, and the network between them."""

    def __init__(self, seed: int = 1, slow: float = 0.5) -> None:
        self.schedule = Schedule()
        self.network = SimNetwork(self.schedule, Random(seed), None, slow)
        self.one, self.two = Echo("one", self.network), Echo("two", self.network)
        self.network.servers.update(one=self.one, two=self.two)
        self.client = Caller()

    def ask(self, server: str, *txns: int) -> None:
        for txn in txns:
            self.network.request(self.client, server, txn, ReadLac(1))

    def run(self, until: int = 1 << 60) -> None:
        while self.schedule.now < until and self.schedule.step():
            pass


def test_answers_come_in_their_order_within_a_connection_and_overtake_each_other_across() -> None:
    mixed = set()
    for seed in range(20):
        net = Net(seed)
        net.ask("one", 1, 2, 3)
        net.ask("two", 11, 12, 13)
        net.run()
        assert [txn for txn in net.client.told if txn < 10] == [1, 2, 3]  # type: ignore[operator]
        assert [txn for txn in net.client.told if txn > 10] == [11, 12, 13]  # type: ignore[operator]
        mixed.add(tuple(net.client.told))
    assert len(mixed) > 3


def test_a_connection_that_breaks_loses_what_is_on_it_and_its_client_learns_that() -> None:
    net = Net(slow=0.0)
    net.ask("one", 1, 2)
    net.network.lose(net.client.connections["one"], noticed=True)
    net.run(PATIENCE // 2)
    assert (net.one.got, net.client.told) == ([], ["lost one", -1, -2])
    assert net.one.lost == [1]
    net.ask("one", 3)
    net.run()
    assert net.client.told[3:] == [3]


def test_a_half_open_connection_is_noticed_when_no_answer_comes() -> None:
    net = Net(slow=0.0)
    net.ask("one", 1)
    net.run()
    net.network.lose(net.client.connections["one"], noticed=False)
    net.ask("one", 2)
    net.run(PATIENCE // 2)
    assert net.client.told == [1]
    net.run()
    assert net.client.told == [1, "lost one", -2]


def test_a_server_that_was_started_anew_tells_that_it_knows_nothing_of_a_connection() -> None:
    net = Net(slow=0.0)
    net.ask("one", 1)
    net.run()
    net.network.lose_all("one", noticed=False)
    net.one.starts += 1
    net.ask("one", 2)
    net.run(net.schedule.now + PATIENCE // 2)
    assert net.client.told == [1, "lost one", -2]


def test_what_is_sent_over_a_clogged_link_comes_when_it_is_free() -> None:
    net = Net(slow=0.0)
    net.network.clog("client", "one", 50_000)
    net.ask("one", 1)
    net.run(50_000)
    assert net.one.got == [1]
    assert net.schedule.now >= 50_000


# -- the metadata service ---------------------------------------------------------------------------------------------

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))


class Service:
    """A metadata service with one client."""

    def __init__(self, unsteady: float = 0.0, seed: int = 1) -> None:
        self.schedule = Schedule()
        judge = Judge()
        judge.created(7, b"key")
        self.service = SimMetadata(self.schedule, Random(seed), judge, None, ALL, unsteady)
        self.client = Caller()
        self.service.connect(self.client)

    def told(self, *operations: object) -> list[object]:
        self.client.told.clear()
        for operation in operations:
            self.service.request(self.client, operation)  # type: ignore[arg-type]
        while self.schedule.step():
            pass
        return [event for event in self.client.told if not isinstance(event, i.BookiesChanged)]


def test_metadata_are_replaced_on_condition_of_their_version() -> None:
    service = Service()
    assert service.told(i.ReadMetadata(1, 7)) == [i.MetadataAnswer(1, i.Outcome.NO_LEDGER)]
    assert service.told(i.CreateMetadata(2, 7, METADATA)) == [i.MetadataAnswer(2, i.Outcome.OK, 0)]
    assert service.told(i.CreateMetadata(3, 7, METADATA)) == [i.MetadataAnswer(3, i.Outcome.EXISTS, 0)]
    recovering = marked_in_recovery(METADATA)
    assert service.told(i.WriteMetadata(4, 7, recovering, 0)) == [i.MetadataAnswer(4, i.Outcome.OK, 1)]
    assert service.told(i.WriteMetadata(5, 7, recovering, 0)) == [i.MetadataAnswer(5, i.Outcome.BAD_VERSION, 1)]
    assert service.told(i.ReadMetadata(6, 7)) == [i.MetadataAnswer(6, i.Outcome.OK, 1, recovering)]


def test_a_watch_tells_once_and_is_gone_with_its_session() -> None:
    service = Service()
    service.told(i.CreateMetadata(1, 7, METADATA))
    service.told(i.ReadMetadata(2, 7, watch=True))
    assert i.MetadataChanged(7) in service.told(i.WriteMetadata(3, 7, METADATA, 0))
    assert i.MetadataChanged(7) not in service.told(i.WriteMetadata(4, 7, METADATA, 1))
    service.told(i.ReadMetadata(5, 7, watch=True))
    service.service.expire(service.client)
    assert i.MetadataChanged(7) not in service.told(i.WriteMetadata(6, 7, METADATA, 2))


def test_an_operation_under_way_when_its_session_expires_is_unknown() -> None:
    service = Service()
    service.service.request(service.client, i.CreateMetadata(1, 7, METADATA))
    service.service.expire(service.client)
    assert service.client.told == [i.MetadataAnswer(1, i.Outcome.UNKNOWN), i.SessionExpired()]
    assert service.told() == []


@pytest.mark.parametrize("done", [False, True])
def test_an_operation_whose_connection_breaks_may_be_done_or_not(done: bool) -> None:
    found = set()
    for seed in range(30):
        service = Service(unsteady=1.0, seed=seed)
        assert service.told(i.CreateMetadata(1, 7, METADATA)) == [i.MetadataAnswer(1, i.Outcome.UNKNOWN)]
        found.add(7 in service.service.ledgers)
    assert done in found
