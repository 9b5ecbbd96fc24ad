"""A state in a plain dictionary, to test the language without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fencepost import Protocol
from fencepost.language.context import Disabled, Event, Slot, current
from fencepost.language.values import freeze


class Plain:
    """A state, and the options to take at the next choices. ``log`` has every read, write and choice."""

    disabled = False

    def __init__(
        self, protocol: Protocol, held: dict[tuple[Any, ...], Any] | None = None, script: Sequence[int] = ()
    ) -> None:
        self.protocol = protocol
        self.held = dict(held or {})
        self.script = list(script)
        self.widths: list[int] = []
        self.log: list[tuple[str, Any]] = []
        self.events: list[Event] = []

    def read(self, slot: Slot) -> Any:
        self.log.append(("read", slot.name))
        return self.held.get(slot.path, slot.default)

    def write(self, slot: Slot, value: Any) -> None:
        self.log.append(("write", slot.name))
        self.held[slot.path] = freeze(value)

    def choose(self, options: Sequence[Any]) -> Any:
        taken = self.script[len(self.widths)] if len(self.widths) < len(self.script) else 0
        self.widths.append(len(options))
        self.log.append(("choose", list(options)))
        return options[taken]

    def emit(self, event: Event) -> None:
        self.events.append(event)

    @property
    def state(self) -> Any:
        """The protocol bound to this state."""
        return self.protocol.bound_to(self)

    def names(self, what: str) -> list[Any]:
        """The names of slots read or written, or the options of each choice, in order."""
        return [subject for kind, subject in self.log if kind == what]


def ways(plain: Plain, body: Callable[[Any], Any]) -> Iterator[Plain]:
    """Every run of ``body`` from the state of ``plain``, in the order of the choices. None if it is not enabled."""
    script: list[int] = []
    while True:
        after = Plain(plain.protocol, plain.held, script)
        token = current.set(after)
        try:
            body(after.state)
            yield after
        except Disabled:
            pass
        finally:
            current.reset(token)
        script = script + [0] * (len(after.widths) - len(script))
        while script and script[-1] + 1 == after.widths[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


def run(plain: Plain, body: Callable[[Any], Any]) -> Plain:
    """The only run of ``body``."""
    (after,) = ways(plain, body)
    return after


def look(plain: Plain, question: Callable[[Any], Any]) -> Any:
    """The value of ``question`` in this state."""
    answers: list[Any] = []
    run(plain, lambda s: answers.append(question(s)))
    return answers[0]
