"""Rows, not objects: the compiled loops over whatever arrived together, and their columns.

An entry that is an object in Python costs microseconds. Here a buffer of frames becomes an array with a row for each, a
rule decides for all rows of a ledger at once, and a loop writes all answers into one buffer. Each loop has a plain
twin, which says what it does: the codecs of :mod:`fencepost.ledger.wire` and the roles, one object at a time. The twins
serve whatever is rare, and everything while the loops are compiled.
"""
