"""Runs an action or a property in one state and records, in order, what it read, chose and wrote.

The record of one evaluation is a decision tree with a single way through its reads and every way through its choices: a
chain of :class:`Read`, a :class:`Fork` where options go on to read different things, and :class:`Leaf` with what comes
out. The compiler grows tries from these; the reference explorer, replay and checking mode walk them as they are.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import os
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from fencepost.errors import FencepostError, Misbehaved, NotAProtocol, ProtocolRaised, SystemFailure
from fencepost.spec import refinement as spec
from fencepost.spec.context import MAX_WAYS, Disabled, Event, InOrder, Slot, current
from fencepost.spec.fields import PerKeyView, RecordView, TableView
from fencepost.spec.network import Network
from fencepost.spec.protocol import JUDGED, TEMPORAL, Declared, Protocol
from fencepost.spec.values import NotAValue, Value, freeze, show
from fencepost.step.deadline import Deadline
from fencepost.step.mapping import Part, Side
from fencepost.step.refinement import CHANGE, After, Change, Changes, Refinement, Steps
from fencepost.step.state import State, Store

if TYPE_CHECKING:
    from fencepost.step.guard import Guard

PROPERTIES = ("constraint", "invariant", "sometimes")
STEP_PROPERTIES = ("step_constraint", "step_invariant", "refinement")
MAPPING = "mapping"
"""The kind of the parts of another protocol's state that a refinement computes. They are evaluated in every state, and
always hold.
"""


@dataclass(frozen=True)
class Root:
    """Something that is evaluated in every state: an action with its parameters bound, or a property.

    ``index`` orders roots: constraints, invariants, what is to be sometimes true, computed parts of refinements, step
    constraints, step invariants, refinements, actions, then temporal properties, each as declared. ``part``: which of
    the pair of truths of a leads-to property this is.
    """

    index: int
    declared: Declared
    parameters: dict[str, Value]
    part: int = 0

    @property
    def kind(self) -> str:
        """``action``, ``invariant``, ``sometimes``, ``constraint``, ``step_invariant``, ``step_constraint``,
        ``refinement``, ``mapping`` or a temporal kind.
        """
        return self.declared.kind

    @property
    def name(self) -> str:
        """The action's or property's name."""
        return self.declared.name

    @property
    def reported(self) -> str:
        """What a violation or a witness of it is called: by its name, but what is to be sometimes true by its title,
        for each binding.
        """
        return self.title if self.kind == "sometimes" else self.name

    @property
    def title(self) -> str:
        """The name with its parameters: ``bookie_confirms_add(b=b1)``."""
        bound = ", ".join(f"{n}={show(v)}" for n, v in self.parameters.items())
        return f"{self.name}({bound})" if bound else self.name

    def __str__(self) -> str:
        kind = {"action": "action", "initial": "initial state"}.get(self.kind, self.kind.replace("_", " "))
        return f"{kind} {self.title}"


@dataclass(frozen=True)
class Demand:
    """One demand of fairness: of the actions in ``roots`` (numbers), taken together. ``strong`` or weak."""

    strong: bool
    title: str
    roots: frozenset[int]


@dataclass(frozen=True)
class Outcome:
    """One way an evaluation can end.

    ``choices`` are the numbers of the options taken, ``labels`` what they were. ``writes`` maps a slot to its (old,
    new) value numbers, only where they differ. ``events`` are what the action told for a trace.
    """

    choices: tuple[int, ...]
    labels: tuple[Value, ...]
    writes: dict[int, tuple[int, int]]
    events: tuple[Event, ...] = ()


@dataclass
class Leaf:
    """Where an evaluation ends: nothing if it is not enabled (or the property holds), else every outcome, in order.

    For a temporal property, and for what is to be sometimes true, it is the other way round: an outcome where it is
    true.
    """

    outcomes: list[Outcome]


@dataclass
class Read:
    """``slot`` was read and held value number ``value``. For step properties, slot 2i is i before and 2i+1 is i
    after.
    """

    slot: int
    value: int
    then: Branch


@dataclass
class Fork:
    """A choice between options that go on to read: every branch is taken."""

    branches: list[Branch]


Branch = Read | Fork | Leaf


@dataclass
class _Path:
    """One evaluation with its choices fixed."""

    # ("read", slot, value) or ("choose", options, taken)
    trail: list[tuple[str, int, int]] = field(default_factory=list)
    labels: list[Value] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    enabled: bool = True
    writes: dict[int, int] = field(default_factory=dict)


class _NoSuchOption(Misbehaved):
    """A choice was to be made for which there is no such option."""


class _Recorder:
    """The cursor behind one evaluation: a state, the choices to take, and the trail of what happened."""

    def __init__(
        self,
        store: Store,
        ids: Sequence[int],
        script: Sequence[int],
        path: _Path,
        lane: int | None = None,
        options: list[Sequence[Value]] | None = None,
    ) -> None:
        self.store = store
        self.ids = ids
        self.script = script
        self.path = path
        self.lane = lane
        self.seen: set[int] = set()
        self.taken = 0
        self.options: list[Sequence[Value]] = [] if options is None else options
        self.read_only = lane is not None
        self.disabled = False

    def read(self, slot: Slot) -> Value:
        index = self.store.slot(slot)
        if self.lane is None and index in self.path.writes:
            return self.store.values[index][self.path.writes[index]]
        number = int(self.ids[index]) if index < len(self.ids) else 0
        if index not in self.seen:
            self.seen.add(index)
            self.path.trail.append(("read", index if self.lane is None else 2 * index + self.lane, number))
        return self.store.values[index][number]

    def write(self, slot: Slot, value: Value) -> None:
        if self.read_only:
            raise NotAValue("a property can not assign to the state")
        index = self.store.slot(slot)
        try:
            frozen = freeze(value)
        except NotAValue as error:
            raise NotAValue(f"{slot.name} is assigned {error}") from None
        # Reading what is overwritten makes the effect on the fingerprint a constant of the path.
        self.read(slot)
        self.path.writes[index] = self.store.intern(index, frozen)

    def choose(self, options: Sequence[Value]) -> Value:
        if self.read_only:
            raise NotAValue("a property can not choose")
        taken = self.script[self.taken] if self.taken < len(self.script) else 0
        options = self._as_before(options)
        if taken >= len(options):
            raise _NoSuchOption("was not deterministic: the same choice had fewer options the second time")
        self.taken += 1
        self.path.trail.append(("choose", len(options), taken))
        try:
            self.path.labels.append(freeze(options[taken]))
        except NotAValue as error:
            raise NotAValue(f"an option of one_of(...) is {error}") from None
        return options[taken]

    def _as_before(self, options: Sequence[Value]) -> Sequence[Value]:
        """The same options as the last evaluation that came this way put them in order, if it did."""
        known = self.options[self.taken] if self.taken < len(self.options) else None
        if isinstance(known, InOrder) and isinstance(options, InOrder) and len(known) == len(options):
            return known
        self.options[self.taken :] = [options]
        return options

    def tell(self, event: Event) -> None:
        self.path.events.append(event)


class Stepper:
    """A protocol that can be stepped: its roots, its store of values, and the evaluation of one root in one state.

    ``invariants`` selects state and step invariants by name; by default all that are not turned off by their ``when``.
    ``checking`` runs every evaluation twice and watches it (see `guard`), so that a protocol that reads more than its
    state is caught. ``deadline`` ends evaluations when a limit is reached. Raises :class:`fencepost.NotAProtocol` for
    an action or property whose parameters and domains do not fit.
    """

    def __init__(
        self,
        protocol: Protocol,
        invariants: Sequence[str] | None = None,
        checking: bool = False,
        deadline: Deadline | None = None,
    ) -> None:
        self.deadline = deadline or Deadline()
        self.protocol = protocol
        self.checking = checking
        self.store = Store(protocol)
        self.evaluations = 0
        self.roots: list[Root] = []
        self.changes = Changes()
        self.refinements: dict[str, Refinement] = {}
        for kind in PROPERTIES:
            self._add_roots(kind, invariants)
        for refined in protocol.declared("refinement"):
            if self._selected(refined, invariants):
                self._add_refinement(refined)
        for kind in STEP_PROPERTIES:
            self._add_roots(kind, invariants)
        for declared in protocol.declared("action"):
            for parameters in _bindings(declared, protocol, self.deadline):
                self.roots.append(Root(len(self.roots), declared, parameters))
        for kind in TEMPORAL:
            for declared in protocol.declared(kind):
                if self._selected(declared, invariants):
                    for parameters in _bindings(declared, protocol, self.deadline):
                        for part in range(2 if kind == "leads_to" else 1):
                            self.roots.append(Root(len(self.roots), declared, parameters, part))
        self._view = next(iter(protocol.declared("view")), None)
        self._view_slot = Slot(("view()",), None, constant=False)  # no variable can have this name
        self._project()

    def _add_roots(self, kind: str, invariants: Sequence[str] | None) -> None:
        for declared in self.protocol.declared(kind):
            if self._selected(declared, invariants):
                for parameters in _bindings(declared, self.protocol, self.deadline):
                    self.roots.append(Root(len(self.roots), declared, parameters))

    def _add_refinement(self, declared: Declared) -> None:
        """Set a refinement up, with a root for each part of the other protocol's state that it computes."""
        assert isinstance(declared, spec.Refinement)
        with self.deadline.evaluating(f"what refinement {declared.name} refines"):
            refinement = self.refinements[declared.name] = Refinement(declared, self.protocol, self.store)
        for part in refinement.mapping.parts:
            refinement.mapping.numbers[part] = len(self.roots)
            computed = Declared(
                MAPPING, partial(_is_computed, refinement, part), name=f"{part.name} of {declared.name}"
            )
            self.roots.append(Root(len(self.roots), computed, {}))

    def _selected(self, declared: Declared, invariants: Sequence[str] | None) -> bool:
        if declared.kind not in JUDGED:
            return True
        if invariants:
            return declared.name in invariants
        return declared.when is None or bool(declared.when(self.protocol))

    def of_kind(self, *kinds: str) -> list[Root]:
        """The roots of these kinds, in order."""
        return [r for r in self.roots if r.kind in kinds]

    def demands(self) -> list[Demand]:
        """What the protocol declares to be fair, for each binding that it tells apart.

        Raises :class:`fencepost.NotAProtocol` for a parameter that the actions do not have.
        """
        found: list[Demand] = []
        for fairness in self.protocol.fairness:
            roots = [r for r in self.of_kind("action") if not fairness.actions or r.name in fairness.actions]
            if fairness.per is None:
                found += [Demand(fairness.strong, r.title, frozenset([r.index])) for r in roots]
                continue
            groups: dict[tuple[Value, ...], list[Root]] = {}
            for root in roots:
                for name in fairness.per:
                    if name not in root.parameters:
                        raise NotAProtocol(f"fairness per {name}: action {root.name} has no parameter {name}")
                groups.setdefault(tuple(root.parameters[n] for n in fairness.per), []).append(root)
            what = ", ".join(dict.fromkeys(r.name for r in roots)) if fairness.actions else "any action"
            for values, group in groups.items():
                bound = ", ".join(f"{n}={show(v)}" for n, v in zip(fairness.per, values, strict=True))
                title = f"{what} with {bound}" if bound else what
                found.append(Demand(fairness.strong, title, frozenset(r.index for r in group)))
        return found

    # -- evaluating ---------------------------------------------------------------------------------------------------

    def initial_states(self) -> list[State]:
        """Every initial state, in the order of the choices that lead to it; duplicates removed."""
        blank: list[int] = []
        setups = self.protocol.declared("initial")
        root = Root(-1, setups[0] if setups else Declared("initial", lambda protocol: None, name="as declared"), {})
        found: dict[tuple[int, ...], State] = {}
        for path in self._paths(root, blank):
            if path.enabled:
                state = State(self.store, self._apply(blank, path.writes))
                found.setdefault(state.ids, state)
        return list(found.values())

    def evaluate(
        self, root: Root, ids: Sequence[int], after: Sequence[int] | None = None, change: int | None = None
    ) -> Branch:
        """The decision tree of ``root`` in the state ``ids`` (and, for a step property, its successor ``after``).

        ``change``: for a refinement, the number of the change that the step is, which is then what its tree reads
        first. Raises :class:`fencepost.ProtocolRaised` if the author's Python does, or breaks a rule of the language.
        """
        paths = list(self._paths(root, ids, after, change))
        try:
            return _tree(paths, 0, ids)
        except FencepostError as error:
            raise self._raised(root, ids, str(error)) from None

    def outcomes(self, root: Root, ids: Sequence[int], after: Sequence[int] | None = None) -> list[Outcome]:
        """Every outcome of ``root`` here, in the order of its choices; for a property: empty if it holds (if it is to
        be sometimes true: if it is not).

        A refinement is judged over a step, or, without a state ``after`` it, as that of an initial state.
        """
        return [_outcome(path, ids) for path in self._paths(root, ids, after) if path.enabled]

    def outcome(self, root: Root, ids: Sequence[int], choices: Sequence[int]) -> Outcome | None:
        """The outcome of an action with these choices, by number; None if it has none. Looks at no other way through
        its choices.
        """
        if any(number < 0 for number in choices):
            return None
        try:
            path = self._run(root, ids, None, choices)
        except ProtocolRaised as error:
            if isinstance(error.__cause__, _NoSuchOption):
                return None
            raise
        found = _outcome(path, ids)
        return found if path.enabled and found.choices == tuple(choices) else None

    def apply(self, ids: Sequence[int], outcome: Outcome) -> tuple[int, ...]:
        """The row after an outcome."""
        return self._apply(ids, {slot: new for slot, (_, new) in outcome.writes.items()})

    def _apply(self, ids: Sequence[int], writes: dict[int, int]) -> tuple[int, ...]:
        row = list(ids) + [0] * (len(self.store.slots) - len(ids))
        for slot, number in writes.items():
            row[slot] = number
        return self.store.normal(row)

    def _paths(
        self, root: Root, ids: Sequence[int], after: Sequence[int] | None = None, change: int | None = None
    ) -> Iterator[_Path]:
        script: list[int] = []
        options: list[Sequence[Value]] = []
        for _ in range(MAX_WAYS):
            path = self._run(root, ids, after, script, options, change)
            yield path
            choices = [(options, taken) for what, options, taken in path.trail if what == "choose"]
            while choices and choices[-1][1] + 1 == choices[-1][0]:
                choices.pop()
            if not choices:
                return
            script = [taken for _, taken in choices[:-1]] + [choices[-1][1] + 1]
            # What is chosen from follows from the choices before.
            del options[len(script) :]
        raise self._raised(root, ids, f"has more than {MAX_WAYS:,} ways through its choices: is one infinite?")

    def _run(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None,
        script: Sequence[int],
        options: list[Sequence[Value]] | None = None,
        change: int | None = None,
    ) -> _Path:
        if self.checking:
            options = None
        path = self._run_once(root, ids, after, script, options, change)
        if self.checking and self._run_once(root, ids, after, script, None, change) != path:
            raise self._raised(
                root,
                ids,
                "did something else when it was run again in the same state: it depends on more than the state",
            )
        return path

    def _run_once(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None,
        script: Sequence[int],
        options: list[Sequence[Value]] | None = None,
        change: int | None = None,
    ) -> _Path:
        self.evaluations += 1
        path = _Path()
        stepwise = after is not None
        recorder = _Recorder(self.store, ids, script, path, 0 if stepwise else None, options)
        recorder.read_only = root.kind not in ("action", "initial")
        bound = self.protocol.bound_to(recorder)
        self.deadline.begin(root, self.store, ids)
        token = current.set(recorder)
        try:
            with self._guard():
                if root.kind == "refinement":
                    path.enabled = not self._refines(root, recorder, ids, after, change)
                elif after is not None:
                    later = self.protocol.bound_to(_Recorder(self.store, after, (), path, lane=1))
                    path.enabled = not _truth(root.declared.function(bound, later, **root.parameters))
                elif root.kind in TEMPORAL:
                    path.enabled = _temporal_truth(root, root.declared.function(bound, **root.parameters))
                elif root.kind == "sometimes":
                    path.enabled = _truth(root.declared.function(bound, **root.parameters))
                elif recorder.read_only:
                    path.enabled = not _truth(root.declared.function(bound, **root.parameters))
                else:
                    _nothing(root.declared.function(bound, **root.parameters))
                    self._look(recorder, bound)
            if recorder.disabled:
                raise Misbehaved(
                    "went on after require(...) was not satisfied, which can not be caught: write except Exception, not"
                    " except, and no return in a finally"
                )
        except Disabled:
            if root.kind == "initial" or not recorder.read_only:
                path.enabled = False
            else:
                raise self._raised(root, ids, "asked require(...), which only an action can") from None
        except Misbehaved as error:
            raise self._raised(root, ids, str(error)) from error
        except (NotAValue, FencepostError) as error:
            raise self._raised(root, ids, f": {error}") from error
        except RecursionError as error:
            raise self._raised(root, ids, "recursed too deeply") from error
        except KeyboardInterrupt:
            self.deadline.interrupted()
            raise
        except MemoryError as error:
            raise SystemFailure(
                f"out of memory while {root.title} was run: stop in time with {{max_memory}}", "max_memory"
            ) from error
        except (Exception, SystemExit) as error:
            raise self._raised(root, ids, f"raised {_brief(error)}") from error
        finally:
            current.reset(token)
            self.deadline.end()
        return path

    def _refines(
        self, root: Root, recorder: _Recorder, ids: Sequence[int], after: Sequence[int] | None, number: int | None
    ) -> bool:
        """Whether a step is one of the protocol that is refined, or a state one of its initial states."""
        refinement, store = self.refinements[root.name], self.store
        if after is None:
            return refinement.starts(recorder, ids)
        if number is None:
            width = max(len(ids), len(after))
            before_it, after_it = ([*row, *[0] * (width - len(row))] for row in (ids, after))
            slots = frozenset(slot for slot in range(width) if before_it[slot] != after_it[slot])
            change = Change(-1, slots, frozenset(refinement.mapping.numbers.values()))
        else:
            change = self.changes.known[number]
            recorder.path.trail.append(("read", CHANGE, number))

        def step(before: _Recorder) -> Steps:
            later = _Recorder(store, after, (), before.path, lane=1)
            return Steps(
                Side(refinement.mapping, before), Side(refinement.mapping, After(store, change, before, later))
            )

        return refinement.allows(
            step(recorder),
            change,
            recorder.path.trail if number is not None else None,
            lambda: step(_Recorder(store, ids, (), _Path(), lane=0)),
            self.roots[change.action] if change.action >= 0 else None,
        )

    def _guard(self) -> contextlib.AbstractContextManager[None]:
        if not self.checking:
            return _UNWATCHED
        return self._watch.watching()

    @cached_property
    def _watch(self) -> Guard:
        from fencepost.step.guard import Guard

        return Guard(self.protocol)

    def _raised(self, root: Root, ids: Sequence[int], what: str) -> ProtocolRaised:
        separator = "" if what.startswith(":") else " "
        return ProtocolRaised(f"{root}{separator}{what}", where=root.title, state=State(self.store, ids))

    # -- the view -----------------------------------------------------------------------------------------------------

    def _project(self) -> None:
        """A view that only picks parts of the state hides the others; any other one becomes a slot of its own."""
        if self._view is None:
            return
        picker = _Picker()
        try:
            with self.deadline.evaluating(f"view {self._view.name}"):
                paths = _picked_paths(self._view.function(self.protocol.bound_to(picker)))
        except Exception:
            paths = None
        # What it read and did not return, it decided something by.
        if paths is not None and not (_only_picks(self._view.function) and picker.read_paths <= set(paths)):
            paths = None
        if paths is None:
            self.store.slot(self._view_slot)
            self.store.show_only(lambda path: path == self._view_slot.path)
        else:
            self._view = None
            shown = paths
            self.store.show_only(lambda path: any(path[: len(p)] == p for p in shown))

    def _look(self, recorder: _Recorder, bound: Protocol) -> None:
        """Adds what a computed view makes of the state after this path."""
        if self._view is None:
            return
        recorder.read_only = True
        try:
            seen = self._view.function(bound)
        except Disabled:
            raise Misbehaved(f"led to a state in which the view {self._view.name} asked require(...)") from None
        recorder.read_only = False
        recorder.write(self._view_slot, seen)


class _Picked:
    """Stands for the value of a slot while a view is asked which parts it picks. It can be returned, and nothing
    else.
    """

    def __init__(self, path: tuple[Any, ...]) -> None:
        self.path = path

    def _used(self, *_: object) -> Any:
        raise TypeError

    __bool__ = __eq__ = __ne__ = __hash__ = _used


class _PickedCell:
    """Stands for a cell of a table: its value can be taken, but not whether it has one."""

    def __init__(self, path: tuple[Any, ...]) -> None:
        self.path = path

    __bool__ = _Picked._used

    def __getitem__(self, place: int) -> _Picked:
        return _Picked(self.path)


class _Picker:
    """A cursor that hands out stand-ins: whoever computes with one is no mere selection."""

    def __init__(self) -> None:
        self.read_paths: set[tuple[Any, ...]] = set()
        self.disabled = False

    def read(self, slot: Slot) -> Any:
        self.read_paths.add(slot.path)
        return _Picked(slot.path) if slot.constant else _PickedCell(slot.path)

    def write(self, slot: Slot, value: Value) -> None:
        raise TypeError

    def choose(self, options: Sequence[Value]) -> Value:
        raise TypeError

    def tell(self, event: Event) -> None:
        raise TypeError


def _only_picks(view: Callable[..., Any]) -> bool:
    """Whether a view's code names things and groups them and does nothing else, such as ``x is None`` or a branch."""
    harmless = ("LOAD_", "BUILD_", "RETURN_", "RESUME", "COPY_FREE_VARS", "BINARY_SUBSCR", "EXTENDED_ARG", "NOP")
    return all(op.opname.startswith(harmless) for op in dis.get_instructions(view))


def _picked_paths(viewed: Any) -> list[tuple[Any, ...]] | None:
    if isinstance(viewed, _Picked):
        return [viewed.path]
    if isinstance(viewed, (RecordView, PerKeyView, TableView, Network)):
        return [viewed._path]
    if type(viewed) in (tuple, list):
        parts = [_picked_paths(v) for v in viewed]
        return None if any(p is None for p in parts) else [path for p in parts for path in p or ()]
    return None


def _outcome(path: _Path, ids: Sequence[int]) -> Outcome:
    def old(slot: int) -> int:
        return int(ids[slot]) if slot < len(ids) else 0

    writes = {slot: (old(slot), new) for slot, new in path.writes.items() if old(slot) != new}
    choices = tuple(taken for what, _, taken in path.trail if what == "choose")
    return Outcome(choices, tuple(path.labels), writes, tuple(path.events))


def _entry(path: _Path, depth: int) -> tuple[Any, ...]:
    what, subject, value = path.trail[depth] if depth < len(path.trail) else ("end", 0, 0)
    return (what, subject) if what == "choose" else (what, subject, value)


def _tree(paths: list[_Path], depth: int, ids: Sequence[int]) -> Branch:
    """The tree of evaluations that share their first ``depth`` trail entries (choices aside)."""
    first = paths[0]
    if len(paths) == 1:
        alone: Branch = Leaf([_outcome(first, ids)] if first.enabled else [])
        for what, subject, value in reversed(first.trail[depth:]):
            if what == "read":
                alone = Read(subject, value, alone)
        return alone
    shared = depth
    while True:
        # What was read and between how many options was chosen follows from the choices before it.
        if len({_entry(p, shared) for p in paths}) > 1:
            raise Misbehaved("was not deterministic: it must depend on the state alone")
        if shared == len(first.trail) or first.trail[shared][0] == "choose":
            break
        shared += 1
    then: Branch = (
        _forked(paths, shared, ids)
        if shared < len(first.trail)
        else Leaf([_outcome(p, ids) for p in paths if p.enabled])
    )
    for _, subject, value in reversed(first.trail[depth:shared]):
        then = Read(subject, value, then)
    return then


def _forked(paths: list[_Path], depth: int, ids: Sequence[int]) -> Branch:
    """The tree of evaluations that go different ways at their trail entry number ``depth``, a choice."""
    subject = paths[0].trail[depth][1]
    options: list[list[_Path]] = [[] for _ in range(subject)]
    for path in paths:
        options[path.trail[depth][2]].append(path)
    branches = [_tree(option, depth + 1, ids) for option in options]
    # Options that read nothing more end here together; those that do are walked side by side.
    ended = [b for b in branches if isinstance(b, Leaf)]
    going_on: list[Branch] = [b for b in branches if not isinstance(b, Leaf)]
    joined = Leaf([outcome for leaf in ended for outcome in leaf.outcomes])
    if not going_on:
        return joined
    return Fork([*going_on, joined] if joined.outcomes else going_on)


_UNWATCHED = contextlib.nullcontext()
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHIPPED = os.path.join(_PACKAGE, "protocols")
_LIBRARY = os.path.dirname(os.__file__)


def _bindings(declared: Declared, protocol: Protocol, deadline: Deadline) -> list[dict[str, Value]]:
    """Every binding of the parameters of an action or property, once it is certain that it can be called with them."""
    if declared.kind == "refinement":
        return [{}]
    kind = declared.kind.replace("_", " ")
    try:
        with deadline.evaluating(f"what the domains of {kind} {declared.name} are drawn from"):
            bindings = declared.parameters(protocol)
    except NotAProtocol:
        raise
    except Exception as error:
        raise NotAProtocol(
            f"the parameters of {kind} {declared.name} have no usable domains: {_brief(error)}"
        ) from error
    try:
        states = [protocol, protocol] if declared.kind in STEP_PROPERTIES else [protocol]
        inspect.signature(declared.function).bind(*states, **dict.fromkeys(declared.domains))
    except TypeError as error:
        hint = "; it takes the state and its successor, def f(self, after)" if declared.kind in STEP_PROPERTIES else ""
        raise NotAProtocol(
            f"{kind} {declared.name}: {error}{hint}; give every parameter its domain by name, as in @action(b=bookies)"
        ) from None
    return bindings


def _is_computed(refinement: Refinement, part: Part, state: Protocol) -> bool:
    """Computes a part of the state of the protocol that is refined. What it reads is all that matters."""
    refinement.mapping.compute(part, state.__dict__["_cursor"])
    return True


def _truth(verdict: Any) -> bool:
    if verdict is None:
        raise Misbehaved("returned nothing: a property returns true or false")
    return bool(verdict)


def _temporal_truth(root: Root, verdict: Any) -> bool:
    if root.kind != "leads_to":
        return _truth(verdict)
    if type(verdict) is not tuple or len(verdict) != 2:
        raise Misbehaved("returned no pair: a leads-to property returns two truths, (what leads, to what)")
    return _truth(verdict[root.part])


def _nothing(result: Any) -> None:
    if isinstance(result, (Generator, Coroutine)):
        raise Misbehaved("did not run: an action is an ordinary method, without yield and without async")


def _brief(error: BaseException) -> str:
    """An exception in one line, with the author's line it came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    authors = [f for f in frames if is_authors(f.filename)] or frames
    where = f" at {authors[-1].filename}:{authors[-1].lineno}" if authors else ""
    # A KeyError's text is the repr of its key; a message reads better without quotes.
    said = (
        error.args[0] if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str) else str(error)
    )
    text = said.strip().splitlines()
    return f"{type(error).__name__}{': ' + text[0] if text else ''}{where}"


def is_authors(file: str) -> bool:
    """Whether a file is neither Fencepost's nor Python's."""
    return not _is_ours(file) and not file.startswith((_LIBRARY, "<frozen"))


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_SHIPPED)
