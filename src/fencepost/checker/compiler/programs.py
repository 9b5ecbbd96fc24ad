"""The programs of the terms of all values, for canonical labellings; see `fencepost.semantics.labelling` and
`canonical`.
"""

from __future__ import annotations

import numpy as np

from fencepost.checker.compiler.arrays import Array, Compiled
from fencepost.checker.compiler.encoding import MAX_WORDS
from fencepost.checker.compiler.memory import reserve
from fencepost.errors import SystemFailure
from fencepost.semantics import Symmetry


class Programs:
    """The programs of the terms of all values, for canonical labellings. Grows with the values."""

    def __init__(self, symmetry: Symmetry) -> None:
        assert symmetry.labelling is not None
        self.symmetry = symmetry
        self.colours = np.array(symmetry.labelling.colours, np.int64)
        self.words = reserve(MAX_WORDS, np.uint64)
        self.top = 0
        self.begins: list[list[int]] = []

    def compiled(self) -> list[Array]:
        """The last four arrays of :class:`Compiled`."""
        store = self.symmetry.store
        self.begins += [[] for _ in range(len(store.slots) - len(self.begins))]
        for slot, begins in enumerate(self.begins):
            for value in range(len(begins), len(store.values[slot])):
                begins.append(self._add(slot, value))
        bases = np.concatenate([[0], np.cumsum([len(begins) for begins in self.begins])]).astype(np.int64)
        return [
            self.colours,
            bases[:-1],
            np.array([b for begins in self.begins for b in begins], np.int64),
            self.words.view(np.int64),
        ]

    def used(self) -> dict[str, int]:
        """How much of each of these arrays is in use."""
        values = sum(len(begins) for begins in self.begins)
        sizes = (len(self.colours), len(self.begins), values, self.top)
        return dict(zip(Compiled._fields[-4:], sizes, strict=True))

    def _add(self, slot: int, value: int) -> int:
        """Add the program of a value. Returns where it begins."""
        begin, term = self.top, self.symmetry.term(slot, value) if value else None
        program = [] if term is None else term.program
        if begin + len(program) + 2 > MAX_WORDS:
            raise SystemFailure(
                "the values of the protocol are too many or too large to be labelled: check it without {symmetry}",
                "symmetry",
            )
        self.top = begin + 2 + len(program)
        mask = 0 if term is None else sum(1 << member for member in term.members)
        self.words[begin : self.top] = np.array([mask, self.top, *program], np.uint64)
        return begin
