"""Distinguishes the author's files from those of Fencepost and Python."""

from __future__ import annotations

import os
import traceback
from types import FrameType

from fencepost.errors import FencepostError, Misbehaved
from fencepost.language.values import NotAValue

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHIPPED = os.path.join(_PACKAGE, "protocols")
_LIBRARY = os.path.dirname(os.__file__)


def is_authors(file: str) -> bool:
    """Whether a file is neither Fencepost's nor Python's. The shipped protocols count as authors' files."""
    return not _is_ours(file) and not file.startswith((_LIBRARY, "<frozen"))


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_SHIPPED)


def authors_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the author's code in the call stack of ``frame``. None if there is none."""
    while frame is not None and not is_authors(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def failure_text(error: BaseException) -> str:
    """The failure of an author's function, as text to follow its name: the exception and its line, or the broken rule
    of the language.
    """
    if isinstance(error, Misbehaved):
        return f" {error}"
    if isinstance(error, (NotAValue, FencepostError)):
        return f": {error}"
    return " recursed too deeply" if isinstance(error, RecursionError) else f" raised {brief(error)}"


def brief(error: BaseException) -> str:
    """An exception in one line of text, with the author's source line, or else the line that raised it."""
    raised = line_of(error)
    where = f" at {raised[0]}:{raised[1]}" if raised is not None else ""
    # str() of a KeyError is the repr of its key. Drop the quotes.
    is_key = isinstance(error, KeyError) and error.args and isinstance(error.args[0], str)
    try:
        said = error.args[0] if is_key else str(error)
    except Exception:  # of the author's own class
        said = ""
    text = said.strip().splitlines()
    return f"{type(error).__name__}{': ' + text[0] if text else ''}{where}"


def line_of(error: BaseException) -> tuple[str, int] | None:
    """The file and the line of the author's that an exception comes from, or else those that raised it."""
    every = traceback.extract_tb(error.__traceback__)
    frames = [f for f in every if not _is_ours(f.filename)] or every
    authors = [f for f in frames if is_authors(f.filename)] or frames
    return (authors[-1].filename, authors[-1].lineno or 1) if authors else None
