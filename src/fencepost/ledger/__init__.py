"""The ledger store. `rules` holds the decisions of bookies and clients, `roles` their state machines: neither uses
sockets, clocks or disks.
"""
