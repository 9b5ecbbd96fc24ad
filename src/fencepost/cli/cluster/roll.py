"""``fencepost cluster roll``: restarts the bookies of a running cluster one at a time, each once it may stop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fencepost.errors import OptionError, SystemFailure
from fencepost.files.folders import private
from fencepost.files.storage import reason
from fencepost.ledger.client_configuration import ClientConfiguration
from fencepost.ledger.cluster import control
from fencepost.ledger.cluster.part import State
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.stopping import stop_of

FILE = "roll.json"
"""The names of the bookies that are still to be restarted, in the directory of a cluster; locked by the one who does.
"""

ASKED_EVERY = 0.5
"""Seconds between two questions whether a bookie may stop."""


def run(directory: Path, patience: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Restart every bookie, those that are down first, or those that an earlier run has left. Returns the status.

    ``patience``: how long to wait until a bookie may stop, in seconds. ``tell`` gets a line about each step. Raises
    OptionError if no cluster runs in the directory or somebody else rolls it, and SystemFailure if a bookie may not
    stop in time or does not start again. The next run continues with that bookie.
    """
    facts = control.ask(directory, control.STATUS)
    states = {part["name"]: part["state"] for part in facts["parts"] if part["name"].isdigit()}
    addresses = {part["name"]: part["address"] for part in facts["parts"]}
    with _locked(directory) as file:
        left = [name for name in _read(file) if name in states]
        if left:
            tell(f"continues an earlier roll: {len(left)} of {len(states)} bookies are left")
        left = sorted(left or states, key=lambda name: states[name] != State.DOWN)
        while left:
            _write(file, left)
            name = left[0]
            if states[name] != State.DOWN:
                asyncio.run(_until_safe(facts["metadata"], addresses[name], directory, patience, tell))
                tell(f"bookie {name}  {addresses[name]}  stops")
                control.ask(directory, "stop", [name])
            facts = control.ask(directory, "start", [name])
            left = left[1:]
            tell(f"bookie {name}  {addresses[name]}  serves again, {len(states) - len(left)} of {len(states)}")
        _write(file, left)
    return facts


async def _until_safe(uri: str, bookie: str, directory: Path, patience: float, tell: Callable[[str], None]) -> None:
    """Wait until a bookie is registered and may stop. Raises SystemFailure if that takes too long."""
    loop = asyncio.get_running_loop()
    end, told = loop.time() + patience, ""
    async with await MetadataClient.connect(uri) as client:
        await client.instance_id()
        while True:
            found = await stop_of(client, bookie, ClientConfiguration.of_environment().placement())
            if found is not None and found.is_registered and found.is_safe:
                return
            if found is None or not found.is_registered:
                why = f"bookie {bookie} is not registered"
            else:
                why = f"{found.text()} ({found.at_risk[0].text()})"
            if loop.time() >= end:
                raise SystemFailure(
                    f"after {patience:g} s, {why}: no more bookies are restarted; fencepost cluster roll {directory}"
                    " continues"
                )
            if why != told:
                tell(f"waits: {why}")
                told = why
            await asyncio.sleep(min(ASKED_EVERY, max(0.0, end - loop.time())))


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[int]:
    try:
        file = private(str(directory / FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise SystemFailure(f"{directory / FILE} cannot be used: {reason(error)}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
    except BlockingIOError:
        raise OptionError(f"another process rolls the cluster in {directory}: wait for its end") from None
    finally:
        os.close(file)


def _read(file: int) -> list[str]:
    """The names in the file; none if it is new, or was not written as a whole."""
    try:
        names = json.loads(os.pread(file, 1 << 16, 0))
    except ValueError:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _write(file: int, names: list[str]) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(names).encode(), 0)
