"""The simulator: whole clusters of the store's roles on virtual time, with byte-level disks, under faults that one seed
decides.

A run takes a :class:`~fencepost.ledger.simulation.case.Case` and is over when the ledger is closed and read after all
faults, or when the :class:`~fencepost.ledger.simulation.judge.Judge` sees a promise broken. A campaign is a run for
each of many seeds.
"""
