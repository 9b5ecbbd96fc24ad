"""KRaft with KIP-853: a replicated log among voters, with observers, whose voters come and go while it runs.

The rules are pure functions, which the protocol `quorum` explores (``checked``), the simulator runs (``sim``) and the
servers run (``roles``, carried out by ``driver`` with ``files``). Rules, transitions and roles do no I/O, read no clock
and draw no random number.
"""
