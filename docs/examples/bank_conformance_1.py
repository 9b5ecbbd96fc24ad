from transfer import Transfer

from fencepost.traces.validation import Conformance, ReadEvent, Step


class Bank(Conformance):
    """Maps the logs of bank.py to steps of transfer.py."""

    name = "bank"
    protocol = Transfer

    @classmethod
    def read(cls, record):
        if record["level"] != "info":
            return None
        return ReadEvent(record["event"], subject=record["tx"], parameters=record)

    def constants(self):
        opened = [event.parameters["accounts"] for event in self.events if event.action == "opens"]
        self.account_names = opened[0]
        return {"accounts": len(self.account_names), "most_votes": 1000}

    def bind(self, protocol):
        self.accounts = dict(zip(self.account_names, protocol.accounts, strict=True))

    def names(self):
        return {str(a): name for name, a in self.accounts.items()}

    def steps(self, event):
        if event.action == "votes":
            yield Step("account_votes", (("a", self.accounts[event.node]),))
        elif event.action == "counts":
            yield Step("desk_counts_vote")
        elif event.action == "answers":
            yield Step("desk_answers_vote")
        elif event.action == "commits":
            yield Step("desk_commits")
        elif event.action == "follows":
            yield Step("account_follows", (("a", self.accounts[event.node]),))
