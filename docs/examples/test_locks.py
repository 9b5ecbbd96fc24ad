import asyncio

from drive_locks import Calls
from lock_server import LockServer
from locks import Locks
from locks_conformance import LocksConformance

import fencepost


@fencepost.checked(Locks)
def test_the_protocol_holds(result):
    assert result.distinct_states == 16


def test_the_server_follows_the_protocol(fencepost_drive):
    fencepost_drive(Locks, Calls)


def test_a_client_that_hangs_up(fencepost_trace):
    trace = fencepost_trace(LocksConformance, node="server")

    async def scenario():
        server = LockServer(lambda action, **parameters: trace.emit(action, "lock", parameters))
        await server.acquire("ann")
        waits = asyncio.create_task(server.acquire("bob"))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.sleep(0)
        server.release("ann")

    asyncio.run(scenario())
