----------------------------- MODULE QuorumLog -----------------------------
\* The TLA+ side of from-tla.md. quorum_log.py is the same protocol in Fencepost, with the same number of states.
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Bookies, WriteQuorum, AckQuorum, MaxEntry
ASSUME AckQuorum \in 1..WriteQuorum /\ WriteQuorum <= Cardinality(Bookies)

VARIABLES ensemble, log, fenced, writer, sealed, last
vars == <<ensemble, log, fenced, writer, sealed, last>>

Init ==
    /\ \E e \in SUBSET Bookies : Cardinality(e) = WriteQuorum /\ ensemble = e
    /\ log    = [b \in Bookies |-> <<>>]
    /\ fenced = [b \in Bookies |-> FALSE]
    /\ writer = [status |-> "open", lap |-> 0, lac |-> 0]
    /\ sealed = 0
    /\ last   = "init"

Push ==
    /\ writer.status = "open"
    /\ writer' = [writer EXCEPT !.lap = @ + 1]
    /\ last' = "push"
    /\ UNCHANGED <<ensemble, log, fenced, sealed>>

Store(b) ==
    /\ b \in ensemble
    /\ ~fenced[b]
    /\ Len(log[b]) < writer.lap
    /\ log' = [log EXCEPT ![b] = Append(@, Len(@) + 1)]
    /\ last' = "store"
    /\ UNCHANGED <<ensemble, fenced, writer, sealed>>

Confirm ==
    LET entry   == writer.lac + 1
        holders == {b \in ensemble : \E i \in 1..Len(log[b]) : log[b][i] = entry}
    IN  /\ Cardinality(holders) >= AckQuorum
        /\ writer' = [writer EXCEPT !.lac = entry]
        /\ last' = "confirm"
        /\ UNCHANGED <<ensemble, log, fenced, sealed>>

Fence(b) ==
    /\ ~fenced[b]
    /\ fenced' = [fenced EXCEPT ![b] = TRUE]
    /\ LET open == {a \in ensemble : ~fenced'[a]}
       IN  writer' = [writer EXCEPT !.status =
                CASE open = {}        -> "closed"
                  [] open # ensemble  -> "fencing"
                  [] OTHER            -> @]
    /\ last' = "fence"
    /\ UNCHANGED <<ensemble, log, sealed>>

Replace(b) ==
    /\ b \in ensemble
    /\ log[b] = <<>>
    /\ Bookies \ ensemble # {}
    /\ ensemble' = (ensemble \ {b}) \cup {CHOOSE s \in Bookies : s \notin ensemble}
    /\ last' = "replace"
    /\ UNCHANGED <<log, fenced, writer, sealed>>

Seal ==
    /\ writer.status = "closed"
    /\ sealed' = writer.lac
    /\ \E b \in ensemble : sealed' = Len(log[b])
    /\ last' = "seal"
    /\ UNCHANGED <<ensemble, log, fenced, writer>>

Next ==
    \/ Push \/ Confirm \/ Seal
    \/ \E b \in Bookies : Store(b) \/ Fence(b) \/ Replace(b)

Spec == Init /\ [][Next]_vars

\* Properties and the rest of the configuration.
LacNeverPassesLap == writer.lac <= writer.lap
EveryConfirmedEntryIsHeld ==
    \A e \in 1..writer.lac : Cardinality({b \in Bookies : Len(log[b]) >= e}) >= AckQuorum
FencedStaysFenced == [][\A b \in Bookies : fenced[b] => fenced'[b]]_vars
LacNeverGoesBack == [][writer'.lac >= writer.lac]_vars

FewEntries == writer.lap <= MaxEntry
OneInFlight == writer'.lap <= writer.lac + 1
WithoutLast == <<ensemble, log, fenced, writer, sealed>>
=============================================================================
