import time

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

NAMES = ("n1", "n2", "n3")


class Wire(Transport):
    ready = True

    def send(self, node, message):
        self.sent.append((node.id, message))
        return True


class Log(SyncObj):
    def __init__(self, name):
        self.wire = Wire(None, None, None)
        self.wire.sent = []
        others = [Node(other) for other in NAMES if other != name]
        forever = {"raftMinTimeout": 1e8, "raftMaxTimeout": 1e9, "connectionTimeout": 1e9}
        super().__init__(Node(name), others, SyncObjConf(autoTick=False, **forever), transport=self.wire)
        self.values = []
        for other in others:
            self.wire._onNodeConnected(other)
        self.doTick()

    @replicated
    def append(self, value):
        self.values.append(value)


def talk(source, to, times=1, parts=None):
    """Both send and receive. What goes elsewhere is lost, and so is all after the first ``parts`` of a snapshot."""
    for _ in range(times):
        time.sleep(0.15)
        nodes[source].doTick()
        for one, other in ((source, to), (to, source)):
            sent, nodes[one].wire.sent = nodes[one].wire.sent, []
            for dest, message in sent:
                if dest == other:
                    nodes[other].wire._onMessageReceived(Node(one), message)
                    nodes[other].doTick()
                    if message.get("serialized") and parts == 1:
                        return


def elect(name, voter):
    nodes[name]._SyncObj__raftElectionDeadline = -1  # its timer runs out
    talk(name, voter)


nodes = {name: Log(name) for name in NAMES}
elect("n1", "n2")
nodes["n1"].append(
    "x", callback=lambda result, error: print("the client of n1 hears:", "SUCCESS" if error == 0 else error)
)
nodes["n1"].doTick()
elect("n2", "n3")
for value in "yz":
    nodes["n2"].append(value)
nodes["n2"].doTick()
talk("n2", "n3", times=5)
nodes["n2"].forceLogCompaction()
for _ in range(3):
    nodes["n2"].doTick()
nodes["n2"].wire.sent.clear()
talk("n2", "n1", times=5, parts=1)
print({name: node.values for name, node in nodes.items()})
talk("n2", "n1", times=5)
print({name: node.values for name, node in nodes.items()})
