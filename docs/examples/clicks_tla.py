from fencepost.traces.validation import Conformance, Step


class Clicks(Conformance):
    """Maps the traces of clicks.py to steps of LostUpdate.tla."""

    name = "clicks"
    protocol = "LostUpdate.tla"

    def constants(self):
        return {"Clients": sorted({event.node for event in self.events if event.subject is not None})}

    def steps(self, event):
        if event.action in ("reads", "writes"):
            written = ((("counter",), event.parameters["value"]),) if event.action == "writes" else ()
            request = ("counter", event.parameters["request"])
            yield Step(event.action.title(), (("c", event.node),), writes=request, after=written)
