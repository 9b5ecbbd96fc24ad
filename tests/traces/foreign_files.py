"""Writes events as other systems would: in each format that can be read, and in several."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fencepost.traces.foreign import ReadEvent

Row = dict[str, Any]
"""A record: the fields of an event that are given, under names of another system."""

NAMES = {"what": "action", "about": "subject", "values": "parameters", "host": "node", "day": "run", "part": "actor",
         "life": "incarnation", "number": "seq", "clock": "at"}  # fmt: skip


def read(record: Mapping[str, Any]) -> ReadEvent:
    """The event of an object, or of a row of Parquet."""
    return ReadEvent(**{NAMES[name]: value for name, value in record.items() if value is not None})


def read_texts(record: Mapping[str, Any]) -> ReadEvent:
    """The event of a row whose values are texts of JSON."""
    return read({name: json.loads(text) for name, text in record.items()})


def read_log(record: Mapping[str, Any]) -> ReadEvent:
    """The event of a log record: its body, or its attributes."""
    assert record["kind"] == "log"
    return read({**record["resource"], **record["attributes"], "what": record["body"]})


def read_span_event(record: Mapping[str, Any]) -> ReadEvent | None:
    """The event of an event of a span; the span is none."""
    if record["kind"] == "span":
        return None
    return read({**record["resource"], **record["attributes"], "what": record["name"]})


# -- OpenTelemetry's JSON ---------------------------------------------------------------------------------------------


def any_value(value: Any) -> Row:
    """A value as OTLP has it."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(each) for each in value]}}
    return {"kvlistValue": {"values": attributes(value)}}


def attributes(values: Mapping[str, Any]) -> list[Row]:
    """A list of keys and values, as OTLP has it."""
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def of_logs(row: Row) -> Row:
    """An export of one log record."""
    given = {name: value for name, value in row.items() if name not in ("what", "host")}
    log = {"timeUnixNano": "1", "body": any_value(row["what"]), "attributes": attributes(given)}
    host = {"attributes": attributes({"host": row["host"]})}
    return {"resourceLogs": [{"resource": host, "scopeLogs": [{"scope": {"name": "s"}, "logRecords": [log]}]}]}


def of_spans(row: Row) -> Row:
    """An export of a span with one event."""
    given = {name: value for name, value in row.items() if name not in ("what", "host")}
    span = {"name": "span", "events": [{"name": row["what"], "attributes": attributes(given)}]}
    host = {"attributes": attributes({"host": row["host"]})}
    return {"resourceSpans": [{"resource": host, "scopeSpans": [{"scope": {"name": "s"}, "spans": [span]}]}]}


# -- files ------------------------------------------------------------------------------------------------------------


def _lines(rows: Sequence[Row]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _csv(path: Path, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([json.dumps(row[name]) for name in names] for row in rows)


def _parquet(path: Path, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pa.array([json.dumps(row[name]) for row in rows], pa.string()) for name in names}
    pq.write_table(pa.table(columns), path)


FORMATS: dict[str, tuple[str, Callable[[Path, Sequence[Row]], object], Callable[[Mapping[str, Any]], Any]]] = {
    "lines": (".ndjson", lambda path, rows: path.write_bytes(_lines(rows)), read),
    "lines in JSON": (".json", lambda path, rows: path.write_bytes(_lines(rows)), read),
    "compressed": (".jsonl.gz", lambda path, rows: path.write_bytes(gzip.compress(_lines(rows))), read),
    "array": (".json", lambda path, rows: path.write_text(json.dumps(rows)), read),
    "pretty": (".json", lambda path, rows: path.write_text(json.dumps(rows, indent=2)), read),
    "csv": (".csv", _csv, read_texts),
    "parquet": (".parquet", _parquet, read_texts),
    "logs": (".json", lambda path, rows: path.write_bytes(_lines([*map(of_logs, rows)])), read_log),
    "spans": (".jsonl", lambda path, rows: path.write_bytes(_lines([*map(of_spans, rows)])), read_span_event),
}
"""The ending of a format, what writes it, and what makes events of its records."""
