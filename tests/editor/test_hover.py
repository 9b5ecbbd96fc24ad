"""What is shown beside a word. Counts are compared with those of a plain search of the same protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from editor.checks import CONFIGURATION, SPECIFICATION, Check
from hypothesis import given
from hypothesis import strategies as st

from fencepost.editor.hover import hover
from fencepost.editor.space import Space
from fencepost.language.loading import load

CLIENTS = '''from fencepost import *


class Update(Record):
    by: ModelValue
    value: int


class Clients(Protocol):
    """Clients add one to a counter, up to a limit."""

    clients = model_values("c", 2)
    most: int = constant(3)

    counter: int = state(0)
    seen: Table[ModelValue, int] = table()
    last: Update | None = state(None)

    @action(c=clients)
    def reads(self, c: ModelValue) -> None:
        require(c not in self.seen and self.counter < self.most)
        self.seen[c] = self.counter

    @action(c=clients)
    def writes(self, c: ModelValue) -> None:
        require(c in self.seen)
        update = Update(c, self.seen[c] + 1)
        self.counter = update.value
        self.last = update
        del self.seen[c]

    @invariant(c=clients)
    def counts_up(self, c: ModelValue) -> bool:
        "größer"; return self.counter >= self.seen.get(c, 0)

    @constraint
    def small(self) -> bool:
        return self.counter < 3

    def helps(self, what: int) -> bool:
        return all(value < what for value in self.seen.values())
'''

State = tuple[int, tuple[int | None, int | None], tuple[int, int] | None]


def steps(state: State) -> Iterator[tuple[str, int, State]]:
    """The steps of the protocol above, written down once more."""
    counter, seen, last = state
    for c in (0, 1):
        mine = seen[c]
        after: tuple[int | None, int | None]
        if mine is None and counter < 3:
            after = (counter, seen[1]) if c == 0 else (seen[0], counter)
            yield "reads", c, (counter, after, last)
        if mine is not None:
            after = (None, seen[1]) if c == 0 else (seen[0], None)
            yield "writes", c, (mine + 1, after, (c, mine + 1))


def explored() -> list[State]:
    """All states below the constraint."""
    start: State = (0, (None, None), None)
    found, waiting = {start}, [start]
    while waiting:
        for _, _, after in steps(waiting.pop()):
            if after not in found and after[0] < 3:
                found.add(after)
                waiting.append(after)
    return [*found]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    file = tmp_path_factory.mktemp("clients") / "clients.py"
    file.write_text(CLIENTS)
    found = Space(load(str(file))(), str(file))
    found.explore()
    return found


def shown(space: Space, part: str, word: str = "", nth: int = 1, text: str = CLIENTS) -> str:
    """What is shown at a word of the nth line that has this part."""
    number = [number for number, line in enumerate(text.splitlines(), 1) if part in line][nth - 1]
    column = text.splitlines()[number - 1].index(word or part) + 1
    found = hover(space, "as declared", text, number, column)
    return found[0] if found is not None else ""


def counts(shown: str) -> dict[str, int]:
    """The counts of values in a text."""
    found = Counter[str]()
    for line in shown.splitlines():
        if line.startswith("- `"):
            value, _, count = line.removeprefix("- `").partition("`: ")
            found[value] += int(count.split()[0].replace(",", ""))
    return dict(found)


def test_all_states_are_found(space: Space) -> None:
    assert len(space.states) == len(explored()) and space.complete


def test_where_actions_are_enabled(space: Space) -> None:
    for name in ("reads", "writes"):
        enabled = [{(c) for action, c, _ in steps(state) if action == name} for state in explored()]
        text = shown(space, f"def {name}", name)
        assert f"**{name}** is enabled in {sum(map(bool, enabled))} of {len(enabled)} states" in text
        assert counts(text) == {f"c=c{c + 1}": sum(c in one for one in enabled) for c in (0, 1)}


def test_the_values_of_a_variable(space: Space) -> None:
    expected = Counter(str(counter) for counter, _, _ in explored())
    assert counts(shown(space, "counter: int", "counter")) == dict(expected)
    assert counts(shown(space, "return self.counter < 3", "counter <")) == dict(expected)


def test_the_values_of_an_expression_for_each_binding(space: Space) -> None:
    text = shown(space, "require(c in self.seen)", "in self")
    for c in (0, 1):
        held = Counter(str(seen[c] is not None) for _, seen, _ in explored())
        part = text.partition(f"c=c{c + 1}\n")[2].partition("c=c")[0]
        assert counts(part) == dict(held)


def test_the_condition_of_a_requirement_is_shown_at_its_name(space: Space) -> None:
    assert "`c in self.seen`" in shown(space, "require(c in self.seen)", "require")


def test_an_expression_that_has_no_value_in_some_states(space: Space) -> None:
    text = shown(space, "self.counter = update.value", "self.counter")
    assert "`self.counter`" in text
    text = shown(space, "update = Update", "[c]")
    missing = sum(seen[0] is None for _, seen, _ in explored())
    assert "no value, KeyError" in text and f": {missing} states" in text


def test_columns_after_letters_of_several_bytes(space: Space) -> None:
    found = hover(space, "as declared", CLIENTS, *_at('größer"; return', "self.counter"))
    assert found is not None and found[1] is not None
    line = CLIENTS.splitlines()[found[1].line - 1]
    assert line[found[1].column - 1 : found[1].end] == "self.counter"


def _at(part: str, word: str) -> tuple[int, int]:
    (number,) = [number for number, line in enumerate(CLIENTS.splitlines(), 1) if part in line]
    return number, CLIENTS.splitlines()[number - 1].index(word) + 1


def test_what_local_variables_held(space: Space) -> None:
    text = shown(space, "self.last = update", "update")
    updates = {
        f"Update(by=c{c + 1}, value={after[0]})" for s in explored() for a, c, after in steps(s) if a == "writes"
    }
    assert set(counts(text)) == updates


def test_a_constant_is_shown(space: Space) -> None:
    assert "`most` is `3`" in shown(space, "most: int", "most")


def test_a_generator_is_shown_as_the_call_around_it(space: Space) -> None:
    assert shown(space, "return all(", "what for") == ""  # the helper's parameter has no value between steps
    assert shown(space, "import *") == ""


def test_nothing_is_shown_outside(space: Space) -> None:
    lines = CLIENTS.splitlines()
    assert hover(space, "", CLIENTS, len(lines) + 50, 1) is None
    assert hover(space, "", CLIENTS, 1, 500) is None


@given(line=st.integers(1, 60), column=st.integers(1, 90))
def test_no_place_of_a_file_is_a_fault(space: Space, line: int, column: int) -> None:
    found = hover(space, "as declared", CLIENTS, line, column)
    assert found is None or "states" in found[0]


# -- TLA+ --------------------------------------------------------------------------------------------------------------

TOKENS = """---- MODULE Counter ----
EXTENDS Naturals
CONSTANT Limit
VARIABLES count, last

Init == count = 0 /\\ last = "none"

Tick(by) ==
    /\\ count < Limit
    /\\ \\/ by = "a"
       \\/ count > 1
    /\\ count' = count + 1
    /\\ last' = by

Next == \\E by \\in {"a", "b"} : Tick(by)

Twice == count + count
====
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    folder = tmp_path_factory.mktemp("specification")
    (folder / "Counter.tla").write_text(TOKENS)
    (folder / "Counter.cfg").write_text("INIT Init\nNEXT Next\nCONSTANT Limit = 3\nCHECK_DEADLOCK FALSE\n")
    check = Check(folder / "Counter.tla", sample=True)
    check.until("ready")
    yield check
    check.job.end()


def asked(check: Check, part: str, word: str = "") -> str:
    (number,) = [number for number, line in enumerate(TOKENS.splitlines(), 1) if part in line]
    return check.ask(number, TOKENS.splitlines()[number - 1].index(word or part) + 1)


def test_a_specification_shows_the_same(answers: Check) -> None:
    # (0, none), (1, a), (2, a), (3, a), (3, b): b ticks from 2 alone
    assert counts(asked(answers, "VARIABLES", "count")) == {"0": 1, "1": 1, "2": 1, "3": 2}
    text = asked(answers, "Tick(by) ==", "Tick")
    assert "**Tick** is enabled in 3 of 5 states" in text and counts(text) == {'"a"': 3, '"b"': 1}
    assert counts(asked(answers, "Twice ==")) == {"0": 1, "2": 1, "4": 1, "6": 2}
    assert "`Limit` is `3`" in asked(answers, "CONSTANT", "Limit")
    assert counts(asked(answers, "count < Limit", "<")) == {"TRUE": 3, "FALSE": 2}


def test_a_list_of_disjuncts_keeps_its_columns(answers: Check) -> None:
    text = asked(answers, '\\/ by = "a"', "\\/ by")
    first, _, second = text.partition('by="b"')
    assert counts(first) == {"TRUE": 5} and counts(second) == {"FALSE": 2, "TRUE": 3}


def test_primes_have_no_value_between_steps(answers: Check) -> None:
    assert asked(answers, "last' = by", "' = by") == ""
    assert asked(answers, "====") == ""


def test_an_action_is_shown_where_it_is_named(answers: Check) -> None:
    assert "**Tick** is enabled in 3 of 5 states" in asked(answers, "Next ==", "Tick")


def test_a_specification_without_parameters(tmp_path: Path) -> None:
    (tmp_path / "Counter.tla").write_text(SPECIFICATION)
    (tmp_path / "Counter.cfg").write_text(CONFIGURATION)
    check = Check(tmp_path / "Counter.tla", sample=True)
    check.until("ready")
    assert "**Within** is false in 0 of 4 states" in check.ask(13 + 1, 2)
    check.job.end()
