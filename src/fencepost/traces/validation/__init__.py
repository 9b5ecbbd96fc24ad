"""Traces of running systems, held to the protocols that were checked.

A file that says how derives a class from :class:`Conformance`, which gives a :class:`Step` for each :class:`Event` that
is one.
"""

from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, Step
from fencepost.traces.validation.follow import like

__all__ = ["Conformance", "Event", "NotCovered", "Step", "like"]
