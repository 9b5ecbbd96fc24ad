"""Behaviours as values: counterexamples, replay, exchange formats, and expressions evaluated along them."""

from fencepost.behaviours.behaviour import Step, Trace
from fencepost.behaviours.dot import to_dot
from fencepost.behaviours.expression import Evaluated, Expression, evaluate
from fencepost.behaviours.itf import to_itf
from fencepost.behaviours.replay import ReplayFailed, replay

__all__ = [
    "Evaluated",
    "Expression",
    "ReplayFailed",
    "Step",
    "Trace",
    "evaluate",
    "replay",
    "to_dot",
    "to_itf",
]
