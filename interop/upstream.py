"""BookKeeper's own tests of its client, and Pulsar's of its managed ledgers, unchanged, out of the jars in which they
are published, against other bookies.

They rest on a class that starts bookies in the same virtual machine; ours of the same name, ahead of it in the class
path (``interop/java/shim``, ``interop/java/managed``), starts processes instead.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from interop import jars

SECONDS = 900
"""After which a class of tests counts as stuck."""

FEW = (
    "bookie.BookieDeferredSyncTest",
    "client.BookKeeperTest",
    "client.ConcurrentV2RecoveryTest",
    "client.ExplicitLacTest",
    "client.LedgerRecoveryTest",
    "client.TestFencing",
    "client.TestPiggybackLAC",
    "client.TestReadLastEntry",
    "test.BookieReadWriteTest",
    "test.LedgerCreateDeleteTest",
)
"""The classes that are run unless all are asked for."""

ALL = (
    "bookie.BookieDeferredSyncTest",
    "client.BookKeeperTest",
    "client.BookieWriteLedgerTest",
    "client.ConcurrentV2RecoveryTest",
    "client.ExplicitLacTest",
    "client.LedgerCloseTest",
    "client.LedgerRecoveryTest",
    "client.ListLedgersTest",
    "client.ParallelLedgerRecoveryTest",
    "client.SlowBookieTest",
    "client.TestAddEntryQuorumTimeout",
    "client.TestBatchedRead",
    "client.TestBookieHealthCheck",
    "client.TestDelayEnsembleChange",
    "client.TestDisableEnsembleChange",
    "client.TestFencing",
    "client.TestGetBookieInfoTimeout",
    "client.TestLedgerChecker",
    "client.TestLedgerFragmentReplication",
    "client.TestParallelRead",
    "client.TestPendingReadLacOp",
    "client.TestPiggybackLAC",
    "client.TestReadEntryListener",
    "client.TestReadLastConfirmedAndEntry",
    "client.TestReadLastConfirmedLongPoll",
    "client.TestReadLastEntry",
    "client.TestReadTimeout",
    "client.TestSequenceRead",
    "client.TestSpeculativeBatchRead",
    "client.TestSpeculativeRead",
    "client.TestTryReadLastConfirmed",
    "client.TestWatchEnsembleChange",
    "client.api.ExplicitLACWithWriteHandleAPITest",
    "client.api.LedgerMetadataTest",
    "proto.ClientSocketDisconnectTest",
    "test.AsyncLedgerOpsTest",
    "test.BookieFailureTest",
    "test.BookieReadWriteTest",
    "test.CloseTest",
    "test.ConditionalSetTest",
    "test.LedgerCreateDeleteTest",
    "test.LedgerDeleteTest",
    "test.MultipleThreadReadTest",
)

MANAGED = ("mledger.impl.ManagedLedgerBkTest", "mledger.impl.ManagedLedgerFactoryChangeLedgerPathTest")
"""Of Pulsar's, those that use bookies; the others have mocks of them."""


LOOPBACK_ALONE = "Trying to listen on loopback address"
"""What the client says where a test makes it look for a bookie under the name of this machine."""


class Outcome(NamedTuple):
    """How a test ended: ``ok``, ``failed`` or ``skipped``, and why."""

    name: str
    status: str
    reason: str
    seconds: float


def run(test: str, bookies: str, metadata: str, folder: Path) -> Iterator[Outcome]:
    """Run a class of tests, named without ``org.apache.bookkeeper.``; how each of its tests ended."""
    place = folder / test
    managed = test in MANAGED
    name = f"org.apache.bookkeeper.{test}"
    junit = ["org.junit.platform.console.ConsoleLauncher", "--disable-banner", "--details=none"]
    testng = ["org.testng.TestNG", "-usedefaultlisteners", "false", "-d", str(place)]
    reporter = ["-listener", "org.testng.reporters.JUnitReportReporter"]
    words = (
        [*testng, *reporter, "-testclass", name]
        if managed
        else [*junit, f"--reports-dir={place}", f"--select-class={name}"]
    )
    class_path = jars.pulsar_class_path(tests=True) if managed else jars.class_path("shim", tests=True)
    place.mkdir(parents=True)
    properties = {
        "interop.python": sys.executable,
        "interop.bookies": bookies,
        "interop.metadata": metadata,
        "interop.folder": str(place),
        "interop.jvm": "\n".join(jars.java("-cp", jars.class_path())),
        "interop.log": "INFO",
    }
    command = jars.java(
        *(f"-D{name}={value}" for name, value in properties.items()), "-cp", class_path, *words, heap=512
    )
    with open(place / "log", "wb") as log:
        try:
            status = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            yield Outcome(test, "failed", f"not over after {SECONDS} s", SECONDS)
            return
    # One of each version of JUnit, or TestNG's.
    reports = [xml.etree.ElementTree.parse(path).getroot() for path in place.rglob("TEST-*.xml")]
    tests = [found for report in reports for found in report.iter("testcase")]
    if status not in (0, 1) or not tests:
        yield Outcome(test, "failed", f"the runner ended with {status} and {len(tests)} tests, see its log", 0)
        return
    for found in tests:
        yield _outcome(test, found)


def _outcome(test: str, found: xml.etree.ElementTree.Element) -> Outcome:
    name = f"{test.rpartition('.')[2]}.{found.get('name')}"
    for kind, status in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
        element = found.find(kind)
        if element is not None:
            reason = _reason(element)
            if LOOPBACK_ALONE in reason:
                status, reason = "skipped", "needs a machine whose name has another address than loopback"
            return Outcome(name, status, reason, float(found.get("time") or 0))
    return Outcome(name, "ok", "", float(found.get("time") or 0))


def _reason(element: xml.etree.ElementTree.Element) -> str:
    """The first line of what was raised, with where in the test that was."""
    lines = (element.get("message") or element.text or "").strip().splitlines()
    trace = [
        line.strip()
        for line in (element.text or "").splitlines()
        if line.strip().startswith("at org.apache.bookkeeper.")
    ]
    first = (lines[0] if lines else element.get("type") or "").removeprefix("org.junit.AssumptionViolatedException: ")
    return f"{first} ({trace[0].removeprefix('at ')})" if trace and element.tag != "skipped" else first
