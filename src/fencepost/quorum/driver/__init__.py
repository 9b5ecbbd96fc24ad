"""Replicas as processes: sockets, clocks, threads for disks, around :mod:`fencepost.quorum.roles.replica`.

``frames`` and ``links`` are the connections among replicas; ``node`` carries out what a role wants done, for a state
machine, with its ``timers`` and ``proposals``; ``formation`` makes a cluster of hosts that have none yet; ``admin`` is
for operators.
"""
