"""The protocols of Apache BookKeeper: one ledger, today, in version 4.13, without the journal, and how a bookie without
it boots.
"""
