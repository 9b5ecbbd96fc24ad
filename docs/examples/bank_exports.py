"""Exports the logs of bank.py as a table and as OpenTelemetry's JSON: python bank_exports.py LOGS TABLES OTLP"""

import csv
import json
import sys
from pathlib import Path

logs, tables, otlp = map(Path, sys.argv[1:])
lines = [
    (file.stem, number, json.loads(line))
    for file in sorted(logs.iterdir())
    for number, line in enumerate(file.read_text().splitlines())
]

tables.mkdir(exist_ok=True)
with open(tables / "bank.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["event", "host", "line", "tx", "fields"])
    table.writerows(sorted((line["event"], host, number, line["tx"], json.dumps(line)) for host, number, line in lines))

otlp.mkdir(exist_ok=True)
with open(otlp / "bank.jsonl", "w") as file:
    for host, number, line in lines:
        fields = [{"key": key, "value": {"stringValue": json.dumps(line[key])}} for key in line]
        log = {"timeUnixNano": str(number), "body": {"stringValue": line["event"]}, "attributes": fields}
        resource = {"attributes": [{"key": "host.name", "value": {"stringValue": host}}]}
        scope = {"scope": {"name": "bank"}, "logRecords": [log]}
        file.write(json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}) + "\n")
