"""Drives Lock of redis-py, against fakeredis: a Lock of its own for each client, or one that threads share."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from math import ceil

from fakeredis import FakeServer, FakeStrictRedis
from lease import Lease
from redis.exceptions import LockError

from fencepost.testing import drive


class Taken(Exception):
    """The lock is not free."""


class Clients:
    """Each client has a Lock of its own. A lease ends just before its last second is over."""

    refuses = {"acquires": Taken, "releases": LockError, "extends_to": LockError, "reacquires": LockError}

    def __init__(self):
        self.redis = FakeStrictRedis(server=FakeServer())
        self.locks = {name: self.redis.lock("lock", timeout=1.999) for name in ("c1", "c2")}

    def call(self, c, function):
        return function(self.locks[str(c)])

    def acquires(self, c):
        if not self.call(c, lambda lock: lock.acquire(blocking=False)):
            raise Taken

    def releases(self, c):
        self.call(c, lambda lock: lock.release())

    def extends(self, c):
        self.call(c, lambda lock: lock.extend(1))

    def extends_to(self, c):
        self.call(c, lambda lock: lock.extend(2.999, replace_ttl=True))

    def reacquires(self, c):
        self.call(c, lambda lock: lock.reacquire())

    def second_passes(self):
        time.sleep(1)

    def observe(self):
        owners = [c for c in self.locks if self.call(c, self.owns)]
        return {"holder": owners[0] if owners else None, "left": ceil(max(self.redis.pttl("lock"), 0) / 1000)}

    def owns(self, lock):
        return lock.owned()

    def close(self):
        self.redis.close()


class Threads(Clients):
    """Each client is a thread. They share a Lock, which keeps a token for each thread."""

    def __init__(self):
        super().__init__()
        self.locks = dict.fromkeys(self.locks, self.redis.lock("lock", timeout=1.999))
        self.threads = {c: ThreadPoolExecutor(1) for c in self.locks}

    def call(self, c, function):
        return self.threads[str(c)].submit(super().call, c, function).result()

    def close(self):
        for thread in self.threads.values():
            thread.shutdown()
        super().close()


class Known(Threads):
    """The same. A thread that has never had the lock may get AttributeError."""

    refuses = {action: (error, AttributeError) for action, error in Threads.refuses.items()}

    def owns(self, lock):
        return hasattr(lock.local, "token") and lock.owned()


if __name__ == "__main__":
    system = {each.__name__: each for each in (Clients, Threads, Known)}[sys.argv[1]]
    print(drive(Lease, system))
