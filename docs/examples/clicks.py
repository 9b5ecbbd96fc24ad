"""Clients add one to a counter, and trace their steps: python clicks.py FOLDER [impatient]"""

import sys

from fencepost import TraceWriter


class Counter:
    """The server. It numbers the requests."""

    value = requests = 0

    def read(self):
        self.requests += 1
        return self.value, self.requests

    def write(self, value):
        self.requests += 1
        self.value = value
        return self.requests


class Client:
    def __init__(self, counter, folder, name):
        self.counter = counter
        self.trace = TraceWriter(folder, node=name, run="today")

    def read(self):
        self.value, request = self.counter.read()
        self.trace.emit("reads", subject="clicks", parameters={"value": self.value, "request": request})

    def write(self):
        request = self.counter.write(self.value + 1)
        self.trace.emit("writes", subject="clicks", parameters={"value": self.value + 1, "request": request})


folder, *how = sys.argv[1:]
counter = Counter()
ann, bob = Client(counter, folder, "ann"), Client(counter, folder, "bob")
ann.read()
bob.read()
bob.write()
ann.write()
if "impatient" in how:
    ann.write()  # she retries, as if no answer had come in time
for client in (ann, bob):
    client.trace.close()
