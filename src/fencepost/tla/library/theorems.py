"""The modules with which specifications are proved: TLAPS, and the theorems of its library.

Proofs and theorems are not read, so only what a module extends counts. The names of TLAPS's tactics stand in proofs
alone; that they are missing leaves them to the specification.
"""

from __future__ import annotations

from fencepost.tla.library.bags import BAGS
from fencepost.tla.library.definitions import Module
from fencepost.tla.library.finite import FINITE_SETS, FINITE_SETS_EXT
from fencepost.tla.library.functions import FOLDS, FUNCTIONS
from fencepost.tla.library.graphs import GRAPHS
from fencepost.tla.library.numbers import INTEGERS
from fencepost.tla.library.others import QUORUM
from fencepost.tla.library.sequences import SEQUENCES, SEQUENCES_EXT

TLAPS = Module("TLAPS")
NATURALS_INDUCTION = Module("NaturalsInduction", INTEGERS)
WELL_FOUNDED_INDUCTION = Module("WellFoundedInduction", NATURALS_INDUCTION)
FUNCTION_THEOREMS = Module("FunctionTheorems", FUNCTIONS, INTEGERS, FINITE_SETS)
FINITE_SET_THEOREMS = Module("FiniteSetTheorems", FINITE_SETS, INTEGERS, FUNCTIONS, WELL_FOUNDED_INDUCTION)
SEQUENCE_THEOREMS = Module("SequenceTheorems", SEQUENCES, FUNCTIONS)
BAGS_THEOREMS = Module("BagsTheorems", BAGS)
FINITE_SETS_EXT_THEOREMS = Module("FiniteSetsExtTheorems", FINITE_SETS_EXT, FINITE_SETS, INTEGERS)
SEQUENCES_EXT_THEOREMS = Module(
    "SequencesExtTheorems", SEQUENCES, SEQUENCES_EXT, FUNCTIONS, INTEGERS, WELL_FOUNDED_INDUCTION
)
FOLDS_THEOREMS = Module("FoldsTheorems", FOLDS, FINITE_SETS)
GRAPH_THEOREMS = Module("GraphTheorems", GRAPHS, SEQUENCES)
QUORUM_THEOREMS = Module("QuorumTheorems", QUORUM, INTEGERS, FINITE_SETS)
