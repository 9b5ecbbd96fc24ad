"""The kinds of columns, and the plain form of values in them.

A kind is ``"int"`` (64 bits), ``"bool"``, ``"float"``, ``"text"``, or composed: ``{"set": kind}``, ``{"list": kind}``,
``{"map": [kind, kind]}``, ``{"struct": {field: kind}, "of": "Entry"}`` for a record. It is None until a value other
than None was seen.

Values in a column are **plain**: numbers, booleans and strings as such, other atoms by name, sets and sequences as
lists, maps as lists of pairs, records as dicts. Sets and maps are sorted. If kinds do not merge, values become text.
Their text depends only on the plain value and its kind, so a written column can be converted to another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fencepost.language.values import Foreign, Map, Record, Value, show
from fencepost.text.plain import decimal

Kind = None | str | dict[str, Any]
Plain = Any

_SCALARS = {bool: "bool", float: "float"}


def plain(value: Value) -> tuple[Kind, Plain]:
    """The plain form of a value, and the kind of a column with only this value."""
    cls = type(value)
    if value is None:
        return None, None
    if isinstance(value, Foreign):
        return _plain_foreign(value)
    if cls in _SCALARS:
        return _SCALARS[cls], value
    if cls is int:
        return ("int", value) if -(1 << 63) <= value < 1 << 63 else ("text", decimal(value))
    if cls is str:
        return "text", _readable(value)
    if cls is tuple:
        kind, parts = _together(value)
        return {"list": kind}, parts
    if isinstance(value, frozenset):
        kind, parts = _together(value)
        return {"set": kind}, sorted(parts, key=_order)
    if cls is Map and None not in value:
        (key, keys), (kind, parts) = _together(value), _together(value.values())
        return {"map": [key, kind]}, sorted(zip(keys, parts, strict=True), key=_order)
    if isinstance(value, Record) and value._fields:
        fields = {name: plain(part) for name, part in value.__parts__().items()}
        return {"struct": {name: kind for name, (kind, _) in fields.items()}, "of": value.__title__()}, {
            name: p for name, (_, p) in fields.items()
        }
    return "text", _readable(show(value))


def _plain_foreign(value: Foreign) -> tuple[Kind, Plain]:
    python = value.python()
    if type(python) is not dict:
        return plain(python)
    fields = {name: plain(part) for name, part in sorted(python.items())}
    kinds = {name: kind for name, (kind, _) in fields.items()}
    return {"struct": kinds, "of": ""}, {name: part for name, (_, part) in fields.items()}


def _readable(text: str) -> str:
    """The text in valid UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _together(values: Iterable[Value]) -> tuple[Kind, list[Plain]]:
    """The kind of a column with these values, and their plain forms."""
    pairs = [plain(value) for value in values]
    kind: Kind = None
    for one, _ in pairs:
        kind = merged(kind, one)
    return kind, [converted(value, one, kind) for one, value in pairs]


def merged(one: Kind, other: Kind) -> Kind:
    """The kind of a column that holds values of two kinds."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict) and _outline(one) == _outline(other):
        parts = [merged(a, b) for a, b in zip(inner(one), inner(other), strict=True)]
        if "struct" in one:
            return {**one, "struct": dict(zip(one["struct"], parts, strict=True))}
        return {name: parts if name == "map" else parts[0] for name in one}
    return "text"


def _outline(kind: dict[str, Any]) -> tuple[Any, ...]:
    """The shape of a composed kind. Kinds with equal shapes can be merged."""
    return (*kind, kind.get("of"), *kind.get("struct", ()))


def agree(one: Kind, other: Kind) -> bool:
    """Whether values of two kinds are comparable: one column can hold both without converting either to text."""
    if one is None or other is None or one == other:
        return True
    if not isinstance(one, dict) or not isinstance(other, dict) or merged(one, other) == "text":
        return False
    return all(agree(a, b) for a, b in zip(inner(one), inner(other), strict=True))


def inner(kind: dict[str, Any]) -> list[Kind]:
    """The kinds that a kind is composed of."""
    if "struct" in kind:
        return list(kind["struct"].values())
    return kind["map"] if "map" in kind else [kind.get("set", kind.get("list"))]


def converted(value: Plain, before: Kind, after: Kind) -> Plain:
    """A plain value of kind ``before``, converted to ``after``, a kind merged from it."""
    if value is None or before == after:
        return value
    if not isinstance(before, dict) or not isinstance(after, dict):
        return text(value, before)
    if "set" in before:
        return sorted((converted(part, before["set"], after["set"]) for part in value), key=_order)
    if "list" in before:
        return [converted(part, before["list"], after["list"]) for part in value]
    if "map" in before:
        pairs = [[converted(part, before["map"][n], after["map"][n]) for n, part in enumerate(pair)] for pair in value]
        return sorted(map(tuple, pairs), key=_order)
    return {name: converted(value[name], kind, after["struct"][name]) for name, kind in before["struct"].items()}


def is_keyed_by_parts(kind: Kind) -> bool:
    """Whether it is a map with structured keys. Such a column is a list of structs of ``key`` and ``value``, since few
    readers support such keys.
    """
    return isinstance(kind, dict) and "map" in kind and isinstance(kind["map"][0], dict)


def _mapped(value: Plain, kind: dict[str, Any], change: Callable[[Any, Kind], Any]) -> Any:
    """A value of a composed kind with ``change`` applied to its parts: a dict, a list of pairs or a list."""
    if "struct" in kind:
        return {name: change(value[name], part) for name, part in kind["struct"].items()}
    if "map" in kind:
        return [tuple(map(change, pair, kind["map"])) for pair in value]
    return [change(part, *inner(kind)) for part in value]


def to_column(value: Plain, kind: Kind) -> Any:
    """A plain value in the form that Arrow accepts."""
    if value is None or not isinstance(kind, dict):
        return value
    parts = _mapped(value, kind, to_column)
    return [{"key": key, "value": part} for key, part in parts] if is_keyed_by_parts(kind) else parts


def from_column(value: Any, kind: Kind) -> Plain:
    """A plain value from the form that Arrow, Spark or JSON returns."""
    if value is None or not isinstance(kind, dict):
        return value
    if is_keyed_by_parts(kind):
        value = [(entry["key"], entry["value"]) for entry in value]
    elif "map" in kind and isinstance(value, dict):
        value = value.items()
    return _mapped(value, kind, from_column)


def text(value: Plain, kind: Kind) -> str:
    """A plain value as text, with strings unquoted: ``{b1, b2}``, ``Entry(id=1, data=1)``."""
    if value is None or not isinstance(kind, dict):
        return value if isinstance(value, str) else show(value)
    parts = _mapped(value, kind, text)
    if "struct" in kind:
        return f"{kind['of']}({', '.join(f'{name}={part}' for name, part in parts.items())})"
    if "list" in kind:
        return f"⟨{', '.join(parts)}⟩"
    return f"{{{', '.join(parts if 'set' in kind else [f'{key}: {part}' for key, part in parts])}}}"


def _order(value: Plain) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, tuple(_order(part) for part in value.values()))
    if isinstance(value, (list, tuple)):
        return (1, tuple(_order(part) for part in value))
    return (1, value)
