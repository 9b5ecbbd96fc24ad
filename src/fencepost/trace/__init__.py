"""A behaviour as a value: counterexamples, replay, exchange formats, an expression evaluated along it."""

from fencepost.trace.behaviour import Step, Trace
from fencepost.trace.dot import to_dot
from fencepost.trace.expression import Evaluated, Expression, evaluate
from fencepost.trace.itf import to_itf
from fencepost.trace.replay import ReplayFailed, replay

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
