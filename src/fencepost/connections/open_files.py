"""The limit on open files of this process (``ulimit -n``), and how many connections it leaves room for."""

from __future__ import annotations

import contextlib
import logging
import resource

from fencepost.errors import SystemFailure


def connections_within(wanted: int, spare: int, part: str, setting: str, log: logging.Logger, files: int = 1) -> int:
    """Allow this process as many open files as it may have, and return how many connections it may have with ``spare``
    other files: at most ``wanted``, or any number if that is 0. Each takes some ``files``. Logs that it is fewer than
    ``wanted``, the value of a ``setting`` of a ``part``. Raises :class:`SystemFailure` if it is none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    most = (soft - spare) // files
    if soft == resource.RLIM_INFINITY or 0 < wanted <= most:
        return wanted
    if most < 1:
        raise SystemFailure(
            f"{part} needs more than {spare} open files, and this process may have {soft}: raise ulimit -n"
        )
    if wanted:
        log.warning(
            "%s is %d, and not %d: this process may have %d files open (ulimit -n)", setting, most, wanted, soft
        )
    return most
