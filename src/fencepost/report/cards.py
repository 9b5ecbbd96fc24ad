"""One state as a person reads it: a card for each actor, with what it holds, and one for each network, with what is
under way.
"""

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
"""Characters of a value on one line of the state; longer ones are spread over lines."""

SHOWN = ("value", "cell", "in flight", "connected")
"""The kinds of slots that are shown; the values of other slots show in these."""

SHARED = "shared"
"""The card of the variables that are held by no actor."""


@dataclass(frozen=True)
class Row:
    """One part of the state. ``text`` is what it holds, over lines; None if it holds nothing any more. ``before`` is
    what it held before the last step, if that ``changed`` it.
    """

    label: str
    text: str | None
    changed: bool = False
    before: str | None = None


@dataclass(frozen=True)
class Card:
    """The variables that one actor holds; with ``network`` the messages under way instead."""

    name: str
    network: bool = False
    rows: list[Row] = field(default_factory=list)


def cards(state: State, before: State | None = None) -> list[Card]:
    """The state as cards, actors in the order of their declaration, networks last. ``before``: the state before the
    last step.
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
    """On whose card a slot stands, and how it is called there."""
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
    """The value of a slot, in lines; None if there is nothing to show for it in this state. ``held``: the state's
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
