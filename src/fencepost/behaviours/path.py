"""A behaviour as a short text, for links and command lines: ``0/12/3.1:5f0c9a``.

It is the number of the initial state, then one move per step: the number of its action (among the actions with bound
parameters) and the numbers of its choices. The part after ``:`` is a part of the last state's fingerprint, which shows
whether the protocol and the constants are still the same. ``+`` at the end means that the behaviour stays there
forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.behaviours.behaviour import Step, Trace
from fencepost.errors import OptionError
from fencepost.language.values import Map, Value, same
from fencepost.semantics import Root, State, Stepper

Move = tuple[int, tuple[int, ...]]
"""A step: the number of the action, and the numbers of its choices."""


@dataclass(frozen=True)
class Path:
    """A parsed path. ``check`` is "" if the last state is unknown."""

    start: int
    moves: tuple[Move, ...]
    check: str = ""
    stays: bool = False

    def __str__(self) -> str:
        way = "/".join([str(self.start), *(".".join(map(str, (number, *choices))) for number, choices in self.moves)])
        return f"{way}:{self.check}{'+' * self.stays}" if self.check else way

    @staticmethod
    def read(text: str) -> Path:
        """The path that ``text`` spells. Raises :class:`fencepost.OptionError` if it is not a path."""
        way, _, check = text.strip().partition(":")
        try:
            start, *moves = way.split("/")
            parsed = [[int(number) for number in move.split(".")] for move in moves]
            return Path(int(start), tuple((n, tuple(c)) for n, *c in parsed), check.rstrip("+"), check.endswith("+"))
        except ValueError:
            raise OptionError(f"{text[:60]!r} is no path: is the link complete?") from None


def check_of(state: State) -> str:
    """The part after ``:`` in a path that ends in this state."""
    return f"{state.fingerprint & 0xFFFFFF:06x}"


def path_of(trace: Trace) -> Path:
    """The path of a behaviour, found by replaying its steps. Raises :class:`fencepost.OptionError` if one cannot be
    taken.
    """
    stepper = Stepper(trace.protocol)
    actions = stepper.of_kind("action")
    starts = stepper.initial_states()
    wanted = Map(trace.initial.variables())
    start = next((n for n, s in enumerate(starts) if same(Map(s.variables()), wanted)), None)
    if start is None:
        raise OptionError(f"{trace.protocol.name} does not start there")
    state, moves = starts[start], list[Move]()
    for step in trace.steps:
        move, row = move_of(stepper, actions, state, step)
        moves.append(move)
        state = State(stepper.store, row)
    return Path(start, tuple(moves), check_of(state), trace.loop == len(trace.steps))


def move_of(stepper: Stepper, actions: Sequence[Root], state: State, step: Step) -> tuple[Move, tuple[int, ...]]:
    """The move of a step from ``state``, and the row after it. Raises :class:`fencepost.OptionError` if the step cannot
    be taken.
    """
    wanted: tuple[Value, ...] = step.choices
    for number, root in enumerate(actions):
        if root.title == step.title:
            for outcome in stepper.outcomes(root, state.ids):
                if same(outcome.labels, wanted):
                    return (number, outcome.choices), stepper.apply(state.ids, outcome)
    raise OptionError(f"{step.title} cannot be taken like this here: has the protocol changed?")
