"""The layout of variables: whatever it is, a specification has the same states, and the values that plain ones have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaigns import campaign_if
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from tla import files
from tla.layouts import ALL, BAG, EXAMPLES, LARGE, MESSAGES, MIXED, Example

from fencepost import Result, check
from fencepost.checker.compiler import encoding, tables
from fencepost.checker.compiler.arrays import Array
from fencepost.checker.engines import embedded, kernel, simulate
from fencepost.language.context import FROM_HERE, UNSET, Sieve, Slot, Universe
from fencepost.language.loading import configured, find
from fencepost.language.seam import Model, language_of
from fencepost.semantics import Deadline, Stepper, state, stepper
from fencepost.tla import compiler, protocol, runtime, sets, suppositions, values
from fencepost.tla.held import Held
from fencepost.tla.language import Tla
from fencepost.tla.library import tlc
from fencepost.tla.places import Blank, FunctionPlace, Leaf, MapPlace, Place, Reader, SetPlace, Variable, Writes
from fencepost.tla.protocol import TlaModel
from fencepost.tla.stored import StoredFunction, StoredMap, StoredSet, same
from fencepost.tla.values import LazyFunction, Set, Value, function, record

NAMES = [*EXAMPLES, *campaign_if(bool, LARGE)]


def model_of(folder: Path, example: Example) -> Model:
    path = files.written(folder, example.text)
    path.with_suffix(".cfg").write_text(example.config)
    return configured(find(str(path)), None, [])


def counts(result: Result) -> tuple[int, int, int]:
    return result.distinct_states, result.generated_states, result.depth


# -- searches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["auto", "embedded"])
@pytest.mark.parametrize("most", [20, 100, 2_000])
@pytest.mark.parametrize("name", NAMES)
def test_a_specification_has_the_states_that_tlc_finds_however_it_is_laid_out(
    tmp_path: Path, looks: Callable[[int], None], name: str, most: int, engine: str
) -> None:
    looks(most)
    result = check(model_of(tmp_path, ALL[name]), engine=engine)
    assert counts(result) == ALL[name].counts
    assert not result.violations and result.complete


@pytest.mark.parametrize("calls", [60, *(pytest.param(each, marks=pytest.mark.campaign) for each in (10, 400))])
@pytest.mark.parametrize("name", NAMES)
def test_what_one_engine_had_evaluated_is_right_for_the_next(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, name: str, calls: int
) -> None:
    looks(20)
    monkeypatch.setattr("fencepost.api.check.SMALL", {"calls": calls, "queued": 1 << 20, "orbits": 1 << 20})
    monkeypatch.setattr(Tla, "after_search", lambda self, model, stepper: model)
    assert counts(check(model_of(tmp_path, ALL[name]))) == ALL[name].counts


@pytest.mark.parametrize(("engine", "most"), [("auto", 12), ("embedded", 3)])
def test_a_search_that_outgrows_its_layout_begins_again(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, most: int, engine: str
) -> None:
    looks(20)
    monkeypatch.setattr(state, "MOST_MEMBERS", most)
    for number, example in enumerate((MESSAGES, BAG, MIXED)):
        (folder := tmp_path / str(number)).mkdir()
        assert counts(check(model_of(folder, example), engine=engine)) == example.counts


def test_a_search_that_meets_most_members_late_begins_again_with_slots_for_them(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(20)
    monkeypatch.setattr(tables, "MANY_LATE", 2)
    begun = []
    settled = Tla.settled

    def counted(self: Tla, model: TlaModel, stepper: Stepper) -> TlaModel:
        made = settled(self, model, stepper)
        begun.append((stepper.store.grown, Stepper(made).store.grown))
        return made

    monkeypatch.setattr(Tla, "settled", counted)
    assert counts(check(model_of(tmp_path, MESSAGES), engine="embedded")) == MESSAGES.counts
    assert begun and all(met == after for met, after in begun)


def few(folder: Path) -> Model:
    """A property of steps looks at all messages."""
    growing = "Few == [][Cardinality(msgs') < 99 /\\ \\A m \\in msgs : m.round < 9]_vars\nTypeOK =="
    text = MESSAGES.text.replace("TypeOK ==", growing, 1)
    config = "CONSTANTS Node = {n1, n2, n3} Last = 2\nSPECIFICATION Spec\nPROPERTY Few\nCHECK_DEADLOCK FALSE\n"
    return model_of(folder, replace(MESSAGES, text=text, config=config))


@njit
def unknown_steps(c, level, w, positions):  # type: ignore[no-untyped-def]
    """How many steps out of states no trie of a property of steps can judge."""
    unknown = 0
    for position in positions:
        meta = level.meta[position]
        for k in range(encoding.meta_first(meta), encoding.meta_end(meta)) if meta >= 0 else range(0):
            span = c.leaf_span[level.leaves[k]]
            for step in range(encoding.span_first(span), encoding.span_end(span)):
                for e in range(c.step_start[step], c.step_start[step + 1]):
                    unknown += kernel.judge_step(c, w, level.cells[position], np.int64(c.step_trie[e])) < 0
    return unknown


def test_a_property_of_steps_knows_those_out_of_states_that_are_older_than_a_member(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a member appears, the tries of a property that looks at all members begin anew, in the middle of a level."""
    looks(20)
    monkeypatch.setattr(kernel, "BLOCK", 1)
    run, write = embedded.Embedded._run_workers, embedded.Embedded._write_steps
    renewed, unknown = set[int](), 0

    def look(self: embedded.Embedded, order: Array) -> None:
        nonlocal unknown
        renewed.add(self.workspace.tables.renewed)
        unknown += unknown_steps(self.workspace.compiled, self.workspace.old, self.workspace.work[0], order)

    def expanding(self: embedded.Embedded, order: Array, first: int, block: int) -> int:
        look(self, order[first:])
        return run(self, order, first, block)

    def expanded(self: embedded.Embedded) -> None:
        look(self, self.order[: self.search.queue])  # the level is recorded now, if properties are judged by its graph
        write(self)

    monkeypatch.setattr(embedded.Embedded, "_run_workers", expanding)
    monkeypatch.setattr(embedded.Embedded, "_write_steps", expanded)
    check(few(tmp_path), engine="embedded", workers=1, max_states=1000)
    assert len(renewed) > 3 and not unknown


@pytest.mark.parametrize("workers", [1, 2])
def test_a_property_of_steps_knows_those_of_walks_in_states_that_are_older_than_a_member(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    looks(20)
    run = simulate.Simulation._run_workers
    renewed, unknown = set[int](), 0

    def walking(self: simulate.Simulation) -> None:
        nonlocal unknown
        renewed.add(self.tables.renewed)
        at = np.concatenate([self.plan.starts, *(each.at[each.walk >= 0] for each in self.walkers)])
        unknown += unknown_steps(self.compiled, self.arena, self.work[0], at)
        run(self)

    monkeypatch.setattr(simulate.Simulation, "_run_workers", walking)
    check(few(tmp_path), engine="simulate", walks=300, workers=workers, seed=7)
    assert len(renewed) > 2 and not unknown


@pytest.mark.parametrize("longest", [0, 1])
@pytest.mark.parametrize("name", ["messages", "bag", "mixed", "nested"])
def test_many_late_members_are_chosen_from_those_that_are_there(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, name: str, longest: int
) -> None:
    looks(20)
    monkeypatch.setattr(protocol, "LONGEST_CHAIN", longest)
    assert counts(check(model_of(tmp_path, EXAMPLES[name]), engine="embedded")) == EXAMPLES[name].counts


def test_more_ways_through_candidates_than_there_may_be_are_ways_through_members(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(100)
    monkeypatch.setattr(stepper, "MAX_WAYS", 8)
    assert counts(check(model_of(tmp_path, EXAMPLES["messages"]), engine="auto")) == EXAMPLES["messages"].counts


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_layout_has_them_too(tmp_path: Path, name: str) -> None:
    assert counts(check(model_of(tmp_path, ALL[name]), engine="reference")) == ALL[name].counts


def test_a_specification_is_laid_out_in_parts(tmp_path: Path) -> None:
    model: Any = model_of(tmp_path, EXAMPLES["messages"])
    laid_out: Any = language_of(model).for_search(model, Deadline())
    assert {name: type(each.layout) for name, each in laid_out.shapes.items()} == {
        "msgs": SetPlace,
        "round": FunctionPlace,
        "voted": FunctionPlace,
    }
    (voted,) = {type(part) for part in laid_out.shapes["voted"].layout.parts.values()}
    assert voted is Leaf, "it has few values"


@pytest.mark.parametrize(("name", "times"), [("messages", 3), ("twice", 4), *campaign_if(bool, [("twice-of-six", 20)])])
def test_parts_make_evaluations_rare(tmp_path: Path, name: str, times: int) -> None:
    found = check(model_of(tmp_path, ALL[name]), engine="embedded")
    plain = check(model_of(tmp_path, ALL[name]), engine="reference")
    assert found.evaluations * times < plain.evaluations


COUNTERS = Example(
    r"""---- MODULE Spec ----
EXTENDS Naturals
VARIABLE c
Init == c = [i \in 1..3 |-> 0]
Next == \E i \in 1..3 : c' = [c EXCEPT ![i] = @ + 1]
Twice == [n \in 0..9 |-> 2 * n]
Few == (\A i \in 1..3 : c[i] <= 9) /\ \A i \in 1..3 : Twice[c[i]] < 20
====
""",
    "INIT Init\nNEXT Next\nCONSTRAINT Few\nCHECK_DEADLOCK FALSE\n",
    (1_000, 3_001, 28),
)


@pytest.mark.parametrize("engine", ["auto", "embedded", "reference"])
def test_a_constraint_is_taken_apart_and_its_first_conjunct_guards_the_others(tmp_path: Path, engine: str) -> None:
    # Twice[10] has no value.
    found = check(model_of(tmp_path, COUNTERS), engine=engine)
    assert counts(found) == COUNTERS.counts and found.complete
    assert (found.evaluations < 500) is (engine != "reference")


@pytest.mark.parametrize("most", [20, 2_000])
@pytest.mark.parametrize("options", [{"engine": "auto"}, {"engine": "embedded", "workers": 2}])
def test_a_violation_is_found_at_the_same_depth(
    tmp_path: Path, looks: Callable[[int], None], options: dict[str, Any], most: int
) -> None:
    looks(most)
    broken = replace(MIXED, config=MIXED.config.replace("Short", "Short Later"))
    trace = check(model_of(tmp_path, broken), **options).must_violate("Later")
    plain = check(model_of(tmp_path, broken), engine="reference").must_violate("Later")
    assert len(trace.states) == len(plain.states)
    assert str(trace.initial.variables()) == str(plain.initial.variables())
    assert {slot.name for slot, _ in trace.states[-1].slots()} == {"now", "log", "seen", "table"}


@pytest.mark.parametrize("engine", ["auto", "embedded"])
def test_members_are_sorted_out_by_what_is_primed_too(
    tmp_path: Path, looks: Callable[[int], None], engine: str
) -> None:
    looks(60)
    text = r"""---- MODULE Spec ----
EXTENDS Naturals
VARIABLES x, sent, found
Init == x = 0 /\ sent = {} /\ found = {}
Send == \E n \in 1..4 : sent' = sent \cup {[n |-> n]} /\ UNCHANGED <<x, found>>
Look == \E y \in 1..4 :
  /\ x' = y
  /\ \E m \in sent : m.n = x' /\ found' = {m}
  /\ UNCHANGED sent
Seen == \E y \in 1..4 : x' = y /\ found' = {m \in sent : m.n < x'} /\ UNCHANGED sent
Next == Send \/ Look \/ Seen
====
"""
    example = Example(text, "INIT Init\nNEXT Next\nCHECK_DEADLOCK FALSE\n", (0, 0, 0))
    plain = check(model_of(tmp_path, example), engine="reference")
    assert counts(check(model_of(tmp_path, example), engine=engine)) == counts(plain)


@pytest.mark.parametrize("engine", ["auto", "embedded"])
def test_members_are_not_sorted_out_by_what_a_definition_was_in_one_state(
    tmp_path: Path, looks: Callable[[int], None], engine: str
) -> None:
    # Positive is evaluated once in a state, before it is asked whether candidates matter in every state.
    looks(60)
    text = r"""---- MODULE Spec ----
EXTENDS Naturals, FiniteSets
VARIABLES a, b, c
Positive == {x \in a : x > 0}
Init == a = {} /\ b = {} /\ c = 0
Grow == \E n \in 0..3 : a' = a \cup {n} /\ UNCHANGED <<b, c>>
Offer == \E n \in 0..3 : b' = b \cup {n} /\ UNCHANGED <<a, c>>
Take == /\ Cardinality(Positive) < 3
        /\ \E y \in b : y \in Positive /\ c' = y /\ UNCHANGED <<a, b>>
Next == Grow \/ Offer \/ Take
====
"""
    example = Example(text, "INIT Init\nNEXT Next\nCHECK_DEADLOCK FALSE\n", (0, 0, 0))
    plain = check(model_of(tmp_path, example), engine="reference")
    assert counts(check(model_of(tmp_path, example), engine=engine)) == counts(plain)


def test_what_stands_for_a_variable_of_an_instance_is_worked_out_once_in_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Inner.tla").write_text(
        """---- MODULE Inner ----
EXTENDS Naturals
VARIABLE t
Next == \\E n \\in 1..3 : t[n] = 0 /\\ t' = [t EXCEPT ![n] = 1]
Spec == (\\A n \\in 1..3 : t[n] = 0) /\\ [][Next]_t
====
""".replace("\\\\", "\\")
    )
    text = r"""---- MODULE Spec ----
EXTENDS Naturals
VARIABLE f
I == INSTANCE Inner WITH t <- [n \in 1..3 |-> IF f[n] = "on" THEN 1 ELSE 0]
Init == f = [n \in 1..3 |-> "off"]
Next == \E n \in 1..3 : f[n] = "off" /\ f' = [f EXCEPT ![n] = "on"]
Spec == Init /\ [][Next]_f
Refines == I!Spec
====
"""
    functional, numbers = runtime.functional, []
    example = Example(text, "SPECIFICATION Spec\nPROPERTY Refines\nCHECK_DEADLOCK FALSE\n", (8, 13, 4))
    for keeps in (True, False):
        worked: list[int] = []
        monkeypatch.setitem(compiler._RUNTIME, "functional", lambda *of, into=worked: into.append(0) or functional(*of))
        if not keeps:
            monkeypatch.setattr(compiler.Compiler, "kept", lambda self, symbol: None)
        result = check(model_of(tmp_path, example), engine="reference")
        assert counts(result) == example.counts and not result.violations
        numbers.append(len(worked))
    assert 2 * numbers[0] < numbers[1]


@pytest.mark.parametrize("most", [60, 200])
def test_members_are_sorted_out_by_other_members_that_appear_late(
    tmp_path: Path, looks: Callable[[int], None], most: int
) -> None:
    looks(most)
    text = r"""---- MODULE Spec ----
EXTENDS Naturals
VARIABLES asked, seen, turn
Init == asked = {} /\ seen = {} /\ turn = 0
Ask == \E n \in 1..4 : asked' = asked \cup {n} /\ UNCHANGED <<seen, turn>>
See == \E n \in 1..4 : seen' = seen \cup {n + 3} /\ UNCHANGED <<asked, turn>>
Turn == \E m \in asked : ~(\E o \in seen : o = m) /\ turn' = 1 - turn /\ UNCHANGED <<asked, seen>>
Next == Ask \/ See \/ Turn
====
"""
    example = Example(text, "INIT Init\nNEXT Next\nCHECK_DEADLOCK FALSE\n", (496, 4865, 10))  # TLC's
    assert counts(check(model_of(tmp_path, example), engine="embedded")) == example.counts


@pytest.mark.parametrize("engine", ["auto", "embedded"])
def test_what_was_evaluated_before_a_value_that_does_not_fit_appears_is_not_true_of_it(
    tmp_path: Path, looks: Callable[[int], None], engine: str
) -> None:
    looks(100)
    text = r"""---- MODULE Spec ----
EXTENDS Naturals
CONSTANT None
VARIABLES held, n, turn
Init == held = {} /\ n = 0 /\ turn = 0
Put == held # None /\ \E m \in 1..3 : held' = held \cup {m} /\ UNCHANGED <<n, turn>>
Take == held # None /\ \E m \in held : held' = held \ {m} /\ n < 4 /\ n' = n + 1 /\ UNCHANGED turn
Turn == held = {} /\ turn' = 1 - turn /\ UNCHANGED <<held, n>>
Stop == n = 4 /\ turn = 1 /\ held' = None /\ UNCHANGED <<n, turn>>
Next == Put \/ Take \/ Turn \/ Stop
====
"""
    config = "CONSTANT None = None\nINIT Init\nNEXT Next\nCHECK_DEADLOCK FALSE\n"
    example = Example(text, config, (81, 356, 13))  # TLC's
    model = model_of(tmp_path, example)
    laid_out: Any = language_of(model).for_search(model, Deadline())
    assert type(laid_out.shapes["held"].layout) is SetPlace
    assert counts(check(model, engine=engine)) == example.counts


@pytest.mark.parametrize("most", [60, 400])
def test_what_is_compared_with_itself_is_read_alike_before_and_after_a_value_that_does_not_fit_appears(
    tmp_path: Path, looks: Callable[[int], None], most: int
) -> None:
    # held[i] = held[i] needs no state. What it reads stands before the choices that follow.
    looks(most)
    text = r"""---- MODULE Spec ----
EXTENDS Naturals
CONSTANT None
VARIABLES held, n
Init == held = [i \in 1..2 |-> {}] /\ n = 0
Put == \E i \in 1..2, m \in 1..3 : held[i] # None /\ held' = [held EXCEPT ![i] = @ \cup {m}] /\ UNCHANGED n
Turn == /\ \E i, j \in 1..2 : held[i] = held[j] /\ i + j # n
        /\ \E k \in {1, 2} : n < 4 /\ n' = n + k
        /\ UNCHANGED held
Stop == n > 3 /\ held' = [held EXCEPT ![1] = None] /\ UNCHANGED n
Next == Put \/ Turn \/ Stop
====
"""
    config = "CONSTANT None = None\nINIT Init\nNEXT Next\nCHECK_DEADLOCK FALSE\n"
    result = check(model_of(tmp_path, Example(text, config, (0, 0, 0))), engine="embedded")
    assert result.failure is None
    assert counts(result) == counts(check(model_of(tmp_path, Example(text, config, (0, 0, 0))), engine="reference"))


@pytest.mark.parametrize("most", [20, *campaign_if(bool, [2_000])])
def test_temporal_properties_are_judged_with_members_that_appear_late(
    tmp_path: Path, looks: Callable[[int], None], most: int
) -> None:
    looks(most)
    more = """Live == Spec /\\ WF_vars(\\E n \\in Node : Propose(n) \\/ Vote(n))
Asked == \\A n \\in Node : (round[n] = 1) ~> (\\E m \\in msgs : m.type = "vote")
Quiet == <>[](\\A m \\in msgs : m.type # "vote")
===="""
    text = EXAMPLES["messages"].text.replace("====", more)
    config = EXAMPLES["messages"].config.replace("SPECIFICATION Spec", "SPECIFICATION Live\nPROPERTIES Asked Quiet")
    found = [
        [
            (each.name, each.kind)
            for each in check(model_of(tmp_path, Example(text, config, (0, 0, 0))), engine=engine).violations
        ]
        for engine in ("embedded", "auto", "reference")
    ]
    assert found[0] == found[1] == found[2] != []


def test_a_search_is_resumed_with_the_layout_that_it_had(tmp_path: Path, looks: Callable[[int], None]) -> None:
    looks(100)
    example, saved = EXAMPLES["messages"], tmp_path / "saved"
    check(model_of(tmp_path, example), engine="embedded", checkpoint=saved, max_depth=6)
    assert counts(check(model_of(tmp_path, example), engine="embedded", resume=saved)) == example.counts


def test_a_resumed_search_that_outgrows_its_layout_is_refused(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(100)
    example, saved = EXAMPLES["messages"], tmp_path / "saved"
    check(model_of(tmp_path, example), engine="embedded", checkpoint=saved, max_depth=6)
    monkeypatch.setattr(state, "MOST_MEMBERS", 2)
    failure = str(check(model_of(tmp_path, example), engine="embedded", resume=saved).failure)
    assert "holds msgs in parts, which the search has outgrown; start again without resume" in failure


@pytest.mark.parametrize("limit", [2, state.MOST_MEMBERS])
def test_a_search_that_had_outgrown_its_layout_is_resumed(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    looks(100)
    example, saved = EXAMPLES["messages"], tmp_path / "saved"
    with monkeypatch.context() as patch:
        patch.setattr(state, "MOST_MEMBERS", 2)
        check(model_of(tmp_path, example), engine="embedded", checkpoint=saved, max_depth=6)
    monkeypatch.setattr(state, "MOST_MEMBERS", limit)
    assert counts(check(model_of(tmp_path, example), engine="embedded", resume=saved)) == example.counts


def test_walks_go_through_the_same_states(tmp_path: Path, looks: Callable[[int], None]) -> None:
    looks(20)
    result = check(model_of(tmp_path, EXAMPLES["bag"]), engine="simulate", walks=200, depth=30, seed=1)
    assert not result.violations and result.error is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_process_gets_the_layout(tmp_path: Path, looks: Callable[[int], None], name: str) -> None:
    looks(100)
    model: Any = model_of(tmp_path, EXAMPLES[name])
    language = language_of(model)
    laid_out = language.for_search(model, Deadline())
    packed = language.packed(laid_out)
    assert packed is not None
    again: Any = language.unpacked(packed)
    rows = [
        (state.fingerprint, [slot.path for slot in state.store.slots])
        for state in (stepper.Stepper(each).initial_states()[0] for each in (again, laid_out))
    ]
    assert rows[0] == rows[1]


def test_checking_finds_the_same_states_in_other_processes(tmp_path: Path) -> None:
    result = check(model_of(tmp_path, EXAMPLES["bag"]), engine="embedded", checking=True)
    assert counts(result) == EXAMPLES["bag"].counts


# -- values, beside plain ones -----------------------------------------------------------------------------------------


class Memory:
    """The slots of one state. It notes what was read."""

    disabled = False

    def __init__(self, universe: Callable[[tuple[Any, ...]], Any]) -> None:
        self.held: dict[tuple[Any, ...], Any] = {}
        self.universes: dict[tuple[Any, ...], Universe] = {}
        self.seen: set[tuple[Any, ...]] = set()
        self._universe = universe

    def read(self, slot: Slot) -> Any:
        self._know(slot)
        self.seen.add(slot.path)
        return self.held.get(slot.path, slot.default)

    def write(self, slot: Slot, value: Any) -> None:
        self._know(slot)
        self.held[slot.path] = value

    def universe(self, path: tuple[Any, ...], sieve: Sieve | None = None, place: int = FROM_HERE) -> list[Slot]:
        return self.universes.setdefault(path, Universe()).slots

    def choose(self, options: Any) -> Any:
        raise AssertionError

    def emit(self, event: Any) -> None:
        raise AssertionError

    def _know(self, slot: Slot) -> None:
        path = self._universe(slot.path)
        if path is not None and all(slot.path != each.path for each in self.universe(path)):
            self.universes[path].slots.append(slot)


def put(place: Place, memory: Memory, value: Value) -> None:
    writes: Writes = []
    place.put(memory, value, writes)
    for slot, held in writes:
        memory.write(slot, held)


MEMBERS = st.sets(st.integers(0, 5)).map(Set)
RULES: dict[str, Callable[[Value], bool]] = {
    "even": lambda each: each % 2 == 0,
    "few": lambda each: each < 2,
    "none": lambda each: False,
}
ON_SETS: dict[str, Callable[[Value, Value, Callable[[Value], bool]], Value]] = {
    "union": lambda of, other, rule: sets.union(of, other),
    "union from the right": lambda of, other, rule: sets.union(other, of),
    "intersection": lambda of, other, rule: sets.intersection(of, other),
    "difference": lambda of, other, rule: sets.difference(of, other),
    "difference from the right": lambda of, other, rule: sets.difference(other, of),
    "filter": lambda of, other, rule: sets.filtered(of, rule),
    "is within": lambda of, other, rule: sets.subset(of, other),
    "contains": lambda of, other, rule: sets.subset(other, of),
    "is equal": lambda of, other, rule: values.equal(of, other),
    "is equal from the right": lambda of, other, rule: values.equal(other, of),
    "some": lambda of, other, rule: of.some(rule),
    "every": lambda of, other, rule: of.every(rule),
    "has": lambda of, other, rule: tuple(values.member(each, of) for each in range(7)),
    "is empty": lambda of, other, rule: of.is_empty(),
    "size": lambda of, other, rule: of.size(),
    "itself": lambda of, other, rule: of,
}


@settings(max_examples=200)
@given(
    first=MEMBERS,
    steps=st.lists(st.tuples(st.sampled_from(list(ON_SETS)), MEMBERS, st.sampled_from(list(RULES))), max_size=6),
)
def test_a_stored_set_is_like_any_other(first: Set, steps: list[tuple[str, Set, str]]) -> None:
    place = SetPlace(("s",))
    place.settle([1, 2])
    memory = Memory(place.universe)
    put(place, memory, first)
    plain: Value = first
    for name, other, rule in steps:
        stored = place.get(memory)
        assert isinstance(stored, StoredSet)
        found, expected = (ON_SETS[name](of, other, RULES[rule]) for of in (stored, plain))
        assert values.equal(found, expected) if not isinstance(expected, tuple) else found == expected
        if isinstance(expected, values.SetValue):
            put(place, memory, found)
            plain = expected
        assert place.get(memory).explicit() == plain


KEYS = st.integers(0, 3)
MAPS = st.dictionaries(KEYS, st.integers(0, 2)).map(function)
ON_FUNCTIONS: dict[str, Callable[[Value, Value, Value], Value]] = {
    "except": lambda of, other, key: values.updated(of, (key,), lambda old: old() + 1),
    "merged": lambda of, other, key: tlc.combined(of, other),
    "merged from the right": lambda of, other, key: tlc.combined(other, of),
    "changed": lambda of, other, key: LazyFunction(
        values.domain(of), lambda each: 7 if each == key else of.apply(each)
    ),
    "all changed": lambda of, other, key: LazyFunction(values.domain(of), lambda each: of.apply(each) + 1),
    "swapped": lambda of, other, key: LazyFunction(values.domain(of), lambda each: of.apply(first_of(of))),
    "domain": lambda of, other, key: values.domain(of),
    "is equal": lambda of, other, key: values.equal(of, other),
    "itself": lambda of, other, key: of,
}


def first_of(of: Value) -> Value:
    return next(iter(values.domain(of).members()))


@settings(max_examples=300)
@given(first=MAPS, steps=st.lists(st.tuples(st.sampled_from(list(ON_FUNCTIONS)), MAPS, KEYS), max_size=6))
def test_a_stored_map_is_like_any_other(first: Value, steps: list[tuple[str, Value, int]]) -> None:
    place = MapPlace(("f",))
    place.settle([1])
    memory = Memory(place.universe)
    put(place, memory, first)
    plain = first
    for name, other, key in steps:
        stored = place.get(memory)
        assert isinstance(stored, StoredMap)
        found, expected = (ON_FUNCTIONS[name](of, other, key) for of in (stored, plain))
        assert values.equal(found, expected)
        if isinstance(expected, values.FunctionValue):
            put(place, memory, found)
            plain = expected.explicit()
        assert place.get(memory).explicit() == plain


@given(steps=st.lists(st.tuples(st.sampled_from(["except", "changed", "all changed", "swapped"]), KEYS), max_size=6))
def test_a_stored_function_is_like_any_other(steps: list[tuple[str, int]]) -> None:
    place = FunctionPlace(("f",), {key: Leaf(("f", key)) for key in range(3)})
    memory = Memory(place.universe)
    plain: Value = function({0: 5, 1: 6, 2: 7})
    put(place, memory, plain)
    for name, key in steps:
        stored = place.get(memory)
        assert isinstance(stored, StoredFunction)
        found, expected = (ON_FUNCTIONS[name](of, None, key) for of in (stored, plain))
        put(place, memory, found)
        plain = expected.explicit()
        assert place.get(memory).explicit() == plain


def test_a_value_that_does_not_fit_is_held_whole_and_its_parts_are_cleared() -> None:
    place = FunctionPlace(("f",), {"a": Leaf(("f", "a")), "b": SetPlace(("f", "b"))})
    memory = Memory(place.universe)
    fitting = record(a=1, b=Set([2]))
    for value in (fitting, 3, fitting, function({1: 2, 2: 2}), Set([1]), fitting):
        put(place, memory, value)
        assert values.settled(place.get(memory)) == value
        if value is not fitting:
            assert memory.held["f", "a"] is UNSET and not any(
                held is True for path, held in memory.held.items() if path[:2] == ("f", "b")
            )


def test_only_what_is_needed_is_read_and_only_what_changes_is_written() -> None:
    place = SetPlace(("s",))
    memory = Memory(place.universe)
    put(place, memory, Set([1, 2, 3]))
    memory.seen = set()
    of = place.get(memory)
    assert of.some(lambda each: each == 2) and of.every(lambda each: each < 9)
    assert memory.seen == {place.slot(2).path}
    writes: Writes = []
    place.put(memory, sets.union(of, Set([4])), writes)
    assert [slot for slot, _ in writes] == [place.slot(4)]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (SetPlace(("v",)), Set([1])),
        (MapPlace(("v",)), function({1: 2})),
        (FunctionPlace(("v",), {"a": Leaf(("v", "a"))}), record(a=1)),
    ],
)
def test_a_value_is_equal_to_itself_without_being_read(place: Place, value: Value) -> None:
    memory = Memory(place.universe)
    for each in (7, value):
        put(place, memory, each)
    one, other = place.get(memory), place.get(memory)
    memory.seen = set()
    assert one is not other and same(one, other)
    assert not memory.seen


def test_what_was_read_before_is_still_of_the_state() -> None:
    place = SetPlace(("s",))
    memory = Memory(place.universe)
    put(place, memory, Set([1]))
    of = place.get(memory)
    assert of.size() == 1
    assert suppositions.without_reading(lambda _: of.size() == 1, None, None) is None


def test_an_error_counts_only_for_a_member() -> None:
    place = SetPlace(("s",))
    memory = Memory(place.universe)
    put(place, memory, Set([1, 2]))
    put(place, memory, Set([1]))

    def broken_for_two(each: Value) -> bool:
        if each == 2:
            raise values.EvaluationError("two")
        return False

    assert not place.get(memory).some(broken_for_two)
    put(place, memory, Set([2]))
    with pytest.raises(values.EvaluationError, match="two"):
        place.get(memory).some(broken_for_two)
    assert not suppositions._open


@pytest.mark.parametrize("engine", ["auto", "embedded"])
@pytest.mark.parametrize(
    ("small", "first"),
    [
        (r"\A m \in s : m < 35", 35),
        (r"\A m \in s \ {2, 36} : m < 2 \/ (m > 2 /\ m # 36 /\ m < 38)", 38),
        (r"\A m \in s \ {2} : m # 3", 3),
        (r"s \ {2, 36} \subseteq 0..1 \cup 3..35 \cup {37}", 38),
    ],
)
def test_a_member_that_appears_late_is_judged(
    tmp_path: Path, looks: Callable[[int], None], engine: str, small: str, first: int
) -> None:
    looks(8)
    text = rf"""---- MODULE Spec ----
EXTENDS Naturals
VARIABLES s, t
Init == s = {{}} /\ t = 0
Next == t < 40 /\ t' = t + 1 /\ s' = s \cup {{t}}
Small == {small}
====
"""
    example = Example(text, "INIT Init\nNEXT Next\nINVARIANT Small\nCHECK_DEADLOCK FALSE\n", (0, 0, 0))
    assert len(check(model_of(tmp_path, example), engine=engine).must_violate("Small").states) == first + 2


@pytest.mark.parametrize("around", [lambda of: values.Sequence((of, of)), lambda of: values.Function({"s": of})])
def test_what_a_rule_depends_on_is_told_without_reading_it(around: Callable[[Value], Value]) -> None:
    place = SetPlace(("s",))
    memory = Memory(place.universe)
    put(place, memory, Set([1, 2]))

    def told(_: None) -> bool:
        one, other = (suppositions.key_of(around(place.get(memory))) for _ in range(2))
        return hash(one) == hash(other) and suppositions.is_known(one) and bool(one == other)

    assert suppositions.without_reading(told, None, False)
    key = suppositions.key_of
    assert key(around(Set([1]))) == key(around(Set([1]))) != key(around(Set([2])))


@pytest.mark.parametrize("met", [False, True])
def test_where_a_value_lies_depends_on_the_state_once_one_did_not_fit(met: bool) -> None:
    """What is sorted out without reading may not be sorted out by it, also if it was read before."""
    place = SetPlace(("s",))
    place.settle([1])
    writes: Writes = []
    place.put(Blank(), 7, writes)
    (slot,) = [slot for slot, held in writes if held == Held(7)]

    class Cursor(Blank):
        def universe(self, path: Any, sieve: Sieve | None = None, place: int = FROM_HERE) -> list[Slot]:
            return [slot] if met and path == slot.path else []

    state = Reader([Variable(place)], Cursor())
    assert isinstance(state[0], StoredSet)
    found: Any = suppositions.without_reading(lambda _: state[0], None, "read")
    assert found == "read" if met else found is state[0]
