"""Fencepost checks replicated-log protocols written as ordinary Python.

A protocol file needs no other import than this package:

    from fencepost import Protocol, action, constant, invariant, require, state
"""

# ruff: noqa: E402
from typing import TYPE_CHECKING, Any

from fencepost.cli import interrupts

interrupts.end_at_term()
interrupts.end_process()

from fencepost.api.check import check
from fencepost.api.result import Result
from fencepost.behaviours import Step, Trace
from fencepost.checker.engines.interface import Progress
from fencepost.checker.engines.options import (
    EmbeddedOptions,
    Options,
    ReferenceOptions,
    SearchOptions,
    SimulationOptions,
    SparkOptions,
)
from fencepost.checker.findings import ActionCount, Violation, Witness
from fencepost.errors import FencepostError, NotAProtocol, OptionError, ProtocolRaised, SystemFailure
from fencepost.language.actors import actor
from fencepost.language.constants import constant, model_values
from fencepost.language.context import one_of, require
from fencepost.language.declarations import (
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
    temporal,
    view,
    weak,
)
from fencepost.language.fields import PerKey, Table, per_key, state, table
from fencepost.language.network import Envelope, Network, network
from fencepost.language.protocol import Protocol
from fencepost.language.refinement import refines
from fencepost.language.temporal import Formula, always, enabled, eventually, every_step, now, some_step
from fencepost.language.values import Map, Message, ModelValue, Record, canonical, subsets
from fencepost.semantics import State
from fencepost.version import VERSION

if TYPE_CHECKING:
    from fencepost.api.client import Client as Client
    from fencepost.api.client import connect as connect
    from fencepost.api.client import connect_sync as connect_sync
    from fencepost.ledger.errors import *  # noqa: F403
    from fencepost.log.errors import *  # noqa: F403
    from fencepost.testing import checked as checked
    from fencepost.traces import TraceError as TraceError
    from fencepost.traces import TraceEvent as TraceEvent
    from fencepost.traces import TraceWriter as TraceWriter

__version__ = VERSION

__all__ = [
    "ActionCount",
    "EmbeddedOptions",
    "Envelope",
    "FencepostError",
    "Formula",
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
    "always",
    "always_eventually",
    "assumption",
    "canonical",
    "check",
    "configuration",
    "constant",
    "constraint",
    "enabled",
    "eventually",
    "eventually_always",
    "every_step",
    "initial",
    "invariant",
    "leads_to",
    "model_values",
    "network",
    "now",
    "one_of",
    "per_key",
    "refines",
    "require",
    "some_step",
    "sometimes",
    "state",
    "step_constraint",
    "step_invariant",
    "strong",
    "subsets",
    "table",
    "temporal",
    "view",
    "weak",
]


def __getattr__(name: str) -> Any:
    """Import the ledger client, its errors, the trace writer and what tests use on first use."""
    import importlib

    from fencepost.errors import naming_extra, need_linux

    if name in ("Client", "connect", "connect_sync"):
        need_linux(f"fencepost.{name}")
        with naming_extra(f"fencepost.{name}"):
            return getattr(importlib.import_module("fencepost.api.client"), name)
    if name in ("TraceError", "TraceEvent", "TraceWriter"):
        return getattr(importlib.import_module("fencepost.traces"), name)
    if name == "checked":
        return importlib.import_module("fencepost.testing").checked
    if name.endswith("Error"):
        for module in ("fencepost.ledger.errors", "fencepost.log.errors"):
            errors = importlib.import_module(module)
            if name in errors.__all__:
                return getattr(errors, name)
    raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
