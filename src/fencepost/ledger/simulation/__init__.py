"""The simulator: whole clusters of the store's roles on virtual time, with byte-level disks and faults, all decided by
one seed.

A run takes a :class:`~fencepost.ledger.simulation.case.Case`. It ends when the ledger has been closed and read after
all faults, or when the :class:`~fencepost.ledger.simulation.judge.Judge` finds a broken promise. A campaign is one run
for each of many seeds.
"""
