"""The network between the hosts of a simulated quorum."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from fencepost.quorum.messages import AnyRequest, AnyResponse, Request, Response
from fencepost.simulation.schedule import Schedule

_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(AnyRequest).decode
_decode_response = msgspec.msgpack.Decoder(AnyResponse).decode


class SimNetwork:
    """Messages between endpoints, as bytes. Each arrives after its own delay, or not at all."""

    def __init__(self, schedule: Schedule, random: Random, loss: float, slow: float) -> None:
        self.schedule = schedule
        self.random = random.random
        self.loss = loss
        self.slow = slow
        self.cut: set[tuple[str, str]] = set()
        """Pairs of endpoints: messages from the first to the second are lost."""
        self.sent = 0

    def request(self, source: str, dest: str, request: Request, arrive: Callable[[Request], None]) -> bool:
        """Send a request. Returns whether it is on its way."""
        data = _encode(request)
        return self._send(source, dest, lambda: arrive(_decode_request(data)))

    def response(self, source: str, dest: str, response: Response, arrive: Callable[[Response], None]) -> bool:
        """Send a response. Returns whether it is on its way."""
        data = _encode(response)
        return self._send(source, dest, lambda: arrive(_decode_response(data)))

    def heal(self) -> None:
        """End all faults: everything arrives, and soon."""
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
