"""The options of commands that are clients of a store, how they connect to it, and how they print results."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import fencepost
from fencepost import errors
from fencepost.api.client import Client
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.errors import OptionError
from fencepost.ledger.errors import Refusal

METADATA = "--metadata zk://HOST:PORT/ledgers, or set the environment variable FENCEPOST_METADATA"


def client_options(parser: argparse.ArgumentParser, secret: str) -> None:
    """The options of a client. ``secret``: what the password is, if there is one."""
    option(
        parser,
        "--metadata URI",
        "the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers; by default what FENCEPOST_METADATA says",
        default=os.environ.get("FENCEPOST_METADATA"),
    )
    if secret:
        option(parser, "--password TEXT", f"{secret}, which everybody on this machine can see; by default none")
        option(parser, "--password-file FILE", "a file with the password, without its last line end", Path)
    option(parser, "--json", "results as JSON, one object a line")
    option(parser, "--trace DIR", "write a trace of what this client does to a folder of traces")


DIGESTS = ("crc32c", "crc32", "hmac", "dummy")


def quorum_options(group: argparse._ActionsContainer, spread: str, digest: str | None) -> None:
    """The options of new ledgers. ``spread``: what their entries are called; ``digest``: the default."""
    option(group, "--ensemble N", f"bookies that {spread} are spread over (3)", arguments.count, 3)
    option(group, "--write-quorum N", "bookies that each entry is sent to; by default all of them", arguments.count)
    option(
        group,
        "--ack-quorum N",
        "bookies that must have an entry before it is confirmed; by default a majority",
        arguments.count,
    )
    option(
        group,
        "--digest",
        "what protects an entry from damage (crc32c); hmac also from whoever lacks the password",
        default=digest,
        choices=DIGESTS,
    )


def quorums(given: argparse.Namespace) -> dict[str, Any]:
    """How the entries of new ledgers are spread and protected."""
    return {
        "ensemble": given.ensemble,
        "write_quorum": given.write_quorum,
        "ack_quorum": given.ack_quorum,
        "digest": given.digest or DIGESTS[0],
    }


def on_store(
    action: Callable[[Client, argparse.Namespace], Coroutine[Any, Any, None]], given: argparse.Namespace
) -> int:
    """Do what was typed with the store that was named; the exit code."""
    if not given.metadata:
        raise OptionError(f"give the address of the metadata service: {METADATA}")

    async def connected() -> None:
        async with fencepost.connect(given.metadata, trace=given.trace) as store:
            await action(store, given)

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connected())
    return errors.HOLDS


def yes_option(parser: argparse.ArgumentParser) -> None:
    """The option of commands that :func:`must_be_meant`."""
    option(parser, "--yes", "do it without asking; needed where there is no terminal")


async def must_be_meant(given: argparse.Namespace, what: str) -> None:
    """Ask whether something is to be done that cannot be undone, unless ``--yes`` was given. Raises
    :class:`fencepost.OptionError` where there is no terminal to ask on, and :class:`Refusal` for another answer.
    """
    if given.yes:
        return
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise OptionError(f"{what} cannot be undone: give --yes to do it")
    sys.stderr.write(f"{what[0].upper()}{what[1:]} cannot be undone. Do it? (yes or no) ")
    sys.stderr.flush()
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)  # so that it can be interrupted, and the session goes on meanwhile
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refusal("nothing is done")


def say(given: argparse.Namespace, document: Mapping[str, Any], text: str) -> None:
    """Print a result: a line of JSON or, without the option ``--json``, text."""
    output.say(json.dumps(document) if given.json else text)


def password(given: argparse.Namespace) -> bytes:
    """The password that was given, in words or in a file."""
    if given.password_file is None:
        if given.password:
            output.complain("everybody on this machine can see --password: --password-file keeps it", None, False)
        return (given.password or "").encode()
    if given.password is not None:
        raise OptionError("give --password or --password-file, not both")
    try:
        data: bytes = given.password_file.read_bytes()
    except OSError as error:
        raise OptionError(f"--password-file {given.password_file}: {error.strerror}") from error
    return data.removesuffix(b"\n").removesuffix(b"\r")
