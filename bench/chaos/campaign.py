"""Runs a cluster and its clients, hurts them as a schedule says, heals everything, and asks the judge."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.chaos.facts import Tail
from bench.chaos.harm import KILL, PAUSE, STOP, WIPE, Harm, Schedule
from bench.chaos.judge import Judge, is_usable
from fencepost.ledger.cluster import bound, control

HEALS = {KILL: "start", STOP: "start", PAUSE: "resume", WIPE: "start"}

PATIENCE = 120.0
"""Seconds that everything has to be well again, once nobody hurts it any more."""

AGAIN = 0.1
"""Seconds until another harm is drawn, where one was not possible."""

TOLD_EVERY = 10.0
"""Seconds between two lines that say how it goes."""

LEAVE = 60.0
"""Seconds that clients have to end when they are asked to."""


@dataclass(frozen=True)
class Options:
    """The options of a campaign. It ends after ``seconds``, ``harms`` harms and ``entries`` acknowledged entries,
    whichever comes last.
    """

    directory: Path
    seed: int
    seconds: float = 600.0
    harms: int = 0
    entries: int = 0
    bookies: int = 4
    members: int = 1
    """Of the metadata service."""
    tolerated: int = 1
    rate: int = 500
    clients: tuple[tuple[str, int], ...] = (("writer", 2), ("reader", 1), ("tailer", 1), ("recoverer", 1))
    wipes: float = 0.0
    """The share of bookies that are killed whose directory of entries is gone then."""
    settings: tuple[str, ...] = ()
    """Of the bookies, as lines of their file."""
    ports: tuple[str, ...] = ()
    trace: Path | None = None
    """A folder for the traces of all processes, if they are to write any."""


@dataclass
class Outcome:
    """What became of a campaign."""

    judge: Judge
    harms: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    longest_pause: float = 0.0
    """The longest time in which no client was acknowledged anything, in seconds."""
    faults: list[str] = field(default_factory=list)


class Process:
    """A client: a process that is started again after it was killed."""

    def __init__(self, name: str, options: Options, uri: str, facts: Path) -> None:
        self.name = name
        self.role = name.rpartition("-")[0]
        self._options = options
        self._uri = uri
        self._facts = facts
        self._times = 0
        self._expected = {-signal.SIGKILL}
        """How it may end."""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, each time with a seed of its own."""
        self._times += 1
        seed = hash((self._options.seed, sum(self.name.encode()), self._times)) & 0xFFFFFFFF
        command = [sys.executable, "-m", "bench.chaos.client", self.role, "--name", self.name, "--metadata", self._uri]
        command += ["--facts", str(self._facts), "--seed", str(seed), "--rate", str(self._options.rate)]
        command += ["--trace", str(self._options.trace)] if self._options.trace else []
        with open(self._facts.parent / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-IS", bound.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def hurt(self, how: str) -> None:
        """Kill or pause it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP if how == PAUSE else signal.SIGKILL)
        if how != PAUSE:
            self.process.wait()

    def heal(self, how: str) -> None:
        """Make good what was done."""
        assert self.process is not None
        if how == PAUSE:
            self.process.send_signal(signal.SIGCONT)
        else:
            self.start()

    def death(self) -> str:
        """Why it ended, if nobody killed it."""
        if self.process is None or self.process.poll() is None or self.process.returncode in self._expected:
            return ""
        last = (self._facts.parent / f"{self.name}.log").read_text(errors="replace").strip().splitlines()
        return f"{self.name} ended by itself with {self.process.returncode}: {last[-1] if last else 'it said nothing'}"

    async def leave(self) -> str:
        """Ask it to end; what is wrong if it does not."""
        assert self.process is not None
        self._expected = {0, -signal.SIGTERM}  # it may not even have begun
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, LEAVE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not end within {LEAVE:.0f} s of being asked to"
        return self.death()


class Campaign:
    """One campaign. ``told`` is called every few seconds with what is known."""

    def __init__(self, options: Options, told: Callable[[str], None]) -> None:
        self.options = options
        self.outcome = Outcome(Judge())
        self._told = told
        self._hurt: set[str] = set()
        self._healing: set[asyncio.Task[None]] = set()
        self._clients: dict[str, Process] = {}
        self._facts = options.directory / "facts"
        self._store = options.directory / "store"
        self._tail = Tail(self._facts)
        self._began = self._told_at = time.monotonic()

    async def run(self) -> Outcome:
        """All of it."""
        options, outcome = self.options, self.outcome
        self._facts.mkdir(parents=True)
        self._store.mkdir()
        (self._store / "bookie.toml").write_text("".join(f"{line}\n" for line in options.settings))
        traced = ["--trace", str(options.trace)] if options.trace else []
        with open(options.directory / "up.log", "ab") as log:
            up = subprocess.Popen(
                [
                    *_FENCEPOST,
                    "cluster",
                    "up",
                    str(self._store),
                    "--bookies",
                    str(options.bookies),
                    "--members",
                    str(options.members),
                    *options.ports,
                    *traced,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            uri = await self._serving(up)
            for role, number in options.clients:
                for n in range(1, number + 1):
                    self._clients[f"{role}-{n}"] = Process(f"{role}-{n}", options, uri, self._facts)
            for client in self._clients.values():
                client.start()
            self._began = time.monotonic()
            watching = asyncio.create_task(self._watch())
            await self._harm()
            await self._heal(uri)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self.outcome.judge.hear(self._tail.new())
            outcome.seconds = time.monotonic() - self._began
            self._told("everything is healed; every ledger is recovered and read by two clients")
            await outcome.judge.judge(uri, self._judged, self.options.trace)
            outcome.faults += outcome.judge.faults
        finally:
            for client in self._clients.values():
                if client.process is not None and client.process.poll() is None:
                    client.process.kill()
                    client.process.wait()
            up.terminate()
            if up.wait() != 0:
                outcome.faults.append(f"fencepost cluster up ended with {up.returncode}")
        lines = (options.directory / "up.log").read_text().splitlines()
        outcome.faults += [line for line in lines if "did not end" in line or "exit code" in line]
        return outcome

    async def _serving(self, up: subprocess.Popen[bytes]) -> str:
        while up.poll() is None:
            with contextlib.suppress(Exception):
                status = await asyncio.to_thread(control.ask, self._store, control.STATUS)
                if status["state"] == "up":
                    return str(status["metadata"])
            await asyncio.sleep(0.1)
        raise SystemExit(f"the cluster did not start:\n{(self.options.directory / 'up.log').read_text()}")

    # -- harm ---------------------------------------------------------------------------------------------------------

    async def _harm(self) -> None:
        options = self.options
        parts = [part["name"] for part in (await asyncio.to_thread(control.ask, self._store, control.STATUS))["parts"]]
        bookies, members = [name for name in parts if name.isdigit()], [name for name in parts if not name.isdigit()]
        clients = list(self._clients)
        schedule = Schedule(options.seed, bookies, clients, options.tolerated, options.wipes, members)
        while not self._is_enough():
            harm = schedule.next(self._hurt)
            if harm is None:
                await asyncio.sleep(AGAIN)
                continue
            await asyncio.sleep(harm.after)
            self._hurt.add(harm.whom)
            task = asyncio.create_task(self._hurt_and_heal(harm))
            self._healing.add(task)
            task.add_done_callback(self._healing.discard)

    def _is_enough(self) -> bool:
        options, outcome = self.options, self.outcome
        return (
            time.monotonic() - self._began >= options.seconds
            and sum(outcome.harms.values()) >= options.harms
            and outcome.judge.counts["entries acknowledged"] >= options.entries
        )

    def _log(self, text: str) -> None:
        """Write down what is done, beside what the parts write down."""
        with open(self.options.directory / "harms.log", "a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {time.monotonic() - self._began:6.1f}  {text}\n")

    async def _hurt_and_heal(self, harm: Harm) -> None:
        is_bookie = harm.whom.isdigit()
        kind = "bookie" if is_bookie else harm.whom.partition("-")[0]
        self.outcome.harms[f"{harm.how} {kind}"] += 1
        client = self._clients.get(harm.whom)
        self._log(f"{harm.how} {harm.whom} for {harm.lasts:.1f} s")
        try:
            if client is not None:
                client.hurt(harm.how)
                await asyncio.sleep(harm.lasts)
                client.heal(harm.how)
            else:
                await self._ask(KILL if harm.how == WIPE else harm.how, harm.whom)
                if harm.how == WIPE:
                    await asyncio.to_thread(shutil.rmtree, self._entries_of(harm.whom))
                await asyncio.sleep(harm.lasts)
                await self._ask(HEALS[harm.how], harm.whom)
                while is_bookie and (self._entries_of(harm.whom) / "current" / "REPAIR").exists():
                    await asyncio.sleep(AGAIN)  # until it has repaired itself, it counts as hurt
        except Exception as error:
            self.outcome.faults.append(f"{harm.how} {harm.whom}: {error}")
        self._log(f"{harm.whom} is healed")
        self._hurt.discard(harm.whom)

    def _entries_of(self, bookie: str) -> Path:
        return self._store / f"bookie-{bookie}" / "ledgers"

    async def _ask(self, action: str, name: str) -> dict[str, Any]:
        return await asyncio.to_thread(control.ask, self._store, action, [name])

    async def _heal(self, uri: str) -> None:
        """Wait until every harm is healed, check that the cluster recovers without help, and let the clients leave."""
        outcome = self.outcome
        if self._healing:
            _, unhealed = await asyncio.wait(self._healing, timeout=PATIENCE)
            if unhealed:
                outcome.faults.append(f"{', '.join(sorted(self._hurt))} did not serve again within {PATIENCE:.0f} s")
        if why := await is_usable(uri, PATIENCE, self.options.trace):
            outcome.faults.append(why)
        for part in (await asyncio.to_thread(control.ask, self._store, control.STATUS))["parts"]:
            if part["state"] != "serves":
                outcome.faults.append(f"{part['name']} is {part['state']} in the end: {part['reason']}")
        outcome.faults += [
            why for why in await asyncio.gather(*(client.leave() for client in self._clients.values())) if why
        ]

    # -- what is seen -------------------------------------------------------------------------------------------------

    def _judged(self, ledgers: int, entries: int) -> None:
        """Tell every few seconds how far the judge is."""
        now = time.monotonic()
        if now - self._told_at >= TOLD_EVERY:
            self._told_at = now
            self._told(f"{ledgers:,} of {len(self.outcome.judge.ledgers):,} ledgers, {entries:,} entries")

    async def _watch(self) -> None:
        """Hear the clients, see deaths that nobody wanted, and tell how it goes."""
        judge, before, since = self.outcome.judge, 0, time.monotonic()
        dead: set[str] = set()
        while True:
            await asyncio.sleep(0.25)
            judge.hear(self._tail.new())
            now, acknowledged = time.monotonic(), judge.counts["entries acknowledged"]
            if acknowledged != before or not before:
                before, since = acknowledged, now
            self.outcome.longest_pause = max(self.outcome.longest_pause, now - since)
            for client in self._clients.values():
                if client.name not in dead and client.name not in self._hurt and (why := client.death()):
                    dead.add(client.name)
                    self.outcome.faults.append(why)
            if now - self._told_at >= TOLD_EVERY:
                self._told_at = now
                hurt = f"   hurt now: {', '.join(sorted(self._hurt))}" if self._hurt else ""
                self._told(
                    f"{now - self._began:5.0f} s   {acknowledged:,} entries acknowledged in {len(judge.ledgers):,}"
                    f" ledgers, {judge.counts['entries read']:,} read   {sum(self.outcome.harms.values())} harms{hurt}"
                )


_FENCEPOST = (sys.executable, "-m", "fencepost")
