"""The only way the author's Python is ever run: the steps out of one state, with what was read, chosen and written."""

from fencepost.step.deadline import Deadline, LimitReached, Unfinished
from fencepost.step.recorder import Branch, Demand, Fork, Leaf, Outcome, Read, Root, Stepper
from fencepost.step.state import State, Store
from fencepost.step.symmetry import Symmetry

__all__ = [
    "Branch", "Deadline", "Demand", "Fork", "Leaf", "LimitReached", "Outcome", "Read", "Root", "State", "Stepper",
    "Store", "Symmetry",
    "Unfinished",
]  # fmt: skip
