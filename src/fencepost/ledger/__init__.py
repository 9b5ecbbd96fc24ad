"""The ledger store: what bookies and clients decide (`rules`), and who they are (`roles`), without sockets, clocks or
disks.
"""
