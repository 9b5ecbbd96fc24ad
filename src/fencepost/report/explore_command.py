"""The command that opens a reported behaviour in the explorer."""

from __future__ import annotations

import shlex
import sys

from fencepost.behaviours import Trace
from fencepost.behaviours.formatting import constant_text
from fencepost.behaviours.path import path_of
from fencepost.errors import FencepostError
from fencepost.language.loading import SHIPPED
from fencepost.language.protocol import Protocol, constants_of

LONGEST = 2_000
"""The most steps of a behaviour for a command line."""


def explore_command(trace: Trace) -> str | None:
    """``fencepost explore PROTOCOL -D ... --path ...``; None if the behaviour is too long or cannot be repeated."""
    if len(trace.steps) > LONGEST:
        return None
    try:
        path = path_of(trace)
    except FencepostError:
        return None
    protocol = trace.protocol
    words = ["fencepost", "explore", _given(protocol)]
    for name, constant in constants_of(protocol).items():
        if protocol.constants[name] != constant.default:
            words += ["-D", f"{name}={constant_text(protocol.constants[name])}"]
    return shlex.join([*words, "--path", f"{path}@0"])


def _given(protocol: Protocol) -> str:
    """The name of a protocol on the command line."""
    kind = type(protocol)
    if SHIPPED.get(protocol.name) == f"{kind.__module__}:{kind.__name__}":
        return protocol.name
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or f"{kind.__module__}.py"
    return f"{file}:{kind.__name__}"
