"""Ships text over a network that loses and repeats messages. The same two roles are run and checked.

fencepost check docs/examples/shipping.py
python docs/examples/shipping.py
"""

from __future__ import annotations

import random
from collections import deque

from fencepost import Message, ModelValue, Network, Protocol, action, actor, constant, invariant, network, require

SENDER, RECEIVER = ModelValue("sender"), ModelValue("receiver")


class Chunk(Message):
    number: int
    text: str


class Received(Message):
    number: int


# -- the roles, which also run unchecked ------------------------------------------------------------------------------


class Sender:
    """Ships texts one after the other, and resends each chunk until it is acknowledged."""

    def __init__(self) -> None:
        self.number = 0
        self.waiting: deque[str] = deque()

    def offer(self, text: str) -> list[Chunk]:
        self.waiting.append(text)
        return self.send() if len(self.waiting) == 1 else []

    def send(self) -> list[Chunk]:
        return [Chunk(self.number, self.waiting[0])] if self.waiting else []

    def receive(self, received: Received) -> list[Chunk]:
        if not self.waiting or received.number != self.number:
            return []
        self.number += 1
        self.waiting.popleft()
        return self.send()


class Receiver:
    """Accepts each chunk once, in order, and acknowledges every copy."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def receive(self, chunk: Chunk) -> list[Received]:
        if chunk.number == len(self.texts):
            self.texts.append(chunk.text)
        return [Received(chunk.number)]


# -- the same roles, in every order of events -------------------------------------------------------------------------


class Shipping(Protocol):
    """A sender and a receiver, and a network between them."""

    texts: tuple[str, ...] = constant(("a", "b", "a"), "what is shipped")

    sender: Sender = actor(lambda protocol: Sender())
    receiver: Receiver = actor(lambda protocol: Receiver())
    network: Network = network({Chunk: (SENDER, RECEIVER), Received: (RECEIVER, SENDER)}, lossy=True)

    def _offered(self) -> int:
        return self.sender.number + len(self.sender.waiting)

    @action(by=SENDER)
    def offer(self) -> None:
        require(self._offered() < len(self.texts))
        self._ship(self.sender.offer(self.texts[self._offered()]))

    @action(by=SENDER)
    def send_again(self) -> None:
        self._ship(self.sender.send())

    @action(by=RECEIVER)
    def chunk_comes(self) -> None:
        envelope = self.network.receive(Chunk, to=RECEIVER)
        for answer in self.receiver.receive(envelope.message):
            self.network.reply(envelope, answer)

    @action(by=SENDER)
    def answer_comes(self) -> None:
        envelope = self.network.receive(Received, to=SENDER)
        self._ship(self.sender.receive(envelope.message))

    def _ship(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self.network.send(chunk, SENDER, RECEIVER)

    @invariant
    def what_is_received_was_sent(self) -> bool:
        """The receiver has a prefix of the offered texts, each once and in order."""
        return self.receiver.texts == list(self.texts[: len(self.receiver.texts)])

    @invariant
    def what_is_acknowledged_is_received(self) -> bool:
        """The sender forgets no text that the receiver lacks."""
        return self.sender.number <= len(self.receiver.texts)


def ship(texts: list[str], seed: int) -> list[str]:
    """Run the roles over a network that loses every third message."""
    chance = random.Random(seed)
    sender, receiver = Sender(), Receiver()
    for text in texts:
        sender.offer(text)
    while sender.waiting:
        for chunk in sender.send():
            if chance.randrange(3):
                for answer in receiver.receive(chunk):
                    if chance.randrange(3):
                        sender.receive(answer)
    return receiver.texts


if __name__ == "__main__":
    print(" ".join(ship("what is checked is what runs".split(), seed=1)))
