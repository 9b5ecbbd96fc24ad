"""What a .cfg file says."""

from __future__ import annotations

import pytest

from fencepost.errors import WRONG_OPTIONS
from fencepost.language.values import ModelValue
from fencepost.tla import config
from fencepost.tla.errors import ConfigurationError

NAMED = ": define it in a module, and write the name of the definition here"
DEFINED = ': define it in a module, and write "<-" with the name of the definition in place of "="'


def read(*lines: str) -> config.Config:
    return config.read("\n".join(lines).encode(), "A.cfg")


def names(entries: tuple[config.Entry, ...]) -> list[str]:
    return [entry.name for entry in entries]


def values(*lines: str) -> dict[str, config.Value]:
    return {each.name: each.value for each in read("CONSTANTS", *lines).constants}


def test_sections_in_the_singular_and_in_the_plural() -> None:
    made = read(
        "INIT Init NEXT Next \\* a comment",
        "INVARIANT A B (* a (* nested *) comment *) INVARIANTS C",
        "PROPERTY P PROPERTIES Q",
        "CONSTRAINT C1 CONSTRAINTS C2",
        "ACTION_CONSTRAINT D1 ACTION_CONSTRAINTS D2",
        "POSTCONDITION E1 POSTCONDITIONS E2",
        "SYMMETRY Sym VIEW View ALIAS Alias CHECK_DEADLOCK FALSE",
        "_PERIODIC Per _RL_REWARD Rew _POSSIBLE Pos",
    )
    assert made.init and made.init.name == "Init" and str(made.init.place) == "A.cfg:1:6"
    assert made.next and made.next.name == "Next"
    assert names(made.invariants) == ["A", "B", "C"]
    assert names(made.properties) == ["P", "Q"]
    assert names(made.constraints) == ["C1", "C2"]
    assert names(made.action_constraints) == ["D1", "D2"]
    assert names(made.postconditions) == ["E1", "E2"]
    assert made.symmetry and made.view and made.alias and made.periodic and made.reward
    assert names(made.possible) == ["Pos"]
    assert made.deadlock is False
    assert made.specification is None


def test_an_empty_file_says_nothing() -> None:
    assert read("") == config.Config(file="A.cfg")


def test_values() -> None:
    assert values(
        "N = 3 M = -12",
        'S = "a\\b"',
        "T = TRUE F = FALSE",
        "Set = {a, 1, {}, {b_1, a}}",
        "Model = Model",
        "1a = 2_",
    ) == {
        "N": 3,
        "M": -12,
        "S": "a\\b",
        "T": True,
        "F": False,
        "Set": (ModelValue("a"), 1, (), (ModelValue("b_1"), ModelValue("a"))),
        "Model": ModelValue("Model"),
        "1a": ModelValue("2_"),
    }


def test_model_values_are_counted_in_the_order_of_the_file() -> None:
    value = values("S = {b, a, b}", "T = c")
    assert isinstance(value["S"], tuple) and isinstance(value["T"], ModelValue)
    assert [each.index for each in value["S"] if isinstance(each, ModelValue)] == [0, 1, 0]
    assert value["T"].index == 2


def test_replacements_and_assignments_of_modules() -> None:
    made = read("CONSTANT", "Nat <- MyNat", "Op <- [Other] MyOp", "NoHash = [Nano] n", "I!J!x = 1", "\\leq <- Less")
    assert [(each.name, each.by.name, each.module) for each in made.replacements] == [
        ("Nat", "MyNat", ""),
        ("Op", "MyOp", "Other"),
        ("<=", "Less", ""),
    ]
    assert [(each.name, each.value, each.module) for each in made.constants] == [
        ("NoHash", ModelValue("n"), "Nano"),
        ("I!J!x", 1, ""),
    ]


def test_the_last_assignment_wins_and_tables_are_kept() -> None:
    assert values("N = 1", "N = 2") == {"N": 2}
    made = read("CONSTANT F(1, a) = 2 F(2, b) = 3 Op <- A Op <- B")
    assert [(each.arguments, each.value) for each in made.constants] == [
        ((1, ModelValue("a")), 2),
        ((2, ModelValue("b")), 3),
    ]
    assert [each.by.name for each in made.replacements] == ["B"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INIT", "A.cfg:1:4: expected a name after INIT, found the end of the file"),
        ("INIT NEXT Next", 'A.cfg:1:6: expected a name after INIT, found "NEXT"'),
        ("INIT A\nINIT B", "A.cfg:2:1: INIT is given twice, first in line 1"),
        ("INVARAINT A", 'A.cfg:1:1: expected the name of a section, found "INVARAINT": did you mean INVARIANT?'),
        ("INVARIANTS A, B", "A.cfg:1:13: names after INVARIANTS have blanks between them, no commas"),
        ("INVARIANT A -", f'A.cfg:1:13: expected a name after INVARIANT, found "-"{NAMED}'),
        ("SPECIFICATION Spec\nINIT Init", "A.cfg:2:6: give either SPECIFICATION, or INIT and NEXT, not both"),
        ("CHECK_DEADLOCK no", 'A.cfg:1:16: expected TRUE or FALSE after CHECK_DEADLOCK, found "no"'),
        ("CHECK_DEADLOCK TRUE CHECK_DEADLOCK TRUE", "A.cfg:1:21: CHECK_DEADLOCK is given twice"),
        (
            "CONSTANT N = c1, c2",
            'A.cfg:1:16: expected the name of a constant, found ",": a set is written in braces, as in {a, b}',
        ),
        ("CONSTANT N <- {1}", f'A.cfg:1:15: expected the name of a definition after "<-", found "{{"{NAMED}'),
        ("CONSTANT N = [a |-> 1]", f'A.cfg:1:17: expected "]", found "|-"{DEFINED}'),
        ("INVARIANT x > 1", f'A.cfg:1:13: expected a name after INVARIANT, found ">"{NAMED}'),
        ("SYMMETRY Permutations(S)", f'A.cfg:1:22: expected the name of a section, found "("{NAMED}'),
        ("CONSTANT N == 1", 'A.cfg:1:12: expected "=" or "<-" after N, found "=="'),
        ("CONSTANT N =", "A.cfg:1:12: expected a value, found the end of the file"),
        ("CONSTANT N = INVARIANT", 'A.cfg:1:14: expected a value, found "INVARIANT"'),
        ("CONSTANT N = -a", 'A.cfg:1:15: expected a number after "-", found "a"'),
        ("CONSTANT N = {1, 2", 'A.cfg:1:18: expected "," or "}", found the end of the file'),
        ("CONSTANT N = {1 2}", 'A.cfg:1:17: expected "," or "}", found "2"'),
        (
            "CONSTANT N = <<1>>",
            'A.cfg:1:14: expected a value, found "<<": define it in a module,'
            ' and write "<-" with the name of the definition in place of "="',
        ),
        (
            "CONSTANT N = 1..2",
            "A.cfg:1:15: the value of N cannot be an expression: define it in a module,"
            ' and write "<-" with the name of the definition in place of "="',
        ),
        (
            "CONSTANT N <- 3",
            'A.cfg:1:15: expected the name of a definition after "<-", found "3":'
            " a value is assigned with =, as in N = 3",
        ),
        ("CONSTANT N <- [M x", 'A.cfg:1:18: expected "]", found "x"'),
        ("CONSTANT F(1) = 2 F(1, 2) = 3", "A.cfg:1:19: F has another number of arguments before"),
        ('CONSTANT N = "a', "A.cfg:1:14: this string has no end"),
        ("(* INIT", "A.cfg:1:1: this comment has no end *)"),
        ("CONSTANT N = " + "1" * 5000, "A.cfg:1:14: a number of 5000 digits is too long"),
    ],
)
def test_one_message_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config.read(text.encode(), "A.cfg")
    assert str(caught.value).split("\n")[0] == message
    assert caught.value.exit_code == WRONG_OPTIONS


def test_the_line_stands_below_with_carets() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read("CONSTANT", "\tN = {1 22}")
    assert str(caught.value).split("\n")[1:] == ["  2 | \tN = {1 22}", "    | \t       ^^"]


def test_a_file_that_is_not_utf_8_is_refused_with_the_place() -> None:
    with pytest.raises(ConfigurationError, match="A.cfg:2:5: the byte 0xe9 is not UTF-8"):
        config.read(b"INIT\nInit\xe9", "A.cfg")
