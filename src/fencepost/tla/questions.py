"""What a specification asks of the run that it is in, with ``TLCGet``: which questions have an answer, and where.

A step and a property depend on the state alone, so that no question about the run has an answer in them. Assumptions,
postconditions and ``ALIAS`` are evaluated before or after the search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from fencepost.tla import ast
from fencepost.tla.config import Config
from fencepost.tla.errors import SpecificationError
from fencepost.tla.library.context import Context, current, using
from fencepost.tla.reading import Place, reached, symbol_of
from fencepost.tla.symbols import BuiltIn
from fencepost.tla.values import Value, record

Answers = Mapping[str, Callable[[], Value]]

CONSTANT = ("config", "-Dtlc2.tool.impl.Tool.cdot")
ASSUMED = (*CONSTANT, "level")
COUNTED = (*ASSUMED, "stats", "distinct", "generated", "queue", "diameter", "duration")
SHOWN = (*CONSTANT, "level")
"""What an assumption, a postcondition and ``ALIAS`` may ask."""

_REGISTER = "s:"


def refuse_unanswered(roots: Iterable[Place], answered: Collection[str], where: str) -> None:
    """Raises :class:`SpecificationError` for the first ``TLCGet`` in these expressions, and in the definitions that
    they use, that asks something else than ``answered`` or a register.
    """
    for node, scope in reached(roots):
        asked = _asked(node, scope)
        if asked is not None and asked not in answered and not asked.startswith(_REGISTER):
            why = f"it can ask for {', '.join(answered)}" if answered else "they depend on the state alone"
            instead = ": count the steps in a variable" if asked == "level" and not answered else ""
            raise SpecificationError(f'TLCGet("{asked}") is not supported in {where}: {why}{instead}', node.place)


def _asked(node: ast.Node, scope: Any) -> str | None:
    """The text that ``TLCGet`` is given."""
    if not isinstance(node, ast.Apply) or not isinstance(node.operator, ast.Name | ast.Qualified):
        return None
    symbol = symbol_of(node.operator, scope)
    if not isinstance(symbol, BuiltIn) or (symbol.module, symbol.name) != ("TLC", "TLCGet"):
        return None
    return node.arguments[0].value if isinstance(node.arguments[0], ast.String) else None


def answering(answers: Answers) -> AbstractContextManager[Context]:
    """Within this, ``TLCGet`` has these answers, and the registers that it had."""
    return using(Context(answers, current().registers, current().say))


def constant(config: Config) -> Answers:
    """What is the same for a whole run. ``\\cdot`` is always there."""
    whole = record(mode="bfs", deadlock=config.deadlock is not False, worker=1)
    return {"config": lambda: whole, "-Dtlc2.tool.impl.Tool.cdot": lambda: "true"}


def assumed(config: Config) -> Answers:
    """The answers for assumptions."""
    return {**constant(config), "level": lambda: 0}


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
        **assumed(config),
        **{name: partial(int, number) for name, number in numbers.items()},
        "stats": lambda: record(**numbers, worker=0),
    }


def shown(config: Config, level: int) -> Answers:
    """The answers for ``ALIAS``. ``level``: 1 for the initial state."""
    return {**constant(config), "level": lambda: level}
