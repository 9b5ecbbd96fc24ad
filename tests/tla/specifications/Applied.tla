------------------------------ MODULE Applied ------------------------------
(* Each of the actions below applies a function as a conjunct. TLC goes through the rule of a function that is not      *)
(* written out yet as through an action, so that each way through a rule is a state that is generated.                  *)
EXTENDS Naturals, Sequences
VARIABLES x, y

Quorums == {{1, 2}, {2, 3}, {1, 3}}
Init == x = 0 /\ y = 0
Within == x <= 3
Turn == x' = (x + 1) % 4
Rest == Turn /\ y' = y

Reads[n \in 0..3] == \E q \in Quorums : n \in q \/ x = n
Ahead[n \in Nat] == \E q \in Quorums : n \in q \/ n = 0
Written[n \in 0..3] == \E q \in Quorums : n \in q \/ n = 0
Down[n \in 0..3] == n = 0 \/ (\E m \in 0..(n - 1) : Down[m] /\ x >= 0)
Fixed[n \in 0..3] == n = 0 \/ \E m \in 0..(n - 1) : Fixed[m]
Pairs[n \in 0..3, m \in {1, 2}] == \E q \in Quorums : m \in q /\ n + x > 0
Tuple[<<n, m>> \in (0..3) \X {1, 2}] == \E q \in Quorums : m \in q /\ n + x > 0
Moves[n \in 0..3] == (n > x \/ n < 3) /\ x' = n
Maker(k) == [n \in 0..3 |-> \E q \in Quorums : n + k \in q]
Chosen[n \in 0..3] == IF n > 1 THEN TRUE \/ FALSE ELSE \E q \in Quorums : 1 \in q
Table == [n \in 0..3 |-> [m \in {1, 2} |-> \E q \in Quorums : m \in q /\ n >= x]]
Safe(b, v) ==
  LET SA[bb \in Nat] ==
        \/ bb = 0
        \/ \E q \in Quorums : \E c \in 0..(bb - 1) : (c # 0 => SA[c] /\ v \in q) /\ y = 0
  IN SA[b]
All[n \in 0..3] == n = 0 \/ ((\A m \in 0..(n - 1) : All[m]) /\ x >= 0)

WrittenToo == [n \in 0..3 |-> \E q \in Quorums : n \in q \/ n = 0]
Infinite == [n \in Nat |-> \E q \in Quorums : n \in q \/ n = 0]
K == INSTANCE AppliedKit WITH Most <- 3, v <- x

OfState == Reads[x] /\ Rest
After == Rest /\ Reads[x]
Between == Turn /\ Reads[x] /\ y' = y
Endless == Ahead[x] /\ Rest
Evaluated == Written[x] /\ Rest
Recursive == Down[x] /\ Rest
Constant == Fixed[x] /\ Rest
Several == Pairs[x, 1] /\ Rest
TupledToo == Tuple[<<x, 2>>] /\ Rest
PairsToo == Pairs[<<x, 1>>] /\ Rest
Primes == (\E n \in 0..3 : Moves[n]) /\ y' = y
Inline == [n \in 0..3 |-> \E q \in Quorums : n \in q \/ x = n][x] /\ Rest
InlineConstant == [n \in 0..3 |-> \E q \in Quorums : n \in q \/ n = 0][x] /\ Rest
Made == Maker(1)[x] /\ Rest
Branches == Chosen[x] /\ Rest
Twice == Table[x][1] /\ Rest
InLet == (\E b \in 0..3 : b > x /\ Safe(b, 1)) /\ Rest
LetValue == LET f == [n \in 0..3 |-> \E q \in Quorums : n \in q \/ x = n] IN f[x] /\ Rest
LetFunction == LET f[n \in 0..3] == \E q \in Quorums : n \in q \/ x = n IN f[x] /\ Rest
Guarding == (\A n \in 0..x : Reads[n]) /\ Rest
Negated == ~Down[x] /\ Rest
Implied == (x > 1 => Down[x]) /\ Rest
Every == All[x] /\ Rest
Guarded == \E n \in 0..3 : Down[n] /\ x' = n /\ y' = y
Domain == Reads[4 - x] /\ Rest
Enabling == ENABLED (Moves[2] /\ y' = 3) /\ Rest
EvaluatedToo == WrittenToo[x] /\ Rest
EndlessToo == Infinite[x] /\ Rest
Instance == K!Fits[x] /\ Rest
InstanceToo == K!Moves[(x + 1) % 4] /\ y' = y
InstanceConstant == K!Plain[x] /\ Rest
L(n) == INSTANCE AppliedKit WITH Most <- n, v <- x
InstanceParameter == L(3)!Fits[x] /\ Rest
First == Reads[x]
Second == First /\ Rest
=============================================================================
