"""Evaluates each action and property of a protocol in one state, and records it.

The compiler builds tries from the resulting decision trees. The reference explorer, replay and checking mode walk the
trees directly.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterator, Sequence
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fencepost.errors import Explained, FencepostError, Misbehaved, ProtocolRaised, SystemFailure
from fencepost.language import refinement as spec
from fencepost.language.context import MAX_WAYS, Cursor, Disabled, Reliance, Slot, current
from fencepost.language.declarations import INITIALLY, JUDGED, TEMPORAL, Declared, FairSteps
from fencepost.language.protocol import cursor_of
from fencepost.language.seam import Model, language_of
from fencepost.language.temporal import Enabled, Leaf, Now, Step, Taken
from fencepost.language.truths import truth
from fencepost.language.values import Value
from fencepost.semantics.authors import failure_text
from fencepost.semantics.choices import next_script
from fencepost.semantics.deadline import Deadline
from fencepost.semantics.fairness import FairnessCondition, fairness_conditions
from fencepost.semantics.mapping import Part, Side
from fencepost.semantics.promises import Promise, formula_of
from fencepost.semantics.recorder import NoSuchOption, Path, Recorder
from fencepost.semantics.refinement import After, Change, Changes, Refinement, Steps
from fencepost.semantics.repeats import RanOtherwise, Repeats, difference, elsewhere
from fencepost.semantics.roots import (
    MAPPING,
    PREDICATE,
    PROPERTIES,
    START,
    STEP_PREDICATE,
    STEP_PROPERTIES,
    Root,
    bindings,
)
from fencepost.semantics.slots import CHANGE
from fencepost.semantics.state import Outgrown, State, ValueTable
from fencepost.semantics.trees import Branch, Outcome, Recorded, outcome_of, tree_of
from fencepost.semantics.views import picked_parts

if TYPE_CHECKING:
    from fencepost.semantics.guard import Guard

T = TypeVar("T")

FEW_STARTS = 10_000
"""The most initial states that are kept."""

MAX_STARTS = 1 << 24
"""The most ways through the choices of the initial states."""


class Kept(NamedTuple):
    """An evaluation: the number of its root, its tree, and the state (for a step property, also that after the step).
    ``grown``: the slots in universes at that time.
    """

    root: int
    tree: Branch
    ids: tuple[int, ...]
    after: Sequence[int] | None
    grown: int


class Stepper:
    """The roots of a protocol, its value table, and the evaluation of one root in one state.

    ``invariants`` selects state and step invariants by name. The default is all that their ``when`` does not turn off.
    To catch a protocol that reads more than its state, some evaluations of each action and property are repeated at
    once (see `repeats`). ``checking`` repeats all of them, and watches them (see `guard`). ``deadline`` ends
    evaluations when a limit is reached. Raises :class:`fencepost.NotAProtocol` for an action or property whose
    parameters and domains do not match.
    """

    def __init__(
        self,
        protocol: Model,
        invariants: Sequence[str] | None = None,
        checking: bool = False,
        deadline: Deadline | None = None,
    ) -> None:
        language_of(protocol).refuse_changed(protocol)
        self.deadline = deadline or Deadline()
        self.protocol = protocol
        self.checking = checking
        self.store = ValueTable(protocol)
        self._repeats, self._may_hide_inputs = Repeats(), language_of(protocol).may_hide_inputs
        self.evaluations = 0
        """All of them, without those that repeat one."""
        self.grown_before = 0
        """The slots in universes when the search before this one began again."""
        self.starts = 0
        """The number of ways to begin. Several may lead to one initial state."""
        self._initial: list[State] | None = None  # all of them, unless there are many
        self.keeps = False
        """Whether evaluations are kept, for an engine that takes over."""
        self._kept: list[Kept] = []
        self.roots: list[Root] = []
        self.relied: dict[int, dict[int, Reliance]] = {}
        """What each root has relied on, by the root's index and the universe's id."""
        self.changes = Changes()
        self.refinements: dict[str, Refinement] = {}
        for kind in PROPERTIES:
            self._add_roots(kind, invariants)
        for refined in protocol.declared("refinement"):
            if _is_selected(refined, protocol, invariants):
                self._add_refinement(refined)
        for kind in (*STEP_PROPERTIES, "action", *TEMPORAL[:-1], INITIALLY):
            self._add_roots(kind, invariants)
        self.promises: list[Promise] = list(self._promises(invariants))
        """The temporal properties to judge, with their parameters bound."""
        self._fair = self._fair_predicates() if self.promises else []
        self.view = next(iter(protocol.declared("view")), None)
        """The view, unless it only selects parts of the state."""
        setups = protocol.declared("initial")
        self._setup = setups[0] if setups else Declared("initial", lambda protocol: None, name="as declared")
        self.combines = self._setup.factors is not None and not checking and self.view is None
        """Whether the initial states are those combinations of :meth:`factors` that satisfy all roots of the kind
        ``start``.
        """
        if self.combines:
            self._add_roots(START, None)
        self._view_slot = Slot(("view()",), None, constant=False)  # no variable can have this name
        self._project()

    def _add_roots(self, kind: str, invariants: Sequence[str] | None) -> None:
        for declared in self.protocol.declared(kind):
            if _is_selected(declared, self.protocol, invariants):
                for parameters in bindings(declared, self.protocol, self.deadline):
                    for part in range(2 if kind == "leads_to" else 1):
                        self.roots.append(Root(len(self.roots), declared, parameters, part))

    def _add_refinement(self, declared: Declared) -> None:
        """Set up a refinement, with a root for each computed part of its mapping."""
        assert isinstance(declared, spec.Refinement)
        with self.deadline.evaluating(f"what refinement {declared.name} refines"):
            refinement = self.refinements[declared.name] = Refinement(declared, self.protocol, self.store)
        for part in refinement.mapping.parts:
            refinement.mapping.numbers[part] = len(self.roots)
            computed = Declared(
                MAPPING, partial(_is_computed, refinement, part), name=f"{part.name} of {declared.name}"
            )
            self.roots.append(Root(len(self.roots), computed, {}))

    def _promises(self, invariants: Sequence[str] | None) -> Iterator[Promise]:
        roots = self.of_kind(*TEMPORAL)
        for place, root in enumerate(roots):
            if not root.part:
                parts = roots[place : place + (2 if root.kind == "leads_to" else 1)]
                yield Promise(root.declared, root.parameters, tuple(parts))
        for declared in self.protocol.declared("temporal"):
            if _is_selected(declared, self.protocol, invariants):
                for parameters in bindings(declared, self.protocol, self.deadline):
                    with self.deadline.evaluating(f"the formula of temporal property {declared.name}"):
                        formula = formula_of(declared, self.protocol, parameters)
                    leaves = {leaf: self._rooted(leaf, declared) for leaf in dict.fromkeys(formula.leaves())}
                    yield Promise(declared, parameters, (), formula, leaves)

    def _rooted(self, leaf: Leaf, of: Declared) -> Root | frozenset[int]:
        """The root of a formula's function, or the numbers of the roots of its action."""
        if isinstance(leaf, (Taken, Enabled)):
            return frozenset(r.index for r in self.of_kind("action") if leaf.selects(r.name, r.parameters))
        assert isinstance(leaf, (Now, Step))
        return self._add_predicate(PREDICATE if isinstance(leaf, Now) else STEP_PREDICATE, leaf.function, of.name)

    def _add_predicate(self, kind: str, function: Any, name: str) -> Root:
        root = Root(len(self.roots), Declared(kind, function, name=name), {})
        self.roots.append(root)
        return root

    def _fair_predicates(self) -> list[Root]:
        """The roots of fairness conditions that are given by functions: two for each."""
        return [
            self._add_predicate(kind, function, fairness.title)
            for fairness in self.protocol.fairness
            if isinstance(fairness, FairSteps) and fairness.selects is None
            for kind, function in ((STEP_PREDICATE, fairness.step), (PREDICATE, fairness.enabled))
        ]

    def of_kind(self, *kinds: str) -> list[Root]:
        """The roots of these kinds, in order."""
        return [r for r in self.roots if r.kind in kinds]

    def fairness_conditions(self) -> list[FairnessCondition]:
        """The fairness conditions of the protocol: one for each binding of the parameters that a declaration names.

        Raises :class:`fencepost.NotAProtocol` for a parameter that the actions do not have.
        """
        return fairness_conditions(self.protocol, self.of_kind("action"), self._fair)

    # -- evaluating ---------------------------------------------------------------------------------------------------

    def initial_states(self, most: int | None = None) -> list[State]:
        """Every initial state, or ``most`` of them, in the order of its choices, without duplicates."""
        if self._initial is not None:
            return self._initial[:most]
        states: dict[tuple[int, ...], State] = {}
        self.starts = 0
        for row in self._start_rows():
            self.starts += 1
            state = State(self.store, self.store.normal(row))
            states.setdefault(state.ids, state)
            if len(states) == most:
                return list(states.values())
        found = list(states.values())
        if len(found) <= FEW_STARTS:
            self._initial = found
        return found[:]

    def factors(self) -> list[list[dict[int, int]]]:
        """What is written for the values of each variable. A combination has the writes of one value of each."""
        root, recorder = Root(-1, self._setup, {}), Recorder(self.store, [], (), Path())
        assert self._setup.factors is not None
        every = self._setup.factors(self.protocol.bound_to(recorder))
        found = iter(lambda: self._next_start(root, recorder, every), None)
        return [[each.path.writes for each in group] for group in found]

    def _start_rows(self) -> Iterator[Sequence[int]]:
        """Each initial state, as often as there are ways to it."""
        if not self.combines:
            yield from (self._apply([], writes) for writes in self._starts(Root(-1, self._setup, {})))
            return
        conditions = self.of_kind(START)
        for combination in product(*self.factors()):
            row = self._apply([], {slot: number for writes in combination for slot, number in writes.items()})
            if all(self.outcomes(root, row) for root in conditions):
                yield row

    def _starts(self, root: Root) -> Iterator[dict[int, int]]:
        """What is written to each initial state."""
        if root.declared.starts is None or self.checking or self.view is not None:
            yield from (path.writes for path in self._paths(root, []) if path.enabled)
            return
        recorder = Recorder(self.store, [], (), Path())
        every = root.declared.starts(self.protocol.bound_to(recorder))
        for _ in range(MAX_STARTS):
            found = self._next_start(root, recorder, every)
            if found is None:
                return
            yield found.path.writes
        raise self._raised(root, [], f"gives more than {MAX_STARTS:,} initial states: is a set infinite?")

    def _next_start(self, root: Root, recorder: Recorder, every: Iterator[T]) -> T | None:
        self.evaluations += 1
        self.deadline.begin(root, self.store)
        token = current.set(recorder)
        try:
            return next(every, None)
        except KeyboardInterrupt:
            self.deadline.interrupted()
            raise
        except (Exception, SystemExit) as error:
            raise self._explained(root, [], error) from error
        finally:
            current.reset(token)
            self.deadline.end()

    def evaluate(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None = None,
        change: int | None = None,
        recorded: Recorded | None = None,
    ) -> Branch:
        """The decision tree of ``root`` in the state ``ids`` (and, for a step property, its successor ``after``).

        ``change``: for a refinement, the number of the step's change, which its tree then reads first. ``recorded``:
        the ways that need not be in the tree. Raises :class:`fencepost.ProtocolRaised` if the author's Python raises,
        or breaks a rule of the language.
        """
        paths = list(self._paths(root, ids, after, change, recorded))
        try:
            tree = tree_of(paths, 0, ids)
        except FencepostError as error:
            raise self._raised(root, ids, str(error)) from None
        if self.keeps:
            self._kept.append(Kept(root.index, tree, tuple(ids), after and tuple(after), self.store.grown))
        return tree

    def take_kept(self) -> list[Kept]:
        """The evaluations that were kept, without those from before a universe grew: they are not right about states
        with what appeared.
        """
        kept, self._kept, self.keeps = self._kept, [], False
        return [each for each in kept if each.grown == self.store.grown]

    def outcomes(self, root: Root, ids: Sequence[int], after: Sequence[int] | None = None) -> list[Outcome]:
        """Every outcome of ``root`` in this state, in the order of its choices. For a property, the list is empty if it
        holds. For a ``sometimes`` property and for a predicate, it is empty if it is false.

        A refinement is judged for a step or, without ``after``, for an initial state.
        """
        return [outcome_of(path, ids) for path in self._paths(root, ids, after) if path.enabled]

    def outcome(self, root: Root, ids: Sequence[int], choices: Sequence[int]) -> Outcome | None:
        """The outcome of an action with these choices (numbers of options). None if it is not enabled. Other choices
        are not tried.
        """
        if any(number < 0 for number in choices):
            return None
        try:
            path = self._run(root, ids, None, choices)
        except ProtocolRaised as error:
            if isinstance(error.__cause__, NoSuchOption):
                return None
            raise
        outcome = outcome_of(path, ids)
        return outcome if path.enabled and outcome.choices == tuple(choices) else None

    def apply(self, ids: Sequence[int], outcome: Outcome) -> tuple[int, ...]:
        """The row after an outcome is applied."""
        return self._apply(ids, {slot: new for slot, (_, new) in outcome.writes.items()})

    def _apply(self, ids: Sequence[int], writes: dict[int, int]) -> tuple[int, ...]:
        row = list(ids) + [0] * (len(self.store.slots) - len(ids))
        for slot, number in writes.items():
            row[slot] = number
        return self.store.normal(row)

    def _paths(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None = None,
        change: int | None = None,
        recorded: Recorded | None = None,
    ) -> Iterator[Path]:
        if root.index < 0:
            yield from self._ways(root, ids, after, change)
            return
        grown = self.store.grown
        found = list(self._ways(root, ids, after, change, recorded))
        while grown != self.store.grown:
            # Ways that were tried before a universe grew need not agree with those after it.
            grown = self.store.grown
            found = list(self._ways(root, ids, after, change))
        yield from found

    def _ways(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None = None,
        change: int | None = None,
        recorded: Recorded | None = None,
    ) -> Iterator[Path]:
        script = None if recorded is None else recorded.first_missing()
        if script is None:  # with all of them recorded, there are too many
            script, recorded = [], None
        options: list[Sequence[Value]] = []
        for _ in range(MAX_WAYS if root.index >= 0 else MAX_STARTS):
            path = self._run(root, ids, after, script, options, change)
            yield path
            following = _following(path, recorded)
            if following is None:
                return
            script = following
            # The options of a choice depend on the choices before it.
            del options[len(script) :]
        if self.store.grown:
            raise Outgrown("")  # the ways through what may be a member, and not through the members
        raise self._raised(root, ids, f"has more than {MAX_WAYS:,} ways through its choices: is one infinite?")

    def _run(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None,
        script: Sequence[int],
        options: list[Sequence[Value]] | None = None,
        change: int | None = None,
    ) -> Path:
        self.evaluations += 1
        grown = self.store.grown
        path = self._run_once(root, ids, after, script, options, change)
        if self.checking or (self._may_hide_inputs and self._repeats.is_due(root)):
            if grown != self.store.grown:
                path = self._run_once(root, ids, after, script, options, change)
            self._repeat(root, ids, after, script, change, path)
        return path

    def _repeat(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None,
        script: Sequence[int],
        change: int | None,
        path: Path,
    ) -> None:
        """Evaluate once more what led to ``path``. Raises :class:`RanOtherwise` if it leads to another one."""
        try:
            with elsewhere(self.evaluations):
                again = self._run_once(root, ids, after, script, None, change)
            what = difference(self.store, root.kind, path, again)
        except ProtocolRaised as error:
            if error.__cause__ is None or isinstance(error.__cause__, Misbehaved):
                raise
            what = f"it{failure_text(error.__cause__)}"
        if what:
            hint = "" if self.checking else "; run with {checking} to find out on what"
            raise RanOtherwise(
                f"{root} did something else when it was run again in the same state: {what}. It depends on more than"
                f" the state{hint}",
                *([] if self.checking else ["checking"]),
                where=root.title,
                state=State(self.store, ids),
            )

    def _run_once(
        self,
        root: Root,
        ids: Sequence[int],
        after: Sequence[int] | None,
        script: Sequence[int],
        options: list[Sequence[Value]] | None = None,
        change: int | None = None,
    ) -> Path:
        path = Path()
        recorder = Recorder(self.store, ids, script, path, None if after is None else 0, options)
        recorder.read_only = root.kind not in ("action", "initial")
        self.deadline.begin(root, self.store, ids)
        token = current.set(recorder)
        try:
            if self.checking:
                with self._guard.watching():
                    self._call(root, recorder, ids, after, change)
            else:
                self._call(root, recorder, ids, after, change)
            if recorder.disabled:
                raise Misbehaved(
                    "went on after require(...) was not satisfied, which cannot be caught: write except Exception, not"
                    " except, and no return in a finally"
                )
        except Disabled:
            if recorder.read_only and root.kind != "initial":
                raise self._raised(root, ids, "asked require(...), which only an action can") from None
            path.enabled = False
        except KeyboardInterrupt:
            self.deadline.interrupted()
            raise
        except (Exception, SystemExit) as error:
            raise self._explained(root, ids, error) from error
        finally:
            current.reset(token)
            self.deadline.end()
            if path.relied and root.index >= 0:
                self._rely(root.index, path)
        return path

    def knows_changes(self, root: Root) -> bool:
        """Whether a root of steps first reads the number of the step's change."""
        return root.kind == "refinement" or (root.reads_step and language_of(self.protocol).steps_know_changes)

    def _rely(self, root: int, path: Path) -> None:
        known = self.relied.setdefault(root, {})
        for universe, relied in path.relied.items():
            if universe in known:
                known[universe].add(relied.sieves)
            else:
                known[universe] = relied

    def _call(
        self, root: Root, recorder: Recorder, ids: Sequence[int], after: Sequence[int] | None, change: int | None
    ) -> None:
        """Run the author's function. The path is enabled if an action completes, or if a property must be reported."""
        path, kind, function = recorder.path, root.kind, root.declared.function
        bound = self.protocol.bound_to(recorder)
        if kind == "refinement":
            path.enabled = not self._refines(root, recorder, ids, after, change)
        elif after is not None:
            later: Cursor = Recorder(self.store, after, (), path, lane=1)
            if change is not None:
                path.trail.append(("read", CHANGE, change))
                later = After(self.store, self.changes.known[change], recorder, later)
            is_true = truth(function(bound, self.protocol.bound_to(later), **root.parameters))
            path.enabled = is_true is (kind == STEP_PREDICATE)
        elif not recorder.read_only:
            _nothing(function(bound, **root.parameters))
            self._write_view(recorder, bound)
        elif kind in TEMPORAL:
            path.enabled = _temporal_truth(root, function(bound, **root.parameters))
        else:
            path.enabled = truth(function(bound, **root.parameters)) is (kind in ("sometimes", PREDICATE, START))

    def _explained(self, root: Root, ids: Sequence[int], error: BaseException) -> ProtocolRaised | SystemFailure:
        """The error to raise for an exception of the author's code."""
        if isinstance(error, MemoryError):
            return SystemFailure(
                f"out of memory while {root.title} was run: stop in time with {{max_memory}}", "max_memory"
            )
        text = str(error) if isinstance(error, Explained) else f"{root}{failure_text(error)}"
        return ProtocolRaised(text, where=root.title, state=State(self.store, ids))

    def _refines(
        self, root: Root, recorder: Recorder, ids: Sequence[int], after: Sequence[int] | None, number: int | None
    ) -> bool:
        """Whether a step is a step of the refined protocol, or a state one of its initial states."""
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

        def step(before: Recorder) -> Steps:
            later = Recorder(store, after, (), before.path, lane=1)
            return Steps(
                Side(refinement.mapping, before), Side(refinement.mapping, After(store, change, before, later))
            )

        return refinement.allows(
            step(recorder),
            change,
            recorder.path.trail if number is not None else None,
            lambda: step(Recorder(store, ids, (), Path(), lane=0)),
            self.roots[change.action] if change.action >= 0 else None,
        )

    @cached_property
    def _guard(self) -> Guard:
        from fencepost.semantics.guard import Guard

        return Guard(self.protocol)

    def _raised(self, root: Root, ids: Sequence[int], what: str) -> ProtocolRaised:
        return ProtocolRaised(f"{root} {what}", where=root.title, state=State(self.store, ids))

    # -- the view -----------------------------------------------------------------------------------------------------

    def _project(self) -> None:
        """If a view only selects parts of the state, hide the others. Any other view gets its own slot."""
        if self.view is None:
            if hidden := language_of(self.protocol).hidden(self.protocol):
                self.store.show_only(lambda path: path[0] not in hidden)
            return
        with self.deadline.evaluating(f"view {self.view.name}"):
            shown = picked_parts(self.view.function, self.protocol)
        if shown is None:
            self.store.slot(self._view_slot)
            self.store.show_only(lambda path: path == self._view_slot.path)
        else:
            self.view = None
            self.store.show_only(lambda path: any(path[: len(part)] == part for part in shown))

    def _write_view(self, recorder: Recorder, bound: Model) -> None:
        """Write the result of a computed view, for the state after this path, into its slot."""
        if self.view is None:
            return
        recorder.read_only = True
        try:
            seen = self.view.function(bound)
        except Disabled:
            raise Misbehaved(f"led to a state in which the view {self.view.name} asked require(...)") from None
        recorder.read_only = False
        recorder.write(self._view_slot, seen)


def _is_selected(declared: Declared, protocol: Model, invariants: Sequence[str] | None) -> bool:
    """Whether a check evaluates this declaration. It skips a property that the selection omits or that ``when`` turns
    off.
    """
    if declared.kind not in JUDGED:
        return True
    if invariants:
        return declared.name in invariants
    return declared.is_on(protocol)


def _is_computed(refinement: Refinement, part: Part, state: Model) -> bool:
    """Computes a part of the refined protocol's state, for its reads. The result is not used."""
    refinement.mapping.compute(part, cursor_of(state))
    return True


def _temporal_truth(root: Root, verdict: Any) -> bool:
    if root.kind != "leads_to":
        return truth(verdict)
    if type(verdict) is not tuple or len(verdict) != 2:
        raise Misbehaved("returned no pair: a leads-to property returns two truths, (what leads, to what)")
    return truth(verdict[root.part], f"returned, as the {('first', 'second')[root.part]} of its pair,")


def _nothing(result: Any) -> None:
    if isinstance(result, (Generator, Coroutine)):
        raise Misbehaved("did not run: an action is an ordinary method, without yield and without async")


def _following(path: Path, recorded: Recorded | None) -> list[int] | None:
    """The choices that begin the next way after this one which was not recorded. None if there is none."""
    choices = [(options, taken) for what, options, taken in path.trail if what == "choose"]
    script = next_script(choices)
    while script is not None and recorded is not None:
        missing = recorded.first_missing(script)
        if missing is not None:
            return missing
        script = next_script([(options, taken) for (options, _), taken in zip(choices, script, strict=False)])
    return script
