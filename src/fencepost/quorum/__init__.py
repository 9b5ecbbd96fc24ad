"""KRaft with KIP-853: a replicated log among voters, with observers. Voters may be added and removed while it runs.

The rules are pure functions. The protocol `quorum` explores them, the simulator runs them (``simulation``), and so do
the servers (``roles``, which ``driver`` carries out with ``files``). Rules, transitions and roles do no I/O, read no
clock and draw no random numbers.
"""
