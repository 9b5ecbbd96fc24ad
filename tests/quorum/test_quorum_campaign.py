"""Member processes behind a network that delays bytes: a short campaign, and the network itself."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import patience
import pytest

from bench.quorum.campaign import Campaign, Options, waits
from bench.quorum.harm import ALL, DEAF, FREEZE, ISOLATE, KILL, Schedule
from bench.quorum.network import Network
from bench.quorum.planted import FAULTS
from bench.quorum.processes import free_ports
from fencepost.quorum import rules
from fencepost.quorum.driver.frames import Hello, encode
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.roles.replica import Replica


class Echo:
    """A member that echoes what it receives."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(4096):
                self.heard += data
                connection.sendall(data)
        except OSError:
            pass


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.server.close()


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


def connected(port: int, member: int | None) -> tuple[socket.socket, bytes]:
    """Connect as a member, or as an administrator. Gives the connection and the bytes of its greeting."""
    connection = socket.create_connection(("127.0.0.1", port), patience.PATIENCE)
    hello = encode(Hello() if member is None else Hello("cluster", ReplicaKey(member, "d")))
    connection.sendall(hello)
    return connection, hello


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        some = connection.recv(count - len(data))
        assert some
        data += some
    return data


def test_what_is_held_up_comes_later_and_each_direction_is_one_of_its_own(network: Network, echo: Echo) -> None:
    (port,) = free_ports(1)
    network.listen({1: (port, echo.port)})
    connection, hello = connected(port, 2)
    assert exactly(connection, len(hello)) == hello
    network.cut([(1, 2)])
    connection.sendall(b"there")
    patience.until(lambda: echo.heard.endswith(b"there"), "what goes the other way")
    network.heal()
    assert exactly(connection, 5) == b"there"
    heard = len(echo.heard)
    network.cut([(2, 1)])
    connection.sendall(b"later")
    other, said = connected(port, 3)
    administrator, words = connected(port, None)
    assert exactly(other, len(said)) == said and exactly(administrator, len(words)) == words
    assert b"later" not in echo.heard[heard:]
    network.heal([(2, 1)])
    assert exactly(connection, 5) == b"later"
    for each in (connection, other, administrator):
        each.close()


def test_a_connection_that_was_held_up_may_break(network: Network, echo: Echo) -> None:
    (port,) = free_ports(1)
    network.listen({1: (port, echo.port)})
    connection, hello = connected(port, 2)
    assert exactly(connection, len(hello)) == hello
    network.cut([(1, 2)])
    connection.sendall(b"lost")
    patience.until(lambda: echo.heard.endswith(b"lost") and network._held, "an answer that is held up")
    network.heal(breaks=True)
    with pytest.raises((ConnectionError, AssertionError)):
        exactly(connection, 4)
    connection.close()


def test_harm_follows_from_the_seed() -> None:
    one, other, third = (Schedule(seed) for seed in (1, 1, 2))
    drawn = [one.next() for _ in range(50)]
    assert drawn == [other.next() for _ in range(50)] != [third.next() for _ in range(50)]
    assert {Schedule(1, [KILL]).next().how for _ in range(5)} == {KILL}


def test_a_wait_for_a_new_leader_ends_with_the_first_change_that_it_acknowledges() -> None:
    assert waits([10.0, 20.0, 30.0], [9.0, 10.02, 11.0, 12.0, 20.5]) == [1.0, 0.5]


@pytest.mark.campaign
def test_a_planted_fault_turns_a_protection_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "__init__", Replica.__init__)  # so that it is restored
    FAULTS["votes-twice"]()
    replica = Replica(Node(ReplicaKey(1, "a"), "h1:1"), traces=True)
    assert replica.traces
    assert replica.protections == rules.ALL.replace(one_vote_an_epoch=False)


@pytest.mark.campaign
def test_a_short_campaign_finds_nothing(tmp_path: Path) -> None:
    kinds = (KILL, FREEZE, ISOLATE, DEAF, ALL)
    while True:
        seed = random.randrange(1 << 32)
        if Schedule(seed, kinds).next().after < 2:  # others begin with a pause longer than this campaign
            break
    options = Options(tmp_path, seed, seconds=8.0, clients=3, kinds=kinds, timeout=10_000)
    said: list[str] = []
    outcome = Campaign(options, said.append).run()
    assert not outcome.wrong, (options.seed, outcome.wrong)
    assert outcome.harms and outcome.counts["changes acknowledged"] > 20
