"""The cases of the examination. Each is written once, for any clients, bookies and metadata service.

A case takes a :class:`Setting` and raises an exception if anything is not as BookKeeper has it.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

import fencepost
from fencepost.spark.ledgers import planning, reading
from fencepost.spark.ledgers.columns import Rows
from fencepost.spark.ledgers.filters import ANY
from fencepost.spark.ledgers.options import parse
from fencepost.traces import read as events_of
from interop.clients import Client, Ledger, Refused, decoded, encoded
from interop.clusters import JAVA, NONE, Bookie, Cluster, Group, java_uri, recorder
from interop.ensembles import mode
from interop.processes import stop_all
from interop.validation import told, verdicts

PAGE = Path(__file__).parent.parent / "docs" / "run" / "interoperability.md"
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")


@dataclasses.dataclass
class Setting:
    """A cluster, one client that writes, and another that reads, of the same kind or of the other."""

    cluster: Cluster
    writer: Client
    reader: Client
    connect: Callable[..., Client]
    """``connect(kind, **settings)``: one more client, of a kind."""


Case = Callable[[Setting], None]
C = TypeVar("C", bound=Case)

EVERY: dict[str, Case] = {}
"""Cases for every pair of clients, of the same kind or of different kinds."""
ALONE: dict[str, Case] = {}
"""Cases for one kind of client; the reader is of the same kind."""
OF_A_QUORUM: dict[str, Case] = {}
"""Cases for a metadata service of several members; the reader is of the same kind."""
JAVA_CLIENT: dict[str, Case] = {}
"""Cases for what the Java client alone has."""
OF_OUR_BOOKIES: dict[str, Case] = {}
"""Cases for the Java client and our bookies alone, which do better than BookKeeper's."""
SHELL: dict[str, Case] = {}
"""Commands of BookKeeper's shell; they come last, when there are ledgers."""


def _among(cases: dict[str, Case], name: str) -> Callable[[C], C]:
    def add(case: C) -> C:
        cases[name] = case
        return case

    return add


def entries(count: int, size: int = 100, mark: str = "entry") -> list[bytes]:
    """Entries that differ, each of ``size`` bytes."""
    return [f"{mark} {n} ".encode().ljust(size, b".")[:size] for n in range(count)]


def equal(found: object, expected: object, what: str) -> None:
    """Fail with both values unless they are equal."""
    if found != expected:
        raise AssertionError(f"{what}: {_short(found)} instead of {_short(expected)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:80]}...{text[-30:]}"


def refused(errors: str, operation: Callable[[], object]) -> None:
    """Fail unless the operation raises one of these, which are separated by blanks."""
    try:
        result = operation()
    except Refused as refusal:
        if refusal.error not in errors.split():
            raise AssertionError(f"{refusal} instead of {errors}") from None
    else:
        raise AssertionError(f"{_short(result)} instead of {errors}")


def until(seconds: float, what: str, holds: Callable[[], bool]) -> None:
    """Return once ``holds`` is true; fail after ``seconds``."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not after {seconds:.0f} s")
        time.sleep(0.05)


def written(ledger: Ledger, bodies: list[bytes], at: int = 0) -> None:
    """Append entries and check the ids that they get."""
    equal(ledger.append(*bodies), list(range(at, at + len(bodies))), "ids of the entries")


def new_folder(setting: Setting, name: str) -> Path:
    """A path in the cluster's folder that nothing has yet, though a case may run twice."""
    paths = (setting.cluster.folder / f"{name}-{n}" for n in itertools.count(1))
    return next(path for path in paths if not path.exists())


def read_back(client: Client, ledger: int, bodies: list[bytes], **arguments: object) -> None:
    """Open a ledger and check that just these entries are confirmed in it."""
    opened = client.open(ledger, **arguments)
    equal(opened.call("lac"), len(bodies) - 1, "LAC")
    equal(opened.call("length"), sum(map(len, bodies)), "length")
    if bodies:
        equal(opened.read(0, len(bodies) - 1), bodies, "entries")


# -- for every pair of clients ----------------------------------------------------------------------------------------


@_among(EVERY, "create")
def create(setting: Setting) -> None:
    """The metadata of a new ledger read the same by both clients, and the ledger is listed."""
    ledger = setting.writer.create(
        ensemble=3, write_quorum=2, ack_quorum=2, custom_metadata={"owner": "interop", "empty": ""}
    )
    own, other = setting.writer.metadata(ledger.id), setting.reader.metadata(ledger.id)
    equal(other, own, "metadata")
    for name, value in {
        "state": "OPEN",
        "ensemble": 3,
        "write_quorum": 2,
        "ack_quorum": 2,
        "last_entry": -1,
        "length": 0,
    }.items():
        equal(own[name], value, name)
    equal(own["custom_metadata"], {"owner": "interop", "empty": ""}, "custom metadata")
    equal(list(own["ensembles"]), ["0"], "first entries of fragments")
    equal(
        len(set(own["ensembles"]["0"]) & {bookie.id for bookie in setting.cluster.bookies}),
        3,
        "bookies of the ensemble",
    )
    for client in (setting.writer, setting.reader):
        equal(client.call("list").count(ledger.id), 1, "how often the ledger is listed")


@_among(EVERY, "write and read")
def write_and_read(setting: Setting) -> None:
    """Entries of many sizes, striped over two of three bookies, closed, read whole and in part."""
    bodies = [*entries(200), b"", b"x", *entries(3, 65_536), *entries(20, 1024)]
    ledger = setting.writer.create(ensemble=3, write_quorum=2, ack_quorum=2)
    written(ledger, bodies)
    if setting.writer.kind == JAVA:
        equal(ledger.read(0, 10), bodies[:11], "entries, read by the writer")
    ledger.close()
    metadata = setting.reader.metadata(ledger.id)
    equal((metadata["state"], metadata["last_entry"]), ("CLOSED", len(bodies) - 1), "state and last entry")
    equal(metadata["length"], sum(map(len, bodies)), "length")
    read_back(setting.reader, ledger.id, bodies)
    again = setting.reader.open(ledger.id, recover=False)
    equal(again.read(150, 210), bodies[150:211], "entries 150 to 210")
    refused(
        "ReadException NoSuchEntryException IncorrectParameterException", lambda: again.read(len(bodies), len(bodies))
    )


@_among(EVERY, "empty ledger")
def empty(setting: Setting) -> None:
    """A ledger that is closed without an entry, and one that is recovered without one."""
    closed, left = setting.writer.create(), setting.writer.create()
    closed.close()
    for ledger in (closed, left):
        read_back(setting.reader, ledger.id, [])
        equal(setting.reader.metadata(ledger.id)["state"], "CLOSED", "state")


@_among(EVERY, "large entries")
def large(setting: Setting) -> None:
    """Entries of 1 MiB, several in flight."""
    bodies = entries(6, 1 << 20)
    ledger = setting.writer.create()
    written(ledger, bodies)
    ledger.close()
    read_back(setting.reader, ledger.id, bodies)


@_among(EVERY, "tail")
def tail(setting: Setting) -> None:
    """A reader waits for entries while they are written, without fencing the writer."""
    bodies = entries(30)
    ledger = setting.writer.create()
    reader = setting.reader.open(ledger.id, recover=False)
    equal(ledger.append(bodies[0]), [0], "id")
    time.sleep(0.5)  # Java's reader fails if a bookie that it asks has nothing of the ledger yet
    # The last entry is confirmed by the next one, which is the reason that one more is written.
    waiting = reader.begin("tail", first=0, count=len(bodies) - 1)
    for n, body in enumerate(bodies[1:], 1):
        equal(ledger.append(body), [n], "id")
        if n % 10 == 0:
            time.sleep(0.1)
    equal(decoded(waiting.result(30), 0), bodies[:-1], "entries")
    ledger.close()


@_among(EVERY, "last confirmed")
def last_confirmed(setting: Setting) -> None:
    """A reader that does not recover sees what later entries or the close confirm; with Java's, it can read what is not
    confirmed too.
    """
    bodies = entries(10)
    ledger = setting.writer.create()
    for body in bodies:
        ledger.append(body)
    reader = setting.reader.open(ledger.id, recover=False)
    equal(reader.call("lac"), 8, "LAC when it is opened")
    equal(reader.call("read_lac"), 8, "LAC that is read")
    if setting.reader.kind == JAVA:
        equal(reader.read(9, 9, "read_unconfirmed"), bodies[9:], "entry that is not confirmed")
    ledger.append(b"one more")
    until(30, "LAC of 9", lambda: reader.call("read_lac") == 9)
    ledger.close()
    until(30, "LAC of 10 after the close", lambda: reader.call("read_lac") == 10)


@_among(EVERY, "explicit LAC")
def explicit_lac(setting: Setting) -> None:
    """The writer sends the LAC explicitly when no entry follows to carry it."""
    writer = setting.connect(setting.writer.kind, explicitLacInterval=100)
    ledger = writer.create()
    written(ledger, entries(10))
    reader = setting.reader.open(ledger.id, recover=False)
    until(30, "LAC of 9", lambda: reader.call("read_lac") == 9)
    if setting.reader.kind == JAVA:
        equal(reader.call("explicit_lac"), 9, "explicit LAC")
    equal(reader.read(0, 9), entries(10), "entries")
    ledger.close()
    writer.close()


@_among(EVERY, "recover")
def recover(setting: Setting) -> None:
    """A ledger that its writer left open is closed by another client, with every acknowledged entry."""
    bodies = entries(150)
    ledger = setting.writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
    written(ledger, bodies)
    read_back(setting.reader, ledger.id, bodies)
    metadata = setting.writer.metadata(ledger.id)
    equal((metadata["state"], metadata["last_entry"]), ("CLOSED", 149), "state and last entry")


@_among(EVERY, "two writers")
def fence(setting: Setting) -> None:
    """Opening a ledger with recovery fences its writer: every later append fails."""
    ledger = setting.writer.create()
    written(ledger, entries(20))
    other = setting.reader.open(ledger.id)
    equal(other.call("lac"), 19, "LAC")
    for _ in range(2):
        refused("LedgerFencedException LedgerClosedException", lambda: ledger.append(b"too late"))
    equal(setting.writer.metadata(ledger.id)["last_entry"], 19, "last entry")
    next_one = setting.reader.create()
    written(next_one, entries(5))
    setting.writer.open(next_one.id)
    refused("LedgerFencedException LedgerClosedException", lambda: next_one.append(b"too late"))


@_among(EVERY, "recovery under load")
def recovery_under_load(setting: Setting) -> None:
    """A ledger is recovered while its writer is adding: what was acknowledged is there, and nothing is acknowledged
    after.
    """
    ledger = setting.writer.create()
    acknowledged = 0
    bodies = entries(4000)
    for n in range(0, 400, 50):
        written(ledger, bodies[n : n + 50], at=n)
        acknowledged = n + 50
    pending = [ledger.begin("append", entries=encoded((body,))) for body in bodies[acknowledged : acknowledged + 400]]
    other = setting.reader.open(ledger.id)
    for answer in pending:
        try:
            acknowledged = max(acknowledged, answer.result(30)[0] + 1)
        except Refused as refusal:
            if refusal.error not in ("LedgerFencedException", "LedgerClosedException"):
                raise
    last = other.call("lac")
    if last < acknowledged - 1:
        raise AssertionError(f"entry {acknowledged - 1} was acknowledged and the ledger ends with {last}")
    # The requests of one append each may reach the ledger in any order after the first 400.
    equal(other.read(0, 399), bodies[:400], "entries")
    if last >= 400:
        meanwhile = other.read(400, last)
        equal(len(set(meanwhile) & set(bodies)), len(meanwhile), "entries of the writer among those added meanwhile")


@_among(EVERY, "digests")
def digests(setting: Setting) -> None:
    """Each type of digest, with a password: written, read and recovered."""
    for digest in DIGESTS:
        ledger = setting.writer.create(digest=digest, password="secret")
        written(ledger, entries(20, mark=digest))
        equal(setting.reader.metadata(ledger.id)["digest"], digest, "digest in the metadata")
        read_back(setting.reader, ledger.id, entries(20, mark=digest), digest=digest, password="secret")


@_among(EVERY, "wrong password")
def wrong_password(setting: Setting) -> None:
    """A wrong password opens nothing, and the writer goes on."""
    ledger = setting.writer.create(digest="MAC", password="secret")
    written(ledger, entries(10))
    for recovery in (True, False):
        refused(
            "UnauthorizedAccessException DigestMatchException LedgerRecoveryException",
            partial(setting.reader.open, ledger.id, digest="MAC", password="guessed", recover=recovery),
        )
    written(ledger, entries(1), at=10)
    ledger.close()


@_among(EVERY, "partitions of Spark")
def partitions(setting: Setting) -> None:
    """What the driver of Spark plans for a ledger, and its tasks read of it, without Spark: every entry once, as
    columns of Arrow.
    """
    bodies = [*entries(300), b"", *entries(3, 65_536), *entries(200)]
    ledger = setting.writer.create(ensemble=3, write_quorum=2, ack_quorum=2)
    written(ledger, bodies)
    ledger.close()
    options = parse({"metadata": setting.cluster.uri, "ledger": str(ledger.id), "maxBytesPerPartition": "100000"})
    rows = Rows(pa.schema([("entry", pa.int64()), ("length", pa.int64()), ("value", pa.binary())]), None, None)
    found: list[dict[str, Any]] = []
    with fencepost.connect(setting.cluster.uri) as store:
        parts = store.run(lambda store: planning.batch(store, options, ANY, ANY))
        for part in parts:
            for wanted, metadata, batch in store.iterate(partial(reading.batches, options=options, part=part)):
                found += rows.of(wanted, metadata, batch).to_pylist()
    equal(len(parts) > 1, True, "whether there are several partitions")
    found.sort(key=lambda row: int(row["entry"]))
    equal([row["entry"] for row in found], list(range(len(bodies))), "entries")
    equal([row["value"] for row in found], bodies, "values")
    equal([row["length"] for row in found], list(itertools.accumulate(map(len, bodies))), "lengths")


@_among(EVERY, "delete")
def delete(setting: Setting) -> None:
    """A deleted ledger is gone for every client."""
    ledger = setting.writer.create()
    written(ledger, entries(5))
    ledger.close()
    setting.reader.call("delete", ledger=ledger.id)
    for client in (setting.writer, setting.reader):
        equal(client.call("list").count(ledger.id), 0, "how often the ledger is listed")
        refused(
            "NoSuchLedgerExistsException NoSuchLedgerExistsOnMetadataServerException",
            partial(client.open, ledger.id),
        )


# -- for a client by itself -------------------------------------------------------------------------------------------


def _ensemble(setting: Setting, ledger: int) -> list[str]:
    """The bookies of the last fragment."""
    ensembles = setting.writer.metadata(ledger)["ensembles"]
    last: list[str] = ensembles[max(ensembles, key=int)]
    return last


def _without_a_bookie(setting: Setting, frozen: bool, work: Callable[[Ledger, Bookie], None]) -> None:
    """Write, lose a bookie of the ensemble, do the work, and have the bookie again."""
    ledger = setting.writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
    written(ledger, entries(50))
    lost = setting.cluster.bookie(_ensemble(setting, ledger.id)[1])
    if frozen:
        lost.server.freeze()
    else:
        lost.server.kill()
    try:
        work(ledger, lost)
    finally:
        if frozen:
            lost.server.thaw()
        else:
            setting.cluster.restart([lost])


@_among(ALONE, "ensemble change after kill -9")
def ensemble_change(setting: Setting) -> None:
    """A bookie is killed: another takes its place, nothing is lost, and all is read with that one gone."""

    def work(ledger: Ledger, lost: Bookie) -> None:
        bodies = entries(150)
        written(ledger, bodies[50:], at=50)
        # An add that waits for two of three can be over before the third was missed; the change of the ensemble comes
        # later.
        extra = 0
        while lost.id in _ensemble(setting, ledger.id) and extra < 100:
            time.sleep(0.05)
            written(ledger, entries(1, mark=f"extra {extra}"), at=150 + extra)
            extra += 1
        if lost.id in _ensemble(setting, ledger.id):
            raise AssertionError(f"{lost.id} was killed and is still in the last ensemble")
        ledger.close()
        opened = setting.reader.open(ledger.id)
        equal(opened.read(0, 149), bodies, "entries")
        equal(opened.call("lac"), 149 + extra, "LAC")
        if len(setting.reader.metadata(ledger.id)["ensembles"]) < 2:
            raise AssertionError("there is no second fragment")

    _without_a_bookie(setting, False, work)


@_among(ALONE, "recover with a bookie killed")
def recover_with_a_bookie_lost(setting: Setting) -> None:
    """A ledger is recovered while one bookie of its ensemble is gone, and read when that is back."""

    def work(ledger: Ledger, lost: Bookie) -> None:
        read_back(setting.reader, ledger.id, entries(50))
        ledgers.append(ledger.id)

    ledgers: list[int] = []
    _without_a_bookie(setting, False, work)
    read_back(setting.writer, ledgers[0], entries(50))


@_among(ALONE, "a bookie that hangs")
def hanging_bookie(setting: Setting) -> None:
    """A bookie is stopped in its tracks: entries are confirmed by the two others and read from them, and it goes on
    when it is let.
    """

    def work(ledger: Ledger, lost: Bookie) -> None:
        written(ledger, entries(50), at=50)
        reader = setting.reader.open(ledger.id, recover=False)
        equal(reader.read(0, 40), entries(41), "entries")
        ledgers.append(ledger.id)

    ledgers: list[int] = []
    _without_a_bookie(setting, True, work)
    read_back(setting.reader, ledgers[0], entries(50) * 2)


@_among(ALONE, "restart of all bookies")
def restart(setting: Setting) -> None:
    """All bookies are killed together and started again: what was acknowledged is there, and a fence holds."""
    bodies = entries(300, 1000)
    closed, left, fenced = setting.writer.create(), setting.writer.create(), setting.writer.create()
    for ledger in (closed, left, fenced):
        written(ledger, bodies)
    closed.close()
    setting.reader.open(fenced.id)
    for bookie in setting.cluster.bookies:
        bookie.server.kill()
    setting.cluster.restart(setting.cluster.bookies)
    for ledger in (closed, left, fenced):
        _patient(partial(read_back, setting.reader, ledger.id, bodies))
    refused("LedgerFencedException LedgerClosedException", lambda: fenced.append(b"too late"))
    statuses = stop_all([bookie.server for bookie in setting.cluster.bookies])
    # A Java virtual machine that is ended by SIGTERM says so in its exit status.
    equal(
        statuses,
        [143 if bookie.kind == JAVA else 0 for bookie in setting.cluster.bookies],
        "exit statuses of the bookies",
    )
    setting.cluster.restart(setting.cluster.bookies)
    for ledger in (closed, left, fenced):
        _patient(partial(read_back, setting.reader, ledger.id, bodies))


def _patient(work: Callable[[], object], seconds: float = 20) -> None:
    """Work that may be refused while clients have not yet noticed that bookies are back."""
    end = time.monotonic() + seconds
    while True:
        try:
            work()
        except Refused:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return


@_among(ALONE, "force and deferred sync")
def force(setting: Setting) -> None:
    """With deferred sync, an entry is acknowledged at once and confirmed by a force."""
    ledger = setting.writer.create(deferred_sync=True)
    written(ledger, entries(20))
    equal(ledger.call("lac"), -1, "LAC before the force")
    ledger.call("force")
    equal(ledger.call("lac"), 19, "LAC after the force")
    ledger.close()
    read_back(setting.reader, ledger.id, entries(20))


@_among(ALONE, "many ledgers")
def many_ledgers(setting: Setting) -> None:
    """Fifty ledgers have ids of their own, are listed, and are deleted."""
    ledgers = [setting.writer.create() for _ in range(50)]
    equal(len({ledger.id for ledger in ledgers}), 50, "different ids")
    for ledger in ledgers:
        ledger.append(str(ledger.id).encode())
        ledger.close()
    missing = {ledger.id for ledger in ledgers} - set(setting.reader.call("list"))
    equal(missing, set(), "ledgers that are not listed")
    for ledger in ledgers[::10]:
        equal(setting.reader.open(ledger.id).read(0, 0), [str(ledger.id).encode()], "entry")
    for ledger in ledgers:
        setting.writer.call("delete", ledger=ledger.id)
    left = {ledger.id for ledger in ledgers} & set(setting.reader.call("list"))
    equal(left, set(), "deleted ledgers that are listed")


@_among(ALONE, "restart of the metadata service")
def metadata_restart(setting: Setting) -> None:
    """The metadata service is killed and started again: a ledger goes on, and is closed and read."""
    ledger = setting.writer.create()
    written(ledger, entries(20))
    setting.cluster.service.kill()
    written(ledger, entries(20), at=20)
    setting.cluster.service.start()
    _patient(lambda: setting.writer.metadata(ledger.id), 30)
    written(ledger, entries(20), at=40)
    ledger.close()
    _patient(lambda: read_back(setting.reader, ledger.id, entries(20) * 3), 30)

    def registered() -> bool:
        try:
            return bool(setting.writer.create())
        except Refused:
            return False

    until(30, "a ledger created after the restart", registered)


@_among(OF_A_QUORUM, "each member is killed")
def each_member_is_killed(setting: Setting) -> None:
    """The leader is killed, then each of the others; every time a ledger goes on, another one is created, both are
    closed, and all bookies stay registered.
    """
    group = setting.cluster.service
    assert isinstance(group, Group)
    for _ in range(len(group.servers)):
        ledger = setting.writer.create()
        written(ledger, entries(10))
        leaders = [
            number for number, where in enumerate(group.where) if mode(int(where.rpartition(":")[2])) == "leader"
        ]
        group.servers[leaders[0]].kill()
        other = setting.writer.create()
        written(other, entries(10))
        written(ledger, entries(10), at=10)
        for each, bodies in ((ledger, entries(10) * 2), (other, entries(10))):
            each.close()
            read_back(setting.reader, each.id, bodies)
        group.servers[leaders[0]].start()
        until(30, "a leader", lambda: any(mode(int(where.rpartition(":")[2])) == "leader" for where in group.where))


@_among(ALONE, "recorded")
def recorded(setting: Setting, **settings: object) -> None:
    """A ledger is written and recovered through a proxy that loses an answer, cuts a connection and is slow: all of it
    is in the trace.

    ``settings``: of the clients.
    """
    faults = (
        "drop response add after=30",
        "cut response add after=90",
        "delay request read fence=yes count=2 by=200ms",
    )
    folder = new_folder(setting, f"trace-{setting.writer.kind}-{'-'.join(settings) or 'plain'}")
    bodies = entries(200)
    server = recorder(setting.cluster.uri, folder, faults)
    server.start()
    try:
        # Clients that were there before have connections to the bookies themselves.
        writer, reader = (
            setting.connect(setting.writer.kind, **settings),
            setting.connect(setting.reader.kind, **settings),
        )
        ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
        for number in range(50):
            written(ledger, bodies[number : number + 1], at=number)
        written(ledger, bodies[50:], at=50)
        read_back(reader, ledger.id, bodies)
        refused("LedgerFencedException LedgerClosedException", lambda: ledger.append(b"too late"))
        metadata = reader.metadata(ledger.id)
        writer.close()
        reader.close()
    finally:
        (status,) = stop_all([server])
    equal(status, 0, f"exit status of the recorder, which said {server.said()!r}")
    _check_trace(folder, ledger.id, metadata, len(bodies), len(faults))
    read_back(setting.reader, ledger.id, bodies)  # by the bookies' own addresses again


def _check_trace(folder: Path, ledger: int, metadata: dict[str, Any], count: int, faults: int) -> None:
    """Check that a trace has all events of a recovered ledger of ``count`` entries."""
    events = [(event.action, event.subject, event.parameter_values()) for event in events_of(folder)]
    equal([events[0][0], events[-1][0]], ["started", "ended"], "first and last event")

    def told(*actions: str) -> list[dict[str, Any]]:
        return [parameters for action, subject, parameters in events if action in actions and subject == str(ledger)]

    made = [
        parameters
        for action, _, parameters in events
        if action in ("message_dropped", "message_delayed", "connection_cut")
    ]
    equal({each["rule"] for each in made}, set(range(1, faults + 1)), "rules that have acted")
    ensembles = metadata["ensembles"]
    bookies = {bookie for ensemble in ensembles.values() for bookie in ensemble}
    adds = [each for each in told("request_passed") if each["kind"] == "add"]
    answers = [each for each in told("response_passed") if each["kind"] == "add"]
    if not bookies <= {add["bookie"] for add in adds}:
        raise AssertionError(
            f"adds went to {sorted({add['bookie'] for add in adds})}, and the ensembles have {sorted(bookies)}"
        )
    for entry in range(count):
        taken = {answer["bookie"] for answer in answers if answer["entry"] == entry and answer["code"] == "OK"}
        if len(taken) < 2 or not any(
            add["entry"] == entry and not add["recovery"] and add["lac"] < entry for add in adds
        ):
            raise AssertionError(f"entry {entry} was confirmed, and the trace has answers of {sorted(taken)}")
    fences = [each for each in told("request_passed") if each.get("fence")]
    if not {fence["bookie"] for fence in fences if fence["entry"] == -1} >= set(ensembles[max(ensembles, key=int)]):
        raise AssertionError(f"the ledger was fenced, and the trace has {fences}")
    versions, missed = told("metadata_seen"), told("metadata_missed")
    known = [each["version"] for each in versions] + [
        n for each in missed for n in range(each["first"], each["last"] + 1)
    ]
    equal(sorted(known), list(range(len(known))), "versions that were seen or told to be missed")
    last = versions[-1]["metadata"]
    equal((last["state"], last["last_entry"]), ("CLOSED", count - 1), "state and last entry in the trace")
    equal({str(first): bookies for first, bookies in last["fragments"]}, dict(ensembles), "ensembles in the trace")


@_among(ALONE, "validated")
def validated(setting: Setting, **settings: object) -> None:
    """Cases through a recorder: what it has seen of each ledger is a behaviour of the protocol."""
    cases = [
        case
        for case in THROUGH_A_RECORDER
        if not (case is force and settings)  # which version 2 does not have
        # it closes its ledger while that is recovered
        and not (case is recovery_under_load and setting.writer.kind == JAVA)
    ]
    folder = new_folder(setting, f"validated-{setting.writer.kind}-{'-'.join(settings) or 'plain'}")
    server = recorder(setting.cluster.uri, folder, ())
    server.start()
    try:
        clients = [setting.connect(kind, **settings) for kind in (setting.writer.kind, setting.reader.kind)]
        seen = dataclasses.replace(setting, writer=clients[0], reader=clients[1])
        _patient(lambda: clients[0].create())  # its bookies come one after another
        for case in cases:
            try:
                case(seen)
            except (AssertionError, Refused) as failure:
                raise AssertionError(f"{case.__name__}: {failure}") from failure
        for client in clients:
            client.close()
    finally:
        stop_all([server])
    found = verdicts(folder)
    wrong = {ledger: told(outcome) for ledger, outcome in found.items() if not outcome.accepted}
    if wrong or len(found) < len(cases):
        raise AssertionError(
            f"{len(wrong)} of {len(found)} ledgers are not accepted:\n"
            + "\n".join(f"{ledger}: {why}" for ledger, why in wrong.items())
        )


THROUGH_A_RECORDER = (
    create, write_and_read, empty, large, last_confirmed, recover, fence, recovery_under_load, digests, wrong_password,
    delete, ensemble_change,
    recover_with_a_bookie_lost, hanging_bookie, force,
)  # fmt: skip
# -- for what the Java client alone has -------------------------------------------------------------------------------


@_among(JAVA_CLIENT, "batch read")
def batch_read(setting: Setting) -> None:
    """Many entries with one request, in version 2; the bookie gives as many as fit."""
    client = setting.connect(JAVA, useV2WireProtocol="true")
    bodies = entries(100, 1000)
    ledger = client.create()
    written(ledger, bodies)
    ledger.close()
    opened = client.open(ledger.id)
    found = decoded(opened.call("batch_read", first=0, count=100, size=5 << 20), 0)
    equal(found, bodies, "entries in one batch")
    found = decoded(opened.call("batch_read", first=20, count=5, size=5 << 20), 20)
    equal(found, bodies[20:25], "five entries")
    found = decoded(opened.call("batch_read", first=0, count=100, size=10_000), 0)
    if not found or len(found) > 10 or found != bodies[: len(found)]:
        raise AssertionError(f"{len(found)} entries of 1,000 bytes in a batch of 10,000")
    client.close()


@_among(JAVA_CLIENT, "version 2")
def version_2(setting: Setting) -> None:
    """The Java client speaking version 2: write, read, recover, two writers, all digests."""
    client = setting.connect(JAVA, useV2WireProtocol="true")
    v2 = dataclasses.replace(setting, writer=client, reader=client)
    for case in (write_and_read, empty, recover, fence, digests, wrong_password, last_confirmed):
        try:
            case(v2)
        except (AssertionError, Refused) as failure:
            raise AssertionError(f"{case.__name__}: {failure}") from failure
    mixed = dataclasses.replace(setting, writer=client)
    recover(mixed)
    fence(mixed)
    client.close()


@_among(JAVA_CLIENT, "version 2: recorded")
def version_2_recorded(setting: Setting) -> None:
    """The same through a proxy, by the Java client speaking version 2."""
    recorded(setting, useV2WireProtocol="true")


@_among(JAVA_CLIENT, "version 2: validated")
def version_2_validated(setting: Setting) -> None:
    """The same held to the protocol, by the Java client speaking version 2."""
    validated(setting, useV2WireProtocol="true")


@_among(JAVA_CLIENT, "version 2: ensemble change")
def version_2_ensemble_change(setting: Setting) -> None:
    """The Java client speaking version 2, whose bookie is killed."""
    client = setting.connect(JAVA, useV2WireProtocol="true")
    ensemble_change(dataclasses.replace(setting, writer=client))
    client.close()


@_among(OF_OUR_BOOKIES, "entry that is too large")
def too_large(setting: Setting) -> None:
    """An entry that is too large for bookies ends its writer, in versions 3 and 2, and nothing else. BookKeeper's
    bookie closes the connection instead, and the client retries without end.
    """
    for version_2 in ("false", "true"):
        client = setting.connect(JAVA, useV2WireProtocol=version_2)
        ledger, other = client.create(), client.create()
        written(ledger, entries(10))
        refused("UnauthorizedAccessException", partial(ledger.append, bytes(6 << 20)))
        written(other, entries(10))
        equal(client.metadata(ledger.id)["state"], "CLOSED", "state")
        equal(len(client.metadata(ledger.id)["ensembles"]), 1, "ensembles")
        read_back(setting.reader, ledger.id, entries(10))
        client.close()


# -- BookKeeper's shell -----------------------------------------------------------------------------------------------


def shell(setting: Setting, *words: str, root: str = "/ledgers", settings: Mapping[str, object] = NONE) -> str:
    """What a command of the shell prints; it must succeed. ``root``: of the cluster; ``settings``: of its bookie."""
    uri = java_uri(setting.cluster.uri.removesuffix("/ledgers") + root)
    arguments = {"uri": uri, "folder": str(setting.cluster.folder), "words": list(words)}
    done = setting.writer.call("shell", **arguments, settings=dict(settings))
    if done["status"] != 0:
        raise AssertionError(f"{words[0]} ends with {done['status']}: {done['printed'][-300:]}")
    printed: str = done["printed"]
    return printed


def printed_by(setting: Setting, *words: str, expected: Iterable[object]) -> str:
    """What a command of the shell prints, which must have all of these in it."""
    printed = shell(setting, *words)
    for each in expected:
        if str(each) not in printed:
            raise AssertionError(f"{each} is not in what {words[0]} prints: {printed[-1000:]}")
    return printed


def commands_of_the_page() -> list[str]:
    """The commands in the table of BookKeeper's shell in the documents."""
    table = PAGE.read_text().partition("<!-- commands of the shell -->")[2].partition("<!-- end -->")[0]
    return [command for row in re.findall(r"^\| (`.*?) \|", table, re.M) for command in re.findall("`(.*?)`", row)]


@_among(SHELL, "shell: all commands are in the documents")
def shell_commands(setting: Setting) -> None:
    """The table in the documents has every command of this release, and no other."""
    differing = {*commands_of_the_page()} ^ {*setting.writer.call("shell_commands")}
    equal(differing, set(), "commands that only the documents, or only the shell has")


@_among(SHELL, "shell clusterinfo, whatisinstanceid, endpointinfo")
def shell_cluster(setting: Setting) -> None:
    """The shell tells about the cluster, and about each bookie."""
    count = len(setting.cluster.bookies)
    printed_by(setting, "clusterinfo", expected=[f'"writableBookiesCount" : {count}', '"unavailableBookiesCount" : 0'])
    instance = instance_id(setting)
    for bookie in setting.cluster.bookies:
        printed_by(setting, "endpointinfo", "-b", bookie.id, expected=[bookie.id, bookie.port])
        printed_by(setting, "cookie_get", bookie.id, expected=[bookie.id, instance])


def instance_id(setting: Setting, root: str = "/ledgers") -> str:
    """The id of the cluster, as the shell prints it."""
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", shell(setting, "whatisinstanceid", root=root))
    if found is None:
        raise AssertionError("whatisinstanceid prints no id")
    return found[0]


@_among(SHELL, "shell cookies")
def shell_cookies(setting: Setting) -> None:
    """A cookie of a bookie that does not exist is made, stored, read, replaced and deleted."""
    for directory, verb in (("/ledgers-1", "cookie_create"), ("/ledgers-2", "cookie_update")):
        file = new_folder(setting, verb)
        dirs = ("-j", "/journal", "-l", directory)
        shell(setting, "cookie_generate", *dirs, "-o", str(file), "nobody:1")
        shell(setting, verb, "-cf", str(file), "nobody:1")
        printed_by(setting, "cookie_get", "nobody:1", expected=["nobody:1", directory, instance_id(setting)])
    shell(setting, "cookie_delete", "nobody:1")
    try:
        shell(setting, "cookie_get", "nobody:1")
    except (AssertionError, Refused):
        return
    raise AssertionError("the cookie is still there")


@_among(SHELL, "shell bookiesanity")
def shell_bookiesanity(setting: Setting) -> None:
    """The shell writes and reads a ledger that is on one bookie alone."""
    own = {"bookiePort": setting.cluster.bookies[0].port, "listeningInterface": "lo", "advertisedAddress": "127.0.0.1"}
    shell(setting, "bookiesanity", "-e", "10", "-t", "10", settings=own)


@_among(SHELL, "shell ledgermetadata: dump and restore")
def shell_restore(setting: Setting) -> None:
    """The metadata of a deleted ledger come back out of a file, before its entries are collected."""
    ledger = setting.writer.create()
    written(ledger, entries(7))
    ledger.close()
    before, file = setting.writer.metadata(ledger.id), new_folder(setting, "dump")
    shell(setting, "ledgermetadata", "-ledgerid", str(ledger.id), "-dumptofile", str(file))
    shell(setting, "deleteledger", "-ledgerid", str(ledger.id), "-force")
    shell(setting, "ledgermetadata", "-ledgerid", str(ledger.id), "-restorefromfile", str(file))
    equal(setting.writer.metadata(ledger.id), before, "metadata")
    for bookie in setting.cluster.bookies:
        listed = re.findall(r"\d+", shell(setting, "listledgers", "-bookieid", bookie.id))
        equal(
            str(ledger.id) in listed, bookie.id in before["ensembles"]["0"], f"whether {bookie.id} is told to have it"
        )
    setting.writer.call("delete", ledger=ledger.id)


@_among(SHELL, "shell updateBookieInLedger")
def shell_update_bookie(setting: Setting) -> None:
    """The name of a killed bookie gives way to another's in all metadata, and nothing is copied."""
    ledger = setting.writer.create()
    written(ledger, entries(7))
    ledger.close()
    old = _ensemble(setting, ledger.id)
    (new,) = [bookie.id for bookie in setting.cluster.bookies if bookie.id not in old][:1]
    setting.cluster.bookie(old[0]).server.kill()
    until(20, f"{old[0]} is not registered", lambda: old[0] not in shell(setting, "listbookies", "-rw"))
    shell(setting, "updateBookieInLedger", "-sb", old[0], "-db", new)
    equal(_ensemble(setting, ledger.id), [new, *old[1:]], "ensemble")
    setting.writer.call("delete", ledger=ledger.id)
    setting.cluster.heal()


@_among(SHELL, "shell autorecovery, lostbookierecoverydelay, queryautorecoverystatus, forceauditchecks")
def shell_autorecovery(setting: Setting) -> None:
    """The shell sets and gets the nodes of auto-recovery, which nobody runs."""
    shell(setting, "autorecovery", "-disable")
    printed_by(setting, "autorecovery", expected=["disabled"])
    shell(setting, "autorecovery", "-enable")
    printed_by(setting, "autorecovery", expected=["enabled"])
    shell(setting, "lostbookierecoverydelay", "-s", "7")
    printed_by(setting, "lostbookierecoverydelay", "-g", expected=[7])
    shell(setting, "lostbookierecoverydelay", "-s", "1")  # it cannot set 0
    printed_by(setting, "queryautorecoverystatus", expected=["No Ledger is being recovered"])
    shell(setting, "forceauditchecks", "-calc", "-ppc", "-rc")


@_among(SHELL, "shell initnewcluster, metaformat, nukeexistingcluster")
def shell_second_cluster(setting: Setting) -> None:
    """Another cluster on the same metadata service is begun, begun anew, and removed."""
    shell(setting, "initnewcluster", root="/second")
    first = instance_id(setting, "/second")
    shell(setting, "metaformat", "-nonInteractive", "-force", root="/second")
    second = instance_id(setting, "/second")
    equal(len({first, second, instance_id(setting)}), 3, "different ids")
    shell(setting, "nukeexistingcluster", "-zkledgersrootpath", "/second", "-instanceid", second, root="/second")
    shell(setting, "initnewcluster", root="/second")  # which refuses one that is there
    shell(setting, "nukeexistingcluster", "-zkledgersrootpath", "/second", "-force", root="/second")


@_among(SHELL, "shell listbookies")
def shell_listbookies(setting: Setting) -> None:
    """All bookies are listed as writable."""
    printed = shell(setting, "listbookies", "-rw")
    for bookie in setting.cluster.bookies:
        if bookie.id not in printed:
            raise AssertionError(f"{bookie.id} is not in: {printed}")


@_among(SHELL, "shell listledgers")
def shell_listledgers(setting: Setting) -> None:
    """A ledger is listed, with its metadata."""
    ledger = setting.writer.create()
    ledger.close()
    printed = shell(setting, "listledgers", "-meta")
    if not re.search(rf"\b{ledger.id}\b", printed) or "CLOSED" not in printed:
        raise AssertionError(f"ledger {ledger.id} is not in: {printed[-300:]}")


@_among(SHELL, "shell ledgermetadata")
def shell_ledgermetadata(setting: Setting) -> None:
    """The metadata of a ledger are printed."""
    ledger = setting.writer.create()
    written(ledger, entries(7))
    ledger.close()
    printed = shell(setting, "ledgermetadata", "-ledgerid", str(ledger.id))
    for expected in ("CLOSED", "lastEntryId=6", *setting.writer.metadata(ledger.id)["ensembles"]["0"]):
        if expected not in printed:
            raise AssertionError(f"{expected} is not in: {printed}")


@_among(SHELL, "shell readledger")
def shell_readledger(setting: Setting) -> None:
    """The entries of a ledger are printed."""
    ledger = setting.writer.create(digest="DUMMY")
    written(ledger, entries(7))
    ledger.close()
    printed = shell(setting, "readledger", "-ledgerid", str(ledger.id), "-msg")
    for body in entries(7):
        if body.decode() not in printed:
            raise AssertionError(f"{body[:10]!r} is not in: {printed[-300:]}")
    bookie = setting.writer.metadata(ledger.id)["ensembles"]["0"][0]
    # With -bookie, the shell stops before the last entry of the range.
    printed = shell(
        setting, "readledger", "-ledgerid", str(ledger.id), "-bookie", bookie, "-firstentryid", "2", "-lastentryid", "7"
    )
    equal(re.findall(r"(?:Eid|entryId)=(\d+)", printed), list("23456"), "entries of one bookie")


@_among(SHELL, "shell simpletest")
def shell_simpletest(setting: Setting) -> None:
    """The shell writes and reads a ledger of its own."""
    shell(setting, "simpletest", "-ensemble", "3", "-writeQuorum", "3", "-ackQuorum", "2", "-numEntries", "50")


@_among(SHELL, "shell bookieinfo")
def shell_bookieinfo(setting: Setting) -> None:
    """Every bookie tells how much of its disk is free."""
    printed = shell(setting, "bookieinfo")
    for bookie in setting.cluster.bookies:
        if bookie.id not in printed:
            raise AssertionError(f"{bookie.id} is not in: {printed}")
    info = setting.writer.call("bookie_info")
    for bookie in setting.cluster.bookies:
        total, free = info.get(bookie.id, (0, 0))
        if not 0 < free <= total:
            raise AssertionError(f"{bookie.id} tells {free} bytes free of {total}")


@_among(SHELL, "shell deleteledger")
def shell_deleteledger(setting: Setting) -> None:
    """A ledger is deleted."""
    ledger = setting.writer.create()
    ledger.close()
    shell(setting, "deleteledger", "-ledgerid", str(ledger.id), "-force")
    equal(setting.writer.call("list").count(ledger.id), 0, "how often the ledger is listed")


@_among(SHELL, "shell recover")
def shell_recover(setting: Setting) -> None:
    """The shell copies what a killed bookie had to another one, and names that one in the metadata."""
    ledger = setting.writer.create()
    written(ledger, entries(40))
    ledger.close()
    lost = setting.cluster.bookie(_ensemble(setting, ledger.id)[0])
    lost.server.kill()
    try:
        shell(setting, "recover", "-f", "-sk", "-l", str(ledger.id), lost.id)
        if lost.id in _ensemble(setting, ledger.id):
            raise AssertionError(f"{lost.id} is still in the ensemble")
        read_back(setting.reader, ledger.id, entries(40))
    finally:
        setting.cluster.restart([lost])
