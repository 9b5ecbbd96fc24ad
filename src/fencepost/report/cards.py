"""One state as cards: one for each actor with its variables, one for each network with its messages in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.behaviours.formatting import channel_lines, kind_of, lines
from fencepost.behaviours.messages import channels
from fencepost.language.context import Slot
from fencepost.language.network import Channel
from fencepost.language.values import ModelValue, show
from fencepost.report.diagram import holders
from fencepost.semantics import State

VALUE_WIDTH = 44
"""The characters of a value on one line; longer values take several lines."""

SHOWN = ("value", "cell", "in flight", "connected")
"""The kinds of slots that are shown. They include the values of all others."""

SHARED = "shared"
"""The card of the variables that no actor holds."""


@dataclass(frozen=True)
class Row:
    """One part of the state. ``text``: its value, on one or more lines; None if it has no value any more. ``before``:
    its value before the last step, if that step ``changed`` it.
    """

    label: str
    text: str | None
    changed: bool = False
    before: str | None = None


@dataclass(frozen=True)
class Card:
    """The variables of one actor; with ``network``, the messages in flight."""

    name: str
    network: bool = False
    rows: list[Row] = field(default_factory=list)


def cards(state: State, before: State | None = None) -> list[Card]:
    """The state as cards: actors in the order of declaration, then networks. ``before``: the state before the last
    step.
    """
    protocol = state.store.protocol
    held, held_before = channels(state), {} if before is None else channels(before)
    owners = holders(protocol)
    found: dict[str, Card] = {}
    for slot, _ in state.slots():
        kind = kind_of(protocol, slot)
        if kind not in SHOWN:
            continue
        text = slot_text(slot, state, held)
        old = slot_text(slot, before, held_before) if before is not None else text
        if text is None and old is None:
            continue
        network = kind in ("in flight", "connected")
        name, label = (slot.path[0], slot_label(slot.path[1:])) if network else _place(slot, owners)
        card = found.setdefault(name, Card(name, network))
        card.rows.append(Row(label, text, text != old, old))
    return sorted(found.values(), key=lambda card: (card.network, card.name == SHARED))


def _place(slot: Slot, owners: Mapping[str, str]) -> tuple[str, str]:
    """The card of a slot, and the slot's label there."""
    variable, *rest = slot.path
    keyed = bool(rest) and isinstance(rest[0], ModelValue)
    if keyed and variable not in owners:
        return show(rest[0]), slot_label(rest[1:]) or variable
    owner = owners.get(variable, SHARED if not rest or not isinstance(rest[0], str) else variable)
    return owner, slot_label(rest if owner == variable and rest else slot.path)


def slot_label(path: tuple[Any, ...] | list[Any]) -> str:
    """The name of a slot within its variable: ``b1.fenced``, ``AddEntry w1 → b1``."""
    if path and isinstance(path[0], type):
        return f"{path[0].__name__} {show(path[1])}\u00a0→\u00a0{show(path[2])}"
    return ".".join(part if isinstance(part, str) else show(part) for part in path)


def slot_text(slot: Slot, state: State, held: Mapping[tuple[Any, ...], Channel]) -> str | None:
    """The value of a slot, on one or more lines; None if it has nothing to show in this state. ``held``: the state's
    channels.
    """
    value = state.read(slot)
    kind = kind_of(state.store.protocol, slot)
    if kind == "in flight":
        channels = channel_lines(held[slot.path]) if slot.path in held else []
        return "\n".join(f"{what}: {', '.join(messages)}" for what, messages in channels) or None
    if kind == "connected":
        return None if value else "cut"
    if kind == "cell":
        return "\n".join(lines(value[0], VALUE_WIDTH)) if value else None
    return "\n".join(lines(value, VALUE_WIDTH))
