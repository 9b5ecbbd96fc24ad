"""Unmodified BookKeeper on our quorum: Java bookies, auto-recovery, a Java client that writes and one that reads, and
BookKeeper's shell, while members are killed, cut off, wiped and replaced.

At the end every acknowledged entry is read by the Java client and by ours. Meanwhile somebody looks at the bookies'
registrations: as long as a bookie runs, its ephemeral has to be there, and the same one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.quorum.campaign import state, waits
from bench.quorum.clients import Client as Prober
from bench.quorum.clients import Record, Session, clock, zk
from bench.quorum.judge import judge
from bench.quorum.network import Network
from bench.quorum.processes import Processes
from interop import jars
from interop.clients import Client, ClientProcess, Ledger, Refused
from interop.clusters import FENCEPOST, JAVA, Bookie, java_uri
from interop.processes import Server, free_port

HEAP = 160
"""MiB of each Java virtual machine."""

BOOKIES = 4
PROBERS = 3
"""Clients of ZooKeeper's protocol that work besides: what they see is judged as in a campaign."""
GROUP = 10
"""Entries that are appended at once."""
SIZE = 500
LEDGER_LASTS = 5.0
"""Seconds until a ledger is closed, and another one begins."""
CALM = 4.0
"""Mean seconds between two harms."""
ZK_TIMEOUT = 6_000

SHELL = (("listbookies", "-rw"), ("listledgers",), ("lostbookierecoverydelay", "-get"), ("whoisauditor",))


@dataclass
class Written:
    """A ledger: how many of its entries were acknowledged, and whether it was closed by its writer."""

    ledger: int
    entries: int = 0
    closed: bool = False


@dataclass
class Outcome:
    """What became of it."""

    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    harms: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """Of BookKeeper's client, which tried again."""
    waits: list[float] = field(default_factory=list)
    longest_create: float = 0.0
    """Seconds that the Java client has waited for a new ledger, at the most, however often it tried."""


def payload(ledger: int, entry: int) -> bytes:
    """The data of an entry."""
    return b"%d %d " % (ledger, entry) + b"x" * SIZE


class Bookkeeper:
    """One run. ``say`` is called with a line every few seconds."""

    def __init__(
        self, path: Path, seed: int, seconds: float, say: Callable[[str], None], kills_bookies: bool = True
    ) -> None:
        self.path = path
        self.seconds = seconds
        self.say = say
        self.random = Random(f"{seed} bookkeeper")
        self.kills_bookies = kills_bookies
        self.outcome = Outcome()
        self.network = Network()
        settings = path / "settings.toml"
        settings.write_text("tickTime = 500\nsnapCount = 2000\n")
        self.members = Processes(path, 3, ["--settings", str(settings), "--verbose"], self.network)
        self.bookies: list[Bookie] = []
        self.written: list[Written] = []
        # Several, because a prober on a frozen member waits for its timeout before it changes members.
        self.probers = [
            Prober(number, list(self.members.ports.values()), seed, ZK_TIMEOUT, 0.06, PROBERS)
            for number in range(PROBERS)
        ]
        self._recovery: Server | None = None
        self._processes: dict[str, ClientProcess] = {}
        self._ended = threading.Event()
        self._kills: list[float] = []
        self._spared: dict[str, float] = {}
        """Bookies that were killed, and when they were back."""
        self._log = open(path / "harm.log", "w")  # closed in run
        self._began = clock()

    @property
    def uri(self) -> str:
        """Where the metadata are."""
        return f"zk://{self.members.addresses}/ledgers"

    def run(self) -> Outcome:
        """Do all of it."""
        jars.fetch()
        with contextlib.ExitStack() as ends:
            for end in (self._log.close, self.network.close, self.members.close, self._end_java):
                ends.callback(end)
            self.members.start()
            self._start_java()
            self._began = clock()
            threads = [
                threading.Thread(target=self._guarded, args=(work,), daemon=True)
                for work in (self._write, self._read, self._look, self._shell)
            ]
            for thread in threads:
                thread.start()
            for prober in self.probers:
                prober.start()
            try:
                self._harm()
            finally:
                self._ended.set()
                for prober in self.probers:
                    prober.ended.set()
                self.network.heal()
            for each in (*threads, *self.probers):
                each.join(180)
                if each.is_alive():
                    self.outcome.wrong.append(f"{each.name} does not end")
            records = [prober.record for prober in self.probers]
            names = state(next(iter(self.members.ports.values())))["names"]
            self.outcome.wrong += judge(records, names)
            self.outcome.waits = waits(self._kills, sorted(each for record in records for each in record.acknowledged))
            self._read_all()
            self.outcome.seconds = clock() - self._began
        return self.outcome

    # -- BookKeeper ---------------------------------------------------------------------------------------------------

    def _process(self, kind: str) -> ClientProcess:
        if kind not in self._processes:
            self._processes[kind] = ClientProcess(kind, self.path / f"{kind}-client.log", HEAP)
        return self._processes[kind]

    def _start_java(self) -> None:
        self._asked_shell("initnewcluster")
        setup = zk.Client(next(iter(self.members.ports.values())))
        setup.connect(10_000)
        for folder in (
            "/own",
            "/order",
            "/lines",
            "/ephemerals",
            "/passing",
            "/shared",
            *(f"/shared/{number}" for number in range(3)),
        ):
            setup.call([zk.CREATE, [folder, b"", zk.OPEN, 0]])
        setup.call([zk.CLOSE, []])
        for number in range(BOOKIES):
            self.bookies.append(
                Bookie(JAVA, self.path / f"bookie-{number + 1}", self.uri, HEAP, settings={"zkTimeout": ZK_TIMEOUT})
            )
            self.bookies[-1].server.launch()
        for bookie in self.bookies:
            bookie.server.wait()
        home = self.path / "autorecovery"
        home.mkdir()
        (home / "autorecovery.conf").write_text(
            f"metadataServiceUri={java_uri(self.uri)}\nbookiePort={free_port()}\nallowLoopback=true\nlisteningInterface=lo\nadvertisedAddress=127.0.0.1\n"
            "httpServerEnabled=false\nstatsProviderClass=org.apache.bookkeeper.stats.NullStatsProvider\n"
            f"zkTimeout={ZK_TIMEOUT}\nlostBookieRecoveryDelay=0\nopenLedgerRereplicationGracePeriod=1000\n"
        )
        main = [
            "-cp",
            jars.class_path(),
            "org.apache.bookkeeper.replication.AutoRecoveryMain",
            "--conf",
            str(home / "autorecovery.conf"),
        ]
        self._recovery = Server("Java's auto-recovery", jars.java(*main, heap=HEAP), home / "log", lambda _: True)
        self._recovery.start()

    def _end_java(self) -> None:
        for process in self._processes.values():
            process.end()
        if self._recovery is not None:
            self._recovery.kill()
        for bookie in self.bookies:
            bookie.server.kill()

    def _asked_shell(self, *words: str) -> str:
        arguments = {"uri": java_uri(self.uri), "folder": str(self.path), "words": list(words)}
        done = self._process(JAVA).call("shell", **arguments)
        if done["status"] != 0:
            raise Refused(words[0], done["printed"][-300:])
        printed: str = done["printed"]
        return printed

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.outcome.wrong.append(f"{work.__name__} ended: {type(error).__name__}: {error}")

    def _failed(self, what: str, error: Refused) -> None:
        self.outcome.errors[f"{what}: {error.error}"] += 1
        time.sleep(0.1)

    # -- clients ------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write ledgers by the Java client, one after another."""
        client = Client(self._process(JAVA), self.uri, zkTimeout=ZK_TIMEOUT)
        while not self._ended.is_set():
            began = clock()
            ledger = self._new_ledger(client)
            if ledger is None:
                return
            self.outcome.longest_create = max(self.outcome.longest_create, clock() - began)
            written = Written(ledger.id)
            self.written.append(written)
            end = clock() + LEDGER_LASTS
            try:
                while clock() < end and not self._ended.is_set():
                    group = [payload(ledger.id, written.entries + each) for each in range(GROUP)]
                    ids = ledger.append(*group)
                    if ids != list(range(written.entries, written.entries + GROUP)):
                        self.outcome.wrong.append(
                            f"entries of ledger {ledger.id} got ids {ids}, and {written.entries} were there"
                        )
                    written.entries += GROUP
                    self.outcome.counts["entries acknowledged"] += GROUP
                    time.sleep(0.1)
                ledger.close()
                written.closed = True
                self.outcome.counts["ledgers closed"] += 1
            except Refused as error:
                self._failed("append or close", error)

    def _new_ledger(self, client: Client) -> Ledger | None:
        while not self._ended.is_set():
            try:
                return client.create()
            except Refused as error:
                self._failed("create", error)
        return None

    def _read(self) -> None:
        """Open ledgers by the Java client, and read what was acknowledged when that began."""
        client = Client(self._process(JAVA), self.uri, zkTimeout=ZK_TIMEOUT)
        while not self._ended.wait(0.5):
            closed = [each for each in self.written if each.closed]
            if not closed:
                continue
            written = self.random.choice(closed)
            try:
                self._check(client.open(written.ledger, recover=False), written, "a Java reader")
                self.outcome.counts["ledgers read meanwhile"] += 1
            except Refused as error:
                self._failed("read", error)

    def _check(self, ledger: Ledger, written: Written, who: str) -> None:
        last = ledger.call("lac")
        if last + 1 < written.entries or (written.closed and last + 1 != written.entries):
            self.outcome.wrong.append(
                f"LOST: ledger {written.ledger} ends at {last} for {who}, and {written.entries} entries were"
                " acknowledged"
            )
        if last >= 0:
            for number, data in enumerate(ledger.read(0, last)):
                if data != payload(written.ledger, number):
                    self.outcome.wrong.append(
                        f"entry {number} of ledger {written.ledger} is another one for {who}: {data[:30]!r}"
                    )
        ledger.close()

    def _shell(self) -> None:
        """Ask BookKeeper's shell one thing after another."""
        for turn in range(1_000_000):
            if self._ended.wait(7.0):
                return
            words = SHELL[turn % len(SHELL)]
            try:
                printed = self._asked_shell(*words)
            except Refused as error:
                self._failed(f"shell {words[0]}", error)
                continue
            self.outcome.counts["commands of BookKeeper's shell"] += 1
            if words[0] == "listbookies" and not self._spared_lately():
                missing = [bookie.id for bookie in self.bookies if bookie.id not in printed]
                if missing:
                    self.outcome.wrong.append(f"{words[0]} of BookKeeper's shell does not list {', '.join(missing)}")

    def _spared_lately(self) -> bool:
        return any(clock() < each + 30 for each in list(self._spared.values()))

    def _look(self) -> None:
        """Look at the registrations of bookies, behind a sync."""
        record = Record()
        session = Session(list(self.members.ports.values()), Random(1), ZK_TIMEOUT, record)
        session.begin(ZK_TIMEOUT)
        known: dict[str, int] = {}
        while not self._ended.wait(0.2):
            if session.connection is None:
                try:
                    session.connect()
                except Exception:
                    session.begin(ZK_TIMEOUT)
                continue
            try:
                self._look_at_all(session, known)
            except zk.Closed:
                continue
            except Exception as error:
                if type(error).__name__ != "Lost":
                    raise
        self.outcome.wrong += record.wrong

    def _look_at_all(self, session: Session, known: dict[str, int]) -> None:
        session.ports = list(self.members.ports.values())
        for bookie in self.bookies:
            begun = clock()
            _, (_, _, code, stat) = session.call(
                [zk.SYNC, ["/"]], [zk.EXISTS, [f"/ledgers/available/{bookie.id}", False]]
            )
            self.outcome.counts["looks at registrations"] += 1
            back = self._spared.get(bookie.id)
            if back is not None and begun < back + 30:
                known.pop(bookie.id, None)
            elif code:
                self.outcome.wrong.append(
                    f"the registration of {bookie.id} is gone after {begun - self._began:.1f} s, and the bookie runs:"
                    f" {code}"
                )
                self._spared[bookie.id] = clock()
            elif known.setdefault(bookie.id, stat["czxid"]) != stat["czxid"]:
                self.outcome.wrong.append(
                    f"{bookie.id} registered anew at {begun - self._began:.1f} s, so its session was over"
                )
                known[bookie.id] = stat["czxid"]

    # -- harm ---------------------------------------------------------------------------------------------------------

    def _harm(self) -> None:
        end, said_at = self._began + self.seconds, clock()
        works: list[Callable[[], None]] = [
            self._kill_leader, self._kill_each_follower, self._cut_leader, self._kill_leader, self._replace_voter,
            self._wipe, self._kill_leader,
            self._freeze_leader,
        ]  # fmt: skip
        if self.kills_bookies:
            works.append(self._kill_bookie)
        turn = 0
        while clock() < end:
            time.sleep(CALM * (0.5 + self.random.random()))
            works[turn % len(works)]()
            turn += 1
            died = [str(member) for member in self.members.died()] + [
                bookie.id for bookie in self.bookies if not bookie.server.runs()
            ]
            if died:
                self.outcome.wrong.append(f"ended by themselves: {', '.join(died)}")
                return
            if clock() - said_at > 10:
                said_at = clock()
                counts = self.outcome.counts
                self.say(
                    f"{clock() - self._began:6.0f} s  {sum(self.outcome.harms.values()):3} harms "
                    f" {counts['entries acknowledged']:7,} entries acknowledged  {len(self.written):4} ledgers"
                )

    def _write_down(self, what: str) -> None:
        self.outcome.harms[what] += 1
        self._log.write(f"{clock() - self._began:8.3f}  {what}\n")
        self._log.flush()

    def _others(self, member: int) -> list[int]:
        return [other for other in self.members.running if other != member]

    def _kill_leader(self) -> None:
        leader = self.members.wait_for_leader()
        self._write_down("kill -9 of the leader")
        self._kills.append(clock())
        self.members.kill(leader)
        time.sleep(1 + 3 * self.random.random())
        self.members.start(leader)

    def _kill_each_follower(self) -> None:
        for member in self._others(self.members.wait_for_leader()):
            self._write_down("kill -9 of a follower")
            self.members.kill(member)
            time.sleep(0.5 + 2 * self.random.random())
            self.members.start(member)
            time.sleep(1)

    def _cut_leader(self) -> None:
        leader = self.members.wait_for_leader()
        pairs = {(leader, other) for other in self._others(leader)}
        pairs |= {(to, source) for source, to in pairs}
        self._write_down("the leader is cut off")
        self._kills.append(clock())
        self.network.cut(pairs)
        time.sleep(3 + 3 * self.random.random())
        self.network.heal(pairs, breaks=self.random.random() < 0.5)

    def _freeze_leader(self) -> None:
        leader = self.members.wait_for_leader()
        self._write_down("the leader is frozen")
        self._kills.append(clock())
        self.members.freeze(leader)
        time.sleep(1 + 3 * self.random.random())
        self.members.thaw(leader)

    def _replace_voter(self) -> None:
        """One more member is added, and removed again."""
        new = self.members.add()
        self.members.start(new)
        self.members.ask("add", self.members.endpoints[new])
        self._write_down("a voter is added")
        time.sleep(2)
        self.members.ask("remove", str(new))
        self._write_down("a voter is removed")
        time.sleep(1)
        self.members.kill(new, signal.SIGTERM)
        self.members.endpoints.pop(new)
        self.members.ports.pop(new)

    def _wipe(self) -> None:
        leader = self.members.wait_for_leader()
        member = self.random.choice([leader, *self._others(leader)])
        self._write_down("a disk is lost")
        if member == leader:
            self._kills.append(clock())
        self.members.kill(member)
        self.members.wipe(member)
        self.members.start(member)
        self.members.ask("remove", str(member))
        self.members.ask("add", self.members.endpoints[member])

    def _kill_bookie(self) -> None:
        """A bookie is gone until its registration is, so that auto-recovery copies what it had."""
        bookie = self.random.choice(self.bookies)
        self._write_down("kill -9 of a bookie")
        self._spared[bookie.id] = clock() + 1e9
        bookie.server.kill()
        time.sleep(2 * ZK_TIMEOUT / 1_000)
        bookie.server.start()
        self._spared[bookie.id] = clock()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _read_all(self) -> None:
        """Everything that was acknowledged is read, by Java's client and by ours."""
        for kind, who in ((JAVA, "the Java client"), (FENCEPOST, "our client")):
            client = Client(self._process(kind), self.uri)
            for written in self.written:
                try:
                    self._check(client.open(written.ledger, recover=True), written, who)
                except Refused as error:
                    self.outcome.wrong.append(
                        f"ledger {written.ledger} cannot be read by {who} when all is well: {error}"
                    )
                else:
                    self.outcome.counts[f"entries read at the end by {who}"] += written.entries
            client.close()


__all__ = ("Bookkeeper", "Outcome")
