"""A server of ZooKeeper's protocol: znodes, sessions and watches, on one node or a quorum.

``tree`` is the state machine and does no I/O; ``reads`` and ``watches`` answer from it; ``expiry`` decides which
sessions have expired. ``protocol`` has the records, and ``jute`` their encoding. ``snapshot`` encodes states.
``server`` and ``four_letter_words`` are the driver: sockets, times and threads. ``member`` puts changes in order
through a quorum, and ``service`` is the process.

There are no quotas and no read-only mode, and requests for a reconfiguration are refused (-123). Some defects of
ZooKeeper 3.9 are fixed here. Clients cannot delete containers against their ACL. A new ACL applies to the very next
change. A wrong password for a session does not close the connection of the session's owner. An AUTH is answered in
order.
"""
