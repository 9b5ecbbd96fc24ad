"""The roles of a ledger, as state machines without input or output: bookie, writer, reader, recoverer.

A role is an object of plain fields with one method, ``receive(event, now) -> effects``: something happened (a message,
an answer, a timer), and that is what is to be done about it (a message, a timer, a record for the journal, a result for
the caller). ``now`` is microseconds on a clock of the driver's. Roles decide nothing by themselves that a rule decides:
see `fencepost.ledger.rules`. The simulator carries their effects out on virtual time, the servers on sockets and disks.
"""
