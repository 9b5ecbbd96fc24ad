"""A behaviour as a value: counterexamples, replay, exchange formats, an expression evaluated along it."""

from fencepost.trace.behaviour import Step, Trace
from fencepost.trace.replay import ReplayFailed, replay

__all__ = ["ReplayFailed", "Step", "Trace", "replay"]
