from bank_conformance import Bank

from fencepost.traces.validation import Step


class Terse(Bank):
    """For desks that do not log what they count."""

    def hidden(self, protocol):
        yield Step("desk_counts_vote")

    def steps(self, event):
        return super().steps(event) if event.action not in ("counts", "waits") else ()
