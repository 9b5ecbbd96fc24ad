"""Those whose files are damaged: bookies with and without the journal, members of the metadata service, and what
clients keep. Each is prepared once, and started on a copy in which one file was damaged, and judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

import fencepost
from bench.chaos.parts import Overdue, Part
from bench.chaos.payload import fault, payload
from fencepost.errors import HOLDS, SAFETY_VIOLATED, SYSTEM_FAILED, WRONG_OPTIONS
from fencepost.files.folders import OsFiles
from fencepost.ledger.cluster.plan import FILE as CLUSTER
from fencepost.ledger.cluster.ports import HOST, free_ports
from fencepost.ledger.disk import journal
from fencepost.ledger.disk.journal import Damage
from fencepost.ledger.entries import Digests, Entry, master_key
from fencepost.ledger.messages import AddEntry, ReadEntry, Request
from fencepost.ledger.rules.codes import NEGATIVES, Code
from fencepost.ledger.rules.metadata import DigestType, LedgerStatus
from fencepost.ledger.wire.frames import DEFAULT_LIMIT, Frames
from fencepost.ledger.wire.v3 import decode_response, encode_request
from fencepost.quorum.files.directory import open_replica, read_meta

PATIENCE = 60.0
"""Seconds that a step may take."""

REFUSED, SERVED, WHOLE = "refused", "some unknown", "nothing lost"
"""What became of a start: it did not serve; it served, and could not tell some things; or all was there."""

Found = tuple[str, list[str]]
"""What became of a start, and what is wrong with that."""

REFUSALS = (SYSTEM_FAILED, WRONG_OPTIONS)
"""The exit codes of what does not start."""

SMALL = ("journalPreAllocSizeMB=1", "flushInterval=100000000")
COUNT = 30
"""Entries of a ledger, and znodes of a life."""
NONCE = 7


class Victim(ABC):
    """A set that is prepared in a folder. ``live`` is where it runs; ``now`` a copy of its end, and ``before`` one of
    an earlier clean end.
    """

    folders: tuple[str, ...]
    """Those in which a file may be damaged."""

    def __init__(self, home: Path) -> None:
        self.live, self.now, self.before = (home / name for name in ("live", "now", "before"))
        self.live.mkdir(parents=True)
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Run it, and keep how it was at a clean end and in the end."""

    @abstractmethod
    def start(self, folder: str) -> Found:
        """Start it on what is live, where a file in this folder was damaged, and judge."""

    def keep(self, moment: Path) -> None:
        """Keep how all is now; nothing runs."""
        shutil.copytree(self.live, moment, ignore=shutil.ignore_patterns("control"))  # a socket

    def restore(self) -> None:
        """Be as in the end of the preparation: in the same place, since cookies name it."""
        shutil.rmtree(self.live)
        shutil.copytree(self.now, self.live)


def ended(parts: Iterable[Part], number: signal.Signals) -> None:
    """End some, one after another."""
    for part in parts:
        part.end(number)


# -- bookies ----------------------------------------------------------------------------------------------------------


class Bookies(Victim):
    """Two bookies that both hold every entry, and a third one that joined later. The first one is hurt; the third lets
    ledgers be recovered without it. In each of two lives, one ledger was closed, one was recovered while its writer
    went on, and two stay open.
    """

    folders = ("1",)

    def __init__(self, home: Path, journals: bool, killed: bool, repairs: bool = False) -> None:
        self.journals, self.killed, self.repairs = journals, killed, repairs
        self.ports = free_ports(4)
        self.uri = f"zk://{HOST}:{self.ports[0]}/ledgers"
        self.counts: dict[int, int] = {}
        self.fenced: list[int] = []
        self.open: list[int] = []
        super().__init__(home)

    def prepare(self) -> None:
        with self._metadata():
            bookies = [self._bookie(number) for number in (1, 2)]
            asyncio.run(self._write())
            ended(bookies, signal.SIGTERM)
        self.keep(self.before)
        with self._metadata():
            bookies = [self._bookie(number) for number in (1, 2)]
            asyncio.run(self._write())
            bookies.append(self._bookie(3))
            if self.killed:
                until_proven(self.live / "1/journal/current")
                bookies[0].end(signal.SIGKILL)
            ended(bookies, signal.SIGTERM)
        if self.repairs:
            with self._metadata():
                ended([self._bookie(1)], signal.SIGTERM)
        self.keep(self.now)

    @contextlib.contextmanager
    def _metadata(self) -> Iterator[None]:
        part = Part(self.live / "metadata.log", "metadata", str(self.live / "metadata"), "--port", str(self.ports[0]))
        try:
            assert part.serves(), part.complaints
            yield
        finally:
            part.end(signal.SIGTERM)

    def _begin(self, number: int) -> Part:
        settings = (*SMALL, f"journalWriteData={str(self.journals).lower()}")
        words = (word for each in settings for word in ("--set", each))
        port = str(self.ports[number])
        where = self.live / str(number)
        return Part(self.live / f"{number}.log", "bookie", str(where), "--metadata", self.uri, "--port", port, *words)

    def _bookie(self, number: int) -> Part:
        part = self._begin(number)
        assert part.serves(), part.complaints
        return part

    async def _write(self) -> None:
        both = {"ensemble": 2, "write_quorum": 2, "ack_quorum": 2}
        async with connected(self.uri) as store, connected(self.uri) as other:
            for state in ("closed", "fenced", "open", "open"):
                ledger = await store.create_ledger(**both)
                await ledger.append_many(payload(ledger.id, entry_id, NONCE) for entry_id in range(COUNT))
                self.counts[ledger.id] = COUNT
                if state == "closed":
                    await ledger.close()
                elif state == "fenced":
                    await other.recover_ledger(ledger.id)
                    self.fenced.append(ledger.id)
                else:
                    self.open.append(ledger.id)
                is_closed = (await store.ledger_metadata(ledger.id)).status is LedgerStatus.CLOSED
                assert is_closed == (state != "open")

    def start(self, folder: str) -> Found:
        with self._metadata():
            parts = [self._begin(number) for number in (1, 2, 3)]
            try:
                serve = [part.serves() for part in parts]
                wrong = [f"a sound bookie does not start: {part.complaints}" for part in parts[1:] if part.is_over()]
                came = REFUSED
                if serve[0]:
                    came, more = self._judge_alone()
                    wrong += more
                else:
                    wrong += refusal(parts[0])
                wrong += asyncio.run(self._judge_all())
                if serve[0] and (code := parts[0].end(signal.SIGTERM)):
                    wrong.append(f"it ended with {code}: {parts[0].complaints[-500:]}")
                return came, wrong + tracebacks(parts[0])
            finally:
                ended(parts, signal.SIGKILL)

    def _judge_alone(self) -> Found:
        """What the bookie says itself: of what it has confirmed, and to a writer that it has fenced off."""
        wrong, unknown = [], 0
        reads = [(ledger, entry_id) for ledger, count in self.counts.items() for entry_id in range(count)]
        answers = asked(self.ports[1], [ReadEntry(*each) for each in reads])
        for (ledger, entry_id), answer in zip(reads, answers, strict=True):
            may_lack = not self.journals and ledger not in self.open  # where the end is known, limbo is not needed
            if answer.code in (Code.IO_ERROR, Code.UNKNOWN_LEDGER_STATE) or (may_lack and answer.code in NEGATIVES):
                unknown += 1
            elif answer.code is not Code.OK:
                wrong.append(f"entry {entry_id} of ledger {ledger} is answered {answer.code.name}")
            else:
                opened = Digests(DigestType.CRC32C, b"").open_entry(answer.body, ledger, entry_id)
                wrong += [what for what in [fault(opened.data if opened else b"", ledger, entry_id, NONCE)] if what]
        for ledger in self.fenced:
            body = Digests(DigestType.CRC32C, b"").entry_body(Entry(ledger, COUNT, COUNT - 1, 1, b"x"))
            (answer,) = asked(self.ports[1], [AddEntry(ledger, COUNT, COUNT - 1, body, master_key(b""))])
            if answer.code is Code.OK:
                wrong.append(f"ledger {ledger} takes an add of a writer that was fenced off")
        return (SERVED if unknown else WHOLE), wrong[:3]

    async def _judge_all(self) -> list[str]:
        """What the cluster has: every ledger ends where it did, with its entries."""
        wrong = []
        async with asyncio.timeout(PATIENCE), connected(self.uri) as store:
            for ledger, count in self.counts.items():
                try:
                    reader = await store.open_ledger(ledger, recover=True)
                    if reader.last_add_confirmed != count - 1:
                        wrong.append(f"ledger {ledger} ends at {reader.last_add_confirmed}, and not at {count - 1}")
                    async for entry in reader.read(0, reader.last_add_confirmed):
                        wrong += [what for what in [fault(entry.data, ledger, entry.id, NONCE)] if what]
                except fencepost.FencepostError as error:
                    wrong.append(f"ledger {ledger} cannot be read: {type(error).__name__}: {error}")
        return wrong[:3]


def connected(uri: str) -> Any:
    """A client."""
    return fencepost.connect(uri)


def asked(port: int, requests: list[Request]) -> list[Any]:
    """What a bookie answers to requests."""
    found: dict[int, Any] = {}
    frames = Frames(DEFAULT_LIMIT)
    with socket.create_connection((HOST, port), timeout=PATIENCE) as connection:
        connection.sendall(b"".join(encode_request(number, each) for number, each in enumerate(requests)))
        while len(found) < len(requests):
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError(f"the bookie closed the connection after {len(found)} of {len(requests)} answers")
            found |= dict(decode_response(each) for each in frames.feed(data))
    return [found[number] for number in range(len(requests))]


def until_proven(journals: Path) -> None:
    """Wait until a journal whose writer rests is proven to be durable; before that, damage at its end cannot be told
    from a torn write.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        newest = max(journals.glob("*.journal"))
        seen = journal.scan(newest.read_bytes(), int(newest.stem))
        if all(group < seen.synced for group, _ in seen.records):
            return
        time.sleep(0.02)
    raise Overdue(f"the journal in {journals} is not proven")


# -- the metadata service ---------------------------------------------------------------------------------------------


class Quorum(Victim):
    """Members of a metadata service, killed in the end. Znodes are made in two lives, and changed in the second one."""

    def __init__(self, home: Path, count: int) -> None:
        self.members = range(1, count + 1)
        self.folders = tuple(map(str, self.members))
        self.ports = free_ports(2 * count)
        self.znodes: dict[str, tuple[bytes, int]] = {}
        super().__init__(home)

    def prepare(self) -> None:
        (self.live / "settings.toml").write_text("snapCount = 40\npreAllocSize = 64\n")
        for moment, number in ((self.before, signal.SIGTERM), (self.now, signal.SIGKILL)):
            parts = [self._begin(member) for member in self.members]
            assert all(part.serves() for part in parts), [part.complaints for part in parts]
            with self._client(*self.members) as client:
                self._write(client, moment.name)
            if number is signal.SIGKILL:
                for member in self.members:
                    until_proven(self.live / str(member))
            ended(parts, number)
            self.keep(moment)

    def _begin(self, member: int) -> Part:
        count = len(self.members)
        endpoints = (f"{each}@{HOST}:{self.ports[count + each - 1]}" for each in self.members)
        words = ("--id", str(member), "--controllers", ",".join(endpoints), "--port", str(self.ports[member - 1]))
        settings = ("--settings", str(self.live / "settings.toml"))
        return Part(self.live / f"{member}.log", "metadata", str(self.live / str(member)), *words, *settings)

    @contextlib.contextmanager
    def _client(self, *members: int) -> Iterator[KazooClient]:
        hosts = ",".join(f"{HOST}:{self.ports[member - 1]}" for member in members)
        client = KazooClient(hosts, timeout=10.0, connection_retry={"max_tries": -1, "delay": 0.02, "max_delay": 0.1})
        client.start(PATIENCE)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def _write(self, client: KazooClient, life: str) -> None:
        for path, (_, version) in self.znodes.items():
            client.set(path, life.encode())
            self.znodes[path] = (life.encode(), version + 1)
        for number in range(COUNT):
            client.create(f"/{life}{number}", b"%d" % number)
            self.znodes[f"/{life}{number}"] = (b"%d" % number, 0)

    def start(self, folder: str) -> Found:
        promised, found = self._promised(self.now / folder), self._promised(self.live / folder)
        parts = {str(member): self._begin(member) for member in self.members}
        try:
            serve = [member for member in self.members if parts[str(member)].serves()]
            wrong = [f"member {m} does not start" for m in self.members if str(m) != folder and m not in serve]
            if int(folder) not in serve:
                wrong += refusal(parts[folder])
            elif found < promised:
                wrong.append(f"it had promised (epoch, vote, end of the log) {promised}, and takes part with {found}")
            for member in serve:
                wrong += self._judge(member)
            return (WHOLE if int(folder) in serve else REFUSED), wrong + tracebacks(parts[folder])
        finally:
            ended(parts.values(), signal.SIGKILL)

    def _promised(self, folder: Path) -> tuple[int, str, int]:
        """The epoch, the vote and the end of the log that a folder keeps, by a copy of it; nothing if it is damaged."""
        copy = self.live / "copy"
        shutil.copytree(folder, copy)
        files = OsFiles(str(copy))
        try:
            meta = read_meta(files)
            found = open_replica(files, meta) if meta is not None else None
        except Damage:
            found = None
        finally:
            shutil.rmtree(copy)
        if found is None:
            return -1, "", 0
        return found.election.epoch, str(found.election.voted or ""), found.index.end_offset

    def _judge(self, member: int) -> list[str]:
        with self._client(member) as client:
            client.sync("/")
            asked_for = {path: client.get_async(path) for path in self.znodes}
            wrong = []
            for path, asking in asked_for.items():
                try:
                    data, stat = asking.get(timeout=PATIENCE)
                except Exception as error:
                    wrong.append(f"member {member} says {type(error).__name__} of {path}")
                else:
                    if (data, stat.version) != self.znodes[path]:
                        wrong.append(f"member {member} has {data!r}, version {stat.version} in {path}")
        return wrong[:3]


# -- what clients and operators keep ----------------------------------------------------------------------------------


class Cluster(Victim):
    """``cluster.json`` of a cluster on one machine: of one bookie before, and of two in the end."""

    folders = (".",)
    files = (CLUSTER,)
    UP = "Ctrl-C ends it"

    def __init__(self, home: Path) -> None:
        self.ledgers: list[int] = []
        super().__init__(home)

    def prepare(self) -> None:
        for moment, bookies in ((self.before, 1), (self.now, 2)):
            ports = ("--metadata-port", str(free_ports(1)[0])) if bookies == 1 else ()
            part = Part(self.log, "cluster", "up", str(self.live), "--bookies", str(bookies), *ports)
            assert part.says(self.UP), part.complaints
            asyncio.run(self._write(_uri(part)))
            part.end(signal.SIGKILL if bookies == 2 else signal.SIGTERM)
            self._until_nobody_listens()
            self.keep(moment)

    @property
    def log(self) -> Path:
        return self.live.with_suffix(".log")

    def _until_nobody_listens(self) -> None:
        """Wait until the ports of a killed cluster are closed: its processes end on their own."""
        plan = json.loads((self.now if self.now.exists() else self.live).joinpath(CLUSTER).read_text())
        for port in (plan["metadata_port"], *plan["bookie_ports"]):
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                with socket.socket() as probe:
                    if probe.connect_ex((HOST, port)):
                        break
                time.sleep(0.01)

    async def _write(self, uri: str) -> None:
        async with connected(uri) as store:
            ledger = await store.create_ledger(ensemble=1, write_quorum=1, ack_quorum=1)
            await ledger.append_many(payload(ledger.id, entry_id, NONCE) for entry_id in range(COUNT))
            await ledger.close()
            self.ledgers.append(ledger.id)

    def start(self, folder: str) -> Found:
        part = Part(self.log, "cluster", "up", str(self.live))
        try:
            if not part.says(self.UP):
                return REFUSED, refusal(part)
            return WHOLE, asyncio.run(self._judge(_uri(part))) + tracebacks(part)
        finally:
            part.end(signal.SIGKILL)
            self._until_nobody_listens()

    async def _judge(self, uri: str) -> list[str]:
        wrong = []
        try:
            async with asyncio.timeout(PATIENCE), connected(uri) as store:
                for ledger in self.ledgers:
                    entries = [entry async for entry in (await store.open_ledger(ledger)).read(0, COUNT - 1)]
                    wrong += [what for e in entries if (what := fault(e.data, ledger, e.id, NONCE))]
        except (fencepost.FencepostError, TimeoutError) as error:
            wrong.append(f"the cluster serves, and its entries cannot be read: {type(error).__name__}: {error}")
        return wrong


def _uri(part: Part) -> str:
    """Where a cluster serves, as it says."""
    return next(word for word in part.said.split() if word.startswith("zk://"))


class Search(Victim):
    """The checkpoint of a search, which is resumed."""

    folders = ("checkpoint",)
    PROTOCOL = str(Path(__file__).parents[2] / "docs/examples/quorum_log.py:QuorumLog")

    def prepare(self) -> None:
        for moment, depth in ((self.before, 4), (self.now, 7)):
            way = "--resume" if moment is self.now else "--checkpoint"
            self._check(way, str(self.live / "checkpoint"), "--max-depth", str(depth))
            self.keep(moment)
        self.expected = self._result(self._check("--resume", str(self.live / "checkpoint")))
        assert self.expected is not None

    def _check(self, *words: str) -> Part:
        (self.live / "result.json").unlink(missing_ok=True)
        words = (*words, "--workers", "1", "--json", str(self.live / "result.json"))
        part = Part(self.live / "log", "check", self.PROTOCOL, *words)
        part.ended()
        return part

    def _result(self, part: Part) -> tuple[Any, ...] | None:
        if part.ended() or not (self.live / "result.json").exists():
            return None
        found = json.loads((self.live / "result.json").read_text())
        return tuple(found[name] for name in ("verdict", "distinct_states", "generated_states", "depth", "actions"))

    def start(self, folder: str) -> Found:
        part = self._check("--resume", str(self.live / folder))
        if part.ended():
            return REFUSED, refusal(part)
        found = self._result(part)
        wrong = [] if found == self.expected else [f"it comes to {found}, and not to {self.expected}"]
        return WHOLE, wrong + tracebacks(part)


class Traces(Victim):
    """A folder of traces, which is validated. Whatever is in it, the verdict is one that there is."""

    folders = ("traces",)

    def prepare(self) -> None:
        for moment in (self.before, self.now):
            part = Part(
                self.live / "log", "metadata", str(self.live / "1"), "--port", "0", "--trace", str(self.live / "traces")
            )
            assert part.serves(), part.complaints
            part.end(signal.SIGTERM)
            self.keep(moment)

    def start(self, folder: str) -> Found:
        part = Part(self.live / "log", "validate", str(self.live / folder), "--protocol", "quorum")
        code = part.ended()
        if code not in (HOLDS, SAFETY_VIOLATED):  # a run or a member may be gone as a whole
            return REFUSED, refusal(part)
        return WHOLE if code == HOLDS else SERVED, tracebacks(part)


# -- what is said -----------------------------------------------------------------------------------------------------


def refusal(part: Part) -> list[str]:
    """What is wrong with how a part said that it does not start: the last line is the reason, and it has an exit code
    for that.
    """
    lines, code = part.complaints.splitlines(), part.ended()
    if code not in REFUSALS or not lines or not lines[-1].startswith("fencepost: "):
        return [f"it ended with {code}: {part.complaints[-500:]}"]
    return tracebacks(part)


def tracebacks(part: Part) -> list[str]:
    """What a part said that nobody should read."""
    is_raw = "Traceback" in part.complaints or "a fault in Fencepost" in part.complaints
    return [f"it said {part.complaints[-1500:]}"] if is_raw else []


VICTIMS: dict[str, tuple[int, Callable[[Path], Victim]]] = {
    "journal-killed": (6, lambda home: Bookies(home, journals=True, killed=True)),
    "journal-ended": (3, lambda home: Bookies(home, journals=True, killed=False)),
    "memory-killed": (6, lambda home: Bookies(home, journals=False, killed=True)),
    "memory-ended": (4, lambda home: Bookies(home, journals=False, killed=False)),
    "memory-repairs": (4, lambda home: Bookies(home, journals=False, killed=True, repairs=True)),
    "quorum": (8, lambda home: Quorum(home, 3)),
    "metadata": (2, lambda home: Quorum(home, 1)),
    "cluster": (2, Cluster),
    "search": (2, Search),
    "traces": (2, Traces),
}
"""All of them by their names, with how often each is drawn, of 39."""
