"""One recording from its start to its end: metadata, trace, registrations, the proxy."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.errors import OptionError
from fencepost.ledger.bookie.directories import is_loopback
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.recording import faults as of_faults
from fencepost.ledger.recording.faults import Faults
from fencepost.ledger.recording.ledgers import Ledgers
from fencepost.ledger.recording.proxy import Bookie, Counts, Proxy, bind
from fencepost.ledger.recording.redirects import Redirects, registered_bookies
from fencepost.ledger.shutdown import Shutdown
from fencepost.ledger.wire.frames import DEFAULT_LIMIT
from fencepost.traces import TraceWriter

_LOOPBACK = "127.0.0.1"

Address = tuple[str, int]


class Asked(msgspec.Struct, frozen=True):
    """The options of a recording. ``bookies``: each its id, None if it is to be found by its address, and where it
    listens; ``listen``: where the proxy stands in for each, port 0 for any free one. Without both, all bookies that are
    registered are recorded.

    ``faults``: rules as they are typed (:mod:`.faults`); ``random_faults``: so many more, drawn from ``seed``.
    ``limit``: bytes of the largest message.
    """

    metadata: str
    listen: tuple[Address, ...] = ()
    bookies: tuple[tuple[str | None, Address], ...] = ()
    faults: tuple[str, ...] = ()
    random_faults: int = 0
    seed: int = 0
    limit: int = DEFAULT_LIMIT


class Recording(msgspec.Struct, frozen=True):
    """A recording under way: the bookies and where the proxy stands in for each, and the rules of its faults."""

    bookies: tuple[tuple[Bookie, Address], ...]
    faults: tuple[str, ...]


class Done(msgspec.Struct, frozen=True):
    """A recording that has ended. ``unused``: rules that have never acted."""

    counts: Counts
    seen: int
    missed: int
    unused: tuple[str, ...]


async def record(
    asked: Asked, open_trace: Callable[[dict[str, Any]], TraceWriter], ready: Callable[[Recording], None]
) -> Done:
    """Record until SIGTERM or SIGINT; a second one ends the process at once. ``ready`` is called when clients are led
    to the proxy.

    ``open_trace`` opens the trace, whose first event has these parameters. Raises :class:`fencepost.FencepostError` if
    it cannot start.
    """
    _check(asked)
    ended = Shutdown()
    async with await MetadataClient.connect(asked.metadata) as client:
        bookies = await _bookies(asked, client)
        with contextlib.ExitStack() as stack:
            bound = [
                stack.enter_context(contextlib.closing(bind(*_listen(asked, place, bookie))))
                for place, bookie in enumerate(bookies)
            ]
            standing = {
                bookie: _address(asked, place, each)
                for place, (bookie, each) in enumerate(zip(bookies, bound, strict=True))
            }
            ids = [bookie.id for bookie in bookies]
            rules = [of_faults.parse(text, ids) for text in asked.faults]
            rules += of_faults.drawn(asked.random_faults, asked.seed, ids)
            recording = Recording(tuple(standing.items()), tuple(map(str, rules)))
            trace = open_trace(_started(asked, recording))
            faults = Faults(rules)
            ledgers, redirects = Ledgers(client, trace), Redirects(client, trace, standing)
            proxy = Proxy(trace, faults, ledgers.noticed, asked.limit)
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
    return Done(proxy.counts, ledgers.seen, ledgers.missed, unused)


def _started(asked: Asked, recording: Recording) -> dict[str, Any]:
    """The parameters of the first event."""
    bookies = [
        {"bookie": bookie.id, "address": f"{bookie.host}:{bookie.port}", "listen": f"{host}:{port}"}
        for bookie, (host, port) in recording.bookies
    ]
    seed = asked.seed if asked.random_faults else None
    return {"kind": "record", "bookies": bookies, "faults": [*recording.faults], "seed": seed}


def _check(asked: Asked) -> None:
    """Raise for options that are at odds with each other."""
    if len(asked.listen) != len(asked.bookies):
        raise OptionError(
            f"listen is given {len(asked.listen)} times and bookie {len(asked.bookies)} times: give one address to"
            " listen on for each bookie, or neither, to record all bookies that are registered"
        )
    if len(asked.faults) + asked.random_faults > of_faults.MOST_RULES:
        raise OptionError(
            f"{len(asked.faults) + asked.random_faults:,} faults are too many: give at most {of_faults.MOST_RULES:,}"
        )
    for host, _ in asked.listen:
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).is_unspecified:
                raise OptionError(
                    f"listen {host}: clients must be told an address that they can connect to, and this one means all"
                    " of them"
                )


async def _bookies(asked: Asked, client: MetadataClient) -> list[Bookie]:
    """The bookies to record, with their ids."""
    registered = await registered_bookies(client)
    if not asked.bookies:
        if not registered:
            raise OptionError(
                f"no bookie is registered at {client.address}: start bookies first, or name those to come as"
                " ID=HOST:PORT"
            )
        return [Bookie(bookie, *address) for bookie, address in sorted(registered.items())]
    found = []
    for place, (bookie_id, (host, port)) in enumerate(asked.bookies):
        # A bookie may tell clients to come to the proxy by itself.
        ids = (
            [bookie_id]
            if bookie_id
            else [each for each, at in registered.items() if at in ((host, port), asked.listen[place])]
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


def _listen(asked: Asked, place: int, bookie: Bookie) -> Address:
    """Where the proxy is to stand in for a bookie."""
    if asked.listen:
        return asked.listen[place]
    if not is_loopback(bookie.host):
        raise OptionError(
            f"the bookie {bookie.id} is at {bookie.host}: say where to listen for it, at an address that its clients"
            " can connect to"
        )
    return _LOOPBACK, 0


def _address(asked: Asked, place: int, bound: socket.socket) -> Address:
    """The address by which clients are to come, whose port may be any."""
    host = asked.listen[place][0] if asked.listen else _LOOPBACK
    return host, bound.getsockname()[1]
