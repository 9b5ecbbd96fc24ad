"""A ledger store on one machine: starts, watches and injects faults into the processes of a metadata service and
bookies.
"""
