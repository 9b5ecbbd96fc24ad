"""``fencepost cluster up``: runs a cluster in this process or in a background process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost import traces
from fencepost.cli.cluster import views
from fencepost.errors import FencepostError, OptionError, SystemFailure
from fencepost.files.folders import make_folder, private
from fencepost.ledger.cluster import control
from fencepost.ledger.cluster.part import Part, last_words
from fencepost.ledger.cluster.plan import LOGS, Plan
from fencepost.ledger.cluster.supervisor import PROGRAM, Directory, Supervisor

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

DRAWN_EVERY = 0.5
"""Seconds between two redraws of the table."""

ENDS_WITHIN = 10.0
"""Seconds to wait for the end of a cluster that did not answer because it was stopping."""

ASKED_EVERY = 0.1
"""Seconds between two checks whether a cluster in the background serves."""

LOG = "cluster.log"


def run(
    directory: Directory, plan: Plan, view: views.View, trace: Path | None = None, http_port: int | None = None
) -> None:
    """Start a cluster, and run it until it is stopped. ``trace``: a folder for traces of all parts. ``http_port``: the
    first port of health and metrics.

    Raises SystemFailure if it cannot be started.
    """
    asyncio.run(_run(directory, plan, view, trace, http_port))
    if trace is not None:
        with contextlib.suppress(FencepostError):  # spools of killed parts can be read unpacked
            traces.pack(trace)


async def _run(directory: Directory, plan: Plan, view: views.View, trace: Path | None, http_port: int | None) -> None:
    def changed(part: Part) -> None:
        _show(view.changed, part.facts(), supervisor.facts())

    supervisor = Supervisor(directory, plan, changed, trace, http_port)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _end, supervisor, view)
    drawing = asyncio.create_task(_draw(supervisor, view))
    over = asyncio.create_task(supervisor.over.wait())
    async with control.listening(supervisor):
        running = asyncio.create_task(_serve(supervisor, view))
        try:
            await asyncio.wait({over, running}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
        finally:
            for task in (running, over):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, SystemFailure, OSError):
                await running
            supervisor.over.set()
            await supervisor.stop()
            drawing.cancel()
            _show(view.close)


async def _serve(supervisor: Supervisor, view: views.View) -> None:
    await supervisor.start()
    _show(
        view.announced,
        f"\n{views.introduction(supervisor.facts())}\nCtrl-C stops the cluster. Its data stays for the next start.\n",
        supervisor.facts(),
    )
    await supervisor.watch()


async def _draw(supervisor: Supervisor, view: views.View) -> None:
    while True:
        _show(view.drawn, supervisor.facts())
        await asyncio.sleep(DRAWN_EVERY)


def _end(supervisor: Supervisor, view: views.View) -> None:
    """Handle Ctrl-C or another stop signal: the first stops every part, the second kills them."""
    if supervisor.over.is_set():
        supervisor.kill()
        return
    supervisor.over.set()
    words = "stopping the bookies, then the metadata service (Ctrl-C again kills them)"
    _show(view.announced, words, supervisor.facts())


def _show(how: Callable[..., None], *what: Any) -> None:
    """Call a view. A closed terminal must not keep a cluster from stopping properly."""
    with contextlib.suppress(OSError, SystemFailure):
        how(*what)


def detach(directory: Path, words: list[str]) -> dict[str, Any]:
    """Run ``fencepost cluster up`` with these arguments in a background process, and wait until it serves. Returns its
    status.

    Raises OptionError or SystemFailure with its last log lines if it ends before.
    """
    log = directory / LOGS / LOG
    make_folder(log.parent)
    with open(log, "wb", opener=private) as file:
        process = subprocess.Popen(
            [*PROGRAM, "cluster", "up", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while True:
        try:
            facts = control.ask(directory, control.STATUS)
            if facts["state"] == "up":
                return facts
        except OptionError:  # not listening yet
            pass
        except SystemFailure as failure:
            try:
                process.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                raise failure from None
        if process.poll() is not None:
            raise (OptionError if process.returncode == OptionError.exit_code else SystemFailure)(last_words(log))
        time.sleep(ASKED_EVERY)
