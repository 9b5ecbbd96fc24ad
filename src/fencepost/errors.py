"""What can go wrong, as a user meets it: one class per exit code, one clear line per instance.

The exit codes are TLC's, so that scripts written for TLC keep working.
"""

from __future__ import annotations

HOLDS = 0
NOT_REACHED = 1
ASSUMPTION_VIOLATED = 10
DEADLOCK = 11
SAFETY_VIOLATED = 12
LIVENESS_VIOLATED = 13
PROTOCOL_RAISED = 75
INTERRUPTED = 130
NOT_A_PROTOCOL = 150
WRONG_OPTIONS = 151
NOT_COMPLETE = 152
SYSTEM_FAILED = 153


class FencepostError(Exception):
    """An error whose message is one line for the user: what is wrong and what to do."""

    exit_code = SYSTEM_FAILED


class NotAProtocol(FencepostError):
    """The name or file that was asked for holds no protocol that can be checked."""

    exit_code = NOT_A_PROTOCOL


class OptionError(FencepostError):
    """A constant or an option is unknown, of the wrong type or out of range."""

    exit_code = WRONG_OPTIONS


class ProtocolRaised(FencepostError):
    """The author's Python raised, or broke a rule of the language, while a state was explored.

    ``where`` names the action or property with its parameters; ``state`` is the state it was run in (a
    :class:`fencepost.step.State`, or None before there is one). The author's own exception, if any, is ``__cause__``.
    """

    exit_code = PROTOCOL_RAISED

    def __init__(self, message: str, *, where: str = "", state: object = None) -> None:
        super().__init__(message)
        self.where = where
        self.state = state


class Misbehaved(FencepostError):
    """What an action or a property did wrong, said as the rest of a sentence that begins with its name."""

    exit_code = PROTOCOL_RAISED


class SystemFailure(FencepostError):
    """The machine let us down: no memory, no disk, an unreadable or foreign checkpoint."""

    exit_code = SYSTEM_FAILED
