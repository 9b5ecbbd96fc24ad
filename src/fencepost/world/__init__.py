"""Whole systems on virtual time, from one seed: a quorum-replicated metadata service, bookies, writers and readers of
ledgers and logs, and auto-recovery, with all kinds of faults.

The code is that of the real servers and clients, down to the bytes sent. Only clocks, random sources, the network,
disks and threads are simulated.
"""
