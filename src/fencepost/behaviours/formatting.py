"""Values and changes as short text: ``added 3``, ``OPEN → CLOSED``, ``[b1] removed``.

Everything that shows a behaviour uses this. A channel of a network is not shown as a raw value: the life of its
messages is in `messages`, and :func:`changed` skips those slots.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.language.context import UNSET, Slot
from fencepost.language.fields import KEYS, Shape, TableShape
from fencepost.language.kept import DICT, Kept
from fencepost.language.network import Channel, NetworkShape
from fencepost.language.seam import Model
from fencepost.language.values import Foreign, Map, Record, Value, show

ARROW = " → "

MOST_TEXT = 1_000
"""The most characters of a shown value, and of one of its lines. The rest is omitted. JSON and ITF omit nothing."""

MOST_LINES = 200
"""The most lines of a shown value. The rest is omitted."""


@dataclass(frozen=True)
class Change:
    """A change of one part of the state by a step. ``text`` says how it changed. ``name`` is the slot's name."""

    slot: Slot
    old: Value
    new: Value
    text: str

    @property
    def name(self) -> str:
        """``bookie.b1.fenced``."""
        return self.slot.name


def kind_of(protocol: Model, slot: Slot) -> str:
    """The kind of a slot: ``value``, ``cell`` or ``keys`` of a table, ``in flight``, ``lost``, ``processed``,
    ``connected`` or ``topics`` of a network, or ``view``.
    """
    shape: Shape | None = protocol.shapes.get(slot.path[0])
    rest = slot.path[1:]
    while shape is not None:
        if isinstance(shape, NetworkShape):
            return shape.part(slot)
        if isinstance(shape, TableShape):
            return "keys" if rest[0] is KEYS else "cell"
        if not rest:
            return "value"
        shape, rest = shape.element(rest[0]), rest[1:]
    return "view"


class Absent:
    """The value of a table for a missing key."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


def held(kind: str, value: Value) -> Value:
    """The value of a slot of this kind, for display. A table's cell gives its content or :data:`ABSENT`, a channel its
    messages.
    """
    if kind == "cell":
        return value[0] if value else ABSENT
    if kind == "in flight":
        return Channel(in_flight=value)
    return value


def changed(protocol: Model, differences: Iterable[tuple[Slot, Value, Value]]) -> list[Change]:
    """The differences between two states (slot, old, new) in words, without network channels and the bookkeeping of
    tables and views.
    """
    changes = []
    for slot, old, new in differences:
        kind = kind_of(protocol, slot)
        if kind == "value" and old is UNSET:
            changes.append(Change(slot, old, new, abridged(show(new))))
        elif kind == "value":
            changes.append(Change(slot, old, new, abridged(change_text(old, new), MOST_TEXT + len(ARROW))))
        elif kind == "cell":
            changes.append(Change(slot, old, new, abridged(_cell_change(old, new), MOST_TEXT + len(ARROW))))
        elif kind == "connected":
            changes.append(Change(slot, old, new, "healed" if new else "cut"))
    return changes


def slot_change(protocol: Model, slot: Slot, old: Value, new: Value) -> str:
    """The change of any slot, also of one of a network."""
    kind = kind_of(protocol, slot)
    if kind in ("in flight", "lost"):
        before, after = (", ".join(map(message_text, held)) or "nothing" for held in (old, new))
        return abridged(before, MOST_TEXT // 2) + ARROW + abridged(after, MOST_TEXT // 2)
    changes = changed(protocol, [(slot, old, new)])
    return changes[0].text if changes else change_text(old, new)


def _cell_change(old: Value, new: Value) -> str:
    if not old:
        return f"added {show(new[0])}"
    if not new:
        return f"removed {show(old[0])}"
    return change_text(old[0], new[0])


def change_text(old: Value, new: Value) -> str:
    """How ``new`` differs from ``old``: the parts added and removed, if that is shorter than both values."""
    before, after = show(old), show(new)
    parts = list(_differences(old, new))
    text = ", ".join(parts)
    if parts and len(text) <= len(before) + len(ARROW) + len(after) + len(" appended"):
        return text
    return abridged(before, MOST_TEXT // 2) + ARROW + abridged(after, MOST_TEXT // 2)


def _differences(old: Value, new: Value) -> Iterator[str]:
    """The differing parts. Nothing if the two values have no parts in common that could be omitted."""
    if isinstance(old, Foreign) and isinstance(new, Foreign):
        yield from _foreign_differences(old.python(), new.python())
    elif isinstance(old, frozenset) and isinstance(new, frozenset):
        if new - old:
            yield "added " + ", ".join(map(show, new - old))
        if old - new:
            yield "removed " + ", ".join(map(show, old - new))
    elif isinstance(old, tuple) and isinstance(new, tuple):
        yield from _sequence_differences(old, new)
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in new:
            if key not in old:
                yield f"[{show(key)}] added {show(new[key])}"
            elif new[key] != old[key]:
                yield f"[{show(key)}] {change_text(old[key], new[key])}"
        for key in old:
            if key not in new:
                yield f"[{show(key)}] removed"
    elif isinstance(old, Record) and type(old) is type(new):
        before, after = old.__parts__(), new.__parts__()
        if isinstance(old, Kept) and isinstance(new, Kept) and not (old.names or new.names):
            is_dict = old.kind == new.kind == DICT
            yield from _differences(*((Map(old.parts), Map(new.parts)) if is_dict else (old.parts, new.parts)))
        elif before.keys() == after.keys():
            for name in before:
                if before[name] != after[name]:
                    yield f"{name} {change_text(before[name], after[name])}"


def _foreign_differences(old: Value, new: Value) -> Iterator[str]:
    """As :func:`_differences`, for the Python forms of two foreign values. Their sequences count from 1."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        yield from _sequence_differences(old, new, 1)
    elif isinstance(old, dict) and isinstance(new, dict):
        if old.keys() == new.keys():
            yield from (f"{name} {change_text(old[name], new[name])}" for name in old if old[name] != new[name])
    else:
        yield from _differences(old, new)


def _sequence_differences(old: tuple[Any, ...], new: tuple[Any, ...], first: int = 0) -> Iterator[str]:
    if len(new) > len(old) and new[: len(old)] == old:
        yield "appended " + ", ".join(map(show, new[len(old) :]))
    elif len(new) < len(old) and old[len(old) - len(new) :] == new:
        yield "removed from the front " + ", ".join(map(show, old[: len(old) - len(new)]))
    elif len(new) < len(old) and old[: len(new)] == new:
        yield "removed from the end " + ", ".join(map(show, old[len(new) :]))
    elif len(new) == len(old):
        for place, (before, after) in enumerate(zip(old, new, strict=True), first):
            if before != after:
                yield f"[{place}] {change_text(before, after)}"


def channel_lines(channel: Channel) -> list[tuple[str, list[str]]]:
    """The messages of a channel, as (``in flight``, messages), (``lost``, messages), (``processed``, messages), without
    empty ones.
    """
    copies = channel.in_flight if isinstance(channel.in_flight, Mapping) else dict.fromkeys(channel.in_flight, 1)
    held = [
        ("in flight", [message_text(m) + (f" ×{copies[m]}" if copies[m] > 1 else "") for m in channel.in_flight]),
        ("lost", [message_text(m) for m in channel.lost]),
        ("processed", [message_text(m) for m in channel.processed]),
    ]
    return [(what, messages) for what, messages in held if messages]


def message_text(message: Value) -> str:
    """A message as text. One without fields is only its name."""
    return show(message).removesuffix("()")


def abridged(text: str, most: int = MOST_TEXT) -> str:
    """The text in at most ``most`` characters: a longer one is cut, and says how many characters are omitted."""
    if len(text) <= most:
        return text
    kept = most - 40
    return f"{text[:kept]}… ({len(text) - kept:,} more characters)"


def lines(value: Value, width: int = 60) -> list[str]:
    """A value as lines: one line if it fits ``width``, else one per element, key or field. Beyond :data:`MOST_LINES`
    lines, the rest is omitted and counted.
    """
    all_lines = [abridged(line) for line in _lines(value, width)]
    rest = len(all_lines) - MOST_LINES
    return all_lines if rest <= 0 else [*all_lines[:MOST_LINES], f"… ({rest:,} more lines)"]


def _lines(value: Value, width: int) -> list[str]:
    whole = show(value)
    if len(whole) <= width:
        return [whole]
    if isinstance(value, Channel):
        return [f"{what}: {', '.join(messages)}" for what, messages in channel_lines(value)] or ["empty"]
    if isinstance(value, (frozenset, tuple)) and value:
        opening, closing = ("{", "}") if isinstance(value, frozenset) else ("⟨", "⟩")
        return _bracketed(opening, closing, [("", element) for element in value], width)
    if isinstance(value, Mapping) and value:
        return _bracketed("{", "}", [(show(key) + ": ", value[key]) for key in value], width)
    if isinstance(value, Foreign) and (outline := value.bracketed()) is not None:
        return _bracketed(*outline, width)
    if isinstance(value, Record) and value._fields:
        fields = [(f"{name}=", part) for name, part in value.__parts__().items()]
        return _bracketed(value.__title__() + "(", ")", fields, width)
    return [whole]


def _bracketed(opening: str, closing: str, parts: list[tuple[str, Value]], width: int) -> list[str]:
    result = [opening]
    for label, value in parts:
        inner = _lines(value, max(20, width - 2 - len(label)))
        result.append("  " + label + inner[0])
        result.extend("  " + line for line in inner[1:])
        result[-1] += ","
    result[-1] = result[-1][:-1]
    return [*result, closing]


def briefly(text: str, limit: int, cut: bool = False) -> str:
    """A value's text, shortened towards ``limit`` characters by omitting the names of fields, first those of inner
    records. With ``cut``, then all names, and then the text is truncated. Without it, only inner names are omitted.
    """
    if len(text) <= limit:
        return text
    inner = _without_field_names(text, 2)
    if not cut:
        return inner
    shorter = inner if len(inner) <= limit else _without_field_names(text, 1)
    return shorter if len(shorter) <= limit else shorter[: limit - 1] + "…"


def _without_field_names(text: str, depth: int) -> str:
    """``text`` without ``name=`` inside at least ``depth`` parentheses. Quoted parts stay unchanged."""
    pieces, word, quoted, level = list[str](), "", "", 0
    for character in text:
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character.isalnum() or character == "_":
            word += character
            continue
        elif character == "=" and level >= depth:
            word = ""
            continue
        elif character in "'\"":
            quoted = character
        else:
            level += (character == "(") - (character == ")")
        pieces += (word, character)
        word = ""
    return "".join((*pieces, word))


def wrap(text: str, width: int, whole: bool = False) -> list[str]:
    """``text`` in lines of at most ``width`` characters, broken between words. A longer word is broken too, unless
    ``whole``.
    """
    return textwrap.wrap(text, max(8, width), break_on_hyphens=False, break_long_words=not whole) or [""]
