"""Small specifications whose variables can be laid out in every way, with the counts that TLC gives for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A module Spec with its configuration. ``counts``: distinct and generated states, and the depth."""

    text: str
    config: str
    counts: tuple[int, int, int]


MESSAGES = Example(
    r"""---- MODULE Spec ----
EXTENDS Naturals, FiniteSets
CONSTANTS Node, Last
VARIABLES msgs, round, voted
vars == <<msgs, round, voted>>

Send(m) == msgs' = msgs \cup {m}

Init == /\ msgs = {}
        /\ round = [n \in Node |-> 0]
        /\ voted = [n \in Node |-> {}]

Propose(n) ==
  /\ round[n] < Last
  /\ ~ \E m \in msgs : m.type = "ask" /\ m.from = n /\ m.round > round[n]
  /\ round' = [round EXCEPT ![n] = @ + 1]
  /\ Send([type |-> "ask", from |-> n, round |-> round[n] + 1])
  /\ UNCHANGED voted

Vote(n) == \E m \in msgs :
  /\ m.type = "ask"
  /\ \A v \in voted[n] : v.round < m.round
  /\ voted' = [voted EXCEPT ![n] = @ \cup {[round |-> m.round, for |-> m.from]}]
  /\ Send([type |-> "vote", from |-> n, for |-> m.from, round |-> m.round])
  /\ UNCHANGED round

Forget(n) ==
  /\ Cardinality({m \in msgs : m.type = "vote" /\ m.for = n /\ m.round = round[n]}) > Cardinality(Node) \div 2
  /\ voted' = [voted EXCEPT ![n] = {}]
  /\ msgs' = {m \in msgs : m.type # "ask" \/ m.from # n}
  /\ UNCHANGED round

Next == \E n \in Node : Propose(n) \/ Vote(n) \/ Forget(n)
Spec == Init /\ [][Next]_vars

Message == [type : {"ask"}, from : Node, round : 1..Last] \cup
           [type : {"vote"}, from : Node, for : Node, round : 1..Last]
TypeOK == /\ msgs \subseteq Message
          /\ round \in [Node -> 0..Last]
          /\ voted \in [Node -> SUBSET [round : 1..Last, for : Node]]
Consistent == \A m, k \in msgs :
  (m.type = "vote" /\ k.type = "vote" /\ m.from = k.from /\ m.round = k.round) => (m.for = k.for \/ voted[m.from] = {})
====
""",
    "CONSTANTS Node = {n1, n2, n3} Last = 1\nSPECIFICATION Spec\nINVARIANTS TypeOK\nCHECK_DEADLOCK FALSE\n",
    (758, 2395, 16),
)

BAG = Example(
    r"""---- MODULE Spec ----
EXTENDS Naturals, TLC, FiniteSets
CONSTANTS Client, Nil
VARIABLES net, client, server

Init == /\ net = <<>>
        /\ client = [c \in Client |-> Nil]
        /\ server = Nil

Msg(c, kind) == [kind |-> kind, client |-> c]
Sent(f, m) == IF m \in DOMAIN f THEN [f EXCEPT ![m] = @ + 1] ELSE f @@ (m :> 1)
Handled(f, m) == [f EXCEPT ![m] = @ - 1]

Ask(c) ==
  /\ client[c] = Nil
  /\ Msg(c, "ask") \in DOMAIN net => net[Msg(c, "ask")] < 2
  /\ net' = Sent(net, Msg(c, "ask"))
  /\ client' = [client EXCEPT ![c] = [waits |-> TRUE]]
  /\ UNCHANGED server

Serve == \E m \in DOMAIN net :
  /\ net[m] > 0
  /\ m.kind = "ask"
  /\ server' = [serves |-> m.client]
  /\ net' = Sent(Handled(net, m), Msg(m.client, "done"))
  /\ UNCHANGED client

Done(c) == \E m \in DOMAIN net :
  /\ net[m] > 0 /\ m.kind = "done" /\ m.client = c
  /\ net' = Handled(net, m)
  /\ client' = [client EXCEPT ![c] = Nil]
  /\ server' = Nil

Lose(c) ==
  /\ \E m \in DOMAIN net : m.client = c /\ net[m] > 0
  /\ net' = [m \in DOMAIN net |-> IF m.client = c THEN 0 ELSE net[m]]
  /\ client' = [d \in Client |-> IF d = c THEN Nil ELSE client[d]]
  /\ UNCHANGED server

Next == Serve \/ \E c \in Client : Ask(c) \/ Done(c) \/ Lose(c)
Spec == Init /\ [][Next]_<<net, client, server>>

Few == \A m \in DOMAIN net : net[m] <= 2
Known == server # Nil => server.serves \in Client
Bounded == Cardinality(DOMAIN net) < 7
====
""",
    "CONSTANTS Client = {c1, c2} Nil = Nil\nSPECIFICATION Spec\nINVARIANTS Few Known Bounded\nCHECK_DEADLOCK FALSE\n",
    (65, 199, 9),
)

MIXED = Example(
    r"""---- MODULE Spec ----
EXTENDS Integers, Sequences, FiniteSets
CONSTANT None
VARIABLES now, log, seen, table

Init == now = None /\ log = <<>> /\ seen = {} /\ table = [k \in {1, 2} |-> {}]

Start(k) == /\ now = None
            /\ now' = [key |-> k, left |-> 3]
            /\ UNCHANGED <<log, seen, table>>
Work == /\ now # None
        /\ now.left > 0
        /\ now' = [now EXCEPT !.left = @ - 1]
        /\ log' = IF Len(log) < 2 THEN Append(log, now.left) ELSE Tail(log)
        /\ seen' = seen \cup {<<now.key, now.left>>}
        /\ UNCHANGED table
End == /\ now # None
       /\ now.left = 0
       /\ table' = [table EXCEPT ![now.key] = IF @ = {} THEN seen \ {<<1, 1>>} ELSE @ \cap seen]
       /\ now' = None
       /\ seen' = IF Cardinality(seen) > 4 THEN {} ELSE seen
       /\ log' = <<>>
Swap == /\ table[1] # table[2]
        /\ table' = [k \in {1, 2} |-> table[3 - k]]
        /\ UNCHANGED <<now, log, seen>>
Widen == /\ DOMAIN table = {1, 2}
         /\ \E p \in seen : p[2] = 2
         /\ table' = [k \in 1..3 |-> IF k = 3 THEN {} ELSE table[k]]
         /\ UNCHANGED <<now, log, seen>>

Next == (\E k \in {1, 2} : Start(k)) \/ Work \/ End \/ Swap \/ Widen

Short == Len(log) < 3 /\ \A p \in seen : p[1] \in {1, 2}
Ordered == (now # None /\ now.key = 1) => now.left \in 0..3
Later == \E p \in seen : p[2] > 0 \/ seen = {<<1, 0>>}
====
""",
    "CONSTANT None = None\nINIT Init\nNEXT Next\nINVARIANTS Short Ordered\nCHECK_DEADLOCK FALSE\n",
    (667, 1587, 30),
)

NESTED = Example(
    r"""---- MODULE Spec ----
EXTENDS Naturals, FiniteSets
CONSTANTS Key, Last
VARIABLES req, lock, done

Init == req = {} /\ lock = [k \in Key |-> {}] /\ done = 0

Ask == \E k \in Key, t \in 1..Last :
  /\ Cardinality(req) < 2
  /\ req' = req \cup {[key |-> k, at |-> t]}
  /\ UNCHANGED <<lock, done>>

Serve == \E r \in req :
  \/ /\ lock[r.key] = {}
     /\ \/ lock' = [lock EXCEPT ![r.key] = {[at |-> r.at, kind |-> "own"]}]
        \/ lock' = [lock EXCEPT ![r.key] = {[at |-> r.at, kind |-> "shared"], [at |-> r.at - 1, kind |-> "shared"]}]
     /\ UNCHANGED <<req, done>>
  \/ \E l \in lock[r.key] :
       IF l.at = r.at
       THEN /\ req' = req \ {r}
            /\ UNCHANGED <<lock, done>>
       ELSE /\ \/ l.kind = "own" /\ lock' = [lock EXCEPT ![r.key] = @ \ {l}]
               \/ l.kind = "shared" /\ lock' = [lock EXCEPT ![r.key] = @ \cup {[at |-> l.at, kind |-> "own"]}]
            /\ done' = (done + 1) % 2
            /\ UNCHANGED req

Next == Ask \/ Serve
Few == \A k \in Key : Cardinality(lock[k]) < 6
====
""",
    "CONSTANTS Key = {k1, k2} Last = 2\nINIT Init\nNEXT Next\nINVARIANT Few\nCHECK_DEADLOCK FALSE\n",
    (2077, 11225, 16),
)
"""Choices within a choice, from sets whose members appear late."""

PROCESSES = Example(
    r"""---- MODULE Spec ----
EXTENDS Naturals
CONSTANT Worker
VARIABLES pc, bag
vars == <<pc, bag>>
Processes == Worker \cup {"clerk"}

Init == /\ pc = [p \in Processes |-> IF p = "clerk" THEN "serve" ELSE "ask"]
        /\ bag = [p \in {} |-> 0]

Ask(w) == /\ pc[w] = "ask"
          /\ pc' = [pc EXCEPT ![w] = "wait"]
          /\ bag' = [p \in DOMAIN bag \cup {w} |-> IF p = w THEN 1 ELSE bag[p]]
Serve == /\ pc["clerk"] = "serve"
         /\ \E w \in DOMAIN bag \ {"clerk"} :
              /\ pc' = [pc EXCEPT ![w] = "done", !["clerk"] = "rest"]
              /\ bag' = [p \in (DOMAIN bag \ {w}) \cup {"clerk"} |-> IF p \in DOMAIN bag THEN bag[p] ELSE 0]
Rest == /\ pc["clerk"] = "rest"
        /\ pc' = [pc EXCEPT !["clerk"] = "serve"]
        /\ bag' = IF "clerk" \in DOMAIN bag THEN [bag EXCEPT !["clerk"] = (@ + 1) % 3] ELSE bag
Again == /\ \A w \in Worker : pc[w] = "done"
         /\ pc["clerk"] = "serve"
         /\ pc' = [p \in Processes |-> IF p = "clerk" THEN "serve" ELSE "ask"]
         /\ UNCHANGED bag
Next == (\E w \in Worker : Ask(w)) \/ Serve \/ Rest \/ Again
Spec == Init /\ [][Next]_vars
TypeOK == /\ pc \in [Processes -> {"ask", "wait", "done", "serve", "rest"}]
          /\ DOMAIN bag \subseteq Processes
Waits == \A w \in Worker : (pc[w] = "wait") <=> (w \in DOMAIN bag)
====
""",
    "CONSTANT Worker = {w1, w2}\nSPECIFICATION Spec\nINVARIANTS TypeOK Waits\n",
    (46, 69, 24),
)
"""Functions of model values and a string, as PlusCal's processes are."""

_STEPS = r"""Kept == [][\A m \in msgs : m \in msgs' \/ m.type = "ask"]_vars
Forward == [][\A n \in Node : /\ round'[n] >= round[n]
                              /\ \A v \in voted[n] : v \in voted'[n] \/ voted'[n] = {}]_vars
Heard == [][\A n \in Node, m \in msgs' : (m.type = "vote" /\ m.from = n /\ m \notin msgs) => voted'[n] # voted[n]]_vars
"""
STEPS = Example(
    MESSAGES.text.replace("====", _STEPS + "===="),
    MESSAGES.config + "PROPERTIES Kept Forward Heard\n",
    MESSAGES.counts,
)
"""Properties of steps that read members of sets before and after the step."""

TWICE = Example(
    r"""---- MODULE Spec ----
EXTENDS Naturals, TLC
VARIABLES net, seen
Kinds == {"a", "b"}
Messages == [n : {1, 3}, kind : Kinds]
Init == net = [m \in {} |-> 0] /\ seen = 0
Send == \E m \in Messages :
  /\ m \notin DOMAIN net
  /\ net' = net @@ (m :> 1)
  /\ UNCHANGED seen
Clear(m) == [o \in DOMAIN net |-> IF m = o THEN 0
                                        ELSE IF o.n # seen /\ o.kind = m.kind /\ net[o] = 1 THEN 0 ELSE net[o]]
\* The second value is a condition: no other message of this kind is left.
Last == \E m \in DOMAIN net :
  /\ net[m] = 1
  /\ net' = Clear(m)
  /\ net' = [net EXCEPT ![m] = @ - 1]
  /\ seen' = m.n
First == \E m \in DOMAIN net :
  /\ net[m] = 1
  /\ net' = [net EXCEPT ![m] = @ - 1]
  /\ net' = Clear(m)
  /\ seen' = 0
Same == \E m \in DOMAIN net :
  /\ net' = Clear(m)
  /\ UNCHANGED net
  /\ seen' = 3 - (IF m.n = 3 THEN 0 ELSE 1)
Other(m) == CHOOSE o \in Messages : o.n = 3 /\ o.kind # m.kind
Mark == \E m \in DOMAIN net : \E again \in BOOLEAN :
  LET cleared == Clear(m)
  IN /\ net' = IF again THEN [cleared EXCEPT ![Other(m)] = 2] ELSE cleared
     /\ UNCHANGED seen
Next == Send \/ Last \/ First \/ Same \/ Mark
====
""",
    "INIT Init\nNEXT Next\nCHECK_DEADLOCK FALSE\n",
    (340, 3357, 8),
)
"""A map that is given its value twice, the second time as a condition, and one that is made of another one."""

OF_SIX = Example(TWICE.text.replace("{1, 3}", "1..3"), TWICE.config, (3580, 48821, 10))
"""The same with six messages, not four."""

EXAMPLES = {
    "messages": MESSAGES,
    "bag": BAG,
    "mixed": MIXED,
    "nested": NESTED,
    "processes": PROCESSES,
    "steps": STEPS,
    "twice": TWICE,
}

LARGE = {"twice-of-six": OF_SIX}
ALL = EXAMPLES | LARGE
