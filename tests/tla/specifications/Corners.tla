------------------------------ MODULE Corners ------------------------------
(* Each of the actions below is a next-state formula by itself. The numbers of states that it generates depend on what  *)
(* counts as a choice, and on when all variables have values.                                                           *)
EXTENDS Naturals, Sequences, FiniteSets
VARIABLES x, y, z

vars == <<x, <<y, z>> >>
rest == <<y, z>>
Quorums == {{1, 2}, {2, 3}, {1, 3}}

Init == x = 0 /\ y = {} /\ z = <<>>
Free == /\ x \in 0..2
        /\ \/ y = {x} /\ z = <<x>>
           \/ \E s \in SUBSET {0, 1} : y = s /\ Cardinality(s) = x /\ z = <<>>
Within == x <= 3 /\ Len(z) <= 2

Turn == x' = (x + 1) % 4
Stay(v) == v' = v
Set(v, e) == v' = e
Pick(v, S) == v' \in S
Both(A, B) == A /\ B
Do(A(_), v) == A(v)
OneOf(A(_), S) == \E each \in S : A(each)
Bump(n) == x' = (x + n) % 4
Holds(q) == \E m \in q : m > x

\* A choice that primes nothing, before all variables have values and after.
Before == (\E q \in Quorums : x \in q) /\ Turn /\ UNCHANGED rest
After == Turn /\ UNCHANGED rest /\ (\E q \in Quorums : x \in q)
Between == Turn /\ (\E q \in Quorums : x \in q) /\ UNCHANGED rest
Disjuncts == (x < 2 \/ x > 0) /\ Turn /\ UNCHANGED rest
Named == (\E q \in Quorums : Holds(q)) /\ Turn /\ UNCHANGED rest
NamedAfter == Turn /\ UNCHANGED rest /\ \A q \in Quorums : Holds(q) \/ x > 0
Every == (\A q \in Quorums : \E m \in q : m >= x) /\ Turn /\ UNCHANGED rest
Implied == (x > 1 => \E q \in Quorums : x \in q) /\ Turn /\ UNCHANGED rest
Negated == ~(\E q \in Quorums : x > 2) /\ Turn /\ UNCHANGED rest
Equivalent == ((\E q \in Quorums : x \in q) <=> TRUE) /\ Turn /\ UNCHANGED rest

\* Ways to give a variable a value.
Members == x' \in {x, 1, 2} /\ UNCHANGED rest
Subsets == y' \subseteq {x, 1, 2} /\ Turn /\ z' = z
Tested == x' \in {1, 2, 3} /\ x' = x + 1 /\ UNCHANGED rest
TestedFirst == Turn /\ x' \in {1, 2} /\ UNCHANGED rest
Passed == Set(x, (x + 1) % 4) /\ Stay(y) /\ Stay(z)
PassedSet == Pick(x, {1, 2}) /\ Stay(rest)
PassedPrime == Both(x' = (x + 1) % 4, UNCHANGED rest)
PassedChoice == Both(\E q \in Quorums : x \in q, Turn /\ UNCHANGED rest)
PassedOperator == Do(Bump, 1) /\ UNCHANGED rest
PassedLambda == Do(LAMBDA n : x' = (x + n) % 4 /\ UNCHANGED rest, 2)
LambdaChoice == Do(LAMBDA n : n < 3 \/ n > 1, x) /\ Turn /\ UNCHANGED rest
OperatorChoice == Do(Holds, {1, 2}) /\ Turn /\ UNCHANGED rest
Chosen == OneOf(LAMBDA n : x' = (x + n) % 4, {1, 2}) /\ UNCHANGED rest
InDefinition == LET next == x' IN next = (x + 1) % 4 /\ UNCHANGED rest
LetAction == LET Go(n) == x' = (x + n) % 4 IN (Go(1) \/ Go(2)) /\ UNCHANGED rest
LetValue == LET new == IF x > 2 THEN 0 ELSE x + 1 IN x' = new /\ y' = {new} /\ z' = z
LetTuple == LET all == <<y, z>> IN Turn /\ UNCHANGED all
PrimedExpression == Turn /\ y' = {x'} /\ z' = IF (x + 1)' > 2 THEN <<x'>> ELSE z
Nested == UNCHANGED <<y, <<z>> >> /\ Turn
Tuples == \E <<a, b>> \in {1, 2} \X {0, 1} : x' = (x + a + b) % 4 /\ UNCHANGED rest
Bounds == \E a, b \in {1, 2}, c \in {0} : a < b /\ x' = (x + a + b + c) % 4 /\ UNCHANGED rest
Parallel == (\A v \in {1, 2} : v > 0 => x' = (x + 1) % 4) /\ UNCHANGED rest
Quantified == (\A v \in {0, 1} : \E w \in {0, 1} : w >= v) /\ Turn /\ UNCHANGED rest
NoMembers == (\A v \in {} : x' = 5) /\ Turn /\ UNCHANGED rest
If == IF x = 0 THEN x' \in {1, 2} /\ UNCHANGED rest ELSE Turn /\ y' = {x} /\ z' = z
Cases == CASE x = 0 -> Turn /\ UNCHANGED rest [] x = 1 -> x' \in {2, 3} /\ UNCHANGED rest [] OTHER -> x' = 0 /\ UNCHANGED rest
Boxed == [x < 2 /\ Turn /\ UNCHANGED rest]_vars
Angled == <<x' \in {x, 1} /\ UNCHANGED rest>>_x
Enabled == ENABLED (x < 2 /\ x' = x + 1 /\ y' \in {}') /\ Turn /\ UNCHANGED rest
EnabledToo == ENABLED (\E n \in {1, 2} : x + n = 3 /\ Bump(n)) /\ Turn /\ UNCHANGED rest
Queue == \/ Len(z) < 2 /\ z' = Append(z, x) /\ Turn /\ y' = y
         \/ z # <<>> /\ z' = Tail(z) /\ y' = y \cup {Head(z)} /\ x' = x
Guarded == \E s \in SUBSET {0, 1, 2} : Cardinality(s) = 2 /\ x \in s /\ y' = s /\ Turn /\ z' = z
DeeplyGuarded == \E s \in SUBSET {0, 1, 2} : LET Fits(n) == Cardinality(s) = n IN Fits(2) /\ y' = s /\ Turn /\ z' = z
RECURSIVE Steps(_)
Steps(n) == IF n = 0 THEN UNCHANGED rest ELSE (n = 2 \/ n = 1) /\ Steps(n - 1)
Recursive == Turn /\ Steps(2)

C == INSTANCE Counter WITH count <- x, Limit <- 3
Instance == C!Step /\ UNCHANGED rest
D(n) == INSTANCE Counter WITH count <- x, Limit <- n
Parametrised == (\E n \in {2, 3} : D(n)!Step) /\ UNCHANGED rest
=============================================================================
