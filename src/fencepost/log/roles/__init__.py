"""The roles of processes that share a log, as state machines without I/O, clocks or random numbers, like those in
:mod:`fencepost.ledger.roles`.
"""
