"""Auto-recovery in clusters of both kinds of bookies: Java's repairs what ours held, ours what Java's held, and both
at once have one auditor.

The cases take a cluster whose writer and reader are of different kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

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
from interop.clients import Client, ClientProcess, Ledger
from interop.clusters import FENCEPOST, JAVA, NONE, PROGRAM, Bookie, java_uri
from interop.processes import Server, free_port, stop_all

CASES: dict[str, Case] = {}
"""By their names; for clusters of both kinds of bookies."""

PATIENCE = 180
"""Seconds that a repair may take."""

BOOKIES = 5
"""Enough to lose two, one after the other, and still have a new bookie for each ledger."""

GRACE = 1000
"""Milliseconds that the writer of an open ledger has to replace a bookie."""

RACKS = ("/r1", "/r1", "/r2", "/r3", "/r4")
"""Of the bookies, in their order. The last of either kind is alone in its rack, so its entries go to others."""

QUORUM = 2
"""The write quorum of ledgers in racks: as many as the racks that each entry is in, unless there is a setting."""

MAPPING = "org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping"
"""Pulsar's class that reads our racks; BookKeeper's own runs a script."""

NOT_ADHERING = re.compile(r"(?:ledger: |ledgerId=)(\d+).* not adhering to|not adhering to.*ledgerId=(\d+)")
"""What Java's auditor logs of each fragment in too few racks, up to 4.17 and from 4.18 on."""

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


def _by_racks(setting: Setting) -> dict[str, object]:
    """Settings by which what is BookKeeper's reads our racks; Pulsar's class cannot parse BookKeeper's address."""
    where, _, _ = setting.cluster.uri.removeprefix("zk://").partition("/")
    return {"metadataServiceUri": "", "zkServers": where, "zkTimeout": "6000", "reppDnsResolverClass": MAPPING}


def _server(
    setting: Setting, kind: str, number: int, racks: bool, settings: Mapping[str, object]
) -> tuple[Server, str]:
    """Auto-recovery as a process of its own that has not started yet, and the name that it votes with."""
    folder = setting.cluster.folder / f"autorecovery-{number}"
    folder.mkdir(exist_ok=True)
    before = len(_nodes(setting, _votes))
    if kind == FENCEPOST:
        name = f"fencepost-{number}"
        own = {"bookieId": name, "zkTimeout": 6000, "openLedgerRereplicationGracePeriod": GRACE, **settings}
        words = [word for each in own.items() for word in ("--set", "{}={}".format(*each))]
        command = [*PROGRAM, "autorecovery", "--metadata", setting.cluster.uri, "--verbose", *words]
        return Server("our auto-recovery", command, folder / "log", lambda server: " runs" in server.said()), name
    port = free_port()
    file = folder / "autorecovery.conf"
    own = {
        "metadataServiceUri": java_uri(setting.cluster.uri), "bookiePort": port, "allowLoopback": "true",
        "listeningInterface": "lo", "advertisedAddress": "127.0.0.1", "httpServerEnabled": "false",
        "statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider", "zkTimeout": 6000,
        "lostBookieRecoveryDelay": 0, "openLedgerRereplicationGracePeriod": GRACE,
        **(_by_racks(setting) if racks else NONE), **settings,
    }  # fmt: skip
    file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    main = [
        "-cp",
        jars.class_path(racks=racks),
        "org.apache.bookkeeper.replication.AutoRecoveryMain",
        "--conf",
        str(file),
    ]
    server = Server(
        "Java's auto-recovery", jars.java(*main), folder / "log", lambda _: len(_nodes(setting, _votes)) > before
    )
    return server, f"127.0.0.1:{port}"


@contextlib.contextmanager
def _recovering(
    setting: Setting, *kinds: str, racks: bool = False, **settings: object
) -> Iterator[list[tuple[Server, str]]]:
    """Auto-recovery of these kinds, which runs."""
    servers = []
    _add_bookies(setting)
    try:
        for kind in kinds:
            servers.append(_server(setting, kind, int(time.monotonic() * 1000), racks, settings))
            servers[-1][0].start()
        yield servers
    finally:
        for server, _ in servers:
            server.kill()
        _delete_ledgers(setting)  # the next case loses bookies, and waits until none is in a ledger
        setting.cluster.heal()
        # they go with the sessions of the killed
        until(PATIENCE, "all votes are gone", lambda: not _nodes(setting, _votes))
        _nodes(setting, _forget)


def _add_bookies(setting: Setting) -> None:
    if len(setting.cluster.bookies) < BOOKIES:
        setting.cluster.add_bookies(BOOKIES - len(setting.cluster.bookies))


def _delete_ledgers(setting: Setting) -> None:
    for ledger in setting.reader.call("list"):
        setting.reader.call("delete", ledger=ledger)


@contextlib.contextmanager
def _in_racks(setting: Setting) -> Iterator[Setting]:
    """The bookies have racks, by our command, and the writer is a client of Java's that regards them, as the reader
    does."""
    jars.fetch_pulsar()
    _add_bookies(setting)
    process = ClientProcess(JAVA, setting.cluster.folder / "client-by-racks.log", racks=True)
    try:
        for bookie, rack in zip(setting.cluster.bookies, RACKS, strict=True):
            setting.cluster.rack(bookie.id, rack)
        writer = Client(process, setting.cluster.uri, **_by_racks(setting))
        yield dataclasses.replace(setting, writer=writer)
    finally:
        process.end()
        for bookie in setting.cluster.bookies:
            setting.cluster.rack(bookie.id, "--remove")


async def _forget(nodes: UnderReplication) -> None:
    for each in await _listed(nodes):
        nodes.held.add(each.ledger)
        await nodes.replicated(each)


# -- ledgers ----------------------------------------------------------------------------------------------------------


class _Written:
    """Ledgers of both kinds of clients: closed, striped, empty, and left open, with different digests. A writer that
    notices that a bookie is lost may replace it in its open ledger itself."""

    def __init__(
        self, setting: Setting, on: Sequence[Bookie], ensembles: Sequence[int] = (3, 4), quorum: int = 3
    ) -> None:
        """``on``: bookies that each ledger has in its ensemble."""
        self.setting = setting
        self.quorum = quorum
        small, large = ensembles
        self.bodies: dict[int, tuple[list[bytes], dict[str, str]]] = {}
        """What is in each, and how it is opened."""
        for digest in ("CRC32C", "MAC"):
            for client in (setting.writer, setting.reader):
                given = {"digest": digest, "password": "secret"}
                for ensemble, count in ((small, 300), (large, 200), (small, 0)):
                    ledger = self._on(on, client, ensemble=ensemble, write_quorum=quorum, ack_quorum=2, **given)
                    self._fill(ledger, count, given).close()
                left = self._on(on, client, ensemble=small, write_quorum=quorum, ack_quorum=2, **given)
                self._fill(left, 50, given)

    def _on(self, on: Sequence[Bookie], client: object, **given: object) -> Ledger:
        """A ledger that has bookies in its ensemble."""
        while True:
            ledger: Ledger = client.create(**given)  # type: ignore[attr-defined]
            if {each.id for each in on} <= self.bookies(ledger.id):
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
        if copies[0] < sum(self.quorum * len(bodies) for bodies, _ in self.bodies.values()):
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
    """The last bookie of a kind."""
    return next(bookie for bookie in reversed(setting.cluster.bookies) if bookie.kind == kind)


def _in_one_rack(setting: Setting, racks: Sequence[str]) -> dict[int, dict[str, Any]]:
    """The metadata of ledgers that have entries in one rack alone, or would, if these are the racks of the bookies."""
    of = {bookie.id: rack for bookie, rack in zip(setting.cluster.bookies, racks, strict=True)}
    every = {ledger: setting.reader.metadata(ledger) for ledger in setting.reader.call("list")}
    return {
        ledger: metadata
        for ledger, metadata in every.items()
        for ensemble in metadata["ensembles"].values()
        for place in range(len(ensemble))
        if len({of[ensemble[(place + each) % len(ensemble)]] for each in range(QUORUM)}) < QUORUM
    }


def _listed_misplaced(setting: Setting) -> set[int]:
    command = [*PROGRAM, "bookie", "list", "misplaced", "--metadata", setting.cluster.uri, "--json"]
    return {each["ledger"] for each in json.loads(subprocess.run(command, check=True, capture_output=True).stdout)}


def _finds(kind: str, server: Server, expected: set[int] | int) -> bool:
    """Whether these are the ledgers in too few racks of the last check that an auditor has ended. Java's log names
    them, ours counts them."""
    if kind == FENCEPOST:
        return re.findall(r"than the minimum: (\d+)", server.said())[-1:] == [str(expected)]
    *checks, _ = server.said().split("Completed placementPolicyCheck")
    return bool(checks) and {int(one or other) for one, other in NOT_ADHERING.findall(checks[-1])} == expected


# -- cases ------------------------------------------------------------------------------------------------------------


def _repaired(setting: Setting, recovery: str, kind: str) -> None:
    lost = _any(setting, kind)
    with _recovering(setting, recovery):
        ledgers = _Written(setting, [lost])
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


def _repaired_in_racks(setting: Setting, kinds: Sequence[str], kind: str) -> None:
    _delete_ledgers(setting)  # those of earlier cases know no racks
    with _in_racks(setting) as placed, _recovering(placed, *kinds, racks=True):
        lost = _any(placed, kind)
        # Not striped over four: of the bookies that are left, none would do for some.
        ledgers = _Written(placed, [lost], (3, 2), QUORUM)
        equal(_in_one_rack(placed, RACKS), {}, "ledgers in one rack as they are written")
        lost.server.kill()
        ledgers.until_without(lost)
        ledgers.check()
        equal(_in_one_rack(placed, RACKS), {}, "ledgers in one rack once they are repaired")


@_case("autorecovery: racks, Java's")
def java_repairs_in_racks(setting: Setting) -> None:
    """Bookies are in racks that we have set, and clients of both kinds spread ledgers over them; one that is alone in
    its rack is killed, and Java's gives its entries to bookies in the racks that are left."""
    _repaired_in_racks(setting, [JAVA], FENCEPOST)


@_case("autorecovery: racks, ours")
def ours_repairs_in_racks(setting: Setting) -> None:
    """The same with ours."""
    _repaired_in_racks(setting, [FENCEPOST], JAVA)


@_case("autorecovery: racks, both")
def both_repair_in_racks(setting: Setting) -> None:
    """The same with both at once; each is the auditor once."""
    _repaired_in_racks(setting, [JAVA, FENCEPOST], FENCEPOST)
    _repaired_in_racks(setting, [FENCEPOST, JAVA], JAVA)


@_case("autorecovery: racks, what both find misplaced")
def misplaced_by_both(setting: Setting) -> None:
    """Bookies move into the rack of others: both auditors and our command find the ledgers that are in one rack now.
    Java's regards closed ledgers alone, even without entries; ours those with entries, and open ones."""
    _delete_ledgers(setting)
    racks = [*["/r1"] * (BOOKIES - 1), "/r4"]
    for kind in (JAVA, FENCEPOST):
        checks = {"auditorPeriodicPlacementPolicyCheckInterval": 2}
        with _in_racks(setting) as placed, _recovering(placed, kind, racks=True, **checks) as servers:
            _Written(placed, placed.cluster.bookies[-1:], (3, 2), QUORUM)
            _Written(placed, placed.cluster.bookies[:1], (3, 2), QUORUM)
            for bookie, rack in zip(placed.cluster.bookies, racks, strict=True):
                placed.cluster.rack(bookie.id, rack)
            found = _in_one_rack(placed, racks)
            closed = {ledger for ledger, metadata in found.items() if metadata["state"] == "CLOSED"}
            empty = {ledger for ledger in closed if found[ledger]["last_entry"] < 0}
            ours = found.keys() - empty
            equal(all((empty, closed - empty, ours - closed)), True, "whether there are such ledgers of each kind")
            equal(_listed_misplaced(placed), ours, "ledgers that our command lists")
            expected = len(ours) if kind == FENCEPOST else closed
            until(PATIENCE, f"{kind}'s auditor finds {expected}", partial(_finds, kind, servers[0][0], expected))


@_case("autorecovery: racks, both move entries")
def moved_by_both(setting: Setting) -> None:
    """Ledgers that were in one rack when racks are set are moved to several, as soon as they are closed."""
    _delete_ledgers(setting)
    _add_bookies(setting)
    for kind in (JAVA, FENCEPOST):
        ledgers = _Written(setting, setting.cluster.bookies[:2], (3, 3), QUORUM)
        moves = {
            "auditorPeriodicPlacementPolicyCheckInterval": 2,
            "repairedPlacementPolicyNotAdheringBookieEnabled": "true",
        }
        with _in_racks(setting) as placed, _recovering(placed, kind, racks=True, **moves):
            equal(_in_one_rack(placed, RACKS).keys(), ledgers.bodies.keys(), "ledgers in one rack")
            until(PATIENCE, f"{kind}'s has moved entries", partial(_are_spread, placed))
            until(PATIENCE, "nothing is under-replicated", lambda: _nodes(setting, _is_quiet))
            ledgers.check()


def _are_spread(setting: Setting) -> bool:
    several = _in_one_rack(setting, RACKS).values()
    return not any(each["state"] == "CLOSED" and each["last_entry"] >= 0 for each in several)


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
            ledgers = _Written(setting, [first])
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
            ledgers = _Written(setting, [second])
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
        ledgers = _Written(setting, [lost])
        lost.server.kill()
        time.sleep(15)  # longer than its session
        equal(_nodes(setting, _listed), [], "ledgers that were published though that is disabled")
        words = ("autorecovery", "enable", "--metadata", setting.cluster.uri)
        subprocess.run([*PROGRAM, *words], check=True, capture_output=True)
        ledgers.until_without(lost)
        ledgers.check()
        equal(stop_all([server for server, _ in servers])[0], 0, "exit status of our auto-recovery")
