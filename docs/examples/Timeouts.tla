------------------------------ MODULE Timeouts ------------------------------
\* The messages of from-tla.md. timeouts.py is the same protocol in Fencepost, with the same number of states.
EXTENDS Integers, TLC
CONSTANTS Bookies, MaxEntry
VARIABLES messages, pushed, stored, acked, failed
vars == <<messages, pushed, stored, acked, failed>>

\* messages is a function from each message ever sent to its count:
\* 1 can be received, 0 was processed, -1 was lost and not yet noticed.
Send(msgs) ==
    /\ \A m \in msgs : m \notin DOMAIN messages
    /\ \E fate \in [msgs -> {-1, 1}] : messages' = messages @@ fate

ReplyTo(m, reply) ==
    /\ reply \notin DOMAIN messages
    /\ \E fate \in {-1, 1} : messages' = [messages EXCEPT ![m] = 0] @@ (reply :> fate)

LostOnes(b) == {m \in DOMAIN messages : m.bookie = b /\ messages[m] = -1}

Init ==
    /\ messages = [m \in {} |-> 0]
    /\ pushed = 0
    /\ stored = [b \in Bookies |-> {}]
    /\ acked  = [b \in Bookies |-> {}]
    /\ failed = {}

Push ==
    /\ pushed < MaxEntry
    /\ pushed' = pushed + 1
    /\ Send({[type |-> "add", bookie |-> b, entry |-> pushed'] : b \in Bookies \ failed})
    /\ UNCHANGED <<stored, acked, failed>>

Store(m) ==
    /\ m.type = "add" /\ messages[m] = 1
    /\ stored' = [stored EXCEPT ![m.bookie] = @ \cup {m.entry}]
    /\ ReplyTo(m, [type |-> "added", bookie |-> m.bookie, entry |-> m.entry])
    /\ UNCHANGED <<pushed, acked, failed>>

Confirm(m) ==
    /\ m.type = "added" /\ messages[m] = 1
    /\ m.bookie \notin failed
    /\ acked' = [acked EXCEPT ![m.bookie] = @ \cup {m.entry}]
    /\ messages' = [messages EXCEPT ![m] = 0]
    /\ UNCHANGED <<pushed, stored, failed>>

TimeOut(b) ==
    /\ b \notin failed
    /\ LostOnes(b) # {}
    /\ failed' = failed \cup {b}
    /\ messages' = [m \in DOMAIN messages |-> IF m \in LostOnes(b) THEN 0 ELSE messages[m]]
    /\ UNCHANGED <<pushed, stored, acked>>

Next ==
    \/ Push
    \/ \E m \in DOMAIN messages : Store(m) \/ Confirm(m)
    \/ \E b \in Bookies : TimeOut(b)

Spec == Init /\ [][Next]_vars
AcksAreTrue == \A b \in Bookies : acked[b] \subseteq stored[b]
=============================================================================
