"""Runs a metadata service on a directory until it is asked to end: the process behind ``fencepost metadata``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from fencepost.errors import SystemFailure
from fencepost.metadata_service.log import Log
from fencepost.metadata_service.settings import Settings
from fencepost.metadata_service.standalone import Standalone
from fencepost.store.disk.files import Lock, OsFiles
from fencepost.store.disk.journal import Damage
from fencepost.tracing import TraceWriter

_logger = logging.getLogger(__name__)


def run(directory: Path, settings: Settings, serving: Callable[[str, int], None], trace: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT; ``serving`` is called with the address and the port as soon as clients can connect. ``trace``: a folder
    for a trace of what is written.

    Raises :class:`fencepost.errors.SystemFailure` if the directory is damaged or in use, the port can not be had, or the disk fails.
    """
    try:
        files = OsFiles(str(directory))
        lock = Lock(str(directory))
    except BlockingIOError as error:
        raise SystemFailure(f"{directory} is in use by another metadata service") from error
    except OSError as error:
        raise SystemFailure(f"{directory} can not be used: {error.strerror}") from error
    _allow_many_connections()
    try:
        with _runner() as runner:
            runner.run(_serve(directory, files, settings, serving, trace))
    finally:
        lock.release()


async def _serve(
    directory: Path, files: OsFiles, settings: Settings, serving: Callable[[str, int], None], trace: Path | None
) -> None:
    try:
        log, tree = Log.open(files, settings.pre_alloc_size << 10, settings.snap_retain_count)
    except Damage as error:
        raise SystemFailure(f"{directory} is damaged: {error}") from error
    except OSError as error:
        raise SystemFailure(f"{directory} can not be read or written: {error.strerror or error}") from error
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()

    def end(reason: BaseException | None = None) -> None:
        if not ended.done():
            ended.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    tracing = None if trace is None else TraceWriter(trace, node="metadata", started={"kind": "metadata", "zxid": tree.zxid})
    service = Standalone(settings, log, tree, end, tracing)
    server = await service.serve()
    _logger.info("%s has %s znodes and %s sessions at zxid %#x", directory, len(tree.nodes), len(tree.sessions), tree.zxid)
    serving(*service.address)
    reason = await ended
    server.close()
    try:
        await service.stop()
    except OSError as error:
        reason = reason or error
    if tracing is not None:
        await asyncio.to_thread(tracing.close, {} if reason is None else {"error": str(reason)})
    if reason is not None:
        raise SystemFailure(f"the metadata service ended, since its disk failed: {reason}") from reason


def _runner() -> asyncio.Runner:
    """A runner on uvloop, where that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def _allow_many_connections() -> None:
    """Take as many files as this user may have, since every connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
