-------------------------------- MODULE Lock --------------------------------
\* The temporal properties of from-tla.md. lock.py is the same protocol in Fencepost.
CONSTANT Procs
VARIABLES held, at
vars == <<held, at>>

Init == held = FALSE /\ at = [p \in Procs |-> "away"]

Ask(p) ==
    /\ at[p] = "away"
    /\ at' = [at EXCEPT ![p] = "waiting"]
    /\ UNCHANGED held

Enter(p) ==
    /\ at[p] = "waiting" /\ ~held
    /\ at' = [at EXCEPT ![p] = "in"]
    /\ held' = TRUE

Leave(p) ==
    /\ at[p] = "in"
    /\ at' = [at EXCEPT ![p] = "away"]
    /\ held' = FALSE

Next == \E p \in Procs : Ask(p) \/ Enter(p) \/ Leave(p)

Spec == Init /\ [][Next]_vars /\ \A p \in Procs : WF_vars(Enter(p)) /\ WF_vars(Leave(p))
StrongSpec == Init /\ [][Next]_vars /\ \A p \in Procs : SF_vars(Enter(p)) /\ WF_vars(Leave(p))
ByProcess == Init /\ [][Next]_vars /\ \A p \in Procs : WF_vars(Ask(p) \/ Enter(p) \/ Leave(p))
GoesOn == Init /\ [][Next]_vars /\ WF_vars(Next)

WhoeverWaitsEnters == \A p \in Procs : at[p] = "waiting" ~> at[p] = "in"
FreeAgain == []<>~held
QuietAtLast == <>[]~held
=============================================================================
