"""What is said of mistakes in a module."""

from __future__ import annotations

import pytest
from tla.trees import module

from fencepost.errors import NOT_A_PROTOCOL
from fencepost.tla import syntax
from fencepost.tla.errors import SpecificationError

IN_A_MODULE = [
    ("VARIABLE x\nInit = x = 1\nNext == x' = 2", '3:6: expected "==" in the definition of Init, found "="'),
    ("Init(a) = x", '2:9: expected "==", found "="'),
    ("A == 1\nInit = x", '3:6: expected "==" in the definition of Init, found "="'),
    ("A == x = 1\nB = 2", '3:3: expected "==" in the definition of B, found "="'),
    ("A == (1 + 2\nB == 3", '3:1: expected ")" for the "(" of line 2, found "B"'),
    ("A == F(1, 2\nB == 3", '3:1: expected ")" for the "(" of line 2, found "B"'),
    ("A == 1 + 2)\nB == 3", '2:11: ")" without "(" before it'),
    ("A == {1, 2\nB == 3", '3:1: expected "}" for the "{" of line 2, found "B"'),
    ("A == [x \\in S |-> 1\nB==2", '3:1: expected "]" for the "[" of line 2, found "B"'),
    ("A == <<1, 2>\nB==2", '3:1: expected an expression, found "B"'),
    ("A == [x \\in S : 1]", '2:15: expected "|->", "->", ":", "]_" or EXCEPT in the "[", found ":"'),
    ("A == f[1\nB==2", '3:1: expected "]" for the "[" of line 2, found "B"'),
    ('A == "abc\nB == 1', "2:6: this string has no end"),
    ('A == "a\\d"', "2:6: \\d is no escape of a string: write \\\\ for a backslash"),
    ("VARIABLES x, IN\nA == 1", "2:14: IN is a reserved word, not a name"),
    ("CASE == 1", "2:1: CASE is a reserved word, not a name"),
    ("A == \\E IF \\in S : TRUE", "2:9: IF is a reserved word, not a name"),
    ("A == r.IF", "2:8: IF is a reserved word, not a name"),
    ("A == 1 + * 2", '2:10: expected an expression, found "*"'),
    ("A == 1 + + 2", '2:10: expected an expression, found "+"'),
    ("A == 1 +\nB == 2", '3:1: expected an expression, found "B"'),
    ("A == * 2", '2:6: expected an expression, found "*"'),
    ("A == IF x\n  1 ELSE 2", '3:3: expected THEN for the IF of line 2, found "1"'),
    ("A == IF x THEN 1\nB == 2", '3:1: expected ELSE for the IF of line 2, found "B"'),
    (
        "A == /\\ IF x THEN 1\n     /\\ b",
        '3:6: expected ELSE for the IF of line 2, found "/\\": it must stand to the right of the "/\\" of line 2',
    ),
    ("A == LET b == 1\n  b + 1\nC == 1", '3:3: expected IN for the LET of line 2, found "b"'),
    ("A == LET b == 1\nC == 1", '4:1: expected IN for the LET of line 2, found "===="'),
    ("A == CASE x = 1 2 [] OTHER -> 3", '2:17: expected "->" for the CASE, found "2"'),
    ("A == CASE x = 1 : 2", '2:17: expected "->" for the CASE, found ":"'),
    ("A == ' x", '2:6: expected an expression, found "\'": a string stands between double quotation marks'),
    ("A == x ~ y", '2:8: expected an operator or a definition, found "~"'),
    ("A == x SUBSET y", '2:8: expected an operator or a definition, found "SUBSET"'),
    (
        "A == /\\ a\n     /\\ b =\n    c",
        '4:5: expected an expression, found "c": it must stand to the right of the "/\\" of line 2',
    ),
    (
        "A == /\\ a\n     /\\\n     /\\ b",
        '4:6: expected an expression, found "/\\": it must stand to the right of the "/\\" of line 2',
    ),
    (
        "A == /\\ (a\n     /\\ b)",
        '3:6: expected ")" for the "(" of line 2, found "/\\": it must stand to the right of the "/\\" of line 2',
    ),
    ("A == /\\ a\n   b", '3:4: expected an operator or a definition, found "b"'),
    ("A == [x \\in S => 1]", '2:19: expected "|->", "->", ":", "]_" or EXCEPT in the "[", found "]"'),
    ("A == \\A x \\in S x > 1", '2:17: expected ":" for the "\\A", found "x"'),
    ("A == \\E x \\in S, x > 1", '2:20: expected \\in, found ">"'),
    ("A == {x \\in S | x > 1}", "2:19: \\in and > need parentheses: neither binds more tightly than the other"),
    ("A == \\A x in S : 1", '2:11: expected ":" for the "\\A", found "in": it is written \\in'),
    ("A == x == 1", '2:8: expected a definition, found "==": equality is "="'),
    ("A == IF x == 1 THEN 1 ELSE 2", '2:11: expected THEN for the IF, found "==": equality is "="'),
    ("A == x := 1;", '2:12: ";" means nothing in TLA+: nothing ends or separates definitions'),
    ("A == 1;\nB == 2", '2:7: ";" means nothing in TLA+: nothing ends or separates definitions'),
    ("A == a and b", '2:8: expected an operator or a definition, found "and": it is written "/\\"'),
    ("A == a != b", '2:9: expected a name after "!", found "=": what is not equal is written /='),
    ("A == !a", '2:6: expected an expression, found "!"'),
    ("A == 'abc'", '2:6: expected an expression, found "\'": a string stands between double quotation marks'),
    ("A == “abc”", '2:6: "“" means nothing in TLA+: a string stands between straight quotation marks'),
    ("A == [f EXCEPT [1] = 2]", '2:16: expected "!", found "["'),
    ("A == [f EXCEPT ![1] == 2]", '2:21: expected "=", found "==": equality is "="'),
    ("A == [f EXCEPT ![1] -> 2]", '2:21: expected "=", found "->"'),
    ("A == [f EXCEPT !a = 2]", '2:17: expected "[" or "." after "!", found "a"'),
    ("EXTENDS Naturals Sequences\nA == 1", '2:18: expected "," or a definition, found "Sequences"'),
    ("EXTENDS\nA == 1", '3:1: expected the name of a module, found "A"'),
    (
        "A == 1\nEXTENDS Naturals",
        '3:1: expected a definition, found "EXTENDS": it stands once, at the beginning of the module',
    ),
    ("VARIABLES x y\nA==1", '2:13: expected "," or a definition, found "y"'),
    ("VARIABLES x,\nA == 1", '3:1: expected the name of a variable, found "A"'),
    ("VARIABLE x = 1", '2:12: expected a definition, found "=": Init gives a variable its first value'),
    ("CONSTANT N == 1", '2:12: expected a definition, found "==": the configuration gives a constant its value'),
    ("A ==\nB == 1", '3:1: expected an expression, found "B"'),
    ("A ==", '3:1: expected an expression, found "===="'),
    ("A == WF_vars Next", '2:14: expected "(", found "Next"'),
    ("A == WF vars(Next)", '2:9: expected an operator or a definition, found "vars"'),
    ("A == [Next]vars", '2:11: expected "|->", "->", ":", "]_" or EXCEPT in the "[", found "]"'),
    ("A == [][Next]", '2:13: expected "|->", "->", ":", "]_" or EXCEPT in the "[", found "]"'),
    ("A == [][Next]_", '3:1: expected a name or a tuple as the subscript, found "===="'),
    ("I == INSTANCE M WITH x = 1", '2:24: expected "<-", found "="'),
    ("I == INSTANCE M WITH", '3:1: expected the name of a constant or a variable, found "===="'),
    ("A == I!", '3:1: expected a name after "!", found "===="'),
    ("A == I.!x", '2:8: expected the name of a field, found "!"'),
    ("A == [a -> 1, b -> 2]", '2:13: expected "]" for the "[", found ","'),
    ("A == [a |-> 1, b = 2]", '2:18: expected "|->", found "="'),
    ("A == [a |-> 1 b |-> 2]", '2:15: expected "]" for the "[", found "b"'),
    ("A == <<1 2>>", '2:10: expected ">>" for the "<<", found "2"'),
    ("A == F(a b)", '2:10: expected ")" for the "(", found "b"'),
    ("A == F(LAMBDA x x)", '2:17: expected ":", found "x"'),
    ("A == LAMBDA x : x", '2:6: expected an expression, found "LAMBDA": it can only be an argument'),
    ("A == CHOOSE x \\in S x > 1", '2:21: expected ":", found "x"'),
    ("A(x y) == 1", '2:5: expected ")", found "y"'),
    ("A(x, 1) == 1", '2:6: expected the name of a parameter, found "1"'),
    ("A[x] == 1", '2:4: expected \\in, found "]"'),
    ("A(x + y) == 1", '2:5: expected ")", found "+"'),
    ("A == 1\nfoo\nB == 2", '3:1: expected a definition, found "foo", which has no "==" behind it'),
    ("A == 1\n  foo\nB == 2", '3:3: expected an operator or a definition, found "foo"'),
    ("A == 1 foo\nB == 2", '2:8: expected an operator or a definition, found "foo"'),
    ("A == UNCHANGED x, y", '2:17: expected a definition, found ",": a tuple is written <<x, y>>'),
    ("A == a /\\ b \\/ c", "2:13: /\\ and \\/ need parentheses: neither binds more tightly than the other"),
    ("A == 1.2.3", '2:9: expected a definition, found ".3"'),
    ("A == \\forall x : 1 \\foo y", '2:25: expected an operator or a definition, found "y"'),
    ("A == x'' = 1 y' = 2", '2:14: expected an operator or a definition, found "y"'),
    ("A == IF x THEN 1 ELSE IF y THEN 2\nB == 1", '3:1: expected ELSE for the IF of line 2, found "B"'),
    ("A == /\\ x = 1\n     y = 2", '3:6: expected an operator or a definition, found "y"'),
    ("A == /\\ x = 1\n        y = 2", '3:9: expected an operator or a definition, found "y"'),
    ("A == {1, 2]", '2:11: expected "}" for the "{", found "]"'),
    ("A == f[1)", '2:9: expected "]" for the "[", found ")"'),
    ("A == 1,2", '2:7: expected a definition, found ",": a tuple is written <<x, y>>'),
]

FILES = [
    ("---- MODULE A ----\nA == 1\n", '2:6: the module has no end: a line "===="'),
    ("", "1:1: no module is here: it begins with ---- MODULE name ----"),
    ("A == 1\n====\n", "1:1: no module is here: it begins with ---- MODULE name ----"),
    ("--- MODULE A ---\nA==1\n====", "1:1: no module is here: it begins with ---- MODULE name ----"),
    ("---- MODULE A\nA == 1\n====", '2:1: expected "----" after the name of the module, found "A"'),
    ("---- MODULE ----\n====", '1:13: expected the name of the module, found "----"'),
    ("---- MODULE A ----\nA == 1 (* a\nB == 1\n====\n", "2:8: this comment has no end *)"),
]


def message(text: str) -> str:
    with pytest.raises(SpecificationError) as caught:
        syntax.parse(text.encode(), "A.tla")
    assert caught.value.exit_code == NOT_A_PROTOCOL
    return str(caught.value).split("\n")[0].removeprefix("A.tla:")


@pytest.mark.parametrize(("lines", "expected"), IN_A_MODULE)
def test_a_mistake_in_a_module(lines: str, expected: str) -> None:
    assert message(f"---- MODULE A ----\n{lines}\n====") == expected


@pytest.mark.parametrize(("text", "expected"), FILES)
def test_a_mistake_around_a_module(text: str, expected: str) -> None:
    assert message(text) == expected


def test_the_line_stands_below_with_carets() -> None:
    with pytest.raises(SpecificationError) as caught:
        module("A ==", '\t(* é *) {"é", x THEN}')
    assert str(caught.value).split("\n") == [
        'A.tla:3:18: expected "}" for the "{", found "THEN"',
        '  3 | \t(* é *) {"é", x THEN}',
        "    | \t                ^^^^",
    ]


def test_a_file_that_is_not_utf_8_is_refused_with_the_place() -> None:
    with pytest.raises(SpecificationError, match="A.tla:2:7: the byte 0xe9 is not UTF-8"):
        syntax.parse(b'---- MODULE A ----\nA == "\xe9"\n====', "A.tla")


def test_deep_expressions_and_proofs_are_not_explained() -> None:
    assert message("---- MODULE A ----\nA == " + "(" * 500 + "\n====").endswith(
        "an error of syntax is here or below, in an expression that is nested deeply"
    )
    assert message("---- MODULE A ----\nTHEOREM x <1> foo\n====").endswith("an error of syntax is here or below")


def test_lists_nested_too_deeply_are_refused_before_they_crash_the_parser() -> None:
    assert message("---- MODULE A ----\nA == " + "/\\ " * 1000 + "1\n====") == (
        "2:6: more than 300 lists with bullets stand inside each other"
    )


def test_much_that_does_not_fit_takes_no_time() -> None:
    assert message("---- MODULE A ----\nA == " + "x " * 20000 + "\n====") == (
        '2:8: expected an operator or a definition, found "x"'
    )
