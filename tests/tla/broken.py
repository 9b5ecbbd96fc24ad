"""Modules and configurations, and ways to break them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

MODULE = r"""---- MODULE Everything ----
(* A module (* with a nested comment *) that uses the whole language. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS Node, None, Limit, Next(_)
VARIABLES state, log, sent
vars == <<state, log, sent>>
ASSUME Positive == Limit \in Nat /\ Limit > 0
RECURSIVE Sum(_)
Sum(S) == IF S = {} THEN 0 ELSE LET x == CHOOSE y \in S : TRUE IN x + Sum(S \ {x})
a \prec b == a[1] < b[1]
Largest[n \in Nat] == IF n = 0 THEN 0 ELSE Largest[n - 1] + 1
\* What is always true.
TypeOK ==
  /\ state \in [Node -> {"idle", "busy"}]
  /\ \A n \in Node : log[n] \in Seq(Nat) /\ Len(log[n]) <= Limit
  /\ sent \subseteq [from : Node, to : Node \cup {None}, value : 0 .. Limit]
Init ==
  /\ state = [n \in Node |-> "idle"]
  /\ log = [n \in Node |-> <<>>]
  /\ sent = {}
Send(n, m) ==
  /\ state[n] = "idle"
  /\ n # m
  /\ \/ Len(log[n]) < Limit
     \/ \E k \in 1 .. Len(log[n]) : log[n][k] = 0
  /\ sent' = sent \cup {[from |-> n, to |-> m, value |-> Len(log[n])]}
  /\ state' = [state EXCEPT ![n] = "busy"]
  /\ UNCHANGED log
Receive(n) ==
  \E message \in {s \in sent : s.to = n} :
    LET value == message.value
        Other(x) == x % 2
    IN /\ log' = [log EXCEPT ![n] = Append(@, Other(value))]
       /\ CASE value = 0 -> state' = state
            [] value > 0 /\ value < 3 -> state' = [state EXCEPT ![n] = "idle"]
            [] OTHER -> UNCHANGED state
       /\ UNCHANGED sent
Step == \E n, m \in Node : Send(n, m) \/ Receive(n)
Apply(F(_, _), S) == {F(x, y) : x \in S, y \in S}
Pairs == Apply(LAMBDA x, y : <<x, y>>, Node) \X {-1, 2 ^ 3, \hFF}
Spec == Init /\ [][Step]_vars /\ WF_vars(Step) /\ \A n \in Node : SF_<<log, sent>>(Receive(n))
Live == \A n \in Node : state[n] = "busy" ~> <>[](state[n] = "idle")
Progress == [](ENABLED <<Step>>_vars => <>(sent /= {}))
Inner == INSTANCE Sequences
LOCAL Local(s) == Inner!Head(s)
THEOREM Spec => []TypeOK
----
====
"""

CONFIG = r"""\* A configuration (* with comments *)
CONSTANTS
  Node = {n1, n2, n3}  (* model values *)
  None = None
  Limit = 3
  Next <- Successor
  Nat <- [Naturals] Small
  Table(1, "a") = {{}, {TRUE, FALSE}}
SPECIFICATION Spec
INVARIANTS TypeOK Consistent
PROPERTY Live
CONSTRAINT Bound
SYMMETRY Symmetry
VIEW View
CHECK_DEADLOCK FALSE
"""

_TOKEN = re.compile(r'\(\*|\*\)|\\\*|\w+|"[^"\n]*"|[-=<>|/\\:.\[\]]+|\S')
_EXTRA = [
    "(",
    ")",
    "]",
    "}",
    ">>",
    "<<",
    "==",
    "=",
    "/\\",
    "IF",
    "THEN",
    "x",
    "\\in",
    ",",
    ":",
    "->",
    "'",
    '"',
    "(*",
    "1",
    "{",
]


def broken(text: str, number: int) -> Iterator[str]:
    """``number`` texts with one mistake each: cut off, or a token left out, doubled, inserted, or put off.
    The same ones each time.
    """
    rng = random.Random(1)
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    for index in range(number):
        at = rng.randrange(len(tokens) - 1)
        (start, end), (after, last) = tokens[at], tokens[at + 1]
        yield [
            text[:start],
            text[:start] + text[end:],
            text[:end] + " " + text[start:],
            text[:start] + rng.choice(_EXTRA) + " " + text[start:],
            text[:start] + text[after:last] + text[end:after] + text[start:end] + text[last:],
        ][index % 5]
