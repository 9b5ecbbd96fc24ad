"""The roles of those who share a log, as state machines without I/O, clock and random numbers, as those of
:mod:`fencepost.ledger.roles` are.
"""
