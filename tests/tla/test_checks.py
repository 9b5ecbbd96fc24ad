"""What SANY accepts and refuses is accepted and refused. The verdicts of these modules are SANY's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tla.files import loaded, module

from fencepost.tla.errors import SpecificationError

OTHERS = (
    module("Const", "CONSTANT c", "Get == c", "Add(x) == <<c, x>>"),
    module("Primes", "CONSTANT c", "Get == c'"),
    module("State", "VARIABLE v", "CONSTANT k", "Init == v = k", r"Spec == Init /\ [][v' = k]_v"),
    module("Takes", "CONSTANT F(_)", "Get(x) == F(x)"),
    module("Both", "CONSTANTS F(_), d", "Get == F(d)"),
    module("Plain", "One == 1", "LOCAL Hidden == 2", "Mine == Hidden"),
    module("Plain2", "One == 2"),
    module("Arity", "One(x) == x"),
    module("Declares", "CONSTANT One"),
    module("Param", "CONSTANTS a, b", "I(x) == INSTANCE Const WITH c <- x", "G == I(a)!Get"),
    module("Always", "CONSTANT P", "T == []P"),
    module("Plus", "CONSTANT _+_", "Sum == 1 + 2"),
    module("Inc", "EXTENDS Naturals", "CONSTANT c", "Up == c + 1"),
)

ACCEPTED = [
    r"VARIABLE v ; I(x) == INSTANCE State WITH k <- x ; y == I(1)!Init",
    r"VARIABLE v ; I(x) == INSTANCE Const WITH c <- x ; y == I(v)!Add(1)",
    r"Op(x) == 1 ; x == 2",
    r"Op == \E x \in {1} : TRUE ; x == 1",
    r"Op == (\E x \in {1} : TRUE) /\ (\E x \in {1} : x = 1)",
    r"VARIABLES x, x",
    r"f[x \in {1}] == f[x]",
    r"f[x \in {1}, y \in {2}] == x ; g == f[<<1, 2>>]",
    r"f[<<x, y>> \in {<<1, 2>>}] == x ; g == f[<<1, 2>>]",
    r"Op == LET a == 1 b == a IN b",
    r"Op == (LET a == 1 IN a) = (LET a == 2 IN a)",
    r"Op == LET RECURSIVE F(_) F(x) == F(x) IN F(1)",
    r"RECURSIVE F(_), G(_) ; F(x) == G(x) ; G(x) == F(x)",
    r"RECURSIVE F(_) ; G == F(1) ; F(x) == x",
    r"RECURSIVE f ; f[x \in {1}] == f[x]",
    r"Op(F(_)) == F(1) ; Id(x) == x ; y == Op(Id)",
    r"Op(F(_)) == F(1) ; y == Op(LAMBDA z : z)",
    r"Op(F(_, _)) == F(1, 2) ; y == Op(\cup)",
    r"EXTENDS Integers ; Op(F(_)) == F(1) ; y == Op(-.)",
    r"CONSTANT F(_) ; Op(G(_)) == G(1) ; y == Op(F)",
    r"a ++ b == a ; y == 1 ++ 2",
    r"f == [a |-> 1] ; y == [f EXCEPT !.a = [f EXCEPT !.a = @]]",
    r"VARIABLE v ; F(x) == x' ; y == F(v)",
    r"VARIABLE v ; Next == v' = 1 ; y == <><<Next>>_v /\ [][Next]_v /\ WF_v(Next)",
    r"VARIABLE v ; Next == v' = 1 ; y == (ENABLED Next)'",
    r"VARIABLE v ; y == v = 1 /\ []v",
    r"VARIABLE v ; y == \A x \in v : []v",
    r"VARIABLE v ; y == CHOOSE x \in {1} : v' = x",
    r"VARIABLE v ; y == IF v THEN []v ELSE <>v",
    r"VARIABLE v ; F(x) == TRUE ; y == F(v')",
    r"VARIABLE v ; F(G(_), x) == G(x) ; P(x) == x' ; y == F(P, v)",
    r"CONSTANT k ; ASSUME Foo == k = 1 ; y == Foo",
    r"VARIABLE v ; THEOREM Foo == []v ; y == Foo",
    r"VARIABLE v ; y == \EE x : []x",
    r"VARIABLE v ; y == [][\E i \in {1} : v' = i]_v => []<>(v = 1)",
    r"CONSTANT c ; I == INSTANCE Const ; y == I!Get",
    r"I(x) == INSTANCE Const WITH c <- x ; y == I(1)!Add(2)",
    r"I(c) == INSTANCE Const ; y == I(1)!Get",
    r"VARIABLE v ; I == INSTANCE Const WITH c <- v' ; y == I!Get",
    r"VARIABLE v ; I == INSTANCE Primes WITH c <- 3 ; y == I!Get",
    r"VARIABLE z ; I == INSTANCE State WITH k <- 1, v <- <<z, z>> ; y == I!Spec",
    r"I == INSTANCE Takes WITH F <- DOMAIN ; y == I!Get(1)",
    r"I == INSTANCE Takes WITH F <- LAMBDA x : x ; y == I!Get(1)",
    r"F(x) == x ; I == INSTANCE Takes ; y == I!Get(1)",
    r"I == INSTANCE Param WITH a <- 1, b <- 2 ; y == I!I(3)!Get",
    r"INSTANCE Param WITH a <- 1, b <- 2 ; y == I(3)!Get",
    r"I == INSTANCE Plus WITH + <- \cup ; y == I!Sum",
    r"INSTANCE Inc WITH c <- 1 ; y == Up + 1",
    r"I == INSTANCE Naturals ; y == I!+(1, 2)",
    r"Op(z) == LET I(c) == INSTANCE Const IN I(z)!Get ; y == Op(1)",
    r"EXTENDS Plain ; Hidden == 1",
    r"EXTENDS Plain, Plain2 ; y == One",
    r"EXTENDS Plain ; LOCAL INSTANCE Plain",
]

REFUSED = [
    (r"Op == x", "2:7: x is not defined"),
    (r"Value == 1 ; Op == Vale", "3:7: Vale is not defined: did you mean Value?"),
    (r"y == 1 + 1", r"2:8: + is not defined: module Naturals defines it, so write EXTENDS Naturals"),
    (r"Op(x) == x ; y == Op", "3:6: Op takes 1 argument, and a value is expected"),
    (r"Op(x) == x ; y == Op(1, 2)", "3:6: Op takes 1 argument, and 2 are given"),
    (r"Op == 1 ; Op == 1", "3:1: Op is defined in line 2"),
    (r"x == 1 ; Op == \E x \in {1} : TRUE", "3:10: x is defined in line 2"),
    (r"Op == \E x \in {1}, x \in {2} : TRUE", "2:21: x is bound twice"),
    (r"Op == [x \in {1}, y \in {x} |-> 1]", "2:26: x is not defined"),
    (r"CONSTANT x ; VARIABLE x", "3:10: x is declared in line 2"),
    (r"Op == Later ; Later == 1", "2:7: Later is not defined above this line, but in line 3"),
    (r"Op == Op", "2:7: Op uses itself: declare it with RECURSIVE"),
    (r"f[x \in {1}, y \in {2}] == x ; g == f[1, 2, 3]", "3:6: the function takes 2 arguments, and 3 are given"),
    (r"Op == LET a == 1 a == 2 IN a", "2:18: a is defined twice"),
    (r"Op == LET b == a a == 1 IN b", "2:16: a is not defined"),
    (r"Op == LET a == 1 IN LET a == 2 IN a", "2:25: a is defined in line 2"),
    (r"RECURSIVE F(_) ; Op == 1", "2:11: F is declared RECURSIVE and not defined"),
    (r"RECURSIVE F(_) ; F(x, y) == 1", "3:1: F is declared RECURSIVE with 1 argument, and defined with 2"),
    (r"RECURSIVE F(_) ; VARIABLE v ; F(x) == x", "3:1: F is declared RECURSIVE: define it above this line"),
    (r"Op(F(_)) == F(1) ; y == Op(1)", "3:9: an operator with 1 argument is expected here, and this is a value"),
    (r"Op(F(_)) == F(1) ; y == Op(LAMBDA z, w : z)", "3:9: an operator with 1 argument is expected here, and this L"),
    (r"Op(F(_)) == F(1) ; Two(x, z) == x ; y == Op(Two)", "4:9: Two takes 2 arguments, and an operator with 1 argume"),
    (r"Op(x) == x ; y == Op(LAMBDA z : z)", "3:9: a LAMBDA can only be the argument of an operator"),
    (r"Op(F(_)) == F(1) ; y == Op(Op)", "3:9: Op takes an operator, and cannot be passed itself"),
    (r"a \cup b == a", r"2:1: \cup is an operator of the language"),
    (r"EXTENDS Naturals ; y == -1", "3:6: - is not defined: module Integers defines it"),
    (r"EXTENDS Naturals ; Nat == 1", "3:1: Nat is defined in module Naturals"),
    (r"y == [a |-> 1, a |-> 2]", "2:16: the record has the field a twice"),
    (r"y == @", "2:6: @ has a meaning only in the new value of an EXCEPT"),
    (r"VARIABLE v ; y == (v')'", "3:7: this is an action, and what is primed is at most a state function"),
    (r"VARIABLE v ; a == v' = 1 ; y == a'", "4:6: this is an action, and what is primed is at most a state function"),
    (r"VARIABLE v ; F(x) == x' ; y == F(v')", "4:8: this is an action, and F takes at most a state function"),
    (r"VARIABLE v ; Next == v' = 1 ; y == []Next", "4:6: [] before an action must have the form [][A]_v"),
    (r"VARIABLE v ; Next == v' = 1 ; y == [][Next]_(v')", "4:16: this is an action, and here can stand"),
    (r"VARIABLE v ; y == WF_v([]v)", "3:11: this is a temporal formula, and here can stand at most an action"),
    (r"VARIABLE v ; y == ENABLED []v", "3:14: this is a temporal formula, and ENABLED takes at most an action"),
    (r"VARIABLE v ; Next == v' = 1 ; y == Next ~> v", "4:6: ~> takes temporal formulas and state predicates"),
    (r"VARIABLE v ; y == v' = 1 /\ []v", "3:6: a temporal formula and an action cannot be combined"),
    (r"VARIABLE v ; y == {[]v}", "3:7: this is a temporal formula, and here can stand at most an action"),
    (r"VARIABLE v ; y == \A x \in v' : []v", "3:6: a temporal formula cannot be quantified over an action"),
    (r"VARIABLE v ; F(x) == x = 1 ; y == F([]v)", "4:8: this is a temporal formula, and F takes at most an action"),
    (r"VARIABLE v ; F(G(_)) == G(v') ; P(x) == x' ; y == F(P)", "5:8: this operator is applied to something of a hi"),
    (r"VARIABLE v ; F(G(_), x) == G(x) ; P(x) == x' ; y == F(P, v')", "5:11: this is an action, and F takes at most"),
    (r"VARIABLE v ; y == [[a |-> v'] EXCEPT !.a = @']", "3:31: this is an action, and what is primed"),
    (r"VARIABLE v ; ASSUME v = 1", "3:8: an assumption is about constants, and this is a state function"),
    (r"I == INSTANCE Const ; y == 1", "2:1: module Const declares c, which is not defined here"),
    (r"c(x) == 1 ; I == INSTANCE Const", "3:1: c takes no arguments in module Const, and 1 here"),
    (r"I == INSTANCE Const WITH c <- 1, c <- 2", "2:34: c is substituted twice"),
    (r"I == INSTANCE Const WITH d <- 1", "2:26: module Const has no constant or variable d"),
    (r"I == INSTANCE Const WITH c <- 1 ; y == I!Gett", "3:6: module Const offers no definition Gett: did you mean"),
    (r"I == INSTANCE Const WITH c <- 1 ; y == I", "3:6: I is an instance: write I!Name"),
    (r"I(x) == INSTANCE Const WITH c <- x ; y == I!Get", "3:6: I takes 1 argument, and none are given"),
    (r"INSTANCE Const WITH c <- 1 ; Get == 1", "3:1: Get is defined in line 3 of"),
    (r"Get(x) == 1 ; INSTANCE Const WITH c <- 1", "3:1: Get of module Const conflicts with Get of module Spec"),
    (r"VARIABLE v ; I == INSTANCE Const WITH c <- []v", "3:31: c can be at most an action in this module"),
    (r"VARIABLE v ; I == INSTANCE Primes WITH c <- v", "3:32: c can be at most a constant in this module"),
    (r"VARIABLE v ; I == INSTANCE State WITH k <- v", "3:31: k can be at most a constant in this module"),
    (r"VARIABLE v ; I == INSTANCE Always WITH P <- v", "3:32: P can be at most a constant in this module"),
    (
        r"VARIABLE v ; I(x) == INSTANCE State WITH k <- x ; y == I(v)!Init",
        "4:8: this is a state function, and here can stand at most a constant",
    ),
    (
        r"VARIABLE v ; F(x) == LET I == INSTANCE State WITH k <- x IN I!Init ; y == F(v)",
        "4:8: this is a state function, and F takes at most a constant",
    ),
    (r"I == INSTANCE Takes WITH F <- 1", "2:31: an operator with 1 argument is expected here, and this is a value"),
    (r"VARIABLE w ; P(x) == x' ; I == INSTANCE Both WITH F <- P, d <- w", "4:30: F cannot be an operator that primes"),
    (r"I == INSTANCE Plain ; y == I!Hidden", "3:6: module Plain offers no definition Hidden"),
    (r"EXTENDS Plain ; y == Hidden", "3:6: Hidden is not defined"),
    (r"EXTENDS Plain, Declares", "2:16: One of module Declares conflicts with One of module Plain"),
    (r"EXTENDS Plain ; INSTANCE Arity", "3:1: One of module Arity conflicts with One of module Plain"),
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str, tmp_path: Path) -> None:
    loaded(tmp_path, text.replace(" ; ", "\n"), *OTHERS)


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=rf"Spec\.tla:{re.escape(message)}"):
        loaded(tmp_path, text.replace(" ; ", "\n"), *OTHERS)


@pytest.mark.parametrize(
    "body",
    [
        " + ".join(["1"] * 1200),
        "IF v = 1 THEN 1 ELSE " * 1000 + "1",
        "".join(f"LET a{i} == {i} IN " for i in range(1000)) + "a0",
        "Id(" * 1000 + "1" + ")" * 1000,
    ],
    ids=["sum", "if", "let", "application"],
)
def test_deep_nesting(body: str, tmp_path: Path) -> None:
    spec = loaded(tmp_path, f"EXTENDS Naturals\nVARIABLE v\nId(x) == x\nOp == {body}")
    assert spec.definitions["Op"].level == (1 if "v =" in body else 0)
