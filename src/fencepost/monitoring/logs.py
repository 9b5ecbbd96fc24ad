"""Logs as JSON: one object a line.

``time``: UTC, in ISO 8601, with milliseconds. ``level`` and ``logger``: as in Python's logging. ``message``: one text.
``fields``: an object with the ``part``, what a caller gives by ``extra``, and the ``traceback`` of an error.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from types import TracebackType
from typing import Any

_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""The attributes that every record has."""


def line(moment: float, level: str, logger: str, message: str, **fields: Any) -> str:
    """One line of a log, without its end. ``moment``: seconds since 1970."""
    document = {
        "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment))}.{int(moment * 1000) % 1000:03d}Z",
        "level": level,
        "logger": logger,
        "message": message,
        "fields": fields,
    }
    try:
        return json.dumps(document, allow_nan=False, default=str)
    except Exception:  # a number that JSON has not, an object within itself, or one that fails as text
        plain = {name: value if isinstance(value, str) else repr(value) for name, value in fields.items()}
        return json.dumps({**document, "fields": plain})


class JsonFormatter(logging.Formatter):
    """Formats records as lines of JSON. ``part``: the kind of the process."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        fields = {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["traceback"] = record.exc_text
        if record.stack_info:
            fields["stack"] = record.stack_info
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):  # its arguments do not fit: the text is better than nothing
            message, fields["arguments"] = str(record.msg), repr(record.args)
        return line(record.created, record.levelname, record.name, message, **{"part": self._part, **fields})


def report_everything() -> None:
    """Log the errors that Python would print to standard error: those of threads, and those that nobody can catch."""
    logger = logging.getLogger("fencepost")

    def of_thread(error: threading.ExceptHookArgs) -> None:
        if error.exc_type is not SystemExit:
            name = error.thread.name if error.thread is not None else "?"
            logger.critical("the thread %s ends", name, exc_info=_info(error.exc_type, error.exc_value))

    def unraisable(error: Any) -> None:
        logger.error("%s: %r", error.err_msg or "an error is ignored in", error.object,
                     exc_info=_info(error.exc_type, error.exc_value))  # fmt: skip

    def uncaught(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
        logger.critical("the process ends: %s", error, exc_info=_info(kind, error))

    threading.excepthook, sys.unraisablehook, sys.excepthook = of_thread, unraisable, uncaught
    logging.captureWarnings(True)


def _info(
    kind: type[BaseException], error: BaseException | None
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    error = kind() if error is None else error
    return kind, error, error.__traceback__
