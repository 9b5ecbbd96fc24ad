"""Drives RWLock of aiorwlock."""

import asyncio
import sys

from aiorwlock import RWLock
from rw_lock import ReadersAndWriters

from fencepost.testing import drive


class Tasks:
    """Each client is a task, which does what it is asked and says where it is."""

    def __init__(self):
        self.lock = RWLock()
        self.task = {f"t{number}": "OUT" for number in (1, 2, 3)}
        self.running = {}

    def asks_to_read(self, t):
        self.begin(str(t), self.lock.reader, "WAITS_TO_READ", "READS")

    def asks_to_write(self, t):
        self.begin(str(t), self.lock.writer, "WAITS_TO_WRITE", "WRITES")

    async def releases(self, t):
        self.running[str(t)][1].set()

    def is_cancelled(self, t):
        self.running[str(t)][0].cancel()

    def begin(self, name, lock, waits, has_it):
        async def client():
            try:
                async with lock:
                    self.task[name] = has_it
                    await leaves.wait()
            finally:
                self.task[name] = "OUT"

        leaves = asyncio.Event()
        self.task[name] = waits
        self.running[name] = asyncio.create_task(client()), leaves

    def observe(self):
        return {"task": self.task}


if __name__ == "__main__":
    known = {"forgets_readers": True} if "known" in sys.argv else {}
    print(drive(ReadersAndWriters, Tasks, constants=known))
