------------------------------ MODULE Fencing ------------------------------
\* Clients write to a store under a lease. A lock service grants it, with a
\* token that grows. A client does not notice that its lease has expired.
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Clients,
    MaxToken,
    Fenced      \* whether the store refuses tokens that are older than one it has seen

VARIABLES
    token,      \* the last token that was granted
    lease,      \* the clients that hold the lease: one, or none
    held,       \* for each client the token that it believes to hold, or 0
    flying,     \* the writes on their way to the store
    log         \* the tokens of the writes that the store has accepted

vars == <<token, lease, held, flying, log>>

Write == [from: Clients, token: 1..MaxToken]

TypeOK ==
    /\ token \in 0..MaxToken
    /\ lease \subseteq Clients /\ Cardinality(lease) <= 1
    /\ held \in [Clients -> 0..MaxToken]
    /\ flying \subseteq Write
    /\ log \in Seq(1..MaxToken)

Init ==
    /\ token = 0
    /\ lease = {}
    /\ held = [c \in Clients |-> 0]
    /\ flying = {}
    /\ log = <<>>

Grant(c) ==
    /\ lease = {} /\ token < MaxToken
    /\ token' = token + 1
    /\ lease' = {c}
    /\ held' = [held EXCEPT ![c] = token + 1]
    /\ UNCHANGED <<flying, log>>

Expire ==
    /\ lease # {}
    /\ lease' = {}
    /\ UNCHANGED <<token, held, flying, log>>

\* A client writes once with each token, and then gives it back.
Send(c) ==
    /\ held[c] > 0
    /\ flying' = flying \cup {[from |-> c, token |-> held[c]]}
    /\ held' = [held EXCEPT ![c] = 0]
    /\ lease' = lease \ {c}
    /\ UNCHANGED <<token, log>>

Seen == IF log = <<>> THEN 0 ELSE log[Len(log)]

Arrive(write) ==
    /\ flying' = flying \ {write}
    /\ log' = IF Fenced /\ write.token < Seen THEN log ELSE Append(log, write.token)
    /\ UNCHANGED <<token, lease, held>>

Next ==
    \/ \E c \in Clients : Grant(c) \/ Send(c)
    \/ Expire
    \/ \E write \in flying : Arrive(write)

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

\* The store accepts the writes in the order in which their leases were granted.
InOrder == \A i, j \in 1..Len(log) : i < j => log[i] < log[j]

\* What a client has sent reaches the store at some time.
Settles == <>[](flying = {})
=============================================================================
