"""``python -m interop.departures``: behaviours of BookKeeper's own bookies that its protocol does not have, each made
to happen, recorded and validated.

Each scenario has a cluster of its own: Java's client and bookies on ZooKeeper, and the recorder between. Printed is
what ``fencepost validate`` says of what was recorded. ``docs/protocols/bookkeeper.md`` has the findings.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.traces.validation.outcome import Outcome
from interop import jars
from interop.cases import entries
from interop.clients import Client, ClientProcess, Ledger, Refused, encoded
from interop.clusters import JAVA, NONE, ZOOKEEPER, Bookie, Cluster, java_uri, recorder
from interop.processes import DidNotStart, clean_up_when_ended, stop_all
from interop.validation import told, verdicts

PATIENCE = 60
SESSION = 8.0
"""Seconds after which the registration of a bookie that was killed is gone."""
INTEGRITY = {"dataIntegrityChecking": "true", "dataIntegrityStampMissingCookies": "true"}
NO_JOURNAL = {"journalWriteData": "false"}


class Stage:
    """A cluster with a recorder before it, and clients that come to the recorder."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object], bookies: int = 3, faults: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.cluster = Cluster(JAVA, ZOOKEEPER, folder / "cluster", settings=settings)
        self.trace = folder / "trace"
        self._count = bookies
        self._faults = faults
        self.process = ClientProcess(JAVA, folder / "client.log")
        self.recorder = recorder(self.cluster.uri, self.trace, faults)

    def start(self) -> None:
        """Start all of it."""
        self.cluster.service.start()
        uri = java_uri(self.cluster.uri)
        self.process.call("shell", uri=uri, folder=str(self.folder), words=["initnewcluster"])
        self.cluster.add_bookies(self._count)
        self.recorder.start()
        time.sleep(3)  # clients that come while registrations change know too few bookies for a while

    def connect(self, **settings: object) -> Client:
        """One more client, which knows of all bookies: it hears of them one after another."""
        client, end = Client(self.process, self.cluster.uri, **settings), time.monotonic() + PATIENCE
        one_copy = {"ensemble": self._count, "write_quorum": 1, "ack_quorum": 1}
        while True:
            try:
                client.create(**one_copy)
                time.sleep(1)
                client.create(**one_copy)
                return client
            except Refused:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def end(self) -> None:
        """End all of it: first the recorder, so that its trace is complete."""
        stop_all([self.recorder])
        self.process.end()
        self.cluster.end()


def quietly(operation: Callable[[], Any]) -> Any:
    """What an operation gives; None if it is refused."""
    with contextlib.suppress(Refused):
        return operation()


def open_ledgers(stage: Stage, count: int, entries_each: int = 3) -> tuple[Client, list[Ledger]]:
    """Open ``count`` ledgers for writing, with a few entries each."""
    writer = stage.connect()
    made: list[Future[Any]] = []
    for begun in range(0, count, 100):
        made += [stage.process.begin("create", client=writer.number) for _ in range(min(100, count - begun))]
        for each in made[begun:]:
            each.result(PATIENCE)
    ledgers = [Ledger(stage.process, **each.result()) for each in made]
    added = [ledger.begin("append", entries=encoded(tuple(entries(entries_each)))) for ledger in ledgers]
    for each in added:
        each.result(PATIENCE)
    return writer, ledgers


def limbo_denies(stage: Stage) -> None:
    """A bookie without a journal is killed, started again, and asked at once for what it has had: while phase one still
    runs.
    """
    other = stage.connect()
    _, ledgers = open_ledgers(stage, 10_000, 1)
    lost = stage.cluster.bookies[0]
    start_anew(lost)
    opening = [stage.process.begin("open", client=other.number, ledger=ledger.id) for ledger in ledgers[::30]]
    for each in opening:
        with contextlib.suppress(Refused, TimeoutError):
            each.result(PATIENCE)


def start_anew(bookie: Bookie) -> None:
    """Kill a bookie, and start it when its old registration is gone, for which it would wait. Come back as soon as it
    serves.
    """
    bookie.server.kill()
    time.sleep(SESSION)
    bookie.server.launch()
    end = time.monotonic() + PATIENCE
    while "Started component bookie-server" not in bookie.server.said():
        if time.monotonic() > end:
            raise DidNotStart(f"{bookie.id} does not serve after {PATIENCE} s")
        time.sleep(0.01)


def lac_in_limbo(stage: Stage) -> None:
    """A bookie without a journal is killed and restarted. While it is in limbo, clients ask it for its LAC and for
    entries. It still has some of these.
    """
    _, ledgers = open_ledgers(stage, 1000)
    time.sleep(3)
    lost = stage.cluster.bookies[0]
    start_anew(lost)
    other = Client(stage.process, stage.cluster.uri)
    read_all(stage, other, ledgers)


def read_all(stage: Stage, client: Client, ledgers: Sequence[Ledger]) -> None:
    """Open ledgers without recovering them, the last first, and read their entries, which are on all bookies."""
    opening = [
        stage.process.begin("open", client=client.number, ledger=ledger.id, recover=False)
        for ledger in reversed(ledgers)
    ]
    reading = []
    for each in opening:
        with contextlib.suppress(Refused, TimeoutError):
            opened = Ledger(stage.process, **each.result(PATIENCE))
            reading.append(opened.begin("read_unconfirmed", first=0, last=2))
    for each in reading:
        with contextlib.suppress(Refused, TimeoutError):
            each.result(PATIENCE)


def version_2_in_limbo(stage: Stage) -> None:
    """The same with a client that speaks version 2."""
    _, ledgers = open_ledgers(stage, 1000)
    lost = stage.cluster.bookies[0]
    start_anew(lost)
    other = Client(stage.process, stage.cluster.uri, useV2WireProtocol="true")
    read_all(stage, other, ledgers)


def lost_disk(stage: Stage) -> None:
    """A ledger is recovered; a bookie loses its disk; and the owner, who has heard of nothing, goes on."""
    writer, other = stage.connect(), stage.connect()
    ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
    ledger.append(*entries(10))
    other.open(ledger.id)
    lost = stage.cluster.bookies[0]
    lost.server.kill()
    for name in ("journal", "ledgers", "index"):
        shutil.rmtree(stage.cluster.folder / "bookie-1" / name)
    stage.cluster.restart([lost])
    time.sleep(3)
    quietly(lambda: ledger.append(b"too late"))


def fence_in_memory(stage: Stage) -> None:
    """A ledger without entries is fenced, and a bookie killed as soon as it has said so. Then the owner goes on."""
    writer, other = stage.connect(), stage.connect()
    ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
    other.open(ledger.id)
    lost = stage.cluster.bookies[0]
    lost.server.kill()
    stage.cluster.restart([lost])
    time.sleep(3)
    quietly(lambda: ledger.append(b"too late"))
    time.sleep(5)  # a bookie that takes the entry says so when its journal is synced


def all_killed(stage: Stage) -> None:
    """All bookies are killed together without a journal, and a ledger that was open is recovered."""
    writer = stage.connect()
    ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
    ledger.append(*entries(10))
    for bookie in stage.cluster.bookies:
        bookie.server.kill()
    stage.cluster.restart(stage.cluster.bookies)
    time.sleep(2)
    other = stage.connect()
    quietly(lambda: other.open(ledger.id))


def forgetful(stage: Stage) -> None:
    """A bookie without a journal, and without a check of its integrity, is killed and started again."""
    writer = stage.connect()
    ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
    ledger.append(*entries(10))
    lost = stage.cluster.bookies[0]
    lost.server.kill()
    stage.cluster.restart([lost])
    other = stage.connect()
    quietly(lambda: other.open(ledger.id))


def races(stage: Stage) -> None:
    """Ledgers are recovered again and again while entries of many sizes are added to them."""
    for _ in range(60):
        writer, other = stage.connect(), stage.connect()
        for _ in range(20):
            ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=2)
            adding = [ledger.begin("append", entries=encoded((body,))) for body in entries(60)]
            quietly(partial(other.open, ledger.id))
            for each in adding:
                with contextlib.suppress(Refused):
                    each.result(PATIENCE)
        writer.close()
        other.close()


Scenario = Callable[[Stage], str | None]
"""Makes it happen; what came of it, if it can tell."""


class Staged(NamedTuple):
    """A scenario, with settings of the bookies, how many there are, and what the recorder does to messages."""

    scenario: Scenario
    settings: Mapping[str, object] = NONE
    bookies: int = 3
    faults: Sequence[str] = ()


Scenarios = Mapping[str, Staged]
"""By what is looked for."""

SCENARIOS: Scenarios = {
    "phase one is not awaited": Staged(limbo_denies, {**NO_JOURNAL, **INTEGRITY}),
    "closed ledgers are not fenced": Staged(lost_disk, INTEGRITY),
    "a fence is answered before it is in the journal": Staged(
        fence_in_memory, {"journalMaxGroupWaitMSec": 2000, "journalFlushWhenQueueEmpty": "false",
        "journalBufferedWritesThreshold": 1 << 24},
    ),
    "the LAC in limbo": Staged(lac_in_limbo, {**NO_JOURNAL, **INTEGRITY, "flushInterval": 300}),
    "version 2 in limbo": Staged(version_2_in_limbo, {**NO_JOURNAL, **INTEGRITY}),
    "all killed without a journal": Staged(all_killed, {**NO_JOURNAL, **INTEGRITY}),
    "without a journal and without limbo": Staged(forgetful, NO_JOURNAL),
    "fencing and adding at once": Staged(races),
}  # fmt: skip


def play(staged: Staged, folder: Path) -> tuple[str | None, dict[int, Outcome]]:
    """Make it happen; what came of it, and the verdict on each ledger. Raises :class:`DidNotStart`, :class:`Refused` or
    :class:`TimeoutError` if it did not come to it.
    """
    stage = Stage(folder, staged.settings, staged.bookies, staged.faults)
    try:
        stage.start()
        came = staged.scenario(stage)
        time.sleep(1)
    finally:
        stage.end()
    return came, verdicts(stage.trace)


def run(staged: Staged, folder: Path) -> Iterator[str]:
    """Make it happen; what came of it, and what validation says, line by line."""
    try:
        came, found = play(staged, folder)
    except (DidNotStart, Refused, TimeoutError) as failure:
        yield f"did not come to it: {failure or 'no answer in time'}"
        return
    if came:
        yield came
    counted = Counter(outcome.verdict for outcome in found.values())
    yield f"{', '.join(f'{count} {what}' for what, count in counted.items())}"
    kinds = Counter(
        tuple(sorted({(each.step.partition("(")[0], each.where) for each in outcome.refusals}))
        for outcome in found.values()
    )
    for kind, count in kinds.items():
        if kind:
            yield f"{count} times {', '.join(f'{step} at {where}' for step, where in kind)}"
            ledger, outcome = next(
                item for item in found.items() if {each.where for each in item[1].refusals} >= {kind[0][1]}
            )
            yield f"ledger {ledger}: {told(outcome)}"
    for ledger, outcome in found.items():
        if outcome.problem:
            yield f"ledger {ledger}: {told(outcome)}"
            break


def main(program: str, description: str, scenarios: Scenarios) -> int:
    """Run the scenarios that are asked for; the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=f"by a part of its name: {'; '.join(scenarios)}")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave traces, data and logs in this new folder")
    given = parser.parse_args()
    clean_up_when_ended()
    try:
        jars.fetch()
    except jars.Unavailable as missing:
        print(f"interop: {missing}", file=sys.stderr)
        return 2
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-departures-"))
    folder.mkdir(exist_ok=True)
    try:
        for number, (name, staged) in enumerate(scenarios.items()):
            if not given.names or any(part in name for part in given.names):
                print(f"BookKeeper {jars.RELEASE}: {name}", flush=True)
                below = folder / f"{number + 1}"
                below.mkdir()
                for line in run(staged, below):
                    print("    " + line.replace("\n", "\n    "), flush=True)
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main("interop.departures", __doc__, SCENARIOS))
