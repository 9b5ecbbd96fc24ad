"""``python -m interop``: every case on every combination of client, bookies and metadata service, one line each, with
each release of BookKeeper.

A case that fails is run once more, and is reported as *flaky* if it passes then. The cases of Kafka's tool against a
quorum come next, then those of Pulsar's broker. Pulsar's own tests of its managed ledgers, and BookKeeper's of its
client, against Fencepost's bookies and metadata service, come last. Ends with status 1 if anything failed, and with 2
if Java or Maven is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from interop import autorecovery, cases, jars, kafka_tool, pulsar_broker, upstream
from interop.clients import CLIENTS, PATIENCE, Client, ClientProcess, Refused
from interop.clusters import BOOKIES, FENCEPOST, JAVA, METADATA, MIXED, QUORUM, ZOOKEEPER, Cluster, java_uri
from interop.processes import DidNotStart, clean_up_when_ended

BOOKIES_OF_A_CLUSTER = 4
"""One more than an ensemble has, so that there is one to take the place of another."""


class Report:
    """The lines of the table, as they come, and the counts of its last line."""

    def __init__(self) -> None:
        self.passed = 0
        self.skipped = 0
        self.flaky: list[str] = []
        self.failed: list[str] = []

    def run(self, name: str, attempt: Callable[[], None]) -> None:
        """Run a case, a second time if it fails, and print its line."""
        reason, seconds = self._attempt(attempt)
        if not reason:
            self.passed += 1
            self._line("ok", name, seconds)
            return
        again, more = self._attempt(attempt)
        if again:
            self.failure(name, f"{reason}\nand at the second try: {again}", seconds + more)
        else:
            self.flaky.append(name)
            self._line("flaky", name, seconds + more, f"{reason}\nand passed at the second try")

    def _attempt(self, attempt: Callable[[], None]) -> tuple[str, float]:
        """Why an attempt failed, which is empty if it did not, and its seconds."""
        began = time.monotonic()
        reason = ""
        try:
            attempt()
        except (AssertionError, Refused, DidNotStart, TimeoutError) as failure:
            reason = str(failure) or f"no answer after {PATIENCE} s"
        except subprocess.SubprocessError as failure:  # a command of ours failed, or took too long
            reason = "\n".join(filter(None, (str(failure), getattr(failure, "stderr", None))))
        return reason, time.monotonic() - began

    def failure(self, name: str, reason: str, seconds: float = 0) -> None:
        """Print the line of a case that failed."""
        self.failed.append(name)
        self._line("failed", name, seconds, reason)

    def _line(self, status: str, name: str, seconds: float, reason: str = "") -> None:
        print(f"{status:<8}{name:<96}{seconds:>6.1f} s", flush=True)
        for line in reason.splitlines():
            print(f"            {line}", flush=True)

    def outcome(self, outcome: upstream.Outcome, whose: str) -> None:
        """Print how one of others' own tests ended."""
        name = f"{whose} {outcome.name}"
        if outcome.status == "failed":
            self.failure(name, outcome.reason, outcome.seconds)
            return
        self._line(outcome.status, name, outcome.seconds, outcome.reason if outcome.status == "skipped" else "")
        if outcome.status == "skipped":
            self.skipped += 1
        else:
            self.passed += 1

    def close(self, seconds: float) -> int:
        """Print again which cases failed, then the closing line; the exit status."""
        print()
        for status, names in (("flaky", self.flaky), ("failed", self.failed)):
            for name in names:
                print(f"{status:<8}{name}")
        counts = [
            (len(self.failed), "failed"),
            (len(self.flaky), "flaky"),
            (self.passed, "passed"),
            (self.skipped, "skipped"),
        ]
        print(f"interop: {', '.join(f'{count} {what}' for count, what in counts if count)} in {seconds:.0f} s")
        return 1 if self.failed else 0


def name_of(client: str, other: str, bookies: str, metadata: str, case: str) -> str:
    """The name of a case in the table; one that runs BookKeeper or its ZooKeeper begins with the release."""
    clients = f"{client} client" if client == other else f"{client} client, then {other} client"
    ours = {client, other, bookies} == {FENCEPOST} and metadata != ZOOKEEPER
    return f"{'' if ours else f'{jars.RELEASE}: '}{clients}, {bookies} bookies, {metadata}: {case}"


class Examination:
    """The cases that were asked for, cluster by cluster; both processes of clients serve all of a release."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given = given
        self.folder = folder
        self.report = Report()
        self.processes: dict[str, ClientProcess] = {}
        self.planned: set[str] = set()

    def wanted(self, name: str) -> bool:
        """Whether a case was asked for by its name."""
        patterns = self.given.only
        return not patterns or any(fnmatch.fnmatch(name, f"*{pattern}*") for pattern in patterns)

    def fetch(self) -> None:
        """Bring what the cases need of Java. Raises :class:`jars.Unavailable`."""
        for release in self.given.release:
            jars.use(release)
            jars.fetch(tests=self.given.tests != "none")
        jars.fetch_kafka()
        if any(self.plan_pulsar().values()):
            jars.fetch_pulsar()
        if self.wanted_tests("Pulsar's", upstream.MANAGED):
            jars.fetch_pulsar(tests=True)

    def process(self, kind: str) -> ClientProcess:
        """The process of the clients of a kind, which is started when it is first needed."""
        if kind not in self.processes:
            self.processes[kind] = ClientProcess(kind, self.folder / f"{kind}-client.log")
        return self.processes[kind]

    def run_kafka(self) -> None:
        """Run the cases of Kafka's tool, each against a quorum of its own."""
        for number, (case, body) in enumerate(kafka_tool.CASES.items()):
            name = f"Kafka's kafka-metadata-quorum: {case}"
            if not self.wanted(name):
                continue
            if self.given.list:
                print(name)
                continue
            attempts = itertools.count(1)

            def attempt(
                body: Callable[[kafka_tool.Quorum], None] = body,
                number: int = number,
                attempts: Iterator[int] = attempts,
            ) -> None:
                quorum = kafka_tool.Quorum(self.folder / f"kafka-{number}-{next(attempts)}")
                try:
                    quorum.start(1, 2, 3)
                    body(quorum)
                finally:
                    quorum.end()

            self.report.run(name, attempt)

    def plan_pulsar(self) -> dict[str, dict[str, pulsar_broker.Case]]:
        """The wanted cases of Pulsar's broker, by their names, by clusters."""
        plan: dict[str, dict[str, pulsar_broker.Case]] = {}
        for kind, about in pulsar_broker.KINDS.items():
            named = {f"Pulsar's broker, {kind}: {case}": body for case, body in about.cases.items()}
            plan[kind] = {name: body for name, body in named.items() if self.wanted(name)}
        return plan

    def run_pulsar(self) -> None:
        """Run the cases of Pulsar's broker, those of a kind of cluster on one."""
        for kind, plan in self.plan_pulsar().items():
            if self.given.list:
                print(*plan, sep="\n", end="\n" if plan else "")
                continue
            if not plan:
                continue
            about = pulsar_broker.KINDS[kind]
            folder = self.folder / f"pulsar, {kind}".replace(", ", "-").replace(" ", "-")
            pulsar = pulsar_broker.Pulsar(about.metadata, folder, about.settings, about.secured)
            try:
                pulsar.start()
                for name, body in plan.items():

                    def attempt(body: pulsar_broker.Case = body, pulsar: pulsar_broker.Pulsar = pulsar) -> None:
                        pulsar.heal()
                        body(pulsar)

                    self.report.run(name, attempt)
            except (DidNotStart, Refused) as failure:
                self.report.failure(f"Pulsar's broker, {kind}: start", str(failure))
            finally:
                pulsar.end()

    def wanted_tests(self, whose: str, tests: Sequence[str]) -> list[str]:
        """Of others' own classes of tests, those that were asked for."""
        titles = {test: f"{whose} {test.rpartition('.')[2]}" for test in tests}
        return [] if self.given.tests == "none" else [test for test in tests if self.wanted(titles[test])]

    def run_tests(self, whose: str, tests: Sequence[str], folder: Path) -> None:
        """Run others' own tests against Fencepost's bookies and metadata service."""
        for test in self.wanted_tests(whose, tests):
            if self.given.list:
                print(f"{whose} {test.rpartition('.')[2]}")
                continue
            for outcome in upstream.run(test, FENCEPOST, FENCEPOST, folder):
                self.report.outcome(outcome, whose)

    def plan(self, bookies: str, metadata: str) -> Iterator[tuple[str, cases.Case, str, str]]:
        """Names, cases and the kinds of both clients for one cluster; what is ours alone, with one release."""
        clients = [kind for kind in CLIENTS if kind in self.given.client]
        for writer, reader in itertools.product(clients, clients):
            chosen = cases.EVERY | (cases.ALONE if writer == reader else {})
            if writer == reader and metadata == QUORUM:
                chosen = chosen | cases.OF_A_QUORUM
            if writer == reader == JAVA:
                ours = cases.OF_OUR_BOOKIES if bookies == FENCEPOST else {}
                chosen = chosen | cases.JAVA_CLIENT | ours | cases.SHELL
            if bookies == MIXED and (writer, reader) == (JAVA, FENCEPOST):
                chosen = chosen | autorecovery.CASES
            for case, body in chosen.items():
                name = name_of(writer, reader, bookies, metadata, case)
                if self.wanted(name) and name not in self.planned:
                    self.planned.add(name)
                    yield name, body, writer, reader

    def run(self) -> None:
        """Run all that was asked for."""
        for release in self.given.release:
            jars.use(release)
            try:
                self.run_release()
            finally:
                for process in self.processes.values():
                    process.end()
                self.processes.clear()
        self.run_kafka()
        self.run_pulsar()
        self.run_tests("Pulsar's", upstream.MANAGED, self.folder / "managed-ledgers")
        for release in self.given.release:
            jars.use(release)
            tests = upstream.ALL if self.given.tests == "all" else upstream.FEW
            self.run_tests(f"{release}: BookKeeper's", tests, self.folder / release / "tests")

    def run_release(self) -> None:
        """Run the cases on clusters with the release in use."""
        for metadata, bookies in itertools.product(self.given.metadata, self.given.bookies):
            plan = list(self.plan(bookies, metadata))
            if self.given.list:
                for name, *_ in plan:
                    print(name)
            elif plan:
                self.run_on(bookies, metadata, plan)

    def run_on(self, bookies: str, metadata: str, plan: list[tuple[str, cases.Case, str, str]]) -> None:
        """Start a cluster, run the cases on it, and end it."""
        cluster = Cluster(
            bookies, metadata, self.folder / jars.RELEASE / f"{bookies}-bookies-on-{metadata}", apart=bookies == MIXED
        )
        try:
            try:
                cluster.service.start()
                self.initialise(cluster)
                cluster.add_bookies(BOOKIES_OF_A_CLUSTER)
            except (DidNotStart, Refused) as failure:
                self.report.failure(f"{bookies} bookies, {metadata}: start", str(failure))
                return
            for (writer, reader), group in itertools.groupby(plan, key=lambda one: one[2:]):
                with contextlib.ExitStack() as ends:
                    self.run_with(cluster, writer, reader, list(group), ends)
        finally:
            cluster.end()

    def initialise(self, cluster: Cluster) -> None:
        """Make the znodes of a new cluster, by the software that the bookies are of; the metadata service is of
        either.
        """
        if cluster.kinds[0] != JAVA:
            self.process(FENCEPOST).call("initialise", uri=cluster.uri)
            return
        arguments = {"uri": java_uri(cluster.uri), "folder": str(self.folder), "words": ["initnewcluster"]}
        done = self.process(JAVA).call("shell", **arguments)
        if done["status"] != 0:
            raise Refused("initnewcluster", done["printed"])

    def run_with(
        self,
        cluster: Cluster,
        writer: str,
        reader: str,
        plan: list[tuple[str, cases.Case, str, str]],
        ends: contextlib.ExitStack,
    ) -> None:
        """Run cases with two connections, one of each kind of client."""

        def connect(kind: str, **settings: object) -> Client:
            return Client(self.process(kind), cluster.uri, **settings)

        try:
            clients = connect(writer), connect(reader)
        except Refused as failure:
            for name, *_ in plan:
                self.report.failure(name, str(failure))
            return
        setting = cases.Setting(cluster, *clients, connect)
        for client in clients:
            ends.callback(client.close)
        for name, case, *_ in plan:

            def attempt(case: cases.Case = case) -> None:
                cluster.heal()  # a case that failed may have left something undone
                case(setting)

            self.report.run(name, attempt)


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m interop",
        description="Examine the store against BookKeeper, ZooKeeper and Pulsar, and a quorum with Kafka's tool.",
    )
    parser.add_argument("--client", action="append", choices=CLIENTS, help="this client alone; repeatable")
    parser.add_argument(
        "--bookies", action="append", choices=(*BOOKIES, MIXED), help="these bookies alone, or two of each; repeatable"
    )
    parser.add_argument(
        "--metadata", action="append", choices=(*METADATA, QUORUM), help="this metadata service alone; repeatable"
    )
    parser.add_argument(
        "--release",
        action="append",
        help=f"this release of BookKeeper alone; repeatable (by default {' and '.join(jars.RELEASES)})",
    )
    parser.add_argument(
        "--tests",
        choices=("none", "few", "all"),
        default="few",
        help="which of BookKeeper's own tests of its client to run (by default few); none: nor Pulsar's",
    )
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="cases whose name has this in it; * is anything; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases and run none")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave data and logs in this new folder")
    given = parser.parse_args()
    given.client, given.bookies, given.metadata, given.release = (
        given.client or CLIENTS,
        given.bookies or BOOKIES,
        given.metadata or METADATA,
        given.release or jars.RELEASES,
    )
    return given


def main() -> int:
    """Run the examination; the exit status."""
    given = arguments()
    clean_up_when_ended()
    began = time.monotonic()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-interop-"))
    folder.mkdir(exist_ok=True)
    examination = Examination(given, folder)
    try:
        if not given.list:
            examination.fetch()
        examination.run()
    except jars.Unavailable as missing:
        print(f"interop: {missing}", file=sys.stderr)
        return 2
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if given.list else examination.report.close(time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
