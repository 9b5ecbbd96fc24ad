"""The layout of a run in the index, shared by :mod:`fencepost.ledger.disk.index` and the compiled loops."""

from __future__ import annotations

import numpy as np

RUN_DTYPE = np.dtype(
    [
        ("offset", "i8"),
        ("log", "u4"),
        ("span", "u4"),
        ("size", "u4"),
        ("base", "u4"),
        ("details", "u4"),
        ("count", "u2"),
        ("size_bits", "u1"),
        ("gap_bits", "u1"),
    ]
)
"""A run in a table of the index, besides its ledger and first id: the fields of
:data:`fencepost.ledger.disk.sections.ROW`, its entry log and offset, and the offset of its bits.
"""
