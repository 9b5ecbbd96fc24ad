"""What the text of a module becomes."""

from __future__ import annotations

import pytest
from tla.trees import brief, expression, module, shown

from fencepost.tla import ast, syntax
from fencepost.tla.errors import SpecificationError

OPERATORS = [
    ("a + b * c", r"(+ a (* b c))"),
    ("a - b - c", r"(- (- a b) c)"),
    ("a - -b", r"(- a (-. b))"),
    ("-a * b", r"(-. (* a b))"),
    ("-a + b", r"(+ (-. a) b)"),
    ("~a = b", r"(~ (= a b))"),
    (r"~a /\ b", r"(/\ (~ a) b)"),
    (r"a /\ b => c \/ d", r"(=> (/\ a b) (\/ c d))"),
    (r"a \land b \lor (c)", None),
    ("DOMAIN f[x]", "(DOMAIN (at f x))"),
    ("SUBSET S \\cup T", r"(\cup (SUBSET S) T)"),
    ("x'[1]", "(at (' x) 1)"),
    ("f[x].y'", "(' (. (at f x) y))"),
    ("a.b.c", "(. (. a b) c)"),
    ("f[1][2, 3]", "(at (at f 1) 2 3)"),
    (r"A \X B \X C", r"(\X A B C)"),
    (r"(A \X B) \X C", r"(\X (\X A B) C)"),
    (r"A \X (B \X C)", r"(\X A (\X B C))"),
    (r"A \times B", r"(\X A B)"),
    ("x =< y", "(<= x y)"),
    (r"x \leq y", "(<= x y)"),
    ("x ≤ y", "(<= x y)"),
    (r"x # y", "(/= x y)"),
    (r"s \circ t", r"(\o s t)"),
    (r"S \union T", r"(\cup S T)"),
    (r"x \equiv y", "(<=> x y)"),
    ("~(a) = b", "(~ (= a b))"),
    ("DOMAIN (f)[x]", "(DOMAIN (at f x))"),
    ("ENABLED ~ (a)'", "(ENABLED (~ (' a)))"),
    ("[]<>p", "([] (<> p))"),
    ("[]p => <>q", "(=> ([] p) (<> q))"),
    ("ENABLED A", "(ENABLED A)"),
    ("p ~> q", "(~> p q)"),
    ("1 .. n + 1", "(.. 1 (+ n 1))"),
    ("k :> v @@ f", "(@@ (:> k v) f)"),
    ("F(+, a)", "(F + a)"),
    ("F(-., a)", "(F -. a)"),
    ("+(a, b)", "(+ a b)"),
    ("∀", None),
]


@pytest.mark.parametrize(("text", "tree"), [case for case in OPERATORS if case[1]])
def test_operators_bind_as_in_the_table_of_precedence(text: str, tree: str) -> None:
    assert brief(expression(text)) == tree


@pytest.mark.parametrize(
    "text",
    [
        r"a \cup b \cap c",
        "a = b = c",
        "a => b => c",
        r"a /\ b \/ c",
        "a .. b .. c",
        "a + b | c",
        "2 * -3",
        "UNCHANGED x'",
        r"S \ T \ U",
        r"SUBSET A \X B",
        r"SUBSET (A) \X B",
        r"DOMAIN (a) ^# * a",
    ],
)
def test_operators_that_do_not_mix_are_refused(text: str) -> None:
    with pytest.raises(SpecificationError, match="A.tla:2:.*parentheses"):
        expression(text)


EXPRESSIONS = {
    r"\b101": "Number(5)",
    r"\o17": "Number(15)",
    r"\hfF": "Number(255)",
    "1.5": "Decimal(1.5)",
    r'"a\"b\\c"': r"String(a\"b\\c)".replace("\\\\", "\\").replace('\\"', '"'),
    "{}": "SetOf([])",
    "<<1, x>>": "Tuple([Number(1) Name(x)])",
    r"{x \in S : p}": "Filter(Bound([Parameter(x 0)] Name(S) False) Name(p))",
    r"{<<x, y>> \in S : p}": "Filter(Bound([Parameter(x 0) Parameter(y 0)] Name(S) True) Name(p))",
    r"{x : x, y \in S}": "Collect(Name(x) [Bound([Parameter(x 0) Parameter(y 0)] Name(S) False)])",
    r"\A x \in S, <<y, z>> \in T : p": (
        r"Quantified(\A [Bound([Parameter(x 0)] Name(S) False)"
        r" Bound([Parameter(y 0) Parameter(z 0)] Name(T) True)] Name(p))"
    ),
    r"\E x, y : p": r"Unbounded(\E [Parameter(x 0) Parameter(y 0)] Name(p))",
    r"\EE x : p": r"Unbounded(\EE [Parameter(x 0)] Name(p))",
    "CHOOSE x : p": "Choose(Bound([Parameter(x 0)] None False) Name(p))",
    r"CHOOSE <<x, y>> \in S : p": "Choose(Bound([Parameter(x 0) Parameter(y 0)] Name(S) True) Name(p))",
    r"[x \in S |-> 1]": "FunctionOf([Bound([Parameter(x 0)] Name(S) False)] Number(1))",
    "[S -> T]": "FunctionSet(Name(S) Name(T))",
    "[a |-> 1, b |-> 2]": "Record([FieldValue(a Number(1)) FieldValue(b Number(2))])",
    "[a : S]": "RecordSet([FieldValue(a Name(S))])",
    "[f EXCEPT ![1, 2].a[3] = @, !.b = 4]": (
        "Except(Name(f) [Update([[Number(1) Number(2)] a [Number(3)]] At()) Update([b] Number(4))])"
    ),
    "[A]_x": "Square(Name(A) Name(x))",
    "[A]_<<x, y>>": "Square(Name(A) Tuple([Name(x) Name(y)]))",
    "<<A>>_x": "Angle(Name(A) Name(x))",
    "WF_<<x, y>>(A)": "Fairness(WF Tuple([Name(x) Name(y)]) Name(A))",
    "WF_F(x, y)(A)": "Fairness(WF Apply(Name(F) [Name(x) Name(y)]) Name(A))",
    "LET I == INSTANCE M WITH F <- [] IN x": ("Let([Instance(I [] M [Substitution(F Name([]))] False)] Name(x))"),
    "SF_x(A)": "Fairness(SF Name(x) Name(A))",
    "IF a THEN b ELSE c": "If(Name(a) Name(b) Name(c))",
    "CASE a -> 1 [] b -> 2 [] OTHER -> 3": ("Case([Arm(Name(a) Number(1)) Arm(Name(b) Number(2))] Number(3))"),
    "LAMBDA_ + 1": "Apply(Name(+) [Name(LAMBDA_) Number(1)])",
    "F(LAMBDA x, y : x)": "Apply(Name(F) [Lambda([Parameter(x 0) Parameter(y 0)] Name(x))])",
    "lab(x) :: p": "Label(lab [x] Name(p))",
    "I!Op": "Qualified([Step(I [])] Op)",
    "I(1)!J!Op(2)": "Apply(Qualified([Step(I [Number(1)]) Step(J [])] Op) [Number(2)])",
    "Op!2!<<": "Part(Name(Op) [2 <<])",
    "I!Op(x)!:": "Part(Apply(Qualified([Step(I [])] Op) [Name(x)]) [:])",
    "Op!1!(x)!lab(y)": "Part(Name(Op) [1 [Name(x)] Step(lab [Name(y)])])",
    "Op!@!lab": "Part(Name(Op) [@ Step(lab [])])",
    "TRUE": "Name(TRUE)",
    "ℕ": "Name(Nat)",
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text: str) -> None:
    assert shown(expression(text)) == EXPRESSIONS[text]


def test_junctions_nest_by_their_columns() -> None:
    unit = module(
        r"A == /\ a",
        r"     /\ \/ b",
        r"        \/ c => d",
        r"     /\ e",
        r"     => f",
    ).units[0]
    assert isinstance(unit, ast.Operator)
    assert brief(unit.body) == r"(=> [/\ a [\/ b (=> c d)] e] f)"


def test_a_tab_reaches_to_the_next_multiple_of_eight() -> None:
    unit = module("A ==", "\t/\\ a", "        /\\ b").units[0]
    assert isinstance(unit, ast.Operator)
    assert brief(unit.body) == r"[/\ a b]"
    assert unit.body.place == ast.Place("A.tla", 3, 2, 4, 12)


def test_places_count_characters_and_include_the_last() -> None:
    unit = module('A == "é" \\o (* ü *) (b)').units[0]
    assert isinstance(unit, ast.Operator)
    assert isinstance(unit.body, ast.Apply)
    assert str(unit.body.place) == "A.tla:2:6"
    assert unit.body.place.end_column == 23
    assert unit.body.arguments[0].place == ast.Place("A.tla", 2, 6, 2, 8)
    assert unit.body.arguments[1].place == ast.Place("A.tla", 2, 22, 2, 22)


def test_units() -> None:
    made = module(
        "EXTENDS Naturals, Sequences",
        "CONSTANTS N, F(_, _), _ (+) _",
        "VARIABLE x",
        "ASSUME Positive == N > 0",
        "RECURSIVE Sum(_)",
        "Sum(n) == n",
        "a \\prec b == a",
        "LOCAL f[n \\in Nat] == n",
        "LOCAL INSTANCE M",
        "I(y) == INSTANCE M WITH c <- y, + <- F",
        "THEOREM T == x <1>1. x BY DEF Sum <1>2. QED OBVIOUS",
        "THEOREM ASSUME NEW n PROVE n",
        "USE DEF Sum",
        "----",
        "---- MODULE B ----",
        "====",
    )
    assert shown(made.extends) == "[Extended(Naturals) Extended(Sequences)]"
    assert [shown(unit) for unit in made.units] == [
        "Constants([Parameter(N 0) Parameter(F 2) Parameter(\\oplus 2)])",
        "Variables([Parameter(x 0)])",
        "Assumption(Positive Apply(Name(>) [Name(N) Number(0)]) True)",
        "Recursive([Parameter(Sum 1)])",
        "Operator(Sum [Parameter(n 0)] Name(n) False )",
        "Operator(\\prec [Parameter(a 0) Parameter(b 0)] Name(a) False )",
        "Function(f [Bound([Parameter(n 0)] Name(Nat) False)] Name(n) True )",
        "Instance( [] M [] True)",
        "Instance(I [Parameter(y 0)] M [Substitution(c Name(y)) Substitution(+ Name(F))] False)",
        "Theorem(T Name(x))",
        "Theorem( None)",
        "Module(B [] [])",
    ]


def test_let_has_definitions_of_all_kinds() -> None:
    tree = expression("LET RECURSIVE F(_) F(x) == x g[x \\in S] == x I == INSTANCE M IN F(g)")
    assert isinstance(tree, ast.Let)
    assert [type(each) for each in tree.definitions] == [ast.Recursive, ast.Operator, ast.Function, ast.Instance]


def test_text_around_modules_means_nothing() -> None:
    text = '"it\'s (* here \n---- MODULE A ----\nA == 1\n====\n" ==\n---- MODULE B ----\n====\nx = "\n'
    assert [each.name for each in syntax.parse(text.encode(), "A.tla")] == ["A", "B"]


def test_comments_above_a_definition_lose_their_frames() -> None:
    made = module(
        "VARIABLE x  \\* not this",
        "(***********)",
        "(* A frame *)",
        "(* of two. *)",
        "(***********)",
        "A == 1",
        "",
        "\\* Not this.",
        "",
        "\\* One.",
        "\\*   Two (* three *).",
        "B == 1 \\* not this",
        "C == 2",
        "(* Four.",
        "",
        "   \\in five. *)",
        "LOCAL D == 3",
    )
    comments = [unit.comment for unit in made.units if isinstance(unit, ast.Operator)]
    assert comments == ["A frame of two.", "One. Two (* three *).", "", "Four.\n\n\\in five."]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1000 + "x" + ")" * 1000,
        "+".join(["x"] * 1000),
        "IF x THEN y ELSE " * 1000 + "z",
        "LET a == 1 IN " * 1000 + "z",
        "~" * 1000 + "x",
        "x" + "'" * 1000,
        "{" * 1000 + "}" * 1000,
        "\\A x \\in S : " * 1000 + "x",
    ],
    ids=["parentheses", "sum", "IF", "LET", "not", "primes", "sets", "quantifiers"],
)
def test_depth_has_no_limit(text: str) -> None:
    expression(text)
