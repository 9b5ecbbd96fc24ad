"""Drives three nodes of PySyncObj in one process, with a network of our own."""

import sys
import time

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from raft import Raft

from fencepost.testing import drive


class Wire(Transport):
    """Keeps what a node sends, until it is delivered or lost."""

    ready = True

    def __init__(self, node, others):
        super().__init__(None, node, others)
        self.sent = []

    def send(self, node, message):
        self.sent.append((node.id, message))
        return True

    def destroy(self):
        pass


class Log(SyncObj):
    """A replicated list."""

    def __init__(self, name, names):
        node, others = Node(name), [Node(other) for other in names if other != name]
        self.wire = Wire(node, others)
        forever = {"raftMinTimeout": 1e8, "raftMaxTimeout": 1e9, "connectionTimeout": 1e9, "leaderFallbackTimeout": 1e9}
        super().__init__(
            node, others, SyncObjConf(autoTick=False, logCompactionMinTime=1e9, **forever), transport=self.wire
        )
        self.values = []
        for other in others:
            self.wire._onNodeConnected(other)

    @replicated
    def append(self, value):
        self.values.append(value)


class Cluster:
    """Two nodes talk in each step. What is sent to the third one is lost."""

    def __init__(self):
        names = ("n1", "n2", "n3")
        self.nodes = {name: Log(name, names) for name in names}
        for node in self.nodes.values():
            node.doTick()

    def is_elected(self, n, p):
        self.nodes[n.name]._SyncObj__raftElectionDeadline = -1  # the timer runs out
        self.talk(n.name, p.name, rounds=1)

    def submits(self, n, after):
        self.nodes[n.name].append(after.node[n].log[-1].value)
        self.nodes[n.name].doTick()

    def replicates(self, n, p):
        self.talk(n.name, p.name, rounds=10)

    def compacts(self, n):
        self.nodes[n.name].forceLogCompaction()
        for _ in range(3):
            self.nodes[n.name].doTick()

    def sends_part_of_a_snapshot(self, n, p):
        self.talk(n.name, p.name, rounds=10, until=lambda message: message.get("serialized"))

    def talk(self, n, p, rounds, until=lambda message: False):
        """Let both send and receive in turn. After a message ``until``, the connection is lost."""
        for node in self.nodes.values():
            node.wire.sent.clear()
        for _ in range(rounds):
            time.sleep(1)
            self.nodes[n].doTick()
            for source, to in ((n, p), (p, n)):
                sent, self.nodes[source].wire.sent[:] = [*self.nodes[source].wire.sent], []
                for dest, message in sent:
                    if dest == to:
                        self.nodes[to].wire._onMessageReceived(Node(source), message)
                        self.nodes[to].doTick()
                        if until(message):
                            return

    def observe(self):
        status = {name: node.getStatus() for name, node in self.nodes.items()}
        return {
            "role": {name: ("FOLLOWER", "CANDIDATE", "LEADER")[each["state"]] for name, each in status.items()},
            "term": {name: each["raft_term"] for name, each in status.items()},
            "entries": {name: each["log_len"] for name, each in status.items()},
            "commit": {name: each["commit_idx"] for name, each in status.items()},
            "applied": {name: node.values for name, node in self.nodes.items()},
        }

    def expected(self, state):
        node = {n: state.node[n] for n in state.nodes}
        return {
            "role": {n: each.role for n, each in node.items()},
            "term": {n: each.term for n, each in node.items()},
            "entries": {n: len(each.log) - each.first + 1 for n, each in node.items()},
            "commit": {n: each.commit for n, each in node.items()},
            "applied": {n: state.applied(n) for n in node},
        }


if __name__ == "__main__":
    known = {"commits_what_it_has": True} if "known" in sys.argv else {}
    print(drive(Raft, Cluster, constants=known, transitions=6_000))
