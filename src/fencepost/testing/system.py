"""A system of a user's, led along its protocol step by step."""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

import fencepost
from fencepost.behaviours import Step, Trace
from fencepost.behaviours.formatting import abridged
from fencepost.behaviours.replay import actor, taken
from fencepost.errors import OptionError
from fencepost.language.values import show
from fencepost.semantics import Outcome, Root, State
from fencepost.testing.compare import matches
from fencepost.testing.graph import Graph, Move
from fencepost.testing.walk import Difference, Edge, Reading, Row, driven_text
from fencepost.testing.world import World

CALL = "the call"

_NOT_THEIRS = (str(Path(fencepost.__file__).parent), sysconfig.get_path("stdlib"), "<")


class Adapter:
    """What calls a user's system. ``make`` makes a fresh one: its class, or a function.

    It has a method for each action, with the action's parameters, and :meth:`observe`. Raises :class:`OptionError` for
    what it lacks.
    """

    def __init__(self, make: Callable[[], Any], graph: Graph) -> None:
        self.make = make
        self.name = getattr(make, "__name__", type(make).__name__)
        self.is_async = _is_async(make)
        with World(0, self.is_async) as world:
            try:
                made = world.call(make)
            except Exception as error:
                raise OptionError(f"{self.name}() raises {raised(error)}: it makes a fresh system") from error
            self.is_async = self.is_async or _is_async(type(made))
            self.left_out: frozenset[str] = frozenset(_names(made, "leaves_out"))
            self.refuses: dict[str, type[Exception] | tuple[type[Exception], ...]] = {
                name: kind for name, kind in getattr(made, "refuses", {}).items() if name not in self.left_out
            }
            self.given = {root.name: self._given(made, root) for root in graph.roots if root.name not in self.left_out}
            try:
                self._look_at(made, graph)
            finally:
                self.end(world, made)

    def end(self, world: World, made: Any) -> None:
        """Close a system, if it can be closed."""
        if hasattr(made, "close"):
            try:
                world.call(made.close)
            except Exception as error:
                raise OptionError(f"{self.name}.close() raises {raised(error)}: it ends a behaviour") from error

    def _given(self, made: Any, root: Root) -> frozenset[str]:
        """What the method of an action is given besides its parameters: ``choices``, ``after``."""
        method = getattr(made, root.name, None)
        if method is None:
            return frozenset({""})
        asked = inspect.signature(method).parameters
        return frozenset({"choices", "after"} & asked.keys() - root.parameters.keys())

    def _look_at(self, made: Any, graph: Graph) -> None:
        actions = list(dict.fromkeys(root.name for root in graph.roots))
        missing = [name for name, given in self.given.items() if "" in given]
        if missing:
            raise OptionError(
                f"{self.name} has no method for {', '.join(missing)}: write one for each action of"
                f" {graph.protocol.name}, or name those that cannot be driven in leaves_out"
            )
        if not hasattr(made, "observe"):
            raise OptionError(f"{self.name} has no observe(): it gives the variables to compare, as a dictionary")
        for what in ("leaves_out", "refuses"):
            for name in _names(made, what):
                if name not in actions:
                    raise OptionError(f"{self.name}.{what} has {name}, which is no action{_meant(name, actions)}")


def _is_async(make: Any) -> bool:
    if not isinstance(make, type):
        return inspect.iscoroutinefunction(make)
    return any(inspect.iscoroutinefunction(getattr(make, name, None)) for name in dir(make))


def _names(made: Any, what: str) -> list[str]:
    found = getattr(made, what, ())
    return [found] if isinstance(found, str) else list(found)


def _meant(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f": is {near[0]} meant?" if near else f": there are {', '.join(known)}"


class Behaviour:
    """One behaviour of a fresh system. ``steps``: what was done so far; ``moves``: the same, to do it again."""

    def __init__(self, adapter: Adapter, graph: Graph, seed: int) -> None:
        self.adapter = adapter
        self.graph = graph
        self.moves: list[Move] = []
        self.steps: list[Step] = []
        self.is_ambiguous = False
        """Several states fit what was observed last, so that the next step is not known."""
        self._world = World(seed, adapter.is_async)

    def __enter__(self) -> Behaviour:
        self._world.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if hasattr(self, "system"):
                self.adapter.end(self._world, self.system)
        finally:
            self._world.__exit__(kind, error, at)

    @property
    def length(self) -> int:
        """The number of steps, without calls that were refused."""
        return sum(not move.is_refused for move in self.moves)

    @property
    def trace(self) -> Trace:
        """The behaviour up to now."""
        return Trace(self.graph.protocol, self.initial, tuple(self.steps))

    @property
    def state(self) -> int:
        """The fingerprint of the state."""
        return self.graph.fingerprint(self.row)

    def begin(self) -> None:
        """Make the system. Raises :class:`Difference` if it begins in no initial state of the protocol."""
        starts = self.graph.stepper.initial_states()
        self.initial, self.row = starts[0], starts[0].ids
        self.system = self._call(f"{self.adapter.name}()", self.adapter.make)
        fitting = self._fitting([state.ids for state in starts])
        if len(fitting) > 1:
            raise OptionError(
                f"{len(fitting)} initial states of {self.graph.protocol.name} fit what {self.adapter.name} shows:"
                " observe what tells them apart"
            )
        self.row = fitting[0]
        self.initial = State(self.graph.stepper.store, self.row)

    def take(self, move: Move) -> Edge | None:
        """Make a call; the transition that the system took, or None if the protocol does not allow the call here.

        Raises :class:`Difference` if the system did what the protocol does not.
        """
        root, outcomes = move.root, self.graph.outcomes(move.root, self.row)
        if move.is_refused:
            if not outcomes:
                self._refused(move)
            return None
        planned = next((outcome for outcome in outcomes.values() if outcome.choices == move.choices), None)
        if planned is None:
            return None
        before, source = self.row, self.state
        self._go(move, planned)
        asked = self.adapter.given[root.name]
        given: dict[str, Any] = {"choices": planned.labels} if "choices" in asked else {}
        if "after" in asked:
            given["after"] = self._bound(self.row)
        values, parameters = _called(root)
        self._call(CALL, getattr(self.system, root.name), *values, **parameters, **given)
        if asked or len(outcomes) == 1:
            self._fitting([self.row])
        else:
            # The system chooses. What was planned comes first: a difference is one from it.
            every = [planned, *(outcome for outcome in outcomes.values() if outcome is not planned)]
            after = [self.graph.stepper.apply(before, outcome) for outcome in every]
            fitting = self._fitting(after)
            self.is_ambiguous = len(fitting) > 1
            chosen = every[after.index(fitting[0])]
            if chosen is not planned:
                del self.moves[-1], self.steps[-1]
                self.row = before
                self._go(move._replace(choices=chosen.choices), chosen)
        return Edge(source, root.name, _parameters(self.graph, root), self.state)

    def _refused(self, move: Move) -> None:
        root = move.root
        self.moves.append(move)
        title = f"{root.title} is refused"
        by = actor(root.declared.by, root.parameters)
        state = State(self.graph.stepper.store, self.row)
        self.steps.append(Step(root.name, root.parameters, by, (), (), state, [], title, root.declared.place))
        kind = self.adapter.refuses[root.name]
        named = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        values, parameters = _called(root)
        no_outcome: dict[str, Any] = {"choices": (), "after": None}
        given = {name: no_outcome[name] for name in self.adapter.given[root.name]}
        try:
            self._world.call(getattr(self.system, root.name), *values, **parameters, **given)
        except kind:
            self._fitting([self.row])
            return
        except Exception as error:
            raise Difference(CALL, f"raises {named}", f"raises {raised(error)}") from error
        raise Difference(CALL, f"raises {named}, for the action is not enabled", "returns")

    def _go(self, move: Move, outcome: Outcome) -> None:
        stepper = self.graph.stepper
        self.moves.append(move)
        self.steps.append(taken(stepper, State(stepper.store, self.row), move.root, outcome))
        self.row = self.steps[-1].state.ids

    def _call(self, what: str, function: Callable[..., Any], *values: Any, **parameters: Any) -> Any:
        try:
            return self._world.call(function, *values, **parameters)
        except Exception as error:
            raise Difference(what, "returns", f"raises {raised(error)}") from error

    def _fitting(self, rows: list[Row]) -> list[Row]:
        """Those states that fit what the system shows. Raises :class:`Difference` from the first if there are none."""
        seen = self._call("observe()", self.system.observe)
        if not isinstance(seen, Mapping):
            raise OptionError(f"{self.adapter.name}.observe() gives {seen!r}: give a dictionary of variables")
        differences = {row: self._difference(row, seen) for row in rows}
        fitting = [row for row, difference in differences.items() if difference is None]
        if not fitting:
            difference = differences[rows[0]]
            assert difference is not None
            if len(rows) > 1:
                difference.expected = f"{difference.expected}, or what another of {len(rows)} states has"
            raise difference
        return fitting

    def _difference(self, row: Row, seen: Mapping[str, Any]) -> Difference | None:
        known: Mapping[str, Any]
        if hasattr(self.system, "expected"):
            known = self.system.expected(self._bound(row))
        else:
            known = State(self.graph.stepper.store, row).variables()
        for name, actual in seen.items():
            if name not in known:
                raise OptionError(
                    f"{self.adapter.name}.observe() gives {name}, which is no variable of {self.graph.protocol.name}"
                    f"{_meant(name, [*known])}"
                )
            if not matches(known[name], actual):
                return Difference(name, abridged(show(known[name])), abridged(driven_text(repr(actual))))
        return None

    def _bound(self, row: Row) -> Any:
        return self.graph.protocol.bound_to(Reading(self.graph.stepper.store, row))


def _called(root: Root) -> tuple[list[Any], dict[str, Any]]:
    """The parameters of an action, those without a name first: TLA+ has such."""
    named = {name: value for name, value in root.parameters.items() if name.isidentifier()}
    return [value for name, value in root.parameters.items() if name not in named], named


def _parameters(graph: Graph, root: Root) -> str:
    return next(parameters for (name, parameters), other in graph.actions.items() if other is root)


def raised(error: BaseException) -> str:
    """An exception in one line, with the place in the user's code."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(_NOT_THEIRS)]
    place = f", at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    said = next(iter(str(error).splitlines()), "")
    return driven_text(f"{type(error).__name__}{f': {said}' if said else ''}{place}")
