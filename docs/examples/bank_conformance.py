from bank_conformance_1 import Bank as Beginning
from transfer import DESK, Status

from fencepost.traces.validation import NotCovered, Step, like


class Bank(Beginning):
    """Puts the steps in order, and compares all that the logs say."""

    def steps(self, event):
        said = event.parameters
        if event.action == "votes":
            yield Step(
                "account_votes",
                (("a", self.accounts[event.node]),),
                sends=(("vote", event.node, said["vote"]),),
                may_skip=True,
            )
        elif event.action == "counts":
            yield Step(
                "desk_counts_vote",
                picks=(self.accounts[said["account"]], like(number=said["vote"])),
                receives=("vote", said["account"], said["vote"]),
                writes=("row", said["version"]),
            )
        elif event.action == "waits":
            yield Step(None, reads=("row", said["version"]), after=((("row", "outcome"), None),))
        elif event.action == "answers":
            yield Step(
                "desk_answers_vote",
                picks=(self.accounts[said["account"]], like(number=said["vote"])),
                receives=("vote", said["account"], said["vote"]),
                reads=("row", said["version"]),
                sends=(("decision", said["message"]),),
                tells=(("send", like(outcome=Status(said["outcome"]))),),
            )
        elif event.action == "commits":
            yield Step(
                "desk_commits",
                writes=("row", said["version"]),
                sends=tuple(("decision", message) for message in said["sent"].values()),
                to=frozenset(self.accounts[name] for name in said["sent"]),
            )
        elif event.action == "follows":
            status = ("account", self.accounts[event.node], "status")
            yield Step(
                "account_follows",
                (("a", self.accounts[event.node]),),
                picks=(DESK, like(outcome=Status(said["outcome"]), vote=said["vote"])),
                receives=("decision", said["message"]),
                before=((status, Status(said["was"])),),
                after=((status, Status(said["now"])),),
            )
        elif event.action != "opens":
            raise NotCovered(f"the event {event.action} of node {event.node}")
