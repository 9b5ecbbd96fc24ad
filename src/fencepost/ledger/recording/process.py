"""One recording from start to end: metadata, trace, registrations and proxy."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.connections.open_files import connections_within
from fencepost.errors import OptionError
from fencepost.ledger.bookie.directories import is_loopback
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.recording import faults as fault_rules
from fencepost.ledger.recording.faults import Faults
from fencepost.ledger.recording.ledgers import Ledgers
from fencepost.ledger.recording.proxy import CONNECTIONS, Bookie, Counts, Proxy, bind
from fencepost.ledger.recording.redirects import Redirects, registered_bookies
from fencepost.ledger.shutdown import Shutdown
from fencepost.ledger.wire.frames import DEFAULT_LIMIT
from fencepost.traces import TraceWriter

SPARE_FILES = 256
"""Open files that a recorder needs besides those of its connections."""

_LOOPBACK = "127.0.0.1"

_log = logging.getLogger(__name__)

Address = tuple[str, int]


class RecordingOptions(msgspec.Struct, frozen=True):
    """The options of a recording. ``bookies``: the id (None to find it by address) and the address of each. ``listen``:
    the proxy's address for each; port 0 means any free port. Without both, all registered bookies are recorded.

    ``faults``: typed rules (:mod:`.faults`). ``random_faults``: the number of further rules, drawn from ``seed``.
    ``limit``: the largest message in bytes.
    """

    metadata: str
    listen: tuple[Address, ...] = ()
    bookies: tuple[tuple[str | None, Address], ...] = ()
    faults: tuple[str, ...] = ()
    random_faults: int = 0
    seed: int = 0
    limit: int = DEFAULT_LIMIT


class Recording(msgspec.Struct, frozen=True):
    """A running recording: the bookies with the proxy's address for each, and the fault rules."""

    bookies: tuple[tuple[Bookie, Address], ...]
    faults: tuple[str, ...]


class RecordingResult(msgspec.Struct, frozen=True):
    """A finished recording. ``unused``: rules that never acted."""

    counts: Counts
    seen: int
    missed: int
    unused: tuple[str, ...]


async def record(
    options: RecordingOptions, open_trace: Callable[[dict[str, Any]], TraceWriter], ready: Callable[[Recording], None]
) -> RecordingResult:
    """Record until SIGTERM or SIGINT; a second signal ends the process at once. ``ready`` is called once clients are
    redirected to the proxy.

    ``open_trace`` opens the trace with these parameters of its first event. Raises :class:`fencepost.FencepostError` if
    the recording cannot start.
    """
    _check(options)
    most = connections_within(CONNECTIONS, SPARE_FILES, "a recorder", "the most connections", _log, files=2)
    ended = Shutdown()
    async with await MetadataClient.connect(options.metadata) as client:
        bookies = await _bookies(options, client)
        with contextlib.ExitStack() as stack:
            bound = [
                stack.enter_context(contextlib.closing(bind(*_listen(options, place, bookie))))
                for place, bookie in enumerate(bookies)
            ]
            standing = {
                bookie: _address(options, place, each)
                for place, (bookie, each) in enumerate(zip(bookies, bound, strict=True))
            }
            ids = [bookie.id for bookie in bookies]
            rules = [fault_rules.parse(text, ids) for text in options.faults]
            rules += fault_rules.drawn(options.random_faults, options.seed, ids)
            recording = Recording(tuple(standing.items()), tuple(map(str, rules)))
            trace = open_trace(_started(options, recording))
            faults = Faults(rules)
            ledgers, redirects = Ledgers(client, trace), Redirects(client, trace, standing)
            proxy = Proxy(trace, faults, ledgers.noticed, options.limit, most)
            try:
                await ledgers.begin()
                for bookie, each in zip(bookies, bound, strict=True):
                    await proxy.listen(bookie, each)
                try:
                    await redirects.begin()
                    ready(recording)
                    await ended.wait()
                    ended.check()
                finally:
                    await redirects.end()
            finally:
                await proxy.close()
                await ledgers.close()
                trace.close(
                    {
                        **msgspec.to_builtins(proxy.counts),
                        "acted": faults.acted,
                        "seen": ledgers.seen,
                        "missed": ledgers.missed,
                    }
                )
    unused = tuple(str(rule) for rule, acted in zip(rules, faults.acted, strict=True) if not acted)
    return RecordingResult(proxy.counts, ledgers.seen, ledgers.missed, unused)


def _started(options: RecordingOptions, recording: Recording) -> dict[str, Any]:
    """The parameters of the first event."""
    bookies = [
        {"bookie": bookie.id, "address": f"{bookie.host}:{bookie.port}", "listen": f"{host}:{port}"}
        for bookie, (host, port) in recording.bookies
    ]
    seed = options.seed if options.random_faults else None
    return {"kind": "record", "bookies": bookies, "faults": [*recording.faults], "seed": seed}


def _check(options: RecordingOptions) -> None:
    """Raise for options that contradict each other."""
    if len(options.listen) != len(options.bookies):
        raise OptionError(
            f"listen is given {len(options.listen)} times and bookie {len(options.bookies)} times: give one address to"
            " listen on for each bookie, or neither, to record all bookies that are registered"
        )
    if len(options.faults) + options.random_faults > fault_rules.MOST_RULES:
        raise OptionError(
            f"{len(options.faults) + options.random_faults:,} faults are too many: give at most"
            f" {fault_rules.MOST_RULES:,}"
        )
    for host, _ in options.listen:
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).is_unspecified:
                raise OptionError(
                    f"listen {host}: clients must be told an address that they can connect to, and this one means all"
                    " of them"
                )


async def _bookies(options: RecordingOptions, client: MetadataClient) -> list[Bookie]:
    """The bookies to record, with their ids."""
    registered = await registered_bookies(client)
    if not options.bookies:
        if not registered:
            raise OptionError(
                f"no bookie is registered at {client.address}: start bookies first, or name those to come as"
                " ID=HOST:PORT"
            )
        return [Bookie(bookie, *address) for bookie, address in sorted(registered.items())]
    found = []
    for place, (bookie_id, (host, port)) in enumerate(options.bookies):
        # A registration may already point to the proxy.
        ids = (
            [bookie_id]
            if bookie_id
            else [each for each, at in registered.items() if at in ((host, port), options.listen[place])]
        )
        if not ids:
            known = ", ".join(f"{each} at {at[0]}:{at[1]}" for each, at in registered.items()) or "none"
            raise OptionError(
                f"no bookie is registered at {host}:{port}: there is {known}; one that registers later is given as"
                f" ID={host}:{port}"
            )
        found.append(Bookie(ids[0], host, port))
    if len({bookie.id for bookie in found}) < len(found):
        raise OptionError("a bookie is given twice: give each once, with one address to listen on")
    return found


def _listen(options: RecordingOptions, place: int, bookie: Bookie) -> Address:
    """The proxy's address for a bookie."""
    if options.listen:
        return options.listen[place]
    if not is_loopback(bookie.host):
        raise OptionError(
            f"the bookie {bookie.id} is at {bookie.host}: say where to listen for it, at an address that its clients"
            " can connect to"
        )
    return _LOOPBACK, 0


def _address(options: RecordingOptions, place: int, bound: socket.socket) -> Address:
    """The address for clients, with the actual port."""
    host = options.listen[place][0] if options.listen else _LOOPBACK
    return host, bound.getsockname()[1]
