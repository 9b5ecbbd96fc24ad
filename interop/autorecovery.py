"""Auto-recovery in clusters of both kinds of bookies: Java's repairs what ours held, ours what Java's held, and both
at once have one auditor.

The cases take a cluster whose writer and reader are of different kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import fencepost
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.replication import belonging_of_fragment
from fencepost.ledger.entries import Digests
from fencepost.ledger.messages import ReadEntry, ReadEntryResponse
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.underreplication import UnderReplicated, UnderReplication
from fencepost.ledger.rules.metadata import LedgerStatus
from interop import jars
from interop.cases import Case, Setting, entries, equal, printed_by, read_back, shell, until, written
from interop.clients import Ledger
from interop.clusters import FENCEPOST, JAVA, PROGRAM, Bookie, java_uri
from interop.processes import Server, free_port, stop_all

CASES: dict[str, Case] = {}
"""By their names; for clusters of both kinds of bookies."""

PATIENCE = 180
"""Seconds that a repair may take."""

BOOKIES = 5
"""Enough to lose two, one after the other, and still have a new bookie for each ledger."""

GRACE = 1000
"""Milliseconds that the writer of an open ledger has to replace a bookie."""

T = TypeVar("T")


def _case(name: str) -> Callable[[Case], Case]:
    def add(case: Case) -> Case:
        CASES[name] = case
        return case

    return add


# -- processes and nodes ----------------------------------------------------------------------------------------------


def _nodes(setting: Setting, question: Callable[[UnderReplication], Awaitable[T]]) -> T:
    """Ask the metadata service something about auto-recovery."""

    async def ask() -> T:
        async with await MetadataClient.connect(setting.cluster.uri) as client:
            return await question(UnderReplication(client, "interop"))

    return asyncio.run(ask())


async def _listed(nodes: UnderReplication) -> list[UnderReplicated]:
    return [each async for each in nodes.all()]


async def _votes(nodes: UnderReplication) -> list[str]:
    return await nodes.client.names_in("underreplication/auditorelection") or []


async def _is_quiet(nodes: UnderReplication) -> bool:
    """Whether nothing is under-replicated and nothing is locked."""
    return not await _listed(nodes) and not await nodes.client.names_in("underreplication/locks")


def _server(setting: Setting, kind: str, number: int) -> tuple[Server, str]:
    """Auto-recovery as a process of its own that has not started yet, and the name that it votes with."""
    folder = setting.cluster.folder / f"autorecovery-{number}"
    folder.mkdir(exist_ok=True)
    before = len(_nodes(setting, _votes))
    if kind == FENCEPOST:
        name = f"fencepost-{number}"
        settings = {"bookieId": name, "zkTimeout": 6000, "openLedgerRereplicationGracePeriod": GRACE}
        words = [word for each in settings.items() for word in ("--set", "{}={}".format(*each))]
        command = [*PROGRAM, "autorecovery", "--metadata", setting.cluster.uri, "--verbose", *words]
        return Server("our auto-recovery", command, folder / "log", lambda server: " runs" in server.said()), name
    port = free_port()
    file = folder / "autorecovery.conf"
    file.write_text(
        f"metadataServiceUri={java_uri(setting.cluster.uri)}\nbookiePort={port}\nallowLoopback=true\nlisteningInterface=lo\nadvertisedAddress=127.0.0.1\n"
        "httpServerEnabled=false\nstatsProviderClass=org.apache.bookkeeper.stats.NullStatsProvider\nzkTimeout=6000\n"
        f"lostBookieRecoveryDelay=0\nopenLedgerRereplicationGracePeriod={GRACE}\n"
    )
    main = ["-cp", jars.class_path(), "org.apache.bookkeeper.replication.AutoRecoveryMain", "--conf", str(file)]
    server = Server(
        "Java's auto-recovery", jars.java(*main), folder / "log", lambda _: len(_nodes(setting, _votes)) > before
    )
    return server, f"127.0.0.1:{port}"


@contextlib.contextmanager
def _recovering(setting: Setting, *kinds: str) -> Iterator[list[tuple[Server, str]]]:
    """Auto-recovery of these kinds, which runs."""
    servers = []
    if len(setting.cluster.bookies) < BOOKIES:
        setting.cluster.add_bookies(BOOKIES - len(setting.cluster.bookies))
    try:
        for kind in kinds:
            servers.append(_server(setting, kind, int(time.monotonic() * 1000)))
            servers[-1][0].start()
        yield servers
    finally:
        for server, _ in servers:
            server.kill()
        for ledger in setting.reader.call("list"):  # the next case loses bookies, and waits until none is in a ledger
            setting.reader.call("delete", ledger=ledger)
        setting.cluster.heal()
        # they go with the sessions of the killed
        until(PATIENCE, "all votes are gone", lambda: not _nodes(setting, _votes))
        _nodes(setting, _forget)


async def _forget(nodes: UnderReplication) -> None:
    for each in await _listed(nodes):
        nodes.held.add(each.ledger)
        await nodes.replicated(each)


# -- ledgers ----------------------------------------------------------------------------------------------------------


class _Written:
    """Ledgers of both kinds of clients: closed, striped, empty, and left open, with different digests. A writer that
    notices that a bookie is lost may replace it in its open ledger itself."""

    def __init__(self, setting: Setting, lost: Bookie) -> None:
        self.setting = setting
        self.bodies: dict[int, tuple[list[bytes], dict[str, str]]] = {}
        """What is in each, and how it is opened."""
        for digest in ("CRC32C", "MAC"):
            for client in (setting.writer, setting.reader):
                given = {"digest": digest, "password": "secret"}
                for ensemble, count in ((3, 300), (4, 200), (3, 0)):
                    ledger = self._on(lost, client, ensemble=ensemble, write_quorum=3, ack_quorum=2, **given)
                    self._fill(ledger, count, given).close()
                left = self._on(lost, client, ensemble=3, write_quorum=3, ack_quorum=2, **given)
                self._fill(left, 50, given)

    def _on(self, lost: Bookie, client: object, **given: object) -> Ledger:
        """A ledger that has a bookie in its ensemble."""
        while True:
            ledger: Ledger = client.create(**given)  # type: ignore[attr-defined]
            if lost.id in self.bookies(ledger.id):
                return ledger
            ledger.close()

    def _fill(self, ledger: Ledger, count: int, given: dict[str, str]) -> Ledger:
        bodies = entries(count, 500, f"ledger {ledger.id}")
        if bodies:
            written(ledger, bodies)
        self.bodies[ledger.id] = bodies, given
        return ledger

    def bookies(self, ledger: int) -> set[str]:
        ensembles = self.setting.reader.metadata(ledger)["ensembles"]
        return {bookie for ensemble in ensembles.values() for bookie in ensemble}

    def until_without(self, lost: Bookie) -> None:
        """Wait until no ledger has a bookie any more, and nothing is under-replicated."""
        ledgers = self.setting.reader.call("list")
        until(PATIENCE, f"no ledger has {lost.id}", lambda: all(lost.id not in self.bookies(each) for each in ledgers))
        until(PATIENCE, "nothing is under-replicated", lambda: _nodes(self.setting, _is_quiet))

    def check(self) -> None:
        """Check that both clients read everything, and that every bookie has what should be on it."""
        for client in (self.setting.writer, self.setting.reader):
            for ledger, (bodies, given) in self.bodies.items():
                # Not its length: Java says 0 when it recovers a ledger that has nothing in its last fragment.
                opened = client.open(ledger, **given)
                equal(opened.call("lac"), len(bodies) - 1, f"LAC of ledger {ledger}")
                if bodies:
                    equal(opened.read(0, len(bodies) - 1), bodies, f"entries of ledger {ledger}")
        copies = asyncio.run(_copies(self.setting.cluster.uri))
        equal(copies[1], [], "copies that are not where the metadata say")
        if copies[0] < sum(3 * len(bodies) for bodies, _ in self.bodies.values()):
            raise AssertionError(f"there are {copies[0]} copies")


async def _copies(uri: str) -> tuple[int, list[tuple[int, int, str]]]:
    """How many copies of entries bookies have where the metadata say, and those that they have not, as ledger, entry
    and bookie."""
    found, missing = 0, []
    async with await fencepost.connect(uri) as store:
        async for ledger, metadata in store.metadata.all_metadata():
            if metadata.status is not LedgerStatus.CLOSED:
                continue
            digests = Digests(metadata.digest_type, metadata.password or b"")
            for place, fragment in enumerate(metadata.fragments):
                for bookie in fragment.ensemble:
                    for entry_id in map(int, belonging_of_fragment(metadata, place, bookie)):
                        if await _has(store, digests, bookie, ledger, entry_id):
                            found += 1
                        else:
                            missing.append((ledger, entry_id, bookie))
    return found, missing


async def _has(store: LedgerClient, digests: Digests, bookie: str, ledger: int, entry_id: int) -> bool:
    response = await store.ask(bookie, ReadEntry(ledger, entry_id))
    return isinstance(response, ReadEntryResponse) and digests.open_entry(response.body, ledger, entry_id) is not None


def _any(setting: Setting, kind: str) -> Bookie:
    return next(bookie for bookie in setting.cluster.bookies if bookie.kind == kind)


# -- cases ------------------------------------------------------------------------------------------------------------


def _repaired(setting: Setting, recovery: str, kind: str) -> None:
    lost = _any(setting, kind)
    with _recovering(setting, recovery):
        ledgers = _Written(setting, lost)
        lost.server.kill()
        ledgers.until_without(lost)
        ledgers.check()


@_case("autorecovery: Java's, our bookie lost")
def java_repairs_ours(setting: Setting) -> None:
    """One of our bookies is killed: Java's auditor and worker give its entries to others."""
    _repaired(setting, JAVA, FENCEPOST)


@_case("autorecovery: ours, a Java bookie lost")
def ours_repairs_java(setting: Setting) -> None:
    """A Java bookie is killed: our auditor and worker give its entries to others."""
    _repaired(setting, FENCEPOST, JAVA)


@_case("autorecovery: both, one auditor")
def both_at_once(setting: Setting) -> None:
    """Both run, one of them is the auditor, and both work; then the auditor is killed, and the other takes over when
    the next bookie is lost."""
    for kinds in ((FENCEPOST, JAVA), (JAVA, FENCEPOST)):
        with _recovering(setting, *kinds) as servers:
            (auditor, name), (_, other) = servers
            equal(len(_nodes(setting, _votes)), 2, "votes")
            equal(_nodes(setting, UnderReplication.auditor), name, "auditor")
            equal(
                name in shell(setting, "whoisauditor") or kinds[0] == FENCEPOST,
                True,
                "that Java's shell knows the auditor",
            )
            first, second = _any(setting, kinds[0]), _any(setting, kinds[1])
            ledgers = _Written(setting, first)
            first.server.kill()
            ledgers.until_without(first)
            ledgers.check()
            auditor.kill()
            until(
                PATIENCE,
                f"{other} is the auditor",
                partial(_is_auditor, setting, other),
            )
            setting.cluster.restart([first])
            ledgers = _Written(setting, second)
            second.server.kill()
            ledgers.until_without(second)
            ledgers.check()


@_case("autorecovery: what one publishes the other reads")
def read_by_both(setting: Setting) -> None:
    """Three of five bookies are lost, and there is nowhere to copy to: both tell the same ledgers, and who is missing;
    then all are back."""
    for kind in (FENCEPOST, JAVA):
        with _recovering(setting, kind):
            lost = setting.cluster.bookies[:3]
            ledgers = {client.create(ensemble=4).id for client in (setting.writer, setting.reader) for _ in range(3)}
            for bookie in lost:
                bookie.server.kill()
            until(
                PATIENCE,
                "all are published",
                partial(_are_published, setting, ledgers),
            )
            missing = {each.id for each in lost}
            until(PATIENCE, "all of the missing are told", partial(_are_told, setting, missing))
            printed = shell(setting, "listunderreplicated", "-printmissingreplica")
            unheard = [each for each in (*map(str, ledgers), *missing) if each not in printed]
            equal(unheard, [], f"what Java's shell does not print of what {kind} has published: {printed[-500:]}")
            setting.cluster.restart(lost)
            until(PATIENCE, "nothing is under-replicated", lambda: _nodes(setting, _is_quiet))


def _is_auditor(setting: Setting, name: str) -> bool:
    return _nodes(setting, UnderReplication.auditor) == name


def _are_published(setting: Setting, ledgers: set[int]) -> bool:
    return {each.ledger for each in _nodes(setting, _listed)} >= ledgers


def _are_told(setting: Setting, missing: set[str]) -> bool:
    command = [*PROGRAM, "bookie", "list", "under-replicated", "--metadata", setting.cluster.uri, "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return missing == {bookie for each in told for bookie in each["missing"]}


@_case("autorecovery: shell whoisauditor, triggeraudit, decommissionbookie")
def shell_auditor(setting: Setting) -> None:
    """BookKeeper's shell finds our auditor, has it look for lost bookies, and removes a bookie from the cluster."""
    with _recovering(setting, FENCEPOST):
        printed_by(setting, "clusterinfo", expected=['"auditorElected" : true'])
        shell(setting, "whoisauditor")
        shell(setting, "lostbookierecoverydelay", "-s", "3600")
        ledger = setting.writer.create()
        written(ledger, entries(20))
        ledger.close()
        gone = setting.cluster.bookie(setting.writer.metadata(ledger.id)["ensembles"]["0"][0])
        gone.server.kill()
        until(PATIENCE, f"{gone.id} is not registered", lambda: gone.id not in shell(setting, "listbookies", "-rw"))
        shell(setting, "triggeraudit")
        shell(setting, "decommissionbookie", "-bookieid", gone.id)
        equal(gone.id in str(setting.writer.metadata(ledger.id)), False, "whether the ledger has it still")
        read_back(setting.reader, ledger.id, entries(20))
        shell(setting, "lostbookierecoverydelay", "-s", "1")  # it cannot set 0
        for each in gone.server.log.parent.iterdir():  # it comes back as a new one, since its cookie is gone
            if each.is_dir():
                shutil.rmtree(each)


@_case("autorecovery: disabled by one, for both")
def disabled(setting: Setting) -> None:
    """Java's shell disables auto-recovery, and ours waits; ours enables it, and both work."""
    lost = _any(setting, JAVA)
    with _recovering(setting, FENCEPOST, JAVA) as servers:
        shell(setting, "autorecovery", "-disable")
        ledgers = _Written(setting, lost)
        lost.server.kill()
        time.sleep(15)  # longer than its session
        equal(_nodes(setting, _listed), [], "ledgers that were published though that is disabled")
        words = ("autorecovery", "enable", "--metadata", setting.cluster.uri)
        subprocess.run([*PROGRAM, *words], check=True, capture_output=True)
        ledgers.until_without(lost)
        ledgers.check()
        equal(stop_all([server for server, _ in servers])[0], 0, "exit status of our auto-recovery")
