"""One campaign: members are hurt as a schedule says while clients work, everything is healed, and what clients did and
saw is judged.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.quorum.clients import FOLDERS, SHARED, Client, Record, clock, zk
from bench.quorum.harm import (
    ALL,
    ANY,
    CUT,
    DEAF,
    FREEZE,
    ISOLATE,
    KILL,
    LEADER,
    MUTE,
    SLOW,
    STOP,
    VOTERS,
    WIPE,
    Harm,
    Schedule,
)
from bench.quorum.judge import judge
from bench.quorum.network import Network, Pair
from bench.quorum.planted import program
from bench.quorum.processes import Processes
from fencepost.quorum.driver.node import DISTRUSTED

SAID_EVERY = 10.0
"""Seconds between two lines that say how it goes."""

PATIENCE = 120.0
"""Seconds that all has to be well again, once nobody is hurt any more."""

SETTINGS = "tickTime = 1000\nminSessionTimeout = 1000\nmaxSessionTimeout = 60000\nsnapCount = 1500\n"


@dataclass(frozen=True)
class Options:
    """What a campaign is like."""

    path: Path
    seed: int
    seconds: float = 60.0
    members: int = 3
    clients: int = 4
    timeout: int = 6_000
    """Of sessions, in milliseconds."""
    rest: float = 0.01
    """Mean seconds that a client rests between two turns."""
    kinds: tuple[str, ...] = ()
    """Of harm; all, if none are given."""
    fault: str = "none"


@dataclass
class Outcome:
    """What became of it."""

    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    harms: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    """Seconds from a kill of the leader until a change was acknowledged."""
    longest_pause: float = 0.0
    """The longest time without an acknowledged change."""


class Campaign:
    """One campaign. ``say`` is called with a line every few seconds."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.options = options
        self.outcome = Outcome()
        self._say = say
        settings = options.path / "settings.toml"
        settings.write_text(SETTINGS)
        self.network = Network()
        self.members = Processes(
            options.path,
            options.members,
            ["--settings", str(settings), "--verbose"],
            self.network,
            program(options.fault),
        )
        self.clients: list[Client] = []
        self._hurt: dict[int, str] = {}
        """Who is hurt at the moment, and how."""
        self._heals: list[tuple[float, int, Callable[[], None]]] = []
        self._kills: list[float] = []
        self._changing: threading.Thread | None = None
        self._log = open(options.path / "harm.log", "w")  # closed in run
        self._began = clock()

    def run(self) -> Outcome:
        """Do all of it."""
        try:
            self.members.start()
            self._prepare()
            self._began = clock()
            self._harm()
            self._heal_all()
            self._end_clients()
            self.outcome.seconds = clock() - self._began
            self._judge()
        finally:
            self._log.close()
            for client in self.clients:
                client.ended.set()
            self.members.close()
            self.network.close()
        return self.outcome

    def _prepare(self) -> None:
        options, ports = self.options, list(self.members.ports.values())
        session = _connected(ports[0])
        for path in (*FOLDERS, *SHARED):
            session.call([zk.CREATE, [path, b"", zk.OPEN, 0]])
        session.call([zk.CLOSE, []])
        session.drop()
        self.clients = [
            Client(number, ports, options.seed, options.timeout, options.rest, options.clients)
            for number in range(options.clients)
        ]
        for client in self.clients:
            client.start()

    # -- harm ---------------------------------------------------------------------------------------------------------

    def _harm(self) -> None:
        schedule, end = Schedule(self.options.seed, self.options.kinds), self._began + self.options.seconds
        said_at, nth = self._began, 0
        harm = schedule.next()
        due = clock() + harm.after
        while (now := clock()) < end and not self._is_lost():
            if now - said_at >= SAID_EVERY:
                said_at = now
                self._say(self._progress())
            while self._heals and self._heals[0][0] <= now:
                heapq.heappop(self._heals)[2]()
            if now >= due:
                heal = self._hurt_by(harm)
                if heal is not None:
                    nth += 1
                    heapq.heappush(self._heals, (clock() + harm.lasts, nth, heal))
                harm = schedule.next()
                due = clock() + harm.after
            time.sleep(0.02)

    def _is_lost(self) -> bool:
        """Whether it makes no sense to go on."""
        return self._have_died() or all(not client.is_alive() for client in self.clients)

    def _have_died(self) -> bool:
        """Whether members ended that nobody hurt."""
        died = [member for member in self.members.died() if member not in self._hurt]
        for member in died:
            last = (self.options.path / f"{member}.log").read_text(errors="replace").strip().splitlines()[-1:]
            self.outcome.wrong.append(
                f"member {member} ended by itself with {self.members.running[member].returncode}: {''.join(last)}"
            )
        return bool(died)

    def _progress(self) -> str:
        changes = sum(client.record.counts.get("changes acknowledged", 0) for client in self.clients)
        return (
            f"{clock() - self._began:6.0f} s  {sum(self.outcome.harms.values()):4} harms  {changes:7,} changes"
            " acknowledged"
        )

    def _write_down(self, how: str, whom: str, lasts: float = 0.0) -> None:
        self.outcome.harms[how] += 1
        self._log.write(f"{clock() - self._began:8.3f}  {how}: {whom}{f', for {lasts:.2f} s' if lasts else ''}\n")
        self._log.flush()

    def _hurt_by(self, harm: Harm) -> Callable[[], None] | None:
        """Hurt somebody; what heals that. None if nobody can be hurt so now."""
        members = self.members
        if harm.how == ALL:
            return self._kill_all(harm)
        whole = [member for member in members.running if member not in self._hurt]
        if not whole or (not harm.together and 2 * (len(self._hurt) + 1) >= max(3, len(members.running))):
            return None
        if harm.how in (WIPE, VOTERS):
            if self._changing is None or not self._changing.is_alive():
                self._change_voters(harm, whole[int(harm.dice * len(whole))])
            return None
        leader = members.who_leads()
        member = whole[int(harm.dice * len(whole))]
        if harm.whom == LEADER and leader in whole:
            member = leader
        name = f"member {member}{', the leader' if member == leader else ''}"
        others = [other for other in members.endpoints if other != member]
        self._hurt[member] = harm.how
        if harm.how in (KILL, STOP):
            if member == leader:
                self._kills.append(clock())
            members.kill(member, signal.SIGKILL if harm.how == KILL else signal.SIGTERM)
            self._write_down(f"{harm.how} of {LEADER if member == leader else ANY}", name, harm.lasts)
            return lambda: self._again(member)
        self._write_down(f"{harm.how}: {LEADER if member == leader else ANY}", name, harm.lasts)
        if harm.how == FREEZE:
            members.freeze(member)
            return lambda: self._well(member, lambda: members.thaw(member))
        if harm.how == SLOW:
            members.slow_file(member).write_text(str(int(20 + 400 * harm.dice)))
            return lambda: self._well(member, lambda: members.slow_file(member).unlink(missing_ok=True))
        pairs: set[Pair] = set()
        if harm.how in (ISOLATE, DEAF):
            pairs |= {(other, member) for other in others}
        if harm.how in (ISOLATE, MUTE):
            pairs |= {(member, other) for other in others}
        if harm.how == CUT:
            other = others[int(harm.lasts * 1_000) % len(others)]
            pairs |= {(member, other), (other, member)}
        self.network.cut(pairs)
        return lambda: self._well(member, lambda: self.network.heal(pairs, harm.breaks))

    def _well(self, member: int, heal: Callable[[], None]) -> None:
        heal()
        self._hurt.pop(member, None)

    def _again(self, member: int) -> None:
        """One that was killed comes again; it need not serve at once."""
        self.members.launch(member)
        self._hurt.pop(member, None)

    def _kill_all(self, harm: Harm) -> Callable[[], None] | None:
        if self._hurt or (self._changing is not None and self._changing.is_alive()):
            return None
        killed = list(self.members.running)
        for member in killed:
            self._hurt[member] = ALL
            self.members.kill(member)
        self._write_down(ALL, f"members {', '.join(map(str, killed))}", harm.lasts)

        def again() -> None:
            for member in killed:
                self._again(member)

        return again

    def _change_voters(self, harm: Harm, member: int) -> None:
        """One loses its disk, or another member takes its place, while the campaign goes on."""
        self._hurt[member] = harm.how
        members = self.members
        members.kill(member)
        if harm.how == WIPE:
            members.wipe(member)
            new = member
        else:
            new = members.add()
            for client in self.clients:
                client.session.ports = list(members.ports.values())
        self._write_down(harm.how, f"member {member}" + ("" if new == member else f" leaves, member {new} comes"))

        def changed() -> None:
            members.launch(new)
            self._ask("remove", str(member))
            self._ask("add", members.endpoints[new])
            if new != member:
                members.endpoints.pop(member)
                members.ports.pop(member)
            self._hurt.pop(member, None)
            self._log.write(f"{clock() - self._began:8.3f}  member {new} is a voter\n")

        self._changing = threading.Thread(target=changed, daemon=True)
        self._changing.start()

    def _ask(self, *words: str) -> None:
        """Have the voters changed, however often that takes. An answer may be lost: then it is refused as done."""
        end = clock() + 300
        while True:
            try:
                self.members.ask(*words, timeout=20)
                return
            except RuntimeError as error:
                if "is no voter" in str(error) or "a replica of this host is a voter" in str(error):
                    return
                if clock() > end:
                    self.outcome.wrong.append(f"the voters could not be changed in 300 s: {' '.join(words)}: {error}")
                    return

    # -- the end ------------------------------------------------------------------------------------------------------

    def _heal_all(self) -> None:
        while self._heals:
            heapq.heappop(self._heals)[2]()
        self.network.heal()
        if self._changing is not None:
            self._changing.join(330)

    def _end_clients(self) -> None:
        for client in self.clients:
            client.ended.set()
        end = clock() + PATIENCE
        for client in self.clients:
            while client.is_alive() and clock() < end and not self.members.died():
                client.join(0.2)
            if client.is_alive() and not self.members.died():
                self.outcome.wrong.append(f"client {client.number} has no answer {PATIENCE:.0f} s after all is well")

    def _distrusted(self, member: int) -> list[str]:
        """What a member has logged of messages that no sound member sends."""
        log = (self.options.path / f"{member}.log").read_text(errors="replace")
        return [line for line in log.splitlines() if DISTRUSTED in line]

    def _judge(self) -> None:
        outcome = self.outcome
        records = [client.record for client in self.clients]
        if not outcome.wrong:
            self._have_died()
        states: dict[int, Any] = {}
        end = clock() + PATIENCE
        for member, port in self.members.ports.items():
            while member not in states and member not in self.members.died() and clock() < end:
                with contextlib.suppress(zk.Closed, OSError):
                    states[member] = state(port)
                time.sleep(0.05)
        if len(states) < len(self.members.ports):
            outcome.wrong.append(
                f"members {sorted(set(self.members.ports) - set(states))} do not serve when all is well"
            )
        if any(each != next(iter(states.values())) for each in states.values()):
            outcome.wrong.append("members have different states")
        outcome.wrong += [
            f"member {member}: {line}" for member in self.members.ports for line in self._distrusted(member)
        ]
        if states:
            outcome.wrong += judge(records, next(iter(states.values()))["names"])
        for record in records:
            outcome.counts.update(record.counts)
        (self.options.path / "wrong.json").write_text(json.dumps(outcome.wrong, indent=1))
        at = sorted(each for record in records for each in record.acknowledged)
        outcome.longest_pause = max((later - earlier for earlier, later in itertools.pairwise(at)), default=0.0)
        outcome.waits = waits(self._kills, at)


def waits(kills: list[float], acknowledged: list[float]) -> list[float]:
    """Seconds from each kill until a change was acknowledged; what came within 0.05 s was decided by the leader that
    was killed.
    """
    found = []
    for at in kills:
        after = next((each for each in acknowledged if each > at + 0.05), None)
        if after is not None:
            found.append(after - at)
    return found


def state(port: int) -> dict[str, Any]:
    """All that a member has: names in folders, and znodes with their versions, after a sync."""
    client = zk.Client(port, 30)
    client.connect(10_000)
    try:
        client.call([zk.SYNC, ["/"]])
        names = {
            folder: client.call([zk.GET_CHILDREN, [folder, False]])[4] for folder in FOLDERS if folder != "/ephemerals"
        }
        values = [
            client.call([zk.GET_DATA, [path, False]])[3:] for path in (*SHARED, "/lines", "/order", "/own", "/passing")
        ]
        return {"names": names, "values": values}
    finally:
        with contextlib.suppress(zk.Closed, OSError):
            client.call([zk.CLOSE, []])
        client.drop()


def median(values: list[float]) -> float:
    """The one in the middle; 0 of none."""
    return statistics.median(values) if values else 0.0


__all__ = ("Campaign", "Options", "Outcome", "Record")


def _connected(port: int) -> zk.Client:
    """A session with a member, which closes connections while the quorum has no leader."""
    end = clock() + 60
    while True:
        session = zk.Client(port)
        try:
            session.connect(10_000)
            return session
        except zk.Closed:
            session.drop()
            if clock() > end:
                raise
            time.sleep(0.1)
