"""Runs the parts of a cluster: starts and stops them in order, and applies actions to single parts."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fencepost.errors import OptionError, SystemFailure
from fencepost.files.folders import make_folder, private
from fencepost.files.storage import reason
from fencepost.ledger.cluster import four_letter_words
from fencepost.ledger.cluster import plan as plans
from fencepost.ledger.cluster.identity import identity, is_alive, kill
from fencepost.ledger.cluster.part import Part, State
from fencepost.ledger.cluster.plan import LOCK, LOGS, METADATA, SETTINGS, Plan, label

PROGRAM = (sys.executable, "-m", "fencepost")

LOOK_EVERY = 1.0
"""Seconds between two checks of every part."""

LOOK_PATIENCE = 10.0
"""Seconds that a part has to answer on its port."""

STOP_PATIENCE = 60.0
"""Seconds that a part has to stop. Then it is killed, which loses nothing."""

LEFTOVER_TAKES = 0.01
"""Seconds between two checks whether a process of an earlier run has ended."""


class Directory:
    """The locked directory of a cluster: no other process can run a cluster in it. Raises OptionError if one does
    already.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path)
            self._lock = private(str(path / LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise SystemFailure(f"{path} cannot be used: {reason(error)}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            plan = plans.read(path)
            who = f" (process {plan.up.pid})" if plan is not None and plan.up is not None else ""
            raise OptionError(f"a cluster runs in {path} already{who}: fencepost cluster status {path}") from None

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_until_free(path: Path) -> None:
    """Wait until no process runs a cluster in a directory."""
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    finally:
        os.close(lock)


class Supervisor:
    """The parts of a cluster. ``changed`` is called with a part whenever its state changes. ``trace``: a folder for
    their traces. ``http_port``: where the metadata service serves health and metrics; the bookies have the next ports.
    """

    def __init__(
        self,
        directory: Directory,
        plan: Plan,
        changed: Callable[[Part], None],
        trace: Path | None = None,
        http_port: int | None = None,
    ) -> None:
        self.directory = directory.path
        self._trace = trace
        self._http_port = http_port
        self.plan = plan
        self._changed = changed
        self.parts = {
            name: Part(
                name, plan.port(name), self._command(name), self.directory / LOGS / f"{label(name)}.log", self._record
            )
            for name in plan.names()
        }
        self.over = asyncio.Event()
        """Set by a request to stop the cluster."""
        self._serves = False

    def _command(self, name: str) -> list[str]:
        kind = "bookie" if name.isdigit() else METADATA
        command = [*PROGRAM, kind, str(self.directory / label(name)), "--port", str(self.plan.port(name))]
        if name.isdigit():
            command += ["--metadata", self.plan.uri]
        elif self.plan.controller_ports:
            member = self.plan.members().index(name) + 1
            command += ["--id", str(member), "--controllers", self.plan.controllers]
        if self._http_port is not None:
            command += ["--http-port", str(self._http_port + self.plan.names().index(name))]
        if self._trace is not None:
            command += ["--trace", str(self._trace)]
        settings = self.directory / SETTINGS[kind]
        return [*command, "--settings", str(settings)] if settings.exists() else command

    @property
    def bookies(self) -> list[Part]:
        """All parts but the metadata service."""
        return [part for part in self.parts.values() if part.name.isdigit()]

    @property
    def members(self) -> list[Part]:
        """The members of the metadata service."""
        return [self.parts[name] for name in self.plan.members()]

    def _record(self, part: Part) -> None:
        if part.identity is None:
            self.plan.processes.pop(part.name, None)
        else:
            self.plan.processes[part.name] = part.identity
        if part.state in (State.STARTING, State.DOWN):
            plans.write(self.directory, self.plan)
        self._changed(part)

    async def start(self) -> None:
        """Start everything, and wait until all parts serve. Raises SystemFailure if one ends before it serves."""
        for process in self.plan.processes.values():
            kill(process)
            while is_alive(process):
                await asyncio.sleep(LEFTOVER_TAKES)
        self.plan.processes.clear()
        self.plan.up = identity(os.getpid())
        plans.write(self.directory, self.plan)
        for group in (self.members, self.bookies):
            for part in group:
                await part.start()
            await asyncio.gather(*(part.serving() for part in group))
        self._serves = True

    async def stop(self) -> None:
        """Stop everything cleanly: first the bookies, then the metadata service that they leave."""
        for group in (self.bookies, self.members):
            await asyncio.gather(*(part.stop(STOP_PATIENCE) for part in group))
        self.plan.up = None
        plans.write(self.directory, self.plan)

    def kill(self) -> None:
        """Kill everything."""
        for part in self.parts.values():
            part.kill()

    async def watch(self) -> None:
        """Check every part periodically, until cancelled."""
        while True:
            known = await self._registered()
            await asyncio.gather(*(part.look(LOOK_PATIENCE, _seen(part, known)) for part in self.parts.values()))
            await asyncio.sleep(LOOK_EVERY)

    async def _registered(self) -> dict[str, bool] | None:
        """The registered bookies, and whether each is read-only, by the first member that knows; None if none does."""
        for port in self.plan.metadata_ports:
            known = four_letter_words.registered(await four_letter_words.ask(port, "dump", LOOK_PATIENCE))
            if known is not None:
                return known
        return None

    def facts(self) -> dict[str, Any]:
        """The status of everything, for JSON."""
        state = "stopping" if self.over.is_set() else "up" if self._serves else "starting"
        return facts(self.directory, self.plan, [part.facts() for part in self.parts.values()], state)

    # -- requests
    # ---------------------------------------------------------------------------------------------------------

    async def do(self, action: str, names: list[str]) -> None:
        """Apply an action to parts, and wait until it is done. Raises OptionError if it is impossible, SystemFailure if
        it fails.
        """
        if self.over.is_set():
            raise OptionError(f"the cluster in {self.directory} stops")
        parts = [self._part(name) for name in dict.fromkeys(names)]
        for part in parts:
            self._check(action, part)

        async def act(part: Part) -> None:
            self._check(action, part)  # again: another request may have done the same before this task started
            await ACTIONS[action](part)

        await asyncio.gather(*map(act, parts))

    def _check(self, action: str, part: Part) -> None:
        """Raise OptionError if a part to start is not down, or a part for another action is down."""
        if part.is_down != (action == "start"):
            instead = f"fencepost cluster {'start' if part.is_down else 'status'} {self.directory}"
            raise OptionError(f"{part.title} is {part.state}: {instead}{f' {part.name}' if part.is_down else ''}")

    def _part(self, name: str) -> Part:
        if name not in self.parts:
            members = " or ".join(self.plan.members())
            raise OptionError(
                f"there is no {name} in {self.directory}: give a number from 1 to {len(self.bookies)}, or {members}"
            )
        return self.parts[name]


def _seen(part: Part, known: dict[str, bool] | None) -> State:
    """The state of a part that answers, given the registered bookies. None: they are unknown."""
    if not part.name.isdigit() or known is None:
        return State.SERVES
    return {None: State.UNREGISTERED, False: State.SERVES, True: State.READ_ONLY}[known.get(part.address)]


def facts(directory: Path, plan: Plan, parts: list[dict[str, Any]], state: str) -> dict[str, Any]:
    """The status of a cluster, for JSON."""
    return {"directory": str(directory), "state": state, "metadata": plan.uri, "parts": parts}


def at_rest(directory: Path, plan: Plan) -> dict[str, Any]:
    """The status of a cluster that is not running, for JSON."""
    parts = [
        Part(name, plan.port(name), (), directory / LOGS / f"{label(name)}.log", lambda part: None).facts()
        for name in plan.names()
    ]
    return facts(directory, plan, parts, "down")


async def _kill(part: Part) -> None:
    part.kill()
    await part.ended()


async def _start(part: Part) -> None:
    await part.start()
    await part.serving()


ACTIONS: dict[str, Callable[[Part], Awaitable[None]]] = {
    "kill": _kill,
    "stop": lambda part: part.stop(STOP_PATIENCE),
    "start": _start,
    "pause": Part.pause,
    "resume": Part.resume,
}
"""The actions on a part."""
