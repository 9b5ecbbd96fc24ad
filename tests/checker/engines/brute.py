"""A naive explorer, to check the engines against. It shares only the language with them.

It has its own cursor over a dictionary of slots. It compares values as nested tuples of type and content, not by the
encoding under fingerprints. It keeps whole states in sets, without fingerprints. `engines/interface.py` defines an
exploration.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost import ModelValue, Record
from fencepost.language.context import Disabled, Event, Slot, current
from fencepost.language.declarations import Declared
from fencepost.language.seam import Model
from fencepost.language.values import freeze, show

Tag = tuple[Any, ...]
Key = Any


def tag(value: Any) -> Tag:
    """A key that is equal exactly if type and content are: ``True``, ``1`` and ``1.0`` have three tags."""
    if hasattr(value, "__value__"):
        value = value.__value__()
    if isinstance(value, enum.Enum):
        return ("enum", type(value).__name__, value.name)
    if isinstance(value, ModelValue):
        return ("model", value.name)
    if isinstance(value, tuple):
        return ("tuple", *map(tag, value))
    if isinstance(value, frozenset):
        return ("set", frozenset(map(tag, value)))
    if isinstance(value, Record):
        return ("record", type(value).__name__, *(tag(getattr(value, name)) for name in value._fields))
    if isinstance(value, Mapping):
        return ("map", frozenset((tag(k), tag(v)) for k, v in value.items()))
    if isinstance(value, type):
        return ("type", value.__qualname__)
    assert value is None or type(value) in (bool, int, float, str, bytes), value
    return (type(value).__name__, value)


@dataclass(frozen=True)
class Row:
    """A whole state: the slots whose values are not their defaults."""

    held: dict[Tag, tuple[Slot, Any]]

    @property
    def key(self) -> Key:
        return frozenset((path, tag(value)) for path, (_, value) in self.held.items())

    def read(self, slot: Slot) -> Any:
        path = tag(slot.path)
        return self.held[path][1] if path in self.held else slot.default

    def __str__(self) -> str:
        return ", ".join(sorted(f"{slot.name}={show(value)}" for slot, value in self.held.values())) or "as declared"


class _Cursor:
    """One run of an action that takes the options of ``script``. ``widths`` records the number of options at each
    choice.
    """

    disabled = False

    def __init__(self, row: Row, script: Sequence[int]) -> None:
        self.held = dict(row.held)
        self.script = script
        self.widths: list[int] = []

    def read(self, slot: Slot) -> Any:
        path = tag(slot.path)
        return self.held[path][1] if path in self.held else slot.default

    def write(self, slot: Slot, value: Any) -> None:
        value, path = freeze(value), tag(slot.path)
        self.held.pop(path, None)
        if tag(value) != tag(slot.default):
            self.held[path] = (slot, value)

    def choose(self, options: Sequence[Any]) -> Any:
        at = len(self.widths)
        self.widths.append(len(options))
        return options[self.script[at] if at < len(self.script) else 0]

    def emit(self, event: Event) -> None:
        pass


def runs(
    protocol: Model, function: Callable[..., Any], row: Row, **parameters: Any
) -> Iterator[tuple[tuple[int, ...], Row]]:
    """Every run of ``function`` in ``row``: the options it took and the state after."""
    todo: list[list[int]] = [[]]
    while todo:
        script = todo.pop()
        cursor = _Cursor(row, script)
        token = current.set(cursor)
        try:
            function(protocol.bound_to(cursor), **parameters)
        except Disabled:
            after = None
        else:
            after = Row(cursor.held)
        finally:
            current.reset(token)
        taken = script + [0] * (len(cursor.widths) - len(script))
        # All other options of the choices beyond this script.
        for at in range(len(script), len(cursor.widths)):
            todo.extend(taken[:at] + [option] for option in range(1, cursor.widths[at]))
        if after is not None:
            yield tuple(taken), after


def holds(protocol: Model, declared: Declared, *rows: Row) -> bool:
    """Whether a property holds in a state, or of a step, for every binding of its parameters."""
    views = [protocol.bound_to(_Cursor(row, ())) for row in rows]
    return all(declared.function(*views, **parameters) for parameters in declared.parameters(protocol))


@dataclass
class Space:
    """The result of an exploration. ``broken``: violated properties by name, with the number of states of the shortest
    trace, including the initial one. ``reached``: the same for ``sometimes`` properties, by title.
    """

    states: dict[Key, Row] = field(default_factory=dict)
    outside: set[Key] = field(default_factory=set)
    levels: list[int] = field(default_factory=list)
    generated: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    edges: set[tuple[Key, str, Key]] = field(default_factory=set)
    broken: dict[str, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    queue: int = 0

    @property
    def distinct(self) -> int:
        return len(self.states)

    @property
    def depth(self) -> int:
        return len(self.levels)


def title(declared: Declared, parameters: Mapping[str, Any]) -> str:
    bound = ", ".join(f"{n}={show(v)}" for n, v in parameters.items())
    return f"{declared.name}({bound})" if bound else declared.name


def explore(
    protocol: Model,
    *,
    deadlock: bool = False,
    keep_going: bool = False,
    max_depth: int | None = None,
    cap: int | None = None,
) -> Space:
    """Explore every reachable state, level by level. Past ``cap`` states no further level is begun."""
    space = Space()
    views = protocol.declared("view")
    actions = [(d, p) for d in protocol.declared("action") for p in d.parameters(protocol)]
    constraints, step_constraints = protocol.declared("constraint"), protocol.declared("step_constraint")
    invariants, step_invariants = protocol.declared("invariant"), protocol.declared("step_invariant")
    sought = [(d, p) for d in protocol.declared("sometimes") for p in d.parameters(protocol)]

    def identity(row: Row) -> Key:
        return tag(freeze(views[0].function(protocol.bound_to(_Cursor(row, ()))))) if views else row.key

    def discover(row: Row, depth: int) -> Key | None:
        """Add a state. Gives its key if it is new and inside the constraints."""
        key = identity(row)
        if key in space.states or key in space.outside:
            return None
        for declared in invariants:
            if not holds(protocol, declared, row):
                space.broken.setdefault(declared.name, depth)
        for declared, parameters in sought:
            if declared.function(protocol.bound_to(_Cursor(row, ())), **parameters):
                space.reached.setdefault(title(declared, parameters), depth)
        if not all(holds(protocol, c, row) for c in constraints):
            space.outside.add(key)
            return None
        space.states[key] = row
        return key

    setups = protocol.declared("initial")
    starts = [row for _, row in runs(protocol, setups[0].function, Row({}))] if setups else [Row({})]
    starts = list({row.key: row for row in starts}.values())
    space.generated = len(starts)
    level = [key for key in (discover(row, 1) for row in starts) if key is not None]
    if starts:
        space.levels.append(len(level))
    while level:
        depth = space.depth
        if (space.broken and not keep_going) or depth == max_depth or (cap is not None and space.distinct > cap):
            break
        following: list[Key] = []
        for key in level:
            row, alive = space.states[key], False
            for declared, parameters in actions:
                for _, after in runs(protocol, declared.function, row, **parameters):
                    alive = True
                    if not all(holds(protocol, c, row, after) for c in step_constraints):
                        continue
                    space.generated += 1
                    space.taken[title(declared, parameters)] += 1
                    space.edges.add((key, title(declared, parameters), identity(after)))
                    for step_invariant in step_invariants:
                        if not holds(protocol, step_invariant, row, after):
                            space.broken.setdefault(step_invariant.name, depth + 1)
                    found = discover(after, depth + 1)
                    if found is not None:
                        following.append(found)
            if deadlock and not alive:
                space.broken.setdefault("deadlock", depth)
        if following:
            space.levels.append(len(following))
        level = following
    space.queue = len(level)
    space.complete = not level
    return space
