"""Writes a behaviour in the Informal Trace Format (Apalache, ADR-015), which trace viewers and test generators read.

Whole numbers are ``{"#bigint": "1"}``, sets ``{"#set": [...]}``, tuples ``{"#tup": [...]}``, maps ``{"#map": [[key,
value], ...]}``, and records objects. Model values and members of enums are strings. The format has no null: ``None`` is
the variant ``{"tag": "None", "value": {"#tup": []}}``. Floats and bytes, which it cannot express, are
``{"#unserializable": "..."}``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from fencepost.behaviours.behaviour import Trace
from fencepost.behaviours.json import dumps
from fencepost.language.values import Foreign, ModelValue, Record, Value, canonical, show
from fencepost.text.plain import decimal

NONE: dict[str, Any] = {"tag": "None", "value": {"#tup": []}}


def to_itf(trace: Trace, *, indent: int = 2) -> str:
    """The behaviour as JSON text in the format. Such files are named ``*.itf.json``. ``indent`` 0 writes one line."""
    return dumps(itf(trace), indent)


def itf(trace: Trace) -> dict[str, Any]:
    """The behaviour as plain dicts and lists.

    ``params`` are the constants, whose values are in the initial state. The ``#meta`` of each state names the action
    that led to it, its parameters and its actor. The initial state has none. A lasso has a ``loop``: the number of the
    state that follows the last one. The ``#meta`` of the whole trace has the ``closing`` step that leads there, unless
    the behaviour stays in the last state.
    """
    constants = trace.protocol.constants
    closes = trace.loop is not None and trace.loop < len(trace.steps)
    documents: list[dict[str, Any]] = []
    for index, state in enumerate(trace.states):
        meta: dict[str, Any] = {"index": index}
        if index:
            step = trace.steps[index - 1]
            meta["action"] = step.action
            meta["parameters"] = {name: show(value) for name, value in step.parameters.items()}
            if step.by is not None:
                meta["by"] = step.by
        params = {} if index else {name: expression(value) for name, value in constants.items()}
        documents.append(
            {"#meta": meta, **params, **{name: expression(value) for name, value in state.variables().items()}}
        )
    # In the format, the step that closes a lasso has no state.
    closing = {n: v for n, v in documents.pop()["#meta"].items() if n != "index"} if closes else None
    return {
        "#meta": {
            "format": "ITF",
            "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html",
            "source": trace.protocol.name,
            "description": f"{len(documents)} states of {trace.protocol.name}, found by Fencepost",
            **({"closing": closing} if closing is not None else {}),
        },
        "params": list(constants),
        "vars": list(trace.protocol.shapes),
        "states": documents,
        **({"loop": trace.loop} if trace.loop is not None else {}),
    }


def expression(value: Value) -> Any:
    """A value in the format's notation."""
    if value is None:
        return NONE
    if isinstance(value, Foreign):
        python = value.python()
        is_record = type(python) is dict
        return {name: expression(part) for name, part in python.items()} if is_record else expression(python)
    if isinstance(value, (enum.Enum, ModelValue)):
        return value.name
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return {"#bigint": decimal(value)}
    if isinstance(value, tuple):
        return {"#tup": [expression(v) for v in value]}
    if isinstance(value, (frozenset, set)):
        return {"#set": [expression(v) for v in canonical(frozenset(value))]}
    if isinstance(value, Record):
        return {name: expression(part) for name, part in value.__parts__().items()}
    if isinstance(value, Mapping):
        return {"#map": [[expression(key), expression(v)] for key, v in value.items()]}
    return {"#unserializable": repr(value)}
