"""Runs a metadata service on a directory until it is stopped: the process of ``fencepost metadata``."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fencepost.connections.loop import loop_factory
from fencepost.connections.open_files import connections_within
from fencepost.errors import SystemFailure
from fencepost.files.folders import Lock, NoRoom, OsFiles
from fencepost.metadata.member import Member
from fencepost.metadata.settings import MetadataSettings
from fencepost.monitoring import http
from fencepost.quorum.driver.host import TIMES, QuorumHost
from fencepost.quorum.driver.node import Limits
from fencepost.quorum.kafka.listener import KafkaListener
from fencepost.traces import TraceWriter

SPARE_FILES = 700
"""Open files that a metadata service needs besides its clients' connections: for those of the quorum, of Kafka's tools
and of HTTP, for handshakes of TLS, and for its log.
"""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quorum:
    """The quorum that a service belongs to, perhaps as its only member.

    ``host_id``: its id. None takes the id of its directory, or 1 if that is empty. ``hosts``: endpoints of known
    members by their ids. Without any, an empty directory becomes a quorum of one, at a free port that it keeps.
    ``listen``: where it listens for them, if that is not its endpoint. ``kafka_port``: where it serves Kafka's tools.
    ``auto_join``: become a voter if it is none.
    """

    host_id: int | None = None
    hosts: Mapping[int, str] = field(default_factory=dict)
    listen: str = ""
    kafka_port: int | None = None
    auto_join: bool = False


ALONE = Quorum()


def run(
    directory: Path,
    settings: MetadataSettings,
    serving: Callable[[Member], None],
    trace: Path | None = None,
    quorum: Quorum = ALONE,
) -> None:
    """Serve until SIGTERM or SIGINT. ``serving`` is called once clients can connect. ``trace``: a folder for a trace of
    changes and of the quorum's decisions.

    Raises :class:`fencepost.errors.SystemFailure` if the directory is damaged or in use, a port is not available, or
    the disk fails.
    """
    try:
        files = OsFiles(str(directory))
        lock = Lock(str(directory))
    except BlockingIOError as error:
        raise SystemFailure(f"{directory} is in use by another metadata service") from error
    except OSError as error:
        raise SystemFailure(f"{error.filename or directory} cannot be used: {error.strerror}") from error
    most = connections_within(settings.max_cnxns, SPARE_FILES, "a metadata service", "maxCnxns", _logger)
    settings = msgspec.structs.replace(settings, max_cnxns=most)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(files, settings, serving, trace, quorum))
    finally:
        lock.release()


def _until_ended() -> tuple[asyncio.Future[BaseException | None], Callable[..., None]]:
    """A future that completes at a signal, or with the reason when the disk fails, and the function that fails it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()

    def end(reason: BaseException | None = None) -> None:
        if not ended.done():
            ended.set_result(reason)

    def raised(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: end the service, since others may wait for what it left undone. An error in the parsing of
        a connection's data ends only that connection.
        """
        error = context.get("exception")
        loop.default_exception_handler(context)
        if "handle" in context and isinstance(error, Exception) and not isinstance(error, ConnectionError):
            end(error)

    loop.set_exception_handler(raised)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    return ended, end


async def _serve(
    files: OsFiles, settings: MetadataSettings, serving: Callable[[Member], None], trace: Path | None, quorum: Quorum
) -> None:
    ended, end = _until_ended()
    host = QuorumHost(
        files,
        quorum.host_id,
        quorum.hosts,
        msgspec.structs.replace(TIMES, auto_join=quorum.auto_join),
        limits=Limits(
            snapshot_records=settings.snap_count,
            snapshots=settings.snap_retain_count,
            pre_allocation=settings.pre_alloc_size << 10,
        ),
        max_frame=2 * settings.jute_maxbuffer + (8 << 20),
        listen=quorum.listen,
        tls=settings.tls_of_quorum,
    )
    member = Member(settings, host, end)
    tracing = None
    if trace is not None:
        tracing = TraceWriter(trace, node=f"metadata-{host.me.key.host_id}", started={"kind": "metadata"})
        host.emit = tracing.emit
    with http.serve(
        member.metrics, member.why_not_ready, settings.metrics_provider_http_host, settings.metrics_provider_http_port
    ):
        await _take_part(member, host, quorum, serving, tracing, ended, files.path)


async def _take_part(
    member: Member,
    host: QuorumHost,
    quorum: Quorum,
    serving: Callable[[Member], None],
    tracing: TraceWriter | None,
    ended: asyncio.Future[BaseException | None],
    directory: str,
) -> None:
    """Join the quorum, and serve until the end."""
    taking_part = asyncio.ensure_future(member.take_part())
    either: list[asyncio.Future[Any]] = [taking_part, ended]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not taking_part.done():
        taking_part.cancel()
        await asyncio.gather(taking_part, return_exceptions=True)
        await member.stop()
        await _end_trace(tracing)
        return
    await taking_part
    member.trace = tracing
    servers = await member.serve()
    kafka = KafkaListener(host)
    if quorum.kafka_port is not None:
        await kafka.listen(quorum.kafka_port)
    serving(member)
    reason = await ended
    for server in servers:
        server.close()
    await kafka.close()
    try:
        await member.stop()
    except OSError as error:
        reason = reason or error
    await _end_trace(tracing, reason)
    if reason is not None:
        raise SystemFailure(f"the metadata service ended: {said(reason, directory)}") from reason


def said(reason: BaseException, directory: str) -> str:
    """Why a service ended, in a line. ``directory``: its files' folder, for errors that name none."""
    if not isinstance(reason, OSError):
        return str(reason)
    then = ": make room, and start it again" if isinstance(reason, NoRoom) else ""
    return f"{reason.filename or directory}: {reason.strerror}{then}"


async def _end_trace(tracing: TraceWriter | None, reason: BaseException | None = None) -> None:
    if tracing is not None:
        await asyncio.to_thread(tracing.close, {} if reason is None else {"error": str(reason)})
