"""How the index has its runs: the columns that :mod:`fencepost.ledger.disk.index` fills and the loops of runs go by."""

from __future__ import annotations

import numpy as np

PLACED = np.dtype(
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
"""A run in a table, besides its ledger and first id: as in :data:`fencepost.ledger.disk.sections.ROW`, with its place,
and that of its bits.
"""
