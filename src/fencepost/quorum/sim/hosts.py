"""The hosts of a quorum, and the network between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from fencepost.quorum.identity import Node, VoterSet
from fencepost.quorum.log import OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import AnyRequest, AnyResponse, Request, Response
from fencepost.quorum.rules import Protections
from fencepost.quorum.sim.case import Case
from fencepost.quorum.sim.host import Environment, Report, SimHost
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace

_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(AnyRequest).decode
_decode_response = msgspec.msgpack.Decoder(AnyResponse).decode


class SimNetwork:
    """Messages between hosts, known by their endpoints. Each is bytes on its way, and arrives in its own time or not at
    all.
    """

    def __init__(self, schedule: Schedule, random: Random, loss: float, slow: float) -> None:
        self.schedule = schedule
        self.random = random.random
        self.loss = loss
        self.slow = slow
        self.cut: set[tuple[str, str]] = set()
        """Pairs of endpoints, from the first to the second of which nothing comes."""
        self.sent = 0

    def request(self, source: str, dest: str, request: Request, arrive: Callable[[Request], None]) -> bool:
        """Send a request; whether it is on its way."""
        data = _encode(request)
        return self._send(source, dest, lambda: arrive(_decode_request(data)))

    def response(self, source: str, dest: str, response: Response, arrive: Callable[[Response], None]) -> bool:
        """Send an answer; whether it is on its way."""
        data = _encode(response)
        return self._send(source, dest, lambda: arrive(_decode_response(data)))

    def heal(self) -> None:
        """From now on everything arrives, and soon."""
        self.cut.clear()
        self.loss = self.slow = 0.0

    def _send(self, source: str, dest: str, arrive: Callable[[], None]) -> bool:
        self.sent += 1
        chance = self.random()
        if self.loss and self.random() < self.loss:
            return False
        if (source, dest) in self.cut:
            return False
        delay = 100 + int(chance * 900)
        if self.slow and self.random() < self.slow:
            delay += int(self.random() * 200_000 * chance)
        self.schedule.after(delay, arrive)
        return True


class Hosts(Environment):
    """The surroundings of hosts that talk to each other."""

    def __init__(
        self,
        case: Case,
        protections: Protections,
        report: Report | None,
        trace: SimTrace | None,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(case, protections, report, trace, schedule)
        self.random = Random(f"{case.seed} cluster").random
        self.network = SimNetwork(self.schedule, Random(f"{case.seed} network"), case.loss, case.slow_messages)
        self.by_endpoint: dict[str, SimHost] = {}

    def join(self, voters: Sequence[SimHost]) -> None:
        """Some hosts are the voters of the beginning."""
        beginning = Snapshot(OffsetAndEpoch(0, 0), VoterSet.of(Node(host.key, host.endpoint) for host in voters))
        for host in voters:
            host.join(beginning)

    def may_change(self, host: SimHost, request: Any) -> bool:
        """Whether a request of an administrator may come to a host."""
        return True

    def send(self, source: SimHost, endpoint: str, request: Request) -> None:
        """See :class:`Environment`."""
        dest, loop, node = self.by_endpoint[endpoint], source.loop, source.node

        def answered(response: Any) -> None:
            loop.does(node.answered, response)

        def reply(response: Response) -> None:
            self.network.response(dest.endpoint, source.endpoint, response, answered)

        def arrive(arrived: Any) -> None:
            if dest.alive and self.may_change(dest, arrived):
                dest.asked(arrived, reply)
            elif not dest.alive and not loop.has_ended:
                source.unreachable(endpoint)

        if not self.network.request(source.endpoint, endpoint, request, arrive) and self.random() < 0.5:
            source.unreachable(endpoint)
