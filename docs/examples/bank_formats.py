import json

from bank_conformance import Bank

from fencepost.traces.validation import ReadEvent


class OfTable(Bank):
    """Reads the table of bank_exports.py, which is sorted by event: the number of the line says the order."""

    @classmethod
    def read(cls, row):
        fields = json.loads(row["fields"])
        if fields["level"] != "info":
            return None
        return ReadEvent(row["event"], row["tx"], fields, node=row["host"], at=int(row["line"]))


class OfLogs(Bank):
    """Reads the log records of bank_exports.py."""

    @classmethod
    def read(cls, log):
        fields = {key: json.loads(text) for key, text in log["attributes"].items()}
        if fields["level"] != "info":
            return None
        return ReadEvent(log["body"], fields["tx"], fields, node=log["resource"]["host.name"], at=log["time"])
