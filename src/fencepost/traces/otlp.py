"""Logs and spans of OpenTelemetry as plain records.

The format is OTLP in the JSON encoding of Protocol Buffers, as the OpenTelemetry specification defines it: names of
fields in camel case, ids in hexadecimal, integers of 64 bits as numbers or texts. Unknown fields are ignored, as it
asks readers to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

SIGNALS = ("resourceLogs", "resourceSpans", "resourceMetrics", "resourceProfiles")
"""An object with one of these fields is OTLP. The last two have no records."""

SPAN_KINDS = ("", "internal", "server", "client", "producer", "consumer")
STATUSES = ("", "ok", "error")

Integer: TypeAlias = int | str


class _Part(msgspec.Struct, rename="camel"):
    """A message. Every field may be missing or null."""


class _Value(_Part):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: Integer | None = None
    double_value: float | str | None = None
    bytes_value: str | None = None
    array_value: _Array | None = None
    kvlist_value: _Pairs | None = None


class _Array(_Part):
    values: list[_Value] | None = None


class _Pair(_Part):
    key: str
    value: _Value | None = None


class _Pairs(_Part):
    values: list[_Pair] | None = None


class _Resource(_Part):
    attributes: list[_Pair] | None = None


class _Scope(_Part):
    name: str | None = None


class _Log(_Part):
    time_unix_nano: Integer | None = None
    observed_time_unix_nano: Integer | None = None
    severity_number: Integer | None = None
    severity_text: str | None = None
    event_name: str | None = None
    body: _Value | None = None
    attributes: list[_Pair] | None = None
    trace_id: str | None = None
    span_id: str | None = None


class _SpanEvent(_Part):
    time_unix_nano: Integer | None = None
    name: str | None = None
    attributes: list[_Pair] | None = None


class _Link(_Part):
    trace_id: str | None = None
    span_id: str | None = None
    attributes: list[_Pair] | None = None


class _Status(_Part):
    code: Integer | None = None
    message: str | None = None


class _Span(_Part):
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    kind: Integer | None = None
    start_time_unix_nano: Integer | None = None
    end_time_unix_nano: Integer | None = None
    attributes: list[_Pair] | None = None
    events: list[_SpanEvent] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None


class _ScopeLogs(_Part):
    scope: _Scope | None = None
    log_records: list[_Log] | None = None


class _ScopeSpans(_Part):
    scope: _Scope | None = None
    spans: list[_Span] | None = None


class _ResourceLogs(_Part):
    resource: _Resource | None = None
    scope_logs: list[_ScopeLogs] | None = None


class _ResourceSpans(_Part):
    resource: _Resource | None = None
    scope_spans: list[_ScopeSpans] | None = None


class _Data(_Part):
    resource_logs: list[_ResourceLogs] | None = None
    resource_spans: list[_ResourceSpans] | None = None


def is_otlp(found: Mapping[str, Any]) -> bool:
    """Whether an object of JSON is OTLP."""
    return any(isinstance(found.get(name), list) for name in SIGNALS)


def records(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The log records, span events and spans in an object, in its order; the events of a span before it.

    Raises ``ValueError`` if the object is no OTLP. ``docs/hold/conformance.md`` has the fields of a record.
    """
    data = msgspec.convert(found, _Data)
    for logs in data.resource_logs or ():
        resource = _attributes(logs.resource.attributes if logs.resource else None)
        for some in logs.scope_logs or ():
            shared = {"resource": resource, "scope": _scope(some.scope)}
            for log in some.log_records or ():
                yield {"kind": "log", **shared, **_of_log(log)}
    for spans in data.resource_spans or ():
        resource = _attributes(spans.resource.attributes if spans.resource else None)
        for of_scope in spans.scope_spans or ():
            shared = {"resource": resource, "scope": _scope(of_scope.scope)}
            for span in of_scope.spans or ():
                for event in span.events or ():
                    yield {"kind": "span event", **shared, **_of_event(event, span)}
                yield {"kind": "span", **shared, **_of_span(span)}


def _of_log(log: _Log) -> dict[str, Any]:
    return {
        "time": _integer(log.time_unix_nano),
        "observed_time": _integer(log.observed_time_unix_nano),
        "severity": log.severity_text or "",
        "severity_number": _integer(log.severity_number),
        "event_name": log.event_name or "",
        "body": _value(log.body),
        "attributes": _attributes(log.attributes),
        "trace_id": log.trace_id or "",
        "span_id": log.span_id or "",
    }


def _of_event(event: _SpanEvent, span: _Span) -> dict[str, Any]:
    return {
        "time": _integer(event.time_unix_nano),
        "name": event.name or "",
        "attributes": _attributes(event.attributes),
        "span": span.name or "",
        "trace_id": span.trace_id or "",
        "span_id": span.span_id or "",
    }


def _of_span(span: _Span) -> dict[str, Any]:
    status = span.status or _Status()
    return {
        "start": _integer(span.start_time_unix_nano),
        "end": _integer(span.end_time_unix_nano),
        "name": span.name or "",
        "span_kind": _named(span.kind, SPAN_KINDS, "SPAN_KIND_"),
        "attributes": _attributes(span.attributes),
        "trace_id": span.trace_id or "",
        "span_id": span.span_id or "",
        "parent_span_id": span.parent_span_id or "",
        "status": _named(status.code, STATUSES, "STATUS_CODE_"),
        "status_message": status.message or "",
        "links": [
            {
                "trace_id": link.trace_id or "",
                "span_id": link.span_id or "",
                "attributes": _attributes(link.attributes),
            }
            for link in span.links or ()
        ],
    }


def _scope(scope: _Scope | None) -> str:
    return scope.name or "" if scope else ""


def _attributes(pairs: Sequence[_Pair] | None) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs or ()}


def _value(value: _Value | None) -> Any:
    """A value as Python's; bytes stay in base64. None if it has no kind that is known."""
    if value is None:
        return None
    if value.int_value is not None:
        return _integer(value.int_value)
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_value(each) for each in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return _attributes(value.kvlist_value.values)
    kinds = (value.string_value, value.bool_value, value.bytes_value)
    return next((each for each in kinds if each is not None), None)


def _integer(number: Integer | None) -> int:
    return int(number) if number is not None else 0


def _named(code: Integer | None, names: Sequence[str], prefix: str) -> str:
    """The name of a member of an enum. The encoding wants its number; some writers give its name."""
    if isinstance(code, str) and not code.isdecimal():
        name = code.removeprefix(prefix).lower()
        return "" if name in ("unspecified", "unset") else name
    number = _integer(code)
    return names[number] if 0 <= number < len(names) else str(number)
