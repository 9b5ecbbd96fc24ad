"""The roles of a ledger, as state machines without input or output: bookie, writer, reader, recoverer.

A role is an object of plain fields with one method, ``receive(event, now) -> effects``. An event is a message, an
answer or a timer. An effect is a message, a timer, a record for the journal, or a result for the caller. ``now`` is in
microseconds of the driver's clock. Decisions of the protocol are made by `fencepost.ledger.rules`, not by roles. The
simulator carries out effects in virtual time; servers carry them out on sockets and disks.
"""
