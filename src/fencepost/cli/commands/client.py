"""Common parts of the commands that are clients of a store: options, connection, and output."""

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
from fencepost.files import regular
from fencepost.ledger.errors import Refusal

_LONGEST_PASSWORD = 64 << 10
"""The most bytes of a file with a password."""

METADATA = "--metadata zk://HOST:PORT/ledgers, or set the environment variable FENCEPOST_METADATA"


def client_options(parser: argparse.ArgumentParser, secret: str) -> None:
    """Declare the options of a client. ``secret``: a description of the password, if the command takes one."""
    option(
        parser,
        "--metadata URI",
        "the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers; by default that of FENCEPOST_METADATA",
        default=os.environ.get("FENCEPOST_METADATA"),
    )
    if secret:
        option(parser, "--password TEXT", f"{secret}, which everybody on this machine can see; by default none")
        option(parser, "--password-file FILE", "a file with the password, without its last line end", Path)
    option(parser, "--json", "results as JSON, one object a line")
    option(parser, "--trace DIR", "write a trace of this client to a folder")


DIGESTS = ("crc32c", "crc32", "hmac", "dummy")


def quorum_options(group: argparse._ActionsContainer, spread: str, digest: str | None) -> None:
    """Declare the options of new ledgers. ``spread``: the word for their entries; ``digest``: the default."""
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
        "the checksum of an entry (crc32c); only hmac also protects it from forgery without the password",
        default=digest,
        choices=DIGESTS,
    )


def quorums(args: argparse.Namespace) -> dict[str, Any]:
    """The quorum sizes and the digest of new ledgers."""
    return {
        "ensemble": args.ensemble,
        "write_quorum": args.write_quorum,
        "ack_quorum": args.ack_quorum,
        "digest": args.digest or DIGESTS[0],
    }


def on_store(
    action: Callable[[Client, argparse.Namespace], Coroutine[Any, Any, None]], args: argparse.Namespace
) -> int:
    """Run a command on the store. Returns the exit code."""
    if not args.metadata:
        raise OptionError(f"give the address of the metadata service: {METADATA}")

    async def connected() -> None:
        async with fencepost.connect(args.metadata, trace=args.trace) as store:
            await action(store, args)

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connected())
    return errors.HOLDS


def yes_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--yes`` for commands that :func:`confirm`."""
    option(parser, "--yes", "do not ask for confirmation; required without a terminal")


async def confirm(args: argparse.Namespace, what: str) -> None:
    """Ask for confirmation of an irreversible operation, unless ``--yes`` is given. Raises
    :class:`fencepost.OptionError` without a terminal, and :class:`Refusal` if the answer is not yes.
    """
    if args.yes:
        return
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise OptionError(f"{what} cannot be undone: give --yes to do it")
    sys.stderr.write(f"{what[0].upper()}{what[1:]} cannot be undone. Continue? (yes or no) ")
    sys.stderr.flush()
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)  # in a thread, so that it can be interrupted and the session stays alive
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refusal("nothing was done")


def say(args: argparse.Namespace, document: Mapping[str, Any], text: str) -> None:
    """Print a result: a line of JSON or, without the option ``--json``, text."""
    output.say(json.dumps(document) if args.json else text)


def password(args: argparse.Namespace) -> bytes:
    """The password from the option or from a file."""
    if args.password_file is None:
        if args.password:
            output.complain("everybody on this machine can see --password: use --password-file", None, False)
        return os.fsencode(args.password or "")
    if args.password is not None:
        raise OptionError("give --password or --password-file, not both")
    try:
        data = regular.at_most(args.password_file, _LONGEST_PASSWORD)
    except OSError as error:
        raise OptionError(f"--password-file {args.password_file}: {error.strerror}") from error
    return data.removesuffix(b"\n").removesuffix(b"\r")
