"""Traces of running systems, held to the protocols that were checked.

A file that says how derives a class from :class:`Conformance`, which gives a :class:`Step` for each :class:`TraceEvent` that is one.
"""

from fencepost.conform.conformance import Conformance, NotCovered, Step, TraceEvent
from fencepost.conform.follow import like

__all__ = ["Conformance", "NotCovered", "Step", "TraceEvent", "like"]
