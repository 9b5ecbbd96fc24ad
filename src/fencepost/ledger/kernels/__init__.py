"""Compiled loops over batches of frames and entries, and the arrays that they work on.

Handling an entry as a Python object takes microseconds. The loops are faster. They parse a buffer of frames into an
array with one row per frame. One rule then decides for all rows of a ledger, and one loop writes all answers into a
buffer. Each loop has a plain equivalent that defines its behaviour: the codecs of :mod:`fencepost.ledger.wire` and the
roles, one object at a time. The plain code handles rare cases, and everything until the loops are compiled.
"""
