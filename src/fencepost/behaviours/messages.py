"""The life of every message of a behaviour: sent in one step, then received, lost, timed out or dropped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fencepost.behaviours.behaviour import Trace
from fencepost.language.network import Channel, NetworkShape
from fencepost.language.values import Message, Value, show
from fencepost.semantics.state import State

Key = tuple[str, str, str]
"""Source, receiver and text of a message, which identify it."""

RECEIVED = "received"
LOST = "lost"
TIMED_OUT = "timed out"
DROPPED = "dropped"
REPEATED = "sent again"
IN_FLIGHT = "in flight"


@dataclass(frozen=True)
class At:
    """A position in a behaviour: the number of a step (0 is the initial state) and of one of its events (-1 for
    none).
    """

    step: int
    event: int = -1


@dataclass
class Passage:
    """The life of one message.

    ``sent`` is where it was sent, or step 0 if it was in flight from the start. ``fate`` is ``received``, ``lost``,
    ``timed out`` (lost, and its sender acted on that), ``dropped`` (removed from the channel unread), ``sent again``
    (the same message was already in flight, so this send changed nothing) or ``in flight``. ``ended`` is where that
    happened. It is None for ``lost`` and ``in flight``.
    """

    source: str
    dest: str
    text: str
    sent: At
    fate: str = IN_FLIGHT
    ended: At | None = None

    @property
    def key(self) -> Key:
        """The key that identifies this message."""
        return (self.source, self.dest, self.text)


def channels(state: State) -> dict[tuple[Any, ...], Channel]:
    """The network channels of a state that are not empty, by (variable, kind, source, dest)."""
    result: dict[tuple[Any, ...], Channel] = {}
    for name, shape in state.store.protocol.shapes.items():
        if isinstance(shape, NetworkShape):
            slots = ((slot, value) for slot, value in state.touched() if slot.path[0] == name)
            result |= {(name, *ends): held for ends, held in shape.channels(slots).items()}
    return result


def passages(trace: Trace) -> list[Passage]:
    """Every message of a behaviour, in the order of sending."""
    result: list[Passage] = []
    for key, copies in _held(trace.initial, IN_FLIGHT).items():
        result += [Passage(*key, sent=At(0)) for _ in range(copies)]
    for key in _held(trace.initial, LOST):
        result.append(Passage(*key, sent=At(0), fate=LOST))
    for number, step in enumerate(trace.steps, 1):
        for place, event in enumerate(step.events):
            at = At(number, place)
            key = (show(event.source), show(event.dest), event.text)
            if event.kind == "send":
                result.append(Passage(*key, sent=at, fate=LOST if event.lost else IN_FLIGHT))
            elif event.kind == "receive":
                flying = [p for p in result if p.key == key and p.fate == IN_FLIGHT]
                if flying:
                    flying[0].fate, flying[0].ended = RECEIVED, at
            elif event.kind == "timeout":
                for passage in result:
                    if passage.fate == LOST and passage.key[:2] == key[:2] and passage.text in event.text:
                        passage.fate, passage.ended = TIMED_OUT, at
        _reconcile(result, number, _held(step.state, IN_FLIGHT))
    return result


def _reconcile(passages: list[Passage], number: int, held: Counter[Key]) -> None:
    """Mark messages that were not received and that the state no longer holds: as dropped, or as sends that changed
    nothing.
    """
    flying: dict[Key, list[Passage]] = {}
    for passage in passages:
        if passage.fate == IN_FLIGHT:
            flying.setdefault(passage.key, []).append(passage)
    for key, waiting in flying.items():
        for passage in waiting[held[key] :]:
            passage.fate = REPEATED if passage.sent.step == number and held[key] else DROPPED
            passage.ended = At(number)


@lru_cache(maxsize=1024)  # a growing history is drawn again after each step
def _held(state: State, what: str) -> Counter[Key]:
    """The number of copies of each message that the channels of a state hold, in flight or lost. Do not modify the
    result.
    """
    copies: Counter[Key] = Counter()
    for (*_, source, dest), channel in channels(state).items():
        held = channel.in_flight if what == IN_FLIGHT else channel.lost
        for message in held:
            copies[(show(source), show(dest), show(message))] += _copies(held, message)
    return copies


def _copies(held: Value, message: Message) -> int:
    return int(held[message]) if hasattr(held, "keys") else 1
