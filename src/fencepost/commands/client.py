"""What commands share that are clients of a store: how they reach it, and the password of what they open."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import fencepost
from fencepost import errors
from fencepost.client import Client
from fencepost.errors import OptionError


def client_options(parser: argparse.ArgumentParser, secret: str) -> None:
    """The options of a client. ``secret``: what the password is, if there is one."""
    parser.add_argument(
        "--metadata",
        metavar="URI",
        default=os.environ.get("FENCEPOST_METADATA"),
        help="the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers",
    )
    if secret:
        parser.add_argument("--password", metavar="TEXT", help=f"{secret}; by default none")
        parser.add_argument(
            "--password-file", metavar="FILE", type=Path, help="a file with the password, without its last line end"
        )
    parser.add_argument("--json", action="store_true", help="results as JSON, one object a line")
    parser.add_argument(
        "--trace", metavar="DIR", help="write a trace of what this client does to a folder of traces (docs/traces.md)"
    )


def on_store(
    action: Callable[[Client, argparse.Namespace], Coroutine[Any, Any, None]], given: argparse.Namespace
) -> int:
    """Do what was typed with the store that was named; the exit code."""
    if not given.metadata:
        raise OptionError("give the address of the metadata service: --metadata zk://HOST:PORT/ledgers")

    async def connected() -> None:
        async with fencepost.connect(given.metadata, trace=given.trace) as store:
            await action(store, given)

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connected())
    return errors.HOLDS


def password(given: argparse.Namespace) -> bytes:
    """The password that was given, in words or in a file."""
    if given.password_file is None:
        return (given.password or "").encode()
    if given.password is not None:
        raise OptionError("give --password or --password-file, not both")
    try:
        data: bytes = given.password_file.read_bytes()
    except OSError as error:
        raise OptionError(f"--password-file {given.password_file}: {error.strerror}") from error
    return data.removesuffix(b"\n").removesuffix(b"\r")
