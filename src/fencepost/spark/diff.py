"""Two state spaces held against each other: which states one has and the other has not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from fencepost.errors import OptionError
from fencepost.spark.sql import explained, states
from fencepost.states.kinds import Kind, agree, from_column, text
from fencepost.states.manifest import StateSpace

MOST_VALUES = 8
"""How many of the values that only one side has are told for each part of the state."""


@dataclass(frozen=True)
class Side:
    """What one state space has and the other has not.

    ``distinct``: its states, projected on the common parts; ``only``: those that the other one lacks. ``nearest``: fingerprint and depth of
    the first of them. ``values``: for each part that holds values here which it never holds there, some of these.
    """

    space: StateSpace
    distinct: int
    only: int
    nearest: tuple[int, int] | None
    values: dict[str, list[Any]]


@dataclass(frozen=True)
class Difference:
    """Two state spaces, and the parts of the state that only one of them has, or with other kinds of values: they do not take part."""

    sides: tuple[Side, Side]
    common: int
    left_out: tuple[str, ...]


def difference(spark: Any, one: StateSpace, other: StateSpace, parts: Sequence[str] = ()) -> Difference:
    """What each of two state spaces has that the other has not. ``parts``: compare only these parts of the state, with all below them
    (``bookie`` is ``bookie.b1.fenced`` and others).

    Raises :class:`fencepost.OptionError` if they have no parts in common.
    """
    every = [name for name in {**one.parts, **other.parts} if not parts or any(_is_within(name, part) for part in parts)]
    for part in parts:
        if not any(_is_within(name, part) for name in every):
            known = dict.fromkeys(name.partition(".")[0] for name in one.parts)
            raise OptionError(f"there is no part {part} of the state: there are {', '.join(known)}, and what is below them")
    shared = [name for name in every if name in one.parts and name in other.parts and agree(one.parts[name], other.parts[name])]
    if not shared:
        raise OptionError(f"{one.directory} and {other.directory} have no part of the state in common")
    with explained(one):
        projected = [_comparable(spark, space, shared).select(*map(_quoted, shared)).distinct().cache() for space in (one, other)]
        sides = tuple(
            _side(spark, space, projected[place], projected[1 - place], shared) for place, space in enumerate((one, other))
        )
        for held in projected:
            held.unpersist()
    left_out = [name for name in every if name not in shared]
    return Difference((sides[0], sides[1]), sides[0].distinct - sides[0].only, tuple(left_out))


def _side(spark: Any, space: StateSpace, mine: Any, theirs: Any, shared: list[str]) -> Side:
    same = reduce(lambda a, b: a & b, (mine[_quoted(name)].eqNullSafe(theirs[_quoted(name)]) for name in shared))
    only = mine.join(theirs, same, "left_anti").cache()
    count = only.count()
    nearest = None
    values: dict[str, list[Any]] = {}
    if count:
        table = _comparable(spark, space, shared)  # read anew: Spark takes the same columns of one table for the same
        here = reduce(lambda a, b: a & b, (table[_quoted(name)].eqNullSafe(only[_quoted(name)]) for name in shared))
        first = table.join(only, here, "left_semi").select("fingerprint", "depth").orderBy("depth", "fingerprint").first()
        nearest = (first.fingerprint, first.depth)
        values = _values(space, only, theirs, shared)
    only.unpersist()
    return Side(space, mine.count(), count, nearest, values)


def _comparable(spark: Any, space: StateSpace, shared: list[str]) -> Any:
    """The states, with values that have parts as JSON: those of two tables can be compared whatever the types of parts that neither has."""
    from pyspark.sql import functions as f

    table = states(spark, space.directory)
    made = {name: f.to_json(table[_quoted(name)], {"ignoreNullFields": "false"}) for name in shared if isinstance(space.parts[name], dict)}
    return table.withColumns(made) if made else table


def _values(space: StateSpace, only: Any, theirs: Any, shared: list[str]) -> dict[str, list[Any]]:
    from pyspark.sql import functions as f

    def held(table: Any) -> list[list[Any]]:
        sets = [f.collect_set(_quoted(name)).alias(str(place)) for place, name in enumerate(shared)]
        return list(table.agg(*sets).first())

    found = {name: sorted(set(here) - set(there)) for name, here, there in zip(shared, held(only), held(theirs), strict=True)}
    return {name: [_told(space.parts[name], value) for value in values[:MOST_VALUES]] for name, values in found.items() if values}


def _told(kind: Kind, value: Any) -> Any:
    return text(from_column(json.loads(value), kind), kind) if isinstance(kind, dict) else value


def _is_within(name: str, part: str) -> bool:
    return name == part or name.startswith((f"{part}.", f"{part}["))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
