"""Trace validation: replays traces of running systems against the protocols that were checked.

A conformance file derives a class from :class:`Conformance`. It maps each :class:`Event` of a trace to the steps of the
protocol (:class:`Step`).
"""

from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, Step
from fencepost.traces.validation.replay import ANY, like

__all__ = ["ANY", "Conformance", "Event", "NotCovered", "Step", "like"]
