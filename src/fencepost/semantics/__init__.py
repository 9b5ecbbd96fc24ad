"""Runs the author's Python in one state, and records what it reads, chooses and writes. Nothing else runs it."""

from fencepost.semantics.deadline import Deadline, LimitReached, Unfinished
from fencepost.semantics.fairness import FairnessCondition
from fencepost.semantics.promises import Promise
from fencepost.semantics.repeats import RanOtherwise
from fencepost.semantics.roots import (
    MAPPING,
    PREDICATE,
    PROPERTIES,
    START,
    START_PROPERTIES,
    STEP_PREDICATE,
    STEP_PROPERTIES,
    Root,
)
from fencepost.semantics.state import BeginAgain, Outgrown, State, ValueTable
from fencepost.semantics.stepper import Stepper
from fencepost.semantics.symmetry import Symmetry
from fencepost.semantics.trees import NO_BRANCH, Branch, Fork, Leaf, Outcome, Read, Rest

__all__ = [
    "MAPPING",
    "NO_BRANCH",
    "PREDICATE",
    "PROPERTIES",
    "START",
    "START_PROPERTIES",
    "STEP_PREDICATE",
    "STEP_PROPERTIES",
    "BeginAgain",
    "Branch",
    "Deadline",
    "FairnessCondition",
    "Fork",
    "Leaf",
    "LimitReached",
    "Outcome",
    "Outgrown",
    "Promise",
    "RanOtherwise",
    "Read",
    "Rest",
    "Root",
    "State",
    "Stepper",
    "Symmetry",
    "Unfinished",
    "ValueTable",
]  # fmt: skip
