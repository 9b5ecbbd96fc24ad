----------------------------- MODULE LostUpdate -----------------------------
\* Clients that add one to a counter, as in lost_update.py.
EXTENDS Integers
CONSTANT Clients
VARIABLES counter, seen, done

Init == counter = 0 /\ seen = [c \in Clients |-> -1] /\ done = {}

Reads(c) ==
    /\ seen[c] = -1
    /\ seen' = [seen EXCEPT ![c] = counter]
    /\ UNCHANGED <<counter, done>>

Writes(c) ==
    /\ seen[c] # -1 /\ c \notin done
    /\ counter' = seen[c] + 1
    /\ done' = done \cup {c}
    /\ UNCHANGED seen

Next == \E c \in Clients : Reads(c) \/ Writes(c)
=============================================================================
