"""Drives the queues of persist-queue that are kept in SQLite, each in a folder of its own."""

import sys
from tempfile import TemporaryDirectory

from jobs import Job, Jobs
from persistqueue import Empty, FILOSQLiteQueue, PriorityQueue, SQLiteAckQueue, SQLiteQueue

from fencepost.testing import drive

STATUS = {0: "READY", 1: "READY", 2: "TAKEN", 5: "DONE", 9: "FAILED"}


class Acks:
    """SQLiteAckQueue: jobs are acknowledged one by one."""

    make, options = SQLiteAckQueue, {}
    leaves_out = ("acks_all",)
    refuses = {"gets": Empty}

    def __init__(self):
        self.folder = TemporaryDirectory()
        self.count = 0
        self.open()

    def open(self):
        self.queue = self.make(self.folder.name, **self.options)
        self.taken = {}

    def puts(self):
        self.count += 1
        self.queue.put(f"j{self.count}")

    def gets(self, **which):
        got = self.queue.get(block=False, **which)
        self.taken[got] = got

    def gets_by_id(self, j):
        self.gets(id=int(j.name[1:]))

    def acks(self, j):
        self.queue.ack(self.taken.pop(j.name))

    def nacks(self, j):
        self.queue.nack(self.taken.pop(j.name))

    def fails(self, j):
        self.queue.ack_failed(self.taken.pop(j.name))

    def acks_all(self):
        self.queue.task_done()
        self.taken = {}

    def resumes(self):
        self.queue.resume_unack_tasks()
        self.taken = {}

    def restarts(self):
        self.queue.close()
        self.open()

    def observe(self):
        jobs = {f"j{number}": "ABSENT" for number in (1, 2, 3)}
        jobs |= {row["data"]: STATUS[row["status"]] for row in self.queue.queue()}
        return {"jobs": jobs, "taken": {*self.taken}, "size": self.queue.size, "active": self.queue.active_size()}

    def expected(self, state):
        ready, taken = state.those(Job.READY), state.those(Job.TAKEN)
        return {"jobs": state.job, "taken": {*taken}, "size": len(ready), "active": len(ready) + len(taken)}

    def close(self):
        self.queue.close()
        self.folder.cleanup()


class Together(Acks):
    """SQLiteQueue without ``auto_commit``: ``task_done`` acknowledges all jobs that were taken."""

    make, options = SQLiteQueue, {"auto_commit": False}
    leaves_out = ("acks", "nacks", "fails", "resumes", "gets_by_id")

    def observe(self):
        on_disk = {row["data"] for row in self.queue.queue()}
        return {"on disk": on_disk, "taken": {*self.taken}, "size": self.queue.size}

    def expected(self, state):
        ready, taken = state.those(Job.READY), state.those(Job.TAKEN)
        return {"on disk": {*ready, *taken}, "taken": {*taken}, "size": len(ready)}


class ById(Together):
    """The same, with jobs that are taken by their id."""

    leaves_out = ("acks", "nacks", "fails", "resumes")


class Newest(Together):
    """FILOSQLiteQueue without ``auto_commit``."""

    make = FILOSQLiteQueue


class Urgent(Together):
    """PriorityQueue without ``auto_commit``. A later job is more urgent."""

    make = PriorityQueue

    def puts(self):
        self.count += 1
        self.queue.put(f"j{self.count}", priority=-self.count)


class AcksOnce(Acks):
    """SQLiteAckQueue that is resumed by a restart only."""

    leaves_out = ("acks_all", "resumes")


if __name__ == "__main__":
    system = {each.__name__: each for each in (Acks, AcksOnce, Together, ById, Newest, Urgent)}[sys.argv[1]]
    print(drive(Jobs, system, constants={"newest_first": system in (Newest, Urgent)}))
