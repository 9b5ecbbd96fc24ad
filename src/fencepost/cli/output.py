"""Standard output and standard error of commands: results go to the first, error lines to the second."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from fencepost import errors
from fencepost.errors import FencepostError, OptionError, SystemFailure
from fencepost.text.plain import printable

LONGEST = 2_000
"""The longest error line in characters; the middle of a longer one is left out."""

_output: ContextVar[Any] = ContextVar("fencepost_output")


@contextlib.contextmanager
def goes_to(stream: Any) -> Iterator[None]:
    token = _output.set(stream)
    try:
        yield
    finally:
        _output.reset(token)


def stdout() -> Any:
    """The stream for results: standard output, which the author's Python cannot write to. None if it is closed."""
    return _output.get(sys.stdout)


_part: ContextVar[str] = ContextVar("fencepost_part", default="")
"""The part whose lines are JSON; empty: lines are text."""


def speak_json(part: str) -> None:
    """From now on, :func:`announce` and :func:`complain` print lines of JSON."""
    _part.set(part)


def announce(text: str) -> None:
    """Print a line about a long-running process to standard output."""
    say(_json("INFO", text) if _part.get() else text)


def _json(level: str, message: str, **fields: Any) -> str:
    from fencepost.monitoring import logs

    return logs.line(time.time(), level, "fencepost", message, part=_part.get(), **fields)


def say(text: str) -> None:
    """Print lines to standard output. Control characters in names and docstrings are escaped."""
    put("\n".join(map(printable, text.split("\n"))) + "\n")


def put(data: str | bytes) -> bool:
    """Write to standard output. Returns False if its reader is gone. Raises :class:`SystemFailure` if it cannot be
    written.
    """
    out = stdout()
    if out is None:
        return False
    try:
        if isinstance(data, bytes):
            out.flush()
            out = out.buffer
        out.write(data)
        out.flush()
    except BrokenPipeError:
        _discard_output()
        return False
    except OSError as error:
        _discard_output()
        raise SystemFailure(f"standard output cannot be written: {error.strerror}") from error
    return True


def _discard_output() -> None:
    """Redirect standard output to the null device, so that Python does not fail again when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout().fileno())
        os.close(nowhere)


def complain(message: str, error: BaseException | None, debug: bool) -> None:
    """Print one line to standard error, and the excerpt of a file that may follow it. With ``debug``, they come after
    the error's traceback.
    """
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        if _part.get():
            fields = {"traceback": traceback_of(error)} if debug and error is not None else {}
            sys.stderr.write(f"{_json('ERROR', message.strip(), **fields)}\n")
            sys.stderr.flush()
            return
        if debug and error is not None:
            sys.stderr.write(traceback_of(error))
        first, *rest = message.strip().split("\n")
        if rest and all(each.startswith("  ") for each in rest):  # an excerpt of a file
            line = "\n".join(map(printable, (first, *rest)))
        else:
            line = printable(" ".join((first, *rest)))
        if len(line) > LONGEST:
            line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
        sys.stderr.write(f"fencepost: {line}\n")
        sys.stderr.flush()


def traceback_of(error: BaseException) -> str:
    """The traceback of an error, as Python prints it."""
    import traceback

    return "".join(traceback.format_exception(error))


def failed(error: BaseException, debug: bool) -> int:
    """Report an error in one line. Returns its exit code."""
    code = errors.SYSTEM_FAILED
    if isinstance(error, FencepostError):
        message, code = str(error), error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        message, code = "interrupted", errors.INTERRUPTED
    elif isinstance(error, MemoryError):
        message = "out of memory: set a limit with --max-memory, or check a smaller configuration"
    elif isinstance(error, RecursionError):
        message = "something is nested too deeply"
    elif isinstance(error, OSError):
        file = f": {error.filename}" if error.filename else ""
        message = f"the machine failed: {error.strerror or error}{file}"
    else:
        message = f"a fault in Fencepost: {type(error).__name__}: {error} (--debug shows where)"
    complain(message, error, debug)
    return code


# -- files and terminals ----------------------------------------------------------------------------------------------


def width() -> int:
    """The width for text: that of ``COLUMNS`` or of the terminal, between 40 and 110 columns."""
    said = os.environ.get("COLUMNS", "")
    try:
        columns = int(said) if said.isdecimal() else os.get_terminal_size(stdout().fileno()).columns
    except (OSError, ValueError, AttributeError):
        return 100
    return max(40, min(110, columns))


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    out = stdout()
    return out is not None and bool(out.isatty())


def is_device(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path)


def must_be_writable(option: str, path: str) -> None:
    """Raises unless ``path`` can be written. Does not change an existing file, and leaves no new one."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise OptionError(f"--{option} {path} is a directory: name a file in it")
    if not os.path.isdir(folder):
        raise OptionError(f"--{option} {path} cannot be written: there is no directory {folder}")
    if is_device(path):  # opening a pipe would wait for its reader
        if not os.access(path, os.W_OK):
            raise OptionError(f"--{option} {path} cannot be written")
        return
    there = os.path.lexists(path)
    try:
        with open(path, "ab"):
            pass
        if not there:
            os.remove(path)
    except OSError as error:
        raise OptionError(f"--{option} {path} cannot be written: {error.strerror}") from None


def check_files(args: argparse.Namespace, *options: str) -> None:
    """Raises unless the files of these options can be written. JSON and CSV may go to standard output, ``-``."""
    for option in options:
        path = getattr(args, option)
        if path == "-" and option not in ("json", "csv"):
            raise OptionError(f"--{option} - is not possible: only --json can go to standard output")
        if path not in (None, "-"):
            must_be_writable(option, path)


def show(args: argparse.Namespace, text: str, document: Mapping[str, Any]) -> None:
    """Show a result as text, as JSON or as both, depending on ``--json``."""
    if args.json is not None:
        write_json(args.json, document)
    if args.json != "-":
        say(text)


def write_json(path: str, document: Mapping[str, Any]) -> None:
    """Write the file of the option ``--json``."""
    from fencepost.behaviours.json import dumps  # few commands need it

    write_lines("json", path, [dumps(document, indent=2), "\n"])


def write_lines(option: str, path: str, lines: Iterable[str]) -> None:
    """Write lines to the file of an option, or to standard output."""
    if path == "-":
        for line in lines:
            put(line)
        return
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(lines)
    except OSError as error:
        if not is_device(path):
            with contextlib.suppress(OSError):
                os.remove(path)  # leave no partial file
        raise SystemFailure(f"--{option} {path} could not be written: {error.strerror}") from error
