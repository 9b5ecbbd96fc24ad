"""A server of ZooKeeper's protocol: znodes, sessions and watches, durable on one node.

Walls: ``tree`` is the state machine and does no I/O; ``reads`` and ``watches`` answer from it; ``expiry`` decides which sessions are over.
``protocol`` has the records and ``jute`` their encoding. ``log`` keeps the state machine's entries on disk, ``snapshot`` its states.
``server``, ``connection``, ``worker`` and ``words`` are the driver: sockets, times and threads; ``service`` is the process.
"""
