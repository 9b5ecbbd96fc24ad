from locks import Locks

from fencepost.traces.validation import Conformance, Step


class LocksConformance(Conformance):
    """Maps the events of lock_server.py to steps of locks.py."""

    name = "locks"
    protocol = Locks

    def constants(self):
        self.known = sorted({event.parameters["client"] for event in self.events if event.subject})
        return {"clients": len(self.known)}

    def bind(self, protocol):
        self.clients = dict(zip(self.known, protocol.clients, strict=True))

    def steps(self, event):
        if event.subject:
            holder = self.clients.get(event.parameters["holder"])
            yield Step(event.action, (("c", self.clients[event.parameters["client"]]),), after=((("holder",), holder),))
