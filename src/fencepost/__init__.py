"""Fencepost checks replicated-log protocols written as ordinary Python.

A protocol file needs no other import than this package:

    from fencepost import Protocol, action, constant, invariant, require, state
"""

# ruff: noqa: E402
from typing import TYPE_CHECKING, Any

from fencepost import interrupts

interrupts.end_at_term()
interrupts.end_process()

from fencepost.check import check
from fencepost.engines.interface import Progress
from fencepost.engines.options import (
    EmbeddedOptions,
    Options,
    ReferenceOptions,
    SearchOptions,
    SimulationOptions,
    SparkOptions,
)
from fencepost.errors import FencepostError, NotAProtocol, OptionError, ProtocolRaised, SystemFailure
from fencepost.findings import ActionCount, Violation, Witness
from fencepost.result import Result
from fencepost.spec.actors import actor
from fencepost.spec.constants import constant, model_values
from fencepost.spec.context import one_of, require
from fencepost.spec.declarations import (
    action,
    always_eventually,
    assumption,
    configuration,
    constraint,
    eventually_always,
    initial,
    invariant,
    leads_to,
    sometimes,
    step_constraint,
    step_invariant,
    strong,
    view,
    weak,
)
from fencepost.spec.fields import PerKey, Table, per_key, state, table
from fencepost.spec.network import Envelope, Network, network
from fencepost.spec.protocol import Protocol
from fencepost.spec.refinement import refines
from fencepost.spec.values import Map, Message, ModelValue, Record, canonical, subsets
from fencepost.step import State
from fencepost.trace import Step, Trace
from fencepost.version import VERSION

if TYPE_CHECKING:
    from fencepost.client import connect as connect
    from fencepost.client import connect_sync as connect_sync
    from fencepost.log.errors import *  # noqa: F403
    from fencepost.store.errors import *  # noqa: F403
    from fencepost.tracing import TraceError as TraceError
    from fencepost.tracing import TraceEvent as TraceEvent
    from fencepost.tracing import TraceWriter as TraceWriter

__version__ = VERSION

__all__ = [
    "ActionCount",
    "EmbeddedOptions",
    "Envelope",
    "FencepostError",
    "Map",
    "Message",
    "ModelValue",
    "Network",
    "NotAProtocol",
    "OptionError",
    "Options",
    "PerKey",
    "Progress",
    "Protocol",
    "ProtocolRaised",
    "Record",
    "ReferenceOptions",
    "Result",
    "SearchOptions",
    "SimulationOptions",
    "SparkOptions",
    "State",
    "Step",
    "SystemFailure",
    "Table",
    "Trace",
    "Violation",
    "Witness",
    "action",
    "actor",
    "always_eventually",
    "assumption",
    "canonical",
    "check",
    "configuration",
    "constant",
    "constraint",
    "eventually_always",
    "initial",
    "invariant",
    "leads_to",
    "model_values",
    "network",
    "one_of",
    "per_key",
    "refines",
    "require",
    "sometimes",
    "state",
    "step_constraint",
    "step_invariant",
    "strong",
    "subsets",
    "table",
    "view",
    "weak",
]


def __getattr__(name: str) -> Any:
    """The ledger client and its errors, and what writes traces, are imported when they are asked for."""
    import importlib

    from fencepost import extras

    if name in ("connect", "connect_sync"):
        with extras.named(f"fencepost.{name}"):
            return getattr(importlib.import_module("fencepost.client"), name)
    if name in ("TraceError", "TraceEvent", "TraceWriter"):
        return getattr(importlib.import_module("fencepost.tracing"), name)
    if name.endswith("Error"):
        for module in ("fencepost.store.errors", "fencepost.log.errors"):
            errors = importlib.import_module(module)
            if name in errors.__all__:
                return getattr(errors, name)
    raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
