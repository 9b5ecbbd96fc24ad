"""The only way the author's Python is ever run: the steps out of one state, with what was read, chosen and written."""

from fencepost.step.deadline import Deadline, LimitReached, Unfinished
from fencepost.step.fairness import FairnessCondition
from fencepost.step.roots import MAPPING, PROPERTIES, STEP_PROPERTIES, Root
from fencepost.step.state import State, Store
from fencepost.step.stepper import Stepper
from fencepost.step.symmetry import Symmetry
from fencepost.step.trees import Branch, Fork, Leaf, Outcome, Read

__all__ = [
    "MAPPING", "PROPERTIES", "STEP_PROPERTIES",
    "Branch", "Deadline", "FairnessCondition", "Fork", "Leaf", "LimitReached", "Outcome", "Read", "Root", "State",
    "Stepper", "Store", "Symmetry", "Unfinished",
]  # fmt: skip
