"""The command that opens a reported behaviour in the explorer."""

from __future__ import annotations

import shlex

from fencepost.behaviours import Trace
from fencepost.behaviours.path import path_of
from fencepost.errors import FencepostError
from fencepost.language.seam import language_of

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
    given = language_of(trace.protocol).arguments(trace.protocol)
    return shlex.join(["fencepost", "explore", *given, "--path", f"{path}@0"])
