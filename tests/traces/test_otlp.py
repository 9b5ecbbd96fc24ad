"""OpenTelemetry's JSON as plain records, against samples made by hand after its specification."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fencepost.traces import TraceError, otlp, records

LOGS: dict[str, Any] = {
    "resourceLogs": [
        {
            "resource": {
                "attributes": [
                    {"key": "service.name", "value": {"stringValue": "bank"}},
                    {"key": "service.instance.id", "value": {"stringValue": "bank-1"}},
                ]
            },
            "scopeLogs": [
                {
                    "scope": {"name": "bank.transfers", "version": "1.2"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1544712660300000000",
                            "observedTimeUnixNano": 1544712660300000001,
                            "severityNumber": 10,
                            "severityText": "Information",
                            "eventName": "transfer",
                            "traceId": "5B8EFFF798038103D269B633813FC60C",
                            "spanId": "EEE19B7EC3C1B174",
                            "body": {"kvlistValue": {"values": [{"key": "amount", "value": {"intValue": "-7"}}]}},
                            "attributes": [
                                {"key": "text", "value": {"stringValue": ""}},
                                {"key": "yes", "value": {"boolValue": False}},
                                {"key": "count", "value": {"intValue": 9007199254740993}},
                                {"key": "zero", "value": {"intValue": 0}},
                                {"key": "share", "value": {"doubleValue": 0.25}},
                                {"key": "much", "value": {"doubleValue": "Infinity"}},
                                {"key": "bytes", "value": {"bytesValue": "AAH/"}},
                                {"key": "list", "value": {"arrayValue": {"values": [{"intValue": "1"}, {}]}}},
                                {"key": "empty", "value": {"arrayValue": {}}},
                                {"key": "nothing", "value": {}},
                                {"key": "missing"},
                            ],
                            "flags": 1,
                            "somethingNew": {"x": 1},
                        },
                        {},
                    ],
                }
            ],
        },
        {"scopeLogs": [{"logRecords": [{"body": {"stringValue": "no resource"}}]}]},
    ]
}

SPANS: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "bank"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "rpc"},
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "parentSpanId": "eee19b7ec3c1b173",
                            "name": "prepare",
                            "kind": 3,
                            "startTimeUnixNano": "1544712660000000000",
                            "endTimeUnixNano": "1544712661000000000",
                            "attributes": [{"key": "tx", "value": {"stringValue": "t1"}}],
                            "events": [
                                {"name": "sent", "timeUnixNano": "1544712660100000000"},
                                {
                                    "name": "answered",
                                    "timeUnixNano": "1544712660900000000",
                                    "attributes": [{"key": "vote", "value": {"boolValue": True}}],
                                },
                            ],
                            "links": [{"traceId": "aa", "spanId": "bb"}],
                            "status": {"code": 2, "message": "late"},
                        },
                        {"name": "bare", "kind": "SPAN_KIND_SERVER", "status": {"code": "STATUS_CODE_UNSET"}},
                        {"kind": 17, "attributes": None, "events": None, "status": {"code": -1}},
                    ],
                }
            ],
        }
    ]
}

BANK = {"service.name": "bank", "service.instance.id": "bank-1"}


def test_log_records() -> None:
    first, second, third = otlp.records(LOGS)
    attributes = first.pop("attributes")
    assert first == {
        "kind": "log",
        "resource": BANK,
        "scope": "bank.transfers",
        "time": 1544712660300000000,
        "observed_time": 1544712660300000001,
        "severity": "Information",
        "severity_number": 10,
        "event_name": "transfer",
        "body": {"amount": -7},
        "trace_id": "5B8EFFF798038103D269B633813FC60C",
        "span_id": "EEE19B7EC3C1B174",
    }
    assert attributes == {
        "text": "", "yes": False, "count": 9007199254740993, "zero": 0, "share": 0.25, "much": math.inf,
        "bytes": "AAH/", "list": [1, None], "empty": [], "nothing": None, "missing": None,
    }  # fmt: skip
    assert second == {
        "kind": "log", "resource": BANK, "scope": "bank.transfers", "time": 0, "observed_time": 0, "severity": "",
        "severity_number": 0, "event_name": "", "body": None, "attributes": {}, "trace_id": "", "span_id": "",
    }  # fmt: skip
    assert (third["resource"], third["scope"], third["body"]) == ({}, "", "no resource")


def test_spans_and_their_events() -> None:
    sent, answered, span, bare, odd = otlp.records(SPANS)
    ids = {"trace_id": "5b8efff798038103d269b633813fc60c", "span_id": "eee19b7ec3c1b174"}
    shared = {"resource": {"service.name": "bank"}, "scope": "rpc", **ids}
    event = {"kind": "span event", "span": "prepare", **shared}
    assert sent == {**event, "name": "sent", "time": 1544712660100000000, "attributes": {}}
    assert answered == {**event, "name": "answered", "time": 1544712660900000000, "attributes": {"vote": True}}
    assert span == {
        **shared,
        "kind": "span",
        "name": "prepare",
        "span_kind": "client",
        "parent_span_id": "eee19b7ec3c1b173",
        "start": 1544712660000000000,
        "end": 1544712661000000000,
        "attributes": {"tx": "t1"},
        "status": "error",
        "status_message": "late",
        "links": [{"trace_id": "aa", "span_id": "bb", "attributes": {}}],
    }
    assert (bare["span_kind"], bare["status"], bare["attributes"]) == ("server", "", {})
    assert (odd["span_kind"], odd["status"]) == ("17", "-1")


@pytest.mark.parametrize("indent", [None, 2])
def test_files_have_a_document_or_one_a_line(tmp_path: Path, indent: int | None) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**LOGS, **SPANS}, indent=indent))
    assert [record["kind"] for _, record in records.records(tmp_path / "a.json") if record] == (
        ["log"] * 3 + ["span event"] * 2 + ["span"] * 3
    )
    metrics: dict[str, Any] = {"resourceMetrics": [{"scopeMetrics": []}]}
    (tmp_path / "b.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in (LOGS, metrics, SPANS)))
    found = [*records.records(tmp_path / "b.jsonl")]
    assert [where.rpartition(":")[2] for where, _ in found] == ["1"] * 3 + ["2"] + ["3"] * 5
    assert [record is None for _, record in found] == [False] * 3 + [True] + [False] * 5


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "soon"}]}]}]}, "invalid literal for int"),
        ({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": 1.5}]}]}]}, "timeUnixNano"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": {"a": 1}}]}]}]}, "attributes"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"value": {}}]}]}]}]}, "field `key`"),
    ],
)
def test_what_is_no_otlp_is_refused(tmp_path: Path, wrong: Any, complaint: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(wrong))
    with pytest.raises(TraceError, match=rf"a\.jsonl:1: it is no OTLP: .*{complaint}"):
        [*records.records(tmp_path / "a.jsonl")]
