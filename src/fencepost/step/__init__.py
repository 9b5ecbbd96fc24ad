"""The only way the author's Python is ever run: the steps out of one state, with what was read, chosen and written."""

from fencepost.step.recorder import Branch, Fork, Leaf, Outcome, Read, Root, Stepper
from fencepost.step.state import State, Store

__all__ = ["Branch", "Fork", "Leaf", "Outcome", "Read", "Root", "State", "Stepper", "Store"]
