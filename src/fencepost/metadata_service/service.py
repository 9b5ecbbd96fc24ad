"""Runs a metadata service on a directory until it is asked to end: the process behind ``fencepost metadata``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.metadata_service.log import CURRENT, Log
from fencepost.metadata_service.member import Member, first_state
from fencepost.metadata_service.settings import Settings
from fencepost.metadata_service.standalone import Standalone
from fencepost.metadata_service.tree import Tree
from fencepost.quorum.driver.host import First, QuorumHost
from fencepost.quorum.driver.node import Limits
from fencepost.quorum.files.directory import META
from fencepost.quorum.log import OffsetAndEpoch
from fencepost.store.disk.files import Lock, OsFiles
from fencepost.store.disk.journal import Damage
from fencepost.tracing import TraceWriter

_logger = logging.getLogger(__name__)


QUORUM = "quorum"
"""The folder in that of a service in which a member of a quorum keeps everything."""


@dataclass(frozen=True)
class Quorum:
    """The quorum that a service is a member of: its id, and the endpoints of the members that are known, by their ids."""

    host_id: int
    hosts: Mapping[int, str]


def run(
    directory: Path,
    settings: Settings,
    serving: Callable[[str, int], None],
    trace: Path | None = None,
    quorum: Quorum | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; ``serving`` is called with the address and the port as soon as clients can connect. ``trace``: a folder
    for a trace of what is written, or of what a member does. ``quorum``: the service is a member of one, and otherwise alone.

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
            if quorum is None:
                runner.run(_serve(directory, files, settings, serving, trace))
            else:
                runner.run(_serve_member(directory, files, settings, serving, trace, quorum))
    finally:
        lock.release()


async def _serve(
    directory: Path, files: OsFiles, settings: Settings, serving: Callable[[str, int], None], trace: Path | None
) -> None:
    if (directory / QUORUM / META).exists():
        raise SystemFailure(f"{directory} is that of a member of a quorum: give controllers and id")
    log, tree = _open_log(directory, files, settings)
    ended, end = _until_ended()
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
    await _end_trace(tracing, reason)
    if reason is not None:
        raise SystemFailure(f"the metadata service ended, since its disk failed: {reason}") from reason


def _open_log(directory: Path, files: OsFiles, settings: Settings) -> tuple[Log, Tree]:
    try:
        return Log.open(files, settings.pre_alloc_size << 10, settings.snap_retain_count)
    except Damage as error:
        raise SystemFailure(f"{directory} is damaged: {error}") from error
    except OSError as error:
        raise SystemFailure(f"{directory} can not be read or written: {error.strerror or error}") from error


def _until_ended() -> tuple[asyncio.Future[BaseException | None], Callable[..., None]]:
    """A future that is done at a signal, or with the reason when the disk fails; and what says so."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()

    def end(reason: BaseException | None = None) -> None:
        if not ended.done():
            ended.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    return ended, end


async def _serve_member(
    directory: Path,
    files: OsFiles,
    settings: Settings,
    serving: Callable[[str, int], None],
    trace: Path | None,
    quorum: Quorum,
) -> None:
    ended, end = _until_ended()
    node = f"controller-{quorum.host_id}"
    tracing = None if trace is None else TraceWriter(trace, node=node, started={"kind": "controller"})
    limits = Limits(snapshot_records=settings.snap_count, snapshots=settings.snap_retain_count)
    host = QuorumHost(
        OsFiles(str(directory / QUORUM)),
        quorum.host_id,
        quorum.hosts,
        limits=limits,
        max_frame=2 * settings.jute_maxbuffer + (8 << 20),
        emit=None if tracing is None else tracing.emit,
    )
    member = Member(settings, host, end)

    def first() -> First | None:
        """What was kept alone, so that a service which was no member becomes the first one."""
        if CURRENT not in files.names():
            return None
        log, tree = _open_log(directory, files, settings)
        log.close(tree.zxid)
        return OffsetAndEpoch(max(1, tree.zxid), 1), first_state(tree)

    taking_part = asyncio.ensure_future(member.take_part(first))
    either: list[asyncio.Future[Any]] = [taking_part, ended]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not taking_part.done():
        taking_part.cancel()
        await asyncio.gather(taking_part, return_exceptions=True)
        await member.stop()
        await _end_trace(tracing)
        return
    await taking_part
    server = await member.serve()
    serving(*member.address)
    reason = await ended
    server.close()
    try:
        await member.stop()
    except OSError as error:
        reason = reason or error
    await _end_trace(tracing, reason)
    if reason is not None:
        raise SystemFailure(f"the metadata service ended: {reason}") from reason


async def _end_trace(tracing: TraceWriter | None, reason: BaseException | None = None) -> None:
    if tracing is not None:
        await asyncio.to_thread(tracing.close, {} if reason is None else {"error": str(reason)})


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
