from lost_update import LostUpdate

from fencepost.traces.validation import Conformance, Step


class Clicks(Conformance):
    """Maps the traces of clicks.py to steps of lost_update.py."""

    name = "lost-update"
    protocol = LostUpdate

    def constants(self):
        self.nodes = sorted({event.node for event in self.events if event.subject is not None})
        return {"clients": len(self.nodes)}

    def bind(self, protocol):
        self.clients = dict(zip(self.nodes, protocol.clients, strict=True))

    def names(self):
        return {str(client): node for node, client in self.clients.items()}

    def steps(self, event):
        if event.action in ("reads", "writes"):
            c = self.clients[event.node]
            written = ((("counter",), event.parameters["value"]),) if event.action == "writes" else ()
            yield Step(event.action, (("c", c),), writes=("counter", event.parameters["request"]), after=written)
