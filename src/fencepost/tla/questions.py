"""What a specification asks of the run that it is in, with ``TLCGet``: which questions have an answer, and where.

A step and a property depend on the state alone. Of the run, they can ask for the level of their state, which is then
kept in it (:data:`fencepost.tla.symbols.LEVEL`). A temporal property can ask for the queue too, as specifications that
follow a trace do: it is the number of new states in the next level. That is what TLC answers where each level has one
state. Assumptions, postconditions and ``ALIAS`` are evaluated before or after the search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from fencepost.tla import ast
from fencepost.tla.config import Config
from fencepost.tla.errors import SpecificationError
from fencepost.tla.facts import asked
from fencepost.tla.library.context import Context, current, using
from fencepost.tla.reading import Place, reached, symbol_of
from fencepost.tla.symbols import LEVEL
from fencepost.tla.values import Value, record

Answers = Mapping[str, Callable[[], Value]]

CONSTANT = ("config", "-Dtlc2.tool.impl.Tool.cdot")
STEPPED = ("level",)
PROMISED = (*STEPPED, "queue")
ASSUMED = (*CONSTANT, "level")
COUNTED = (*ASSUMED, "stats", "distinct", "generated", "queue", "diameter", "duration")
SHOWN = (*CONSTANT, "level")
"""What an assumption, a step or an invariant, a temporal property, a postcondition and ``ALIAS`` may ask."""

NO_STATE = (0,)
"""What formulas read instead of a state: their level is 0, and they read nothing else."""

_REGISTER = "s:"


def questions(roots: Iterable[Place], answered: Collection[str], where: str) -> set[str]:
    """What these expressions, and the definitions that they use, ask ``TLCGet`` for, besides registers. Raises
    :class:`SpecificationError` for the first that is not among ``answered``.
    """
    found: set[str] = set()
    for node, scope in reached(roots):
        if not isinstance(node, ast.Apply) or not isinstance(node.operator, ast.Name | ast.Qualified):
            continue
        text = asked(symbol_of(node.operator, scope), node.arguments)
        if text is None or text.startswith(_REGISTER):
            continue
        if text not in answered:
            why = f"it can ask for {', '.join(answered)}"
            raise SpecificationError(f'TLCGet("{text}") is not supported in {where}: {why}', node.place)
        found.add(text)
    return found


def answering(answers: Answers) -> AbstractContextManager[Context]:
    """Within this, ``TLCGet`` has these answers, and the registers that it had."""
    return using(Context(answers, current().registers, say=current().say))


def note_queue(level: int, states: int) -> None:
    """From now on, this is the queue for the states of a level."""
    current().queues[level] = states


def constant(config: Config) -> Answers:
    """What is the same for a whole run. ``\\cdot`` is always there."""
    whole = record(mode="bfs", deadlock=config.deadlock is not False, worker=1)
    return {"config": lambda: whole, "-Dtlc2.tool.impl.Tool.cdot": lambda: "true"}


def counted(config: Config, found: Any) -> Answers:
    """The answers for postconditions, from the :class:`fencepost.checker.findings.Findings` of a search."""
    numbers = {
        "distinct": found.distinct_states,
        "generated": found.generated_states,
        "queue": found.queue,
        "diameter": found.depth,
        "duration": int(found.seconds),
    }
    return {
        **constant(config),
        **{name: partial(int, number) for name, number in numbers.items()},
        "stats": lambda: record(**numbers, worker=0),
    }


class Numbered:
    """A state in a behaviour that is shown. ``number``: its own, which is its level."""

    def __init__(self, reader: Any, number: int) -> None:
        self._reader = reader
        self._number = number

    def __getitem__(self, variable: int) -> Value:
        return self._number if variable == LEVEL.index else self._reader[variable]
