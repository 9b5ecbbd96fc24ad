"""Replicas as processes: sockets, clocks and disk threads around :mod:`fencepost.quorum.roles.replica`.

``frames`` and ``links`` are the connections between replicas. ``host`` turns hosts into a cluster. ``node`` carries out
a role's effects for a state machine, with ``timers`` and ``proposals``. ``admin`` is for operators.
"""
