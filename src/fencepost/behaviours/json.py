"""A behaviour as JSON for programs, state by state. Also JSON encoding and decoding."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

from fencepost.behaviours.behaviour import Trace
from fencepost.errors import OptionError
from fencepost.language.values import Foreign, ModelValue, Record, Value, canonical, show
from fencepost.text.plain import decimal, whole_number

FORMAT = 1
"""The version of documents with behaviours. A change that could break a reader raises it."""


def dumps(document: Any, indent: int = 0) -> str:
    """JSON in pure ASCII, which any terminal and pipe accepts. A string with half of a surrogate pair can be written
    too.
    """

    def item(number: Any) -> Any:  # numpy's numbers
        return number.item()

    text = json.dumps(document, separators=(",", ":"), default=item)
    if not indent:
        return text
    import msgspec  # slow to import, and few checks write a file

    try:
        return msgspec.json.format(text, indent=indent)  # many times faster
    except msgspec.DecodeError:  # it refuses half of a surrogate pair
        return json.dumps(document, indent=indent, default=item)


def loads(text: str | bytes) -> Any:
    """The document in a JSON text from an untrusted source. Raises :class:`fencepost.OptionError` if it is not JSON."""
    try:
        return json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, parse_int=whole_number)
    except UnicodeDecodeError as error:
        raise OptionError(f"it is not JSON: it is not UTF-8 from byte {error.start:,} on") from None
    except RecursionError:
        raise OptionError("it is nested too deeply") from None
    except ValueError as error:
        raise OptionError(f"it is not JSON: {error}") from None


def behaviour(trace: Trace) -> dict[str, Any]:
    """One behaviour: ``protocol``, ``constants``, ``trace`` (see :func:`states`), and the ``loop`` of a lasso."""
    return {
        "format": FORMAT,
        "protocol": trace.protocol.name,
        "constants": {name: plain(value) for name, value in trace.protocol.constants.items()},
        "trace": states(trace),
        **({"loop": trace.loop} if trace.loop is not None else {}),
    }


def states(trace: Trace) -> list[dict[str, Any]]:
    """A behaviour as one object per state: the ``action`` that led to it with its ``parameters``, its actor (``by``),
    its ``choices``, its ``events`` (messages sent, lost, received, timed out), and the ``state``, variable by variable.
    """
    nothing: dict[str, Any] = {"action": None, "parameters": {}, "by": None, "choices": [], "events": []}
    result = [{**nothing, "state": _state(trace.initial.variables())}]
    for step in trace.steps:
        result.append(
            {
                "action": step.action,
                "parameters": {name: plain(value) for name, value in step.parameters.items()},
                "by": step.by,
                "choices": [plain(choice) for choice in step.choices],
                "events": [
                    {"kind": e.kind, "source": plain(e.source), "dest": plain(e.dest), "text": e.text, "lost": e.lost}
                    for e in step.events
                ],
                "state": _state(step.state.variables()),
            }
        )
    return result


def _state(variables: Mapping[str, Value]) -> dict[str, Any]:
    return {name: plain(value) for name, value in variables.items()}


def plain(value: Value) -> Any:
    """A value as plain JSON.

    Model values and members of enums are strings, sets are lists in canonical order, tuples are lists, records are
    objects. A map is an object if its keys are strings, model values, enum members or whole numbers, and differ as
    strings. Otherwise it is a list of [key, value]. Bytes are a string of hexadecimal digits. A float that JSON lacks
    is a string. So is a whole number of more than 64 bits, since many readers would round it.
    """
    if isinstance(value, Foreign):
        value = value.python()
    if isinstance(value, (enum.Enum, ModelValue)):
        return value.name
    if isinstance(value, float):
        return value if abs(value) != float("inf") else repr(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return decimal(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    if isinstance(value, (frozenset, set)):
        return [plain(v) for v in canonical(frozenset(value))]
    if isinstance(value, Record):
        return {name: plain(part) for name, part in value.__parts__().items()}
    if isinstance(value, Mapping):
        keys = [_key(key) for key in value]
        if None in keys or len(set(keys)) < len(keys):
            return [[plain(key), plain(value[key])] for key in value]
        return {str(key): plain(v) for key, v in zip(keys, value.values(), strict=True)}
    return show(value)


def _key(key: Value) -> str | None:
    if isinstance(key, Foreign):
        key = key.python()
    if isinstance(key, (enum.Enum, ModelValue)):
        return key.name
    if isinstance(key, str):
        return key
    return decimal(key) if isinstance(key, int) and not isinstance(key, bool) else None
