"""Errors shown to a user: one class per exit code, one clear line per instance.

The exit codes are TLC's, so that scripts written for TLC keep working.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HOLDS = 0
NOT_REACHED = 1
NOT_AS_EXPECTED = 2
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

READ_OTHERWISE = (
    "read the state in another order the second time: it depends on something besides its state (run with {checking} to"
    " find out what)"
)
NOT_REPLAYED = (
    "cannot be replayed: the protocol reads something besides its state (run again with {checking} to find out what)"
)
"""Endings of two messages: one about an action or a property, one about a behaviour that an engine found.
``{checking}`` stands for that option.
"""


_spelling: Callable[[str], str] = str


@contextmanager
def options_spelled(spelling: Callable[[str], str]) -> Iterator[None]:
    """Within this context, errors spell option names with ``spelling``, in all threads of the process."""
    global _spelling
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before


class FencepostError(Exception):
    """An error whose message is one line for the user: the problem and its fix.

    ``options`` are the options that the message names as ``{name}``. In the text of the error each is spelled as the
    user writes it: ``max_memory`` in Python, ``--max-memory`` on the command line.
    """

    exit_code = SYSTEM_FAILED

    def __init__(self, message: str, *options: str) -> None:
        super().__init__(message)
        self.options = options

    def __str__(self) -> str:
        message = super().__str__()
        for option in self.options:
            message = message.replace(f"{{{option}}}", _spelling(option))
        return message


class NotAProtocol(FencepostError):
    """The name or file that the user gave holds no protocol that can be checked."""

    exit_code = NOT_A_PROTOCOL


class OptionError(FencepostError):
    """A constant or an option is unknown, of the wrong type or out of range."""

    exit_code = WRONG_OPTIONS


class ProtocolRaised(FencepostError):
    """The author's Python raised, or broke a rule of the language, during exploration of a state.

    ``where`` names the action or property with its parameters. ``state`` is the :class:`fencepost.semantics.State` that
    it ran in, or None if no state existed yet. The author's own exception, if any, is ``__cause__``.
    """

    exit_code = PROTOCOL_RAISED

    def __init__(self, message: str, *options: str, where: str = "", state: object = None) -> None:
        super().__init__(message, *options)
        self.where = where
        self.state = state


class Misbehaved(FencepostError):
    """A mistake of an action or a property. The message continues a sentence that begins with its name."""

    exit_code = PROTOCOL_RAISED


class Explained(FencepostError):
    """An error of a specification. Its message needs no other words: it begins with the place, ``Spec.tla:148:17``, and
    may have further lines that show it.
    """

    exit_code = PROTOCOL_RAISED


class SystemFailure(FencepostError):
    """The machine failed: no memory, no disk, an unreadable or foreign checkpoint."""

    exit_code = SYSTEM_FAILED


# -- systems and optional parts ----------------------------------------------------------------------------------------

EXTRAS = {
    "query": ("pyarrow", "duckdb", "sqlglot"),
    "spark": ("pyspark", "py4j", "pyarrow", "pandas", "duckdb"),
    "explore": ("starlette", "uvicorn", "anyio"),
    "store": ("kazoo", "google", "google_crc32c", "uvloop"),
    "tla": ("tree_sitter", "tree_sitter_tlaplus"),
    "pytest": ("pytest",),
    "mcp": ("mcp", "pydantic", "anyio"),
    "lsp": ("pygls", "lsprotocol", "cattrs"),
}
"""The top-level modules that each extra brings. The first extra that has a module is the one to name."""


def need_linux(what: str) -> None:
    """Raises :class:`SystemFailure` on another system. ``what``: what needs Linux."""
    if sys.platform != "linux":
        raise SystemFailure(
            f"{what} needs Linux, and this is {_SYSTEMS.get(sys.platform, sys.platform)}: run it in a container (see"
            " Containerfile), or on Windows in WSL"
        )


_SYSTEMS = {"darwin": "macOS", "win32": "Windows"}


@contextmanager
def naming_extra(what: str, by: str = "") -> Iterator[None]:
    """Turn a missing library of an extra into :class:`OptionError`. ``what`` needs it. The message names the extra
    ``by``, or else the first extra that has the library.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extras = [extra for extra, libraries in EXTRAS.items() if missing in libraries]
        if not extras:
            raise
        extra = by if by in extras else extras[0]
        raise OptionError(f"{what} needs {missing}, which is not installed: {how_to_install(extra)}") from error


def how_to_install(extra: str) -> str:
    """The command that installs an extra. Fencepost is not on a package index."""
    return f"in a checkout of Fencepost, pip install '.[{extra}]'"
