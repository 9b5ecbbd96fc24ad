"""Whole systems on virtual time, from one seed: a metadata service that a quorum replicates, bookies, writers and
readers of ledgers and of logs, and auto-recovery, with faults of all kinds everywhere.

What runs here is what servers and clients run, down to the bytes that they send: only clocks, chances, the network,
disks and threads are simulated.
"""
