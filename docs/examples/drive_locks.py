import asyncio

from lock_server import LockServer
from locks import Locks

from fencepost.testing import drive


class Calls:
    """What the steps of the protocol are in the server, and what can be seen of its state."""

    refuses = {"releases": PermissionError}

    def __init__(self):
        self.server = LockServer()
        self.calls = {}

    async def acquires(self, c):
        self.calls[c] = asyncio.create_task(self.server.acquire(str(c)))

    async def releases(self, c):
        self.server.release(str(c))

    async def hangs_up(self, c):
        self.calls[c].cancel()

    def observe(self):
        return {"holder": self.server.holder}


if __name__ == "__main__":
    print(drive(Locks, Calls))
