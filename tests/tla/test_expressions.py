"""What expressions are worth. The expected values are those that TLC prints."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tla.compiled import Texts, module_of

from fencepost.tla import compiler, runtime
from fencepost.tla.compiler import Remembered
from fencepost.tla.errors import SpecificationError
from fencepost.tla.sets import Sequences
from fencepost.tla.values import EvaluationError, Interval, Sequence, Set, Value, function, show

DEFINITIONS = """
Sum[n \\in Nat] == IF n = 0 THEN 0 ELSE n + Sum[n - 1]
Sq[n \\in 1..5] == n * n
RECURSIVE Fact(_)
Fact(n) == IF n <= 0 THEN 1 ELSE n * Fact(n - 1)
RECURSIVE Acc(_, _)
Acc(S, a) == IF S = {} THEN a ELSE LET m == CHOOSE z \\in S : TRUE IN Acc(S \\ {m}, a + m)
RECURSIVE Even(_), Odd(_)
Even(n) == IF n = 0 THEN TRUE ELSE Odd(n - 1)
Odd(n) == IF n = 0 THEN FALSE ELSE Even(n - 1)
Ignore(a, b) == a
Gap == [n \\in 0..2 |-> <<4, 5>>[n]]
Gaps(k) == [n \\in 0..2 |-> k * Gap[n]]
First(a, b) == IF a > 0 THEN a ELSE b
Apply2(F(_, _), a, b) == F(a, b)
Twice(F(_), a) == F(F(a))
a ++ b == a * 10 + b
Comp(F(_), G(_), v) == F(G(v))
RECURSIVE Fold(_, _, _)
Fold(F(_, _), b, s) == IF s = <<>> THEN b ELSE Fold(F, F(b, Head(s)), Tail(s))
T(k) == LET U(m) == m + k V == U(1) IN U(2) * V
Grid == [i \\in 1..2, j \\in 1..2 |-> i * 10 + j]
Rec == [a |-> 1, b |-> [c |-> <<5, 6>>, d |-> {1}]]
Part(n) == /\\ n > 0
           /\\ \\E m \\in 1..3 : m > n
"""

VALUES = {
    "Sum[10]": "55",
    "Sq": "<<1, 4, 9, 16, 25>>",
    "Fact(10)": "3628800",
    "Acc({1, 5, 7}, 0)": "13",
    "<<Even(10), Odd(7), Even(3)>>": "<<TRUE, TRUE, FALSE>>",
    "Ignore(1, 1 \\div 0)": "1",
    "First(3, Head(<<>>))": "3",
    "Apply2(LAMBDA a, b : a - b, 5, 3)": "2",
    "Apply2(+, 2, 3)": "5",
    "Apply2(++, 4, 5)": "45",
    "Twice(LAMBDA v : v * v, 3)": "81",
    "1 ++ 2 ++ 3": "123",
    "Comp(LAMBDA v : v + 1, LAMBDA v : v * 2, 5)": "11",
    "Fold(LAMBDA p, q : p * 2 + q, 0, <<1, 0, 1>>)": "5",
    "T(3)": "20",
    "Grid": "(<<1, 1>> :> 11 @@ <<1, 2>> :> 12 @@ <<2, 1>> :> 21 @@ <<2, 2>> :> 22)",
    "<<Grid[2, 1], Grid[<<1, 1>>], Rec.b.c[2]>>": "<<21, 11, 6>>",
    '[Rec EXCEPT !.b.c[1] = @ + 1, !.a = 7, !["b"].d = {}]': "[a |-> 7, b |-> [c |-> <<6, 6>>, d |-> {}]]",
    "[Sq EXCEPT ![9] = 1, ![1] = @ + @]": "<<2, 4, 9, 16, 25>>",
    "[Grid EXCEPT ![1, 2] = @ + 100][1, 2]": "112",
    "{p[1] + p[2] : p \\in {1, 2} \\X {10, 20}}": "{11, 12, 21, 22}",
    "{a + b : a \\in {1, 2}, b \\in {10, 20}}": "{11, 12, 21, 22}",
    "{a - b : <<a, b>> \\in {<<1, 2>>, <<5, 1>>}}": "{-1, 4}",
    "{a + b + c : a, b \\in {1, 2}, c \\in {100}}": "{102, 103, 104}",
    "{<<a, b>> \\in {1, 2} \\X {1, 2} : a < b}": "{<<1, 2>>}",
    "[<<a, b>> \\in {<<1, 2>>, <<5, 1>>} |-> a + b][5, 1]": "6",
    "\\A a, b \\in {1, 2}, c \\in {3} : a + b < c + 2": "TRUE",
    "\\E <<a, b>> \\in {<<1, 2>>} : a > b": "FALSE",
    "<<\\A z \\in {} : z = 1, \\E z \\in {} : z = 1>>": "<<TRUE, FALSE>>",
    "CHOOSE z \\in {3, 2, 1} : z > 1": "2",
    "CHOOSE <<a, b>> \\in {1, 2} \\X {3, 4} : a + b = 6": "<<2, 4>>",
    'CASE 1 = 2 -> "a" [] 2 = 2 -> "b" [] OTHER -> "c"': '"b"',
    "CASE FALSE -> 1 [] OTHER -> 2": "2",
    "IF 1 = 1 THEN 2 ELSE Head(<<>>)": "2",
    "FALSE /\\ Head(<<>>)": "FALSE",
    "TRUE \\/ Head(<<>>)": "TRUE",
    "FALSE => Head(<<>>)": "TRUE",
    "<<TRUE <=> FALSE, ~TRUE>>": "<<FALSE, FALSE>>",
    "LET z == Head(<<>>) IN 3": "3",
    "LET z == 4 w == z + 1 IN w * z": "20",
    "LET f[n \\in 0..5] == IF n = 0 THEN 1 ELSE 2 * f[n - 1] IN f[5]": "32",
    "LET f[n \\in Nat] == IF n < 2 THEN n ELSE f[n - 1] + f[n - 2] IN f[40]": "102334155",
    "LET RECURSIVE g(_) g(n) == IF n = 0 THEN 0 ELSE n + g(n - 1) IN g(4)": "10",
    "[i \\in {1, 2} |-> LET h(v) == v + i IN h(i)]": "<<2, 4>>",
    "<<SUBSET {1, 2}, UNION {{1}, {2, 3}}, DOMAIN Rec>>": '<<{{}, {1}, {2}, {1, 2}}, {1, 2, 3}, {"a", "b"}>>',
    "<<{1, 2} \\cup {3}, {1, 2} \\cap {2}, {1, 2} \\ {2}>>": "<<{1, 2, 3}, {2}, {1}>>",
    "<<{1} \\subseteq {1, 2}, 1 \\in {1}, 1 \\notin {1}>>": "<<TRUE, TRUE, FALSE>>",
    "<<{1, 2} = {2, 1}, <<1>> # <<2>>>>": "<<TRUE, TRUE>>",
    "[{1, 2} -> {0, 1}]": "{<<0, 0>>, <<0, 1>>, <<1, 0>>, <<1, 1>>}",
    "[a : {1}, b : {2, 3}]": "{[a |-> 1, b |-> 2], [a |-> 1, b |-> 3]}",
    "{1} \\X {2} \\X {3}": "{<<1, 2, 3>>}",
    "<<[a |-> 1] = [a |-> 1], [i \\in 1..2 |-> i] = <<1, 2>>>>": "<<TRUE, TRUE>>",
    "SelectSeq(<<1, 2, 3>>, LAMBDA v : v > 1)": "<<2, 3>>",
    "SelectSeq(<<1, 2, 3>>, Odd)": "<<1, 3>>",
    "<<[n \\in Nat |-> n + 1][5], {n \\in Nat : n > 3} \\cap {2, 5}, 5 \\in {n \\in Int : n > 3}>>": "<<6, {5}, TRUE>>",
    "LET S == {1, 2} IN {[n \\in S |-> k + n] : k \\in S}": "{<<2, 3>>, <<3, 4>>}",
    "{{k \\in 1..3 : k > m} : m \\in 0..2}": "{{3}, {2, 3}, {1, 2, 3}}",
    "[m \\in 1..2 |-> {k \\in Nat : k < m}][2] \\cap 0..5": "{0, 1}",
    "[m \\in 0..2 |-> <<4, 5>>[m]][2]": "5",
    "[m, n \\in 0..2 |-> <<4, 5>>[m] + n][1, 2]": "6",
    "[m \\in 0..1 |-> [n \\in 0..1 |-> <<4>>[n]]][0][1]": "4",
    "LET f == [m \\in 0..2 |-> <<4, 5>>[m]] IN f[1] + f[2]": "9",
    "LET f[m \\in 0..2] == <<4, 5>>[m] IN f[1]": "4",
    "<<Gap[1], Gaps(2)[2], (IF TRUE THEN Gap ELSE Gaps(1))[2]>>": "<<4, 10, 5>>",
    "<<Part(1)!2, Part(5)!2, Part(0)!1, Part(0)!2!1, Part(2)!2!(3)>>": "<<TRUE, FALSE, FALSE, 1..3, TRUE>>",
}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return module_of(tmp_path_factory.mktemp("values"), VALUES, DEFINITIONS)


@pytest.mark.parametrize("number", range(len(VALUES)), ids=list(VALUES))
def test_an_expression_is_worth_what_it_is_worth_in_tlc(values: Texts, number: int) -> None:
    assert values.shown(f"Test{number}") == list(VALUES.values())[number]


STATES = {
    "x + y'": "5",
    "(x + y)'": "7",
    "Next(x)'": "4",
    "LET z == x + 1 IN z' + z": "6",
    "Later(x)": "<<1, 3>>",
    "Later(x + y)": "<<3, 7>>",
    "LET Get(n) == x + n IN Get(1)' + Get(2)": "7",
    "<<UNCHANGED x, UNCHANGED <<>>, UNCHANGED (x - x)>>": "<<FALSE, TRUE, TRUE>>",
    "<<[x > 5]_y, [x < 5]_y, <<x < 5>>_y, <<x < 5>>_(x - x)>>": "<<FALSE, TRUE, TRUE, FALSE>>",
    "<<ENABLED (x' = x), ENABLED (x = 2 /\\ x' = x), ENABLED (x' \\in {1, 2} /\\ x' > 2)>>": "<<TRUE, FALSE, FALSE>>",
    "[n \\in {1} |-> ENABLED (x' = n /\\ x' = x)][1]": "TRUE",
    "(ENABLED (x' = 3 /\\ x' = x))'": "TRUE",
    "\\E n \\in {3} : Later(x)[2] = n": "TRUE",
    "Through(LAMBDA n : x + n, y)": "3",
    "Through(LAMBDA n : x + n, y)'": "7",
}
STATE_DEFINITIONS = """
Next(n) == n + 1
Later(v) == <<v, v'>>
Through(F(_), n) == F(n)
"""


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return module_of(tmp_path_factory.mktemp("states"), STATES, STATE_DEFINITIONS)


@pytest.mark.parametrize("number", range(len(STATES)), ids=list(STATES))
def test_an_expression_reads_the_state_that_it_is_about(states: Texts, number: int) -> None:
    """Here x is 1 and y is 2, and then they are 3 and 4."""
    assert states.shown(f"Test{number}") == list(STATES.values())[number]


ERRORS = {
    "x + [a |-> 1].b": (5, "the record [a |-> 1] has no field b"),
    "IF x THEN 1 ELSE 2": (4, "the condition of IF is the integer 1, which is neither TRUE nor FALSE"),
    "x = 1 /\\ y": (10, "the right side of /\\ is the integer 2, which is neither TRUE nor FALSE"),
    "{n \\in 1..y : n}": (15, "the condition of {x \\in S : ...} is the integer 1, which is neither TRUE nor FALSE"),
    'x = "a"': (1, 'the integer 1 cannot be compared with the string "a"'),
    "CASE x = 2 -> 1": (1, "no condition of CASE is true, and there is no OTHER"),
    "CHOOSE n \\in 1..y : n > x + 5": (1, "no element of 1..2 satisfies the condition of CHOOSE"),
    "CHOOSE n : n > x": (1, "CHOOSE without a set cannot be evaluated"),
    "\\A n \\in x : TRUE": (4, "needs a set, and the integer 1 is not one"),
    "\\A <<a, b>> \\in {<<x>>} : TRUE": (1, "<<1>> is not a tuple of 2 components"),
    "x[1]": (1, "the integer 1 is applied to 1, but it is not a function"),
    "Wrong(x)": (-12, "the integer 1 has no field field: it is not a record"),
    "[n \\in 1..2 |-> Wrong(n)]": (-12, "the integer 1 has no field field: it is not a record"),
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return module_of(tmp_path_factory.mktemp("errors"), ERRORS, "Wrong(n) == n.field")


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=list(ERRORS))
def test_an_error_says_where_it_is(errors: Texts, number: int) -> None:
    """A column below zero is one of the first line of definitions."""
    column, message = list(ERRORS.values())[number]
    place = f"Test.tla:{number + 5}:{column + len(f'Test{number} == ')}" if column > 0 else f"Test.tla:4:{1 - column}"
    with pytest.raises(EvaluationError) as caught:
        errors.value(f"Test{number}")
    first, *_ = str(caught.value).splitlines()
    assert first.endswith(message) or message in first
    assert f"{place}: " in first


def test_a_definition_of_a_let_is_evaluated_once_and_only_if_it_is_used(tmp_path: Path) -> None:
    texts = Texts(tmp_path, 'Test == LET z == Assert(FALSE, "used") IN IF x = 1 THEN 0 ELSE IF z THEN 1 ELSE 2')
    assert texts.value("Test") == 0
    with pytest.raises(EvaluationError, match="used"):
        texts.value("Test", (2, 2))


def test_a_value_that_is_the_same_in_every_state_is_worked_out_once(tmp_path: Path) -> None:
    texts = Texts(tmp_path, "Big == {n \\in 1..100 : n % 2 = 0}\nTest == x \\in Big /\\ Big = {n * 2 : n \\in 1..50}")
    compiled = texts.compiled("Test")
    assert [compiled((number, 0)) for number in (1, 2, 200)] == [False, True, False]


NESTED = 300
DEEP = {
    "a sum": "x" + " + 1" * NESTED,
    "IF inside IF": "IF x = 1 THEN " * NESTED + "1" + " ELSE 0" * NESTED,
    "ELSE after ELSE": "IF x = 2 THEN 1 ELSE " * NESTED + "7",
    "LET inside LET": "".join(f"LET z{n} == {f'z{n - 1}' if n else 'x'} + 1 IN " for n in range(NESTED)) + "z299",
    "parentheses and sets": "{" * NESTED + "x" + "}" * NESTED,
    "quantifiers": "".join(f"\\E z{n} \\in {{x}} : " for n in range(200)) + "z199 = 1",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=list(DEEP))
def test_an_expression_can_be_nested_hundreds_deep(tmp_path: Path, text: str) -> None:
    def run() -> str:
        return show(Texts(tmp_path, f"Test == {text}").value("Test"))

    assert runtime.deeply(run)


def test_recursion_can_be_deep(tmp_path: Path) -> None:
    definitions = (
        "RECURSIVE Count(_)\nCount(n) == IF n = 0 THEN 0 ELSE 1 + Count(n - 1)\n"
        "Down[n \\in Nat] == IF n = 0 THEN 0 ELSE 1 + Down[n - 1]\nTest == Count(5000 + x) + Down[2000 + x]"
    )
    assert runtime.deeply(lambda: Texts(tmp_path, definitions).value("Test")) == 7002


def test_endless_recursion_is_one_error(tmp_path: Path) -> None:
    texts = Texts(tmp_path, "RECURSIVE Count(_)\nCount(n) == 1 + Count(n + 1)\nTest == Count(x)")
    with pytest.raises(EvaluationError, match=r"Test.tla:5:\d+: this is nested too deeply"):
        texts.value("Test")


def test_what_has_no_value_is_refused_when_it_is_compiled(tmp_path: Path) -> None:
    texts = Texts(tmp_path, "Test == WF_x(x' = x)\nOther == <>(x = 1)")
    for name in ("Test", "Other"):
        with pytest.raises(SpecificationError, match="temporal"):
            texts.compiled(name)


def test_deeply_passes_on_what_its_function_raises() -> None:
    with pytest.raises(ValueError, match="no"):
        runtime.deeply(lambda: int("no"))
    assert runtime.deeply(threading.current_thread) is not threading.current_thread()


# -- definitions that are remembered -----------------------------------------------------------------------------------


def test_a_definition_is_evaluated_once_for_arguments_that_are_alike() -> None:
    asked: list[tuple[Value, ...]] = []

    def rule(now: object, then: object, *arguments: Value) -> Value:
        asked.append(arguments)
        return len(asked)

    remembered = Remembered(rule)
    cases: list[Value] = [1, True, "1", Set([1]), Set([True]), Interval(1, 2), Set([Set([1])]), Set([Set([True])])]
    for _ in range(2):
        assert [remembered(None, None, each) for each in cases] == list(range(1, 9))
    assert remembered(None, None, 1, 1) == 9 and asked[-1] == (1, 1)


def test_arguments_that_may_read_the_state_are_not_remembered() -> None:
    asked: list[Value] = []

    def rule(now: object, then: object, argument: Value) -> Value:
        asked.append(argument)
        return 1

    remembered = Remembered(rule)
    infinite = Set([Sequences(Set([1]))])
    for argument in (Sequence([1]), function({"a": 1}), infinite):
        remembered(None, None, argument)
        remembered(None, None, argument)
    assert len(asked) == 6


def test_as_many_values_are_remembered_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MOST_REMEMBERED", 2)
    remembered = Remembered(lambda now, then, argument: argument)
    assert [remembered(None, None, each) for each in (1, 2, 3, 1)] == [1, 2, 3, 1]
    assert len(remembered._known) <= 2
