"""Properties of steps know which slots a step changes. They are judged as those that read both states whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tla import files

from fencepost import Result, check
from fencepost.language.loading import configured, find
from fencepost.language.seam import Model
from fencepost.tla import runtime, stored
from fencepost.tla.language import Tla
from fencepost.tla.values import EvaluationError, Reads, Set

SPECIFICATION = r"""
EXTENDS Naturals
CONSTANTS Node, Last
VARIABLES msgs, bag, node, seen, round
vars == <<msgs, bag, node, seen, round>>

Init == /\ msgs = {} /\ round = 0
        /\ bag = [m \in {} |-> 0]
        /\ node = [n \in Node |-> [at |-> 0, on |-> TRUE]]
        /\ seen = [n \in Node |-> {}]

M(n) == [from |-> n, at |-> node[n].at]
Put(k) == bag' = [j \in DOMAIN bag \cup {k} |-> IF j = k THEN IF j \in DOMAIN bag THEN bag[j] + 1 ELSE 1 ELSE bag[j]]

Go(n) == /\ node[n].on /\ node[n].at < Last
         /\ node' = [node EXCEPT ![n].at = @ + 1]
         /\ msgs' = msgs \cup {M(n)}
         /\ Put(n) /\ bag'[n] < 3
         /\ UNCHANGED <<seen, round>>
See(n) == \E m \in msgs : /\ m \notin seen[n]
                          /\ seen' = [seen EXCEPT ![n] = @ \cup {m}]
                          /\ UNCHANGED <<msgs, bag, node, round>>
Stop(n) == /\ node[n].on
           /\ node' = [m \in Node |-> IF m = n THEN [node[m] EXCEPT !.on = FALSE] ELSE node[m]]
           /\ msgs' = {m \in msgs : m.from # n}
           /\ round' = 1 - round
           /\ UNCHANGED <<bag, seen>>
Forget == /\ round = 1
          /\ bag' = [k \in {j \in DOMAIN bag : bag[j] > 1} |-> bag[k]]
          /\ seen' = [n \in Node |-> {}]
          /\ round' = 0
          /\ UNCHANGED <<msgs, node>>
Next == Forget \/ \E n \in Node : Go(n) \/ See(n) \/ Stop(n)
Spec == Init /\ [][Next]_vars

\* What is computed of the state, as a refinement maps it.
Ats == [n \in Node |-> node[n].at]
On == {n \in Node : node[n].on}
Sum == [n \in DOMAIN bag |-> bag[n] + round]
"""

CONFIG = "SPECIFICATION Spec\nCONSTANTS Node = {n1, n2}\nLast = 1\nCHECK_DEADLOCK FALSE\n"

OF_NODE = r"""
msgs' = msgs \cup {M(n)} | msgs' = msgs \ {M(n)} | msgs' = {m \in msgs : m.from # n} | Put(n) | n \in DOMAIN bag'
bag' = [bag EXCEPT ![n] = @ + 1] | n \in DOMAIN bag /\ bag' = [bag EXCEPT ![n] = 2] | UNCHANGED <<Ats[n], seen[n]>>
node' = [node EXCEPT ![n] = [at |-> @.at, on |-> FALSE]] | seen' = [seen EXCEPT ![n] = {}] | node[n]' = node[n]
node' = [m \in Node |-> IF m = n THEN node'[m] ELSE node[m]] | seen'[n] = seen[n] | seen' = [seen EXCEPT ![n] = msgs]
seen' = [m \in Node |-> IF m = n THEN seen'[m] ELSE seen[m]] | UNCHANGED node[n] | node' = [node EXCEPT ![n].at = @ + 1]
Ats' = [Ats EXCEPT ![n] = @ + 1] | On' = On \ {n} | node'[n].on => node[n] = node'[n] | seen'[n] \subseteq msgs
seen' = [seen EXCEPT ![n] = @ \cup msgs] | node' = [node EXCEPT ![n].on = FALSE, ![n].at = 0] | Go(n) | See(n) | Stop(n)
bag' = [m \in DOMAIN bag |-> IF m = n THEN 1 ELSE bag[m]] | msgs = msgs' \ {M(n)}
"""

OF_STATE = r"""
UNCHANGED msgs | UNCHANGED <<bag, node>> | UNCHANGED vars | UNCHANGED Sum | UNCHANGED <<round, Ats>> | Sum' = Sum
On' \subseteq On | DOMAIN bag' = DOMAIN bag | bag' = bag | round' = 1 - round | Forget | Next | msgs' \subseteq msgs
seen' = seen | node' = node | msgs' = msgs | msgs' = {} | seen' # seen | [Next]_On
[Go(CHOOSE one \in Node : TRUE)]_<<bag, round>>
"""

ALWAYS = [  # where nothing but what an operator does differs, and where nothing but what the step does
    r"~ \E n \in Node : M(n) \notin msgs /\ M(n) \notin msgs' /\ msgs' = msgs \cup {M(n)}",
    r"~ \E n, k \in Node : n # k /\ M(n) \in msgs /\ M(k) \in msgs' \ msgs /\ msgs' = msgs \cup {M(n)}",
    r"~ \E n \in DOMAIN bag : bag'[n] = bag[n] /\ bag' = [bag EXCEPT ![n] = 9]",
    r"~ \E n \in Node : node'[n].at > node[n].at /\ node' = [m \in Node |-> node[m]]",
]


def conditions(text: str) -> list[str]:
    return [each.strip() for each in text.strip().replace("\n", " | ").split(" | ")]


def formulas(number: int, seed: int) -> list[str]:
    """Random conditions on steps, after those that always hold."""
    random = Random(seed)
    of_node, of_state = (
        [each.strip() for each in of.strip().replace("\n", " | ").split(" | ")] for of in (OF_NODE, OF_STATE)
    )

    def one(has_node: bool, depth: int) -> str:
        if depth == 0 or random.random() < 0.25:
            return f"({random.choice(of_node if has_node and random.random() < 0.7 else of_state)})"
        kind = random.choice(["/\\", "/\\", "\\/", "=>", "~", "E", "A"])
        if kind == "~":
            return f"~{one(has_node, depth - 1)}"
        if kind in ("E", "A") and not has_node:
            return f"(\\{kind} n \\in Node : {one(True, depth - 1)})"
        operator = kind if kind not in ("E", "A") else "/\\"
        return f"({one(has_node, depth - 1)} {operator} {one(has_node, depth - 1)})"

    return ALWAYS + [one(False, 4) for _ in range(number)]


def model_of(folder: Path, properties: list[str]) -> Model:
    names = [f"P{number}" for number in range(len(properties))]
    written = [f"{name} == [][{each}]_vars" for name, each in zip(names, properties, strict=True)]
    path = files.written(folder, SPECIFICATION + "\n".join(written))
    path.with_suffix(".cfg").write_text(CONFIG + "".join(f"PROPERTY {name}\n" for name in names))
    return configured(find(str(path)), None, [])


def lengths(result: Result) -> dict[str, int]:
    """The length of the counterexample of each property that is violated."""
    return {each.name: len(each.trace.states) for each in result.violations if each.trace is not None}


@cache
def untold(seed: int) -> dict[str, int]:
    """How long the counterexamples of some random properties are where none knows anything."""
    with TemporaryDirectory() as folder:
        return lengths(check(model_of(Path(folder), formulas(40, seed)), engine="reference", keep_going=True))


def told(folder: Path, seed: int, engine: str = "embedded", by: str = "embedded") -> dict[str, int]:
    """The same where they know what a step changes. ``by``: the engine that answers."""
    found = check(model_of(folder, formulas(40, seed)), engine=engine, keep_going=True)
    assert found.engine == by
    return lengths(found)


@pytest.mark.parametrize("most", [20, 2_000])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.campaign)])
def test_what_is_known_of_steps_changes_no_answer(
    tmp_path: Path, looks: Callable[[int], None], seed: int, most: int
) -> None:
    plain = untold(seed)
    looks(most)
    assert told(tmp_path, seed) == plain and 10 < len(plain) < 40


def test_the_interpreted_engine_knows_it_too(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = untold(1)
    looks(2_000)
    monkeypatch.setattr("fencepost.api.check.SMALL", {"calls": 1 << 20, "queued": 1 << 20, "orbits": 1})
    assert told(tmp_path, 1, engine="auto", by="interpreted") == plain


@pytest.mark.parametrize("calls", [100, 400])
def test_the_compiled_engine_takes_it_over(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    plain = untold(1)
    looks(20)
    monkeypatch.setattr("fencepost.api.check.SMALL", {"calls": calls, "queued": 1 << 20, "orbits": 1})
    monkeypatch.setattr(Tla, "after_search", lambda self, model, stepper: model)
    assert told(tmp_path, 1, engine="auto") == plain


@pytest.mark.parametrize("name", ["changed", "slots", "moved", "keys", "rule", "may be", "kept"])
def test_a_fault_in_what_is_known_is_found(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plain = untold(1)
    looks(2_000)
    plant(monkeypatch, name)
    assert told(tmp_path, 1) != plain


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Puts a fault in its place."""
    values: Any = stored._may_differ
    keys: Any = stored._may_differ_at

    def without_slots(one: Any, other: Any) -> Any:
        found = values(one, other)
        return None if found is None else [each for each in found if each in getattr(other, "added", Set()).items]

    match name:
        case "changed":
            monkeypatch.setattr(stored, "changed", lambda place, one, other: [])
        case "slots":  # of two sets, what the step does to one
            monkeypatch.setattr(stored, "_may_differ", without_slots)
        case "moved":  # of two sets, what an operator does to one
            monkeypatch.setattr(stored, "_may_differ", lambda one, other: values(one, getattr(other, "base", other)))
        case "keys":
            monkeypatch.setattr(stored, "_may_differ_at", lambda one, other: keys(one, getattr(other, "base", other)))
        case "rule":
            monkeypatch.setattr(stored, "_is_untouched", lambda one, other, key, part: True)
        case "may be":
            monkeypatch.setattr(runtime, "may_be", lambda test: test() is False)
        case "kept":
            monkeypatch.setattr(runtime, "are_kept", lambda now, then, variables: True)


@pytest.mark.parametrize("error", [Reads(), EvaluationError("no function")])
def test_a_test_that_fails_decides_nothing_before_its_turn(error: Exception) -> None:
    def fails() -> bool:
        raise error

    assert runtime.may_be(fails) and runtime.may_be(lambda: True) and not runtime.may_be(lambda: False)


def test_computed_parts_are_not_read_where_a_step_does_not_touch_them(
    tmp_path: Path, looks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(2_000)
    model = model_of(tmp_path, [r"\/ UNCHANGED <<Ats, On, Sum>> \/ \E n \in Node : Go(n) \/ Stop(n) \/ Forget"])
    found = check(model, engine="embedded")
    monkeypatch.setattr(Tla, "steps_know_changes", False)
    plain = check(model, engine="embedded")
    assert found.distinct_states == plain.distinct_states and not found.violations and not plain.violations
    assert 2 * found.evaluations < plain.evaluations
