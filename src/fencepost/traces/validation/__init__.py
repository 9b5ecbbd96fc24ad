"""Trace validation: replays traces of running systems against the protocols that were checked.

A conformance file derives a class from :class:`Conformance`. It maps each :class:`Event` of a trace to the steps of the
protocol (:class:`Step`), and may say which event a record of another system is (:class:`ReadEvent`).
"""

from fencepost.traces.foreign import ReadEvent
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered
from fencepost.traces.validation.steps import ANY, Step, like

__all__ = ["ANY", "Conformance", "Event", "NotCovered", "ReadEvent", "Step", "like"]
