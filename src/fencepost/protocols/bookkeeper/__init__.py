"""Protocols of Apache BookKeeper: one ledger today, in version 4.13, and without the journal; and the boot of a bookie
that has no journal.
"""
