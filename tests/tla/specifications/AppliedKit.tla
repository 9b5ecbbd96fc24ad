---- MODULE AppliedKit ----
EXTENDS Naturals
(* Functions of an instance that are applied as conjuncts. *)
CONSTANT Most
VARIABLE v
Sets == {{1, 2}, {2, 3}, {1, 3}}
Fits[n \in 0..Most] == \E s \in Sets : n \in s \/ v = n
Plain[n \in 0..Most] == \E s \in Sets : n \in s \/ n = 0
Moves[n \in 0..Most] == (n > 0 \/ n < 3) /\ v' = n
====
