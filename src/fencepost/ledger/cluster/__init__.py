"""A ledger store on one machine: a metadata service and bookies as processes of their own, started, watched and hurt
from one place.
"""
