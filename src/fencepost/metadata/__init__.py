"""A server of ZooKeeper's protocol: znodes, sessions and watches, durable on one node.

Walls: ``tree`` is the state machine and does no I/O; ``reads`` and ``watches`` answer from it; ``expiry`` decides which
sessions are over. ``protocol`` has the records and ``jute`` their encoding. ``log`` keeps the state machine's entries
on disk, ``snapshot`` its states. ``server``, ``connection`` and ``words`` are the driver: sockets, times and threads;
``service`` is the process.

It keeps no quotas, has no read-only mode, and refuses ZooKeeper's request for a reconfiguration (-123). Where ZooKeeper
3.9 has a defect, the service does what was meant: nobody deletes containers past their ACL, a change that comes right
after a new ACL is held to it, a wrong password for a session does not close the connection of whoever has it, and an
AUTH is answered in its turn.
"""
