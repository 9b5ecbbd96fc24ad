"""Two accounts and two desks commit a transfer, and log it in a format of their own: python bank.py FOLDER [FAULT]"""

import json
import sys
from pathlib import Path


class Log:
    """A file of lines of JSON."""

    def __init__(self, host):
        self.file = open(folder / f"{host}.ndjson", "w")

    def __call__(self, event, level="info", **fields):
        self.file.write(json.dumps({"level": level, "event": event, "tx": "t1", **fields}) + "\n")


class Account:
    """It votes, and votes again until it learns the decision."""

    votes = 0
    status = "working"

    def __init__(self, name):
        self.name, self.log = name, Log(name)

    def vote(self):
        """What a timer calls, once more than it should. The log does not say whether anything is sent."""
        self.votes += 1
        self.log("votes", vote=self.votes)
        if self.status in ("working", "prepared"):
            self.status = "prepared"
            return self.name, self.votes
        return None

    def follow(self, decision):
        message, outcome, vote = decision
        was, self.status = self.status, self.status if fault == "deaf" else outcome
        self.log("follows", message=message, outcome=outcome, vote=vote, was=was, now=self.status)

    def lose_patience(self):
        self.status = "aborted"
        self.log("lost patience", level="debug")


class Row:
    """The transfer in the database. Both desks write it. Each write makes the next version."""

    version = 0
    outcome = None

    def __init__(self):
        self.votes = []

    def write(self):
        self.version += 1
        return self.version


class Desk:
    """It counts votes, and commits when all accounts have voted."""

    sent = 0

    def __init__(self, name, row, accounts):
        self.name, self.log, self.row, self.accounts = name, Log(name), row, accounts
        self.log("listens", level="debug")
        self.log("opens", accounts=accounts)

    def message(self):
        self.sent += 1
        return f"{self.name}/{self.sent}"

    def receive(self, vote):
        """Returns the decisions that are sent, by account."""
        account, number = vote
        if self.row.outcome is None:
            self.row.votes.append(account)
            self.log("counts", account=account, vote=number, version=self.row.write())
            return self.decide()
        outcome, message = "aborted" if fault == "liar" else self.row.outcome, self.message()
        version = self.row.version
        self.log("answers", account=account, vote=number, version=version, message=message, outcome=outcome)
        return {account: (message, outcome, number)}

    def decide(self):
        voters = self.row.votes if fault == "hasty" else set(self.row.votes)
        if len(voters) < len(self.accounts):
            self.log("waits", version=self.row.version)
            return {}
        self.row.outcome = "committed"
        sent = {account: self.message() for account in self.accounts[: 1 if fault == "lazy" else None]}
        self.log("commits", version=self.row.write(), sent=sent)
        return {account: (message, "committed", 0) for account, message in sent.items()}


folder, fault = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
folder.mkdir(exist_ok=True)
paris, rome, row = Account("paris"), Account("rome"), Row()
north, south = (Desk(name, row, ["paris", "rome"]) for name in ("north", "south"))

north.receive(paris.vote())
slow = rome.vote()
decisions = south.receive(paris.vote())  # no answer has come, so paris asks the other desk
decisions |= north.receive(slow)
if fault == "impatient":
    paris.lose_patience()
paris.follow(decisions["paris"])
answers = south.receive(rome.vote())
for decision in (*([decisions["rome"]] if "rome" in decisions else []), *answers.values()):
    rome.follow(decision)
rome.vote()
