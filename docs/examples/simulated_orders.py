"""Your own program in simulated worlds: acknowledged entries stay in its log, whatever goes wrong."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from fencepost import Client
from fencepost.log.errors import LogExistsError
from fencepost.world.world import simulate


async def orders(client: Client, random: Random) -> None:
    """Append some orders, and look for them."""
    log = client.log("orders")
    with suppress(LogExistsError):
        await log.create(ensemble=2)
    async with log.writer(name="orders") as writer:
        placed = [await writer.append(b"order %d" % number) for number in range(random.randint(1, 5))]
    found = [entry.position async for entry in log.reader(follow=False)]
    assert all(position in found for position in placed), "an order is gone"


if __name__ == "__main__":
    for seed in range(1, 6):
        outcome = simulate(seed, programs={"orders": orders})
        print(seed, outcome.promise or "held", outcome.what)
