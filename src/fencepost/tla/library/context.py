"""What operators of the module TLC ask of the run they are in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from fencepost.tla.values import EvaluationError, Value, shown


def _to_standard_error(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass
class Context:
    """What a run answers.

    ``answers`` has a function for each string that ``TLCGet`` may ask for: ``"level"``, ``"distinct"`` and so on.
    ``registers`` are what ``TLCSet`` sets. ``queues`` are the answers for ``"queue"`` by the level of a state. ``say``
    takes what is printed.
    """

    answers: Mapping[str, Callable[[], Value]] = field(default_factory=dict)
    registers: dict[Value, Value] = field(default_factory=dict)
    queues: dict[Value, int] = field(default_factory=dict)
    say: Callable[[str], None] = _to_standard_error

    def get(self, key: Value) -> Value:
        """``TLCGet(key)``. Raises :class:`EvaluationError` if there is no such answer or register."""
        if type(key) is str and key in self.answers:
            return self.answers[key]()
        if key in self.registers:
            return self.registers[key]
        raise EvaluationError(f"TLCGet({shown(key)}) has no value here")

    def queue(self, level: Value) -> Value:
        """``TLCGet("queue")`` in a state of this level."""
        return self.queues[level] if level in self.queues else self.get("queue")

    def set(self, key: Value, value: Value) -> None:
        """``TLCSet(key, value)``. Raises :class:`EvaluationError` for a key that TLC does not have, and for those by
        which TLC is stopped or paused.
        """
        if (type(key) is int and key >= 0) or (type(key) is str and key.startswith("s:")):
            self.registers[key] = value
        else:
            raise EvaluationError(f"TLCSet({shown(key)}, ...) is not supported: set a register with a natural number")


_nothing = Context()
_current: ContextVar[Context] = ContextVar("context")


def current() -> Context:
    """The context of the run. Outside any, one that has no answers."""
    return _current.get(_nothing)


@contextmanager
def using(context: Context) -> Iterator[Context]:
    """Within this, operators ask ``context``."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
