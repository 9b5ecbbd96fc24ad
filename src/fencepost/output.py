"""Standard output and standard error of commands: results go to the first, one line of complaint to the second."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.spec.values import printable

LONGEST = 2_000
"""Characters of a complaint after which its middle is left out."""

_output: ContextVar[Any] = ContextVar("fencepost_output")


@contextlib.contextmanager
def goes_to(stream: Any) -> Iterator[None]:
    token = _output.set(stream)
    try:
        yield
    finally:
        _output.reset(token)


def stdout() -> Any:
    """Where results go: standard output, of which the author's Python sees nothing. None if there is none."""
    return _output.get(sys.stdout)


def say(text: str) -> None:
    """Print lines to standard output. What could do something to a terminal, which names and docstrings can hold, is escaped."""
    put("\n".join(map(printable, text.split("\n"))) + "\n")


def put(text: str) -> None:
    """Write to standard output. Quiet if nobody listens any more; :class:`SystemFailure` if it can not be written."""
    out = stdout()
    if out is None:
        return
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        raise SystemFailure(f"standard output can not be written: {error.strerror}") from error


def put_bytes(data: bytes) -> bool:
    """Write bytes to standard output; whether anybody listens. :class:`SystemFailure` if they can not be written."""
    out = stdout()
    if out is None:
        return False
    try:
        out.flush()
        out.buffer.write(data)
        out.buffer.flush()
    except BrokenPipeError:
        _discard_output()
        return False
    except OSError as error:
        _discard_output()
        raise SystemFailure(f"standard output can not be written: {error.strerror}") from error
    return True


def _discard_output() -> None:
    """Send what is still in the buffer nowhere, so that Python does not fail to write it once more when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout().fileno())
        os.close(nowhere)


def complain(message: str, error: BaseException | None, debug: bool) -> None:
    """One line on standard error; with ``debug`` the traceback of what was at fault before it."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        if debug:
            import traceback

            traceback.print_exception(error)
        line = printable(" ".join(message.split("\n")).strip())
        if len(line) > LONGEST:
            line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
        sys.stderr.write(f"fencepost: {line}\n")
        sys.stderr.flush()
