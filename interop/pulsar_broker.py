"""Apache Pulsar's broker, unchanged, on our metadata service and our bookies, asked by Pulsar's own client.

Message ``n`` has a body that follows from ``n``. A consumer gives the SHA-256 of
what came, in order, and :func:`digest` says what it must be.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem

import fencepost
from fencepost.spark.ledgers.pulsar import pulsar as decoded
from interop import jars
from interop.cases import equal, until
from interop.certificates import Certificates
from interop.clients import AskedProcess
from interop.clusters import FENCEPOST, NONE, PROGRAM, QUORUM, Cluster, Group, java_uri
from interop.processes import DidNotStart, Server, free_port

SECONDS = 180
"""After which an answer of the broker, or of its client, counts as missing."""
SIZE = 1000
"""Bytes of a message, unless said otherwise."""
ROLL = 200
"""Entries after which the broker begins another ledger of a topic."""
COLLECTED = 1_000
"""Milliseconds between the searches of our bookies for deleted ledgers."""

SETTINGS: Mapping[str, object] = {
    "clusterName": "fencepost",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    # By default a session of the metadata service outlives a killed broker by half a minute, with its topics.
    "metadataStoreSessionTimeoutMillis": 6_000,
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 3,
    "managedLedgerDefaultAckQuorum": 2,
    "managedLedgerMaxEntriesPerLedger": ROLL,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    # What a producer sends again is dropped, so that what comes can be compared with what was sent.
    "brokerDeduplicationEnabled": "true",
    "transactionCoordinatorEnabled": "true",
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "loadBalancerSheddingEnabled": "false",
    "offloadersDirectory": jars.OFFLOADERS,
    # By default, a ledger stays on the bookies for four hours after it was offloaded.
    "managedLedgerOffloadDeletionLagMs": 0,
}
"""Of the broker: those that a test needs. None of them works round anything."""

OTHER: Mapping[str, object] = {
    "bookkeeperUseV2WireProtocol": "false",
    "managedLedgerDigestType": "MAC",
    "managedLedgerPassword": "secret",
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "bookkeeperEnableStickyReads": "false",
    "bookkeeperExplicitLacIntervalInMills": 200,
    "bookkeeperClientSpeculativeReadTimeoutInMillis": 500,
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": 0,
    "managedLedgerOffloadDriver": "S3",
}
"""What another broker has instead: version 3 of the bookies' protocol, striped entries, other digests; it offloads to
S3, not to a folder.
"""

BUCKET = "offloaded"


def body(number: int, size: int = SIZE) -> bytes:
    """The body of a message."""
    text = hashlib.sha256(str(number).encode()).hexdigest()
    return (text * (size // len(text) + 1))[:size].encode()


def digest(numbers: range, size: int = SIZE) -> str:
    """The SHA-256 of the bodies of messages, one after the other."""
    found = hashlib.sha256()
    for number in numbers:
        found.update(body(number, size))
    return found.hexdigest()


class Archive:
    """Where a broker offloads ledgers to: a folder, or a bucket of an S3 server, which is moto's."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        driver = settings.get("managedLedgerOffloadDriver", "filesystem")
        self.server: Server | None = None
        self.settings = {"managedLedgerOffloadDriver": driver, "narExtractionDirectory": folder / "nars"}
        if driver == "filesystem":
            profile, store = folder / "hadoop.xml", folder / BUCKET
            profile.write_text("<configuration/>")
            store.mkdir()
            self.uri = str(store)
            self.settings |= {"fileSystemURI": store.as_uri(), "fileSystemProfilePath": profile}
            return
        port = free_port()
        self.uri = f"s3://key:secret@{BUCKET}?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        self.settings |= {
            "managedLedgerOffloadBucket": BUCKET,
            "managedLedgerOffloadServiceEndpoint": f"http://127.0.0.1:{port}",
        }
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self.server = Server("the S3 server", command, folder / "s3.log", lambda it: "Running on" in it.said())

    def start(self) -> None:
        """Start the server, with an empty bucket."""
        if self.server is not None:
            self.server.start()
            found, bucket = FileSystem.from_uri(self.uri.replace("?", "?allow_bucket_creation=true&"))
            found.create_dir(bucket)

    def objects(self) -> list[str]:
        """The paths of all that was offloaded."""
        found, root = FileSystem.from_uri(self.uri)
        return [each.path for each in found.get_file_info(FileSelector(root, recursive=True)) if each.is_file]

    def end(self) -> None:
        """Kill the server."""
        if self.server is not None:
            self.server.kill()


class Broker:
    """A broker, which has not started yet."""

    def __init__(
        self, name: str, folder: Path, cluster: Cluster, settings: Mapping[str, object], words: Sequence[str]
    ) -> None:
        """``words``: of its virtual machine."""
        self.port, self.web = free_port(), free_port()
        where = "zk:" + cluster.uri.removeprefix("zk://").partition("/")[0]
        own = {
            "metadataStoreUrl": where,
            "configurationMetadataStoreUrl": where,
            "bookkeeperMetadataServiceUri": java_uri(cluster.uri),
            "brokerServicePort": self.port,
            "webServicePort": self.web,
        }
        self.folder = folder / name
        self.folder.mkdir()
        file = self.folder / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in {**SETTINGS, **own, **settings}.items()))
        keys = ("env", "ACCESS_KEY_ID=key", "ACCESS_KEY_SECRET=secret")
        command = [*keys, *_java(*words, "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(file), heap=512)]
        self.server = Server(f"the {name}", command, self.folder / "log", lambda _: self._ready())

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"pulsar://127.0.0.1:{self.port}"

    def _ready(self) -> bool:
        try:
            return bool(self.ask("GET", "brokers/ready", plain=True) == "ok")
        except (OSError, AssertionError):
            return False

    def owns(self, topic: str) -> bool:
        """Whether this broker serves a topic."""
        found = self.ask("GET", f"lookup/v2/topic/{_path(topic)}", root="")
        return bool(found["brokerUrl"] == self.url)

    def added(self, topic: str) -> int:
        """How many entries it has added to a topic."""
        return int(self.ask("GET", f"{_path(topic)}/internalStats")["entriesAddedCounter"])

    def ask(self, method: str, path: str, value: object = None, plain: bool = False, root: str = "admin/v2/") -> Any:
        """Ask for an operation of an administrator. Raises ``AssertionError`` if it is refused."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.web}/{root}{path}",
            None if value is None else json.dumps(value).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()[:300]}") from None
        return text if plain or not text else json.loads(text)

    def restart(self) -> None:
        """End it cleanly and start it again."""
        self.server.signal(signal.SIGTERM)
        self.server.end()
        self.server.start()


def _java(*words: str, heap: int = 256) -> list[str]:
    # Pulsar asks these two for the memory and the processors that it may use.
    opened = ["--add-opens=java.management/sun.management=ALL-UNNAMED"]
    opened += ["--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED"]
    return jars.java(*opened, "-cp", jars.pulsar_class_path(), *words, heap=heap)


def _client() -> list[str]:
    return _java("-Dinterop.log=WARN", "interop.Messages")


class Pulsar:
    """A cluster of ours, a broker on it, and Pulsar's client."""

    def __init__(
        self, metadata: str, folder: Path, settings: Mapping[str, object] = NONE, secured: bool = False
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.secured = Certificates(folder / "certificates", hosts=9) if secured else None
        cleaning = {"gcWaitTime": COLLECTED}
        self.cluster = Cluster(
            FENCEPOST, metadata, folder / "cluster", settings=cleaning, apart=True, secured=self.secured
        )
        self.archive = Archive(folder, settings)
        self.settings = {**settings, **self.archive.settings, **(self.secured.of_broker() if self.secured else {})}
        self.brokers = [self.another("broker")]
        self.client: AskedProcess | None = None
        self.topics = 0

    def another(self, name: str) -> Broker:
        """A broker of this cluster, which has not started yet."""
        return Broker(name, self.folder, self.cluster, self.settings, self._words())

    def _words(self) -> Sequence[str]:
        return self.secured.of_zookeepers_client() if self.secured else ()

    @property
    def broker(self) -> Broker:
        """The broker that there is from the beginning."""
        return self.brokers[0]

    def start(self, bookies: int = 4) -> None:
        """Start everything, and return once the client is connected."""
        self.archive.start()
        self.cluster.service.start()
        self.cluster.add_bookies(bookies)
        where = "zk:" + self.cluster.uri.removeprefix("zk://").partition("/")[0]
        words = {
            "cluster": "fencepost",
            "metadata-store": where,
            "configuration-metadata-store": where,
            "existing-bk-metadata-service-uri": java_uri(self.cluster.uri),
            "web-service-url": f"http://127.0.0.1:{self.broker.web}",
            "broker-service-url": self.broker.url,
            "initial-num-transaction-coordinators": "1",
        }
        command = _java(
            *self._words(),
            "org.apache.pulsar.PulsarClusterMetadataSetup",
            *(word for name, value in words.items() for word in (f"--{name}", value)),
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        said = done.stdout + done.stderr
        if done.returncode or "setup correctly" not in said:
            raise DidNotStart(f"PulsarClusterMetadataSetup ended with {done.returncode}:\n{said[-2000:]}")
        self.broker.server.start()
        self.client = AskedProcess(_client(), self.folder / "client.log")
        self.call("connect", url=self.broker.url)

    def look_up(self, topic: str) -> None:
        """Have a broker load a topic."""
        self.broker.ask("GET", f"lookup/v2/topic/{_path(topic)}", root="")

    def begin(self, operation: str, **arguments: object) -> Future[Any]:
        """Ask Pulsar's client for an operation and do not wait."""
        assert self.client is not None
        return self.client.begin(operation, **arguments)

    def call(self, operation: str, **arguments: object) -> Any:
        """Ask Pulsar's client for an operation, and wait for its result."""
        return self.begin(operation, **arguments).result(SECONDS)

    def topic(self) -> str:
        """The name of a new topic, which the broker has loaded."""
        self.topics += 1
        topic = f"persistent://public/default/topic-{self.topics}"
        self.broker.ask("PUT", _path(topic))
        return topic

    def produce(self, topic: str, numbers: range, **more: object) -> Future[Any]:
        """Begin to send messages, each until it is acknowledged."""
        return self.begin("produce", **{"size": SIZE, **more}, topic=topic, first=numbers.start, count=len(numbers))

    def produced(self, topic: str, numbers: range, **more: object) -> None:
        """Send messages, and return once all are acknowledged."""
        equal(self.produce(topic, numbers, **more).result(SECONDS), len(numbers), "messages that are acknowledged")

    def consumed(self, topic: str, subscription: str, numbers: range, size: int = SIZE) -> None:
        """Receive and acknowledge what a subscription has left, which must be these messages."""
        matches(self.consume(topic, subscription, numbers).result(SECONDS), numbers, size)

    def consume(self, topic: str, subscription: str, numbers: range) -> Future[Any]:
        """Begin to receive and acknowledge messages."""
        return self.begin("consume", topic=topic, subscription=subscription, count=len(numbers))

    def about(self, topic: str, what: str) -> Any:
        """What the broker tells of a topic: ``stats`` or ``internalStats``."""
        return self.broker.ask("GET", f"{_path(topic)}/{what}")

    def ledgers(self, topic: str) -> list[int]:
        """All ledgers of a topic: of its messages, of its cursors, of its schemas."""
        found = self.about(topic, "internalStats")
        ledgers = [each["ledgerId"] for each in (*found["ledgers"], *found["schemaLedgers"])]
        return [*ledgers, *(each["cursorLedger"] for each in found["cursors"].values() if each["cursorLedger"] >= 0)]

    def stored(self) -> set[int]:
        """The ledgers that bookies have entries of, by their files."""
        found: set[int] = set()
        for bookie in self.cluster.bookies:
            words = [*PROGRAM, "bookie", "inspect", str(bookie.folder / "data"), "--json"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True)
            found |= {each["ledger"] for each in json.loads(done.stdout)["ledgers"]}
        return found

    def heal(self) -> None:
        """Start what does not run."""
        self.cluster.heal()
        if not self.broker.server.runs():
            self.broker.server.start()

    def end(self) -> None:
        """Kill all."""
        if self.client is not None:
            self.client.end()
        for broker in self.brokers:
            broker.server.kill()
        self.cluster.end()
        self.archive.end()


def _path(topic: str) -> str:
    return topic.replace("://", "/", 1)


def matches(found: Mapping[str, Any], numbers: range, size: int = SIZE) -> None:
    """Fail unless a consumer got just these messages, in order."""
    equal(found["count"], len(numbers), "messages that came")
    equal(found["digest"], digest(numbers, size), "SHA-256 of what came")


# -- the cases ---------------------------------------------------------------------------------------------------------

Case = Callable[[Pulsar], None]
EVERY: dict[str, Case] = {}
"""By their names, for each cluster and settings of the broker."""
FIRST: dict[str, Case] = {}
"""Those that are run with one of them."""
SECURED: dict[str, Case] = {}
"""Those that are also run with TLS."""


def _among(cases: dict[str, Case], name: str) -> Callable[[Case], Case]:
    def add(case: Case) -> Case:
        cases[name] = case
        return case

    return add


@_among(SECURED, "produce, roll ledgers, consume, acknowledge, restart the broker, read again")
@_among(EVERY, "produce, roll ledgers, consume, acknowledge, restart the broker, read again")
def session(pulsar: Pulsar) -> None:
    """What was acknowledged does not come again after the broker's restart, and another subscription gets all."""
    topic, numbers = pulsar.topic(), range(50_000)
    pulsar.produced(topic, numbers, rate=20_000)
    equal(len(pulsar.about(topic, "internalStats")["ledgers"]) > 3, True, "whether ledgers were rolled")
    pulsar.consumed(topic, "first", numbers)
    until(SECONDS, "no backlog", lambda: _backlog(pulsar, topic, "first") == 0)
    pulsar.broker.restart()
    equal(_backlog(pulsar, topic, "first"), 0, "messages that were acknowledged and are there again")
    pulsar.consumed(topic, "second", numbers)
    later = range(len(numbers), len(numbers) + 100)
    pulsar.produced(topic, later)
    pulsar.consumed(topic, "first", later)


def _backlog(pulsar: Pulsar, topic: str, subscription: str) -> int:
    pulsar.look_up(topic)
    return int(pulsar.about(topic, "stats")["subscriptions"][subscription]["msgBacklog"])


@_among(EVERY, "messages from 1 byte to 4 MiB")
def sizes(pulsar: Pulsar) -> None:
    """Each topic has messages of one size, in batches and not."""
    for size, count in ((1, 2000), (70_000, 300), (1 << 20, 20), (4 << 20, 4)):
        for batches in (True, False):
            topic, numbers = pulsar.topic(), range(count)
            pulsar.produced(topic, numbers, size=size, batches=batches)
            pulsar.consumed(topic, "all", numbers, size)


@_among(EVERY, "a bookie is killed and starts again")
def bookie_killed(pulsar: Pulsar) -> None:
    """While messages come and are acknowledged, each bookie is killed once. Then the broker starts again."""
    topic, numbers = pulsar.topic(), range(12_000)
    coming = pulsar.consume(topic, "first", numbers)
    part = len(numbers) // len(pulsar.cluster.bookies)
    for first, bookie in zip(numbers[::part], pulsar.cluster.bookies, strict=True):
        sending = pulsar.produce(topic, numbers[first : first + part], rate=1_000)
        _under_way(pulsar, topic, sending)
        bookie.server.kill()
        equal(sending.result(SECONDS), part, "messages that are acknowledged without it")
        bookie.server.start()
    matches(coming.result(SECONDS), numbers)
    pulsar.broker.restart()
    pulsar.consumed(topic, "second", numbers)


def _under_way(pulsar: Pulsar, topic: str, sending: Future[Any]) -> None:
    """Return once ten more entries are in a topic than there were, or all that are sent."""
    before = pulsar.broker.added(topic)
    until(SECONDS, "the broker adds", lambda: sending.done() or pulsar.broker.added(topic) > before + 10)


@_among(EVERY, "all bookies are killed and start again")
def all_killed(pulsar: Pulsar) -> None:
    """The broker and the producer wait for them."""
    topic, numbers = pulsar.topic(), range(6_000)
    sending = pulsar.produce(topic, numbers, rate=1_000)
    _under_way(pulsar, topic, sending)
    for bookie in pulsar.cluster.bookies:
        bookie.server.kill()
    pulsar.cluster.heal()
    equal(sending.result(SECONDS), len(numbers), "messages that are acknowledged")
    pulsar.consumed(topic, "all", numbers)


@_among(EVERY, "the metadata service is killed and starts again")
def metadata_killed(pulsar: Pulsar) -> None:
    """Meanwhile messages are acknowledged, and ledgers roll afterwards."""
    topic, numbers = pulsar.topic(), range(15_000)
    sending = pulsar.produce(topic, numbers, rate=1_500)
    _under_way(pulsar, topic, sending)
    service = pulsar.cluster.service
    for server in service.servers if isinstance(service, Group) else [service]:
        server.kill()
        server.start()
    equal(sending.result(SECONDS), len(numbers), "messages that are acknowledged")
    pulsar.consumed(topic, "all", numbers)


@_among(EVERY, "the broker is killed, and another takes its topics")
def broker_killed(pulsar: Pulsar) -> None:
    """The other one recovers the ledgers that are open, after the session of the killed one has ended."""
    topic, numbers = pulsar.topic(), range(10_000)
    other = pulsar.another(f"broker of {topic.rpartition('/')[2]}")
    pulsar.brokers.append(other)
    other.server.start()
    client = AskedProcess(_client(), pulsar.folder / "client-of-both.log")
    try:
        client.call("connect", url=f"{pulsar.broker.url},{other.url.removeprefix('pulsar://')}")
        sending = client.begin("produce", topic=topic, first=0, count=len(numbers), size=SIZE, rate=1_000)
        coming = client.begin("consume", topic=topic, subscription="first", count=len(numbers))
        owner = next(each for each in pulsar.brokers if each.owns(topic))
        until(SECONDS, "the broker adds", lambda: sending.done() or owner.added(topic) > 20)
        owner.server.kill()
        equal(sending.result(SECONDS), len(numbers), "messages that are acknowledged")
        matches(coming.result(SECONDS), numbers)
        owner.server.start()
        found = client.begin("consume", topic=topic, subscription="second", count=len(numbers))
        matches(found.result(SECONDS), numbers)
    finally:
        client.end()
        other.server.signal(signal.SIGTERM)
        other.server.end()
        pulsar.brokers.remove(other)


@_among(EVERY, "delete a topic")
def delete(pulsar: Pulsar) -> None:
    """Its ledgers leave the metadata and the files of the bookies; those of another topic stay."""
    topic, other, numbers = pulsar.topic(), pulsar.topic(), range(30_000)
    for each in (topic, other):
        pulsar.produced(each, numbers)
        pulsar.consumed(each, "all", numbers)
    gone, kept = set(pulsar.ledgers(topic)), set(pulsar.ledgers(other))
    until(SECONDS, "every ledger of the topic is in files", lambda: gone <= pulsar.stored())
    pulsar.broker.ask("DELETE", f"{_path(topic)}?force=true")
    with fencepost.connect(pulsar.cluster.uri) as store:
        until(SECONDS, "no ledger of the topic has metadata", lambda: not gone & set(store.list_ledgers()))
        equal(kept - set(store.list_ledgers()), set(), "ledgers of the other topic without metadata")
    until(SECONDS, "no bookie has an entry of the topic", lambda: not gone & pulsar.stored())
    pulsar.consumed(other, "again", numbers)


@_among(EVERY, "unload, trim, and seek")
def unload(pulsar: Pulsar) -> None:
    """An unloaded topic closes its ledger; a subscription goes back to the first message."""
    topic, numbers = pulsar.topic(), range(3_000)
    pulsar.produced(topic, numbers)
    pulsar.consumed(topic, "all", numbers)
    pulsar.broker.ask("PUT", f"{_path(topic)}/unload")
    pulsar.look_up(topic)
    pulsar.broker.ask("POST", f"{_path(topic)}/subscription/all/resetcursor", {"ledgerId": -1, "entryId": -1})
    pulsar.consumed(topic, "all", numbers)
    pulsar.produced(topic, range(3_000, 3_100))
    pulsar.consumed(topic, "all", range(3_000, 3_100))


@_among(EVERY, "offload a topic")
def offload(pulsar: Pulsar) -> None:
    """Closed ledgers go to an object store and leave the bookies. They are read there, and deleted with the topic."""
    topic, numbers = pulsar.topic(), range(50_000)
    pulsar.produced(topic, numbers)
    last = pulsar.about(topic, "internalStats")["lastConfirmedEntry"].split(":")
    place = {"ledgerId": int(last[0]), "entryId": int(last[1]), "partitionIndex": -1}
    pulsar.broker.ask("PUT", f"{_path(topic)}/offload", place)
    until(SECONDS, "the topic is offloaded", lambda: _is_offloaded(pulsar, topic))
    *closed, last = pulsar.about(topic, "internalStats")["ledgers"]
    equal([each["offloaded"] for each in closed], [True] * len(closed), "whether closed ledgers are offloaded")
    equal(len(closed) > 3, True, "whether ledgers were rolled")
    gone = {each["ledgerId"] for each in closed}
    with fencepost.connect(pulsar.cluster.uri) as store:
        until(SECONDS, "no offloaded ledger has metadata", lambda: not gone & set(store.list_ledgers()))
        equal(last["ledgerId"] in store.list_ledgers(), True, "whether the last ledger has metadata")
    until(SECONDS, "no bookie has an offloaded entry", lambda: not gone & pulsar.stored())
    pulsar.consumed(topic, "first", numbers)
    pulsar.broker.restart()
    pulsar.consumed(topic, "second", numbers)
    equal(bool(pulsar.archive.objects()), True, "whether there are objects")
    pulsar.broker.ask("DELETE", f"{_path(topic)}?force=true")
    until(SECONDS, "no object is left", lambda: not pulsar.archive.objects())


def _is_offloaded(pulsar: Pulsar, topic: str) -> bool:
    found = pulsar.broker.ask("GET", f"{_path(topic)}/offload")
    equal(found["lastError"], "", "what ended the offload")
    return bool(found["status"] == "SUCCESS")


@_among(FIRST, "compaction of a topic")
def compaction(pulsar: Pulsar) -> None:
    """The last message of each key stays, in a ledger of its own."""
    topic, numbers, keys = pulsar.topic(), range(4_000), 100
    pulsar.produced(topic, numbers, keys=keys)
    pulsar.broker.ask("PUT", f"{_path(topic)}/compaction")
    until(
        SECONDS,
        "the topic is compacted",
        lambda: pulsar.broker.ask("GET", f"{_path(topic)}/compaction")["status"] == "SUCCESS",
    )
    found = pulsar.call("consume", topic=topic, subscription="few", count=keys, compacted=True)
    matches(found, numbers[-keys:])
    pulsar.broker.restart()
    found = pulsar.call("consume", topic=topic, subscription="again", count=keys, compacted=True)
    matches(found, numbers[-keys:])


@_among(FIRST, "transactions")
def transactions(pulsar: Pulsar) -> None:
    """Messages go from one topic to another in transactions, some are aborted, and none is lost or comes twice."""
    source, target, numbers = pulsar.topic(), pulsar.topic(), range(300)
    pulsar.produced(source, numbers, batches=False)  # by default, a broker keeps no part of a batch as acknowledged
    aborted = pulsar.call("transact", topic=source, to=target, subscription="taker", count=len(numbers))
    equal(aborted > 5, True, "whether transactions were aborted")
    pulsar.consumed(target, "all", numbers)
    pulsar.broker.restart()
    pulsar.consumed(target, "again", numbers)
    until(SECONDS, "no message that was taken is there again", lambda: _backlog(pulsar, source, "taker") == 0)


@_among(FIRST, "the decoder of Spark reads what the broker wrote")
def decoder(pulsar: Pulsar) -> None:
    """Fencepost's client reads the ledgers of a topic beside the broker, and their messages are those sent."""
    topic, numbers = pulsar.topic(), range(30_000)
    pulsar.produced(topic, numbers)
    pulsar.broker.ask("PUT", f"{_path(topic)}/unload")  # closes the last ledger
    pulsar.look_up(topic)
    ledgers = [each["ledgerId"] for each in pulsar.about(topic, "internalStats")["ledgers"][:-1]]
    found = []
    with fencepost.connect(pulsar.cluster.uri) as store:
        for ledger in ledgers:
            with store.open_ledger(ledger, recover=False) as reader:
                values = pa.array([entry.data for entry in reader.read()], pa.binary())
            found += [message for entry in decoded(values).to_pylist() for message in entry]
    equal([each["sequence_id"] for each in found], list(numbers), "sequence ids")
    equal([each["payload"] for each in found] == [body(number) for number in numbers], True, "whether bodies are equal")
    equal({each["producer"] for each in found}, {"interop"}, "producers")


@_among(FIRST, "racks")
def racks(pulsar: Pulsar) -> None:
    """Racks that Fencepost sets are those of the broker's client, and those that Pulsar sets are Fencepost's."""
    cluster, (alone, *others) = pulsar.cluster, [each.id for each in pulsar.cluster.bookies]
    for bookie in others:
        cluster.rack(bookie, "/r1")
    cluster.rack(alone, "/r2")
    try:
        named = pulsar.broker.ask("GET", "bookies/racks-info")["default"]
        equal(
            {each: about["rack"] for each, about in named.items()},
            {alone: "/r2"} | dict.fromkeys(others, "/r1"),
            "racks",
        )
        pulsar.broker.restart()
        equal(_without(pulsar, alone), [], "ledgers in one rack")
        pulsar.broker.ask("POST", f"bookies/racks-info/{others[0]}?group=default", {"rack": "/r2", "hostname": "h"})
        pulsar.broker.ask("POST", f"bookies/racks-info/{alone}?group=default", {"rack": "/r1", "hostname": "h"})
        equal(cluster.rack(others[0]), f"bookie {others[0]} is in /r2", "what Pulsar has set")
        pulsar.broker.restart()
        equal(_without(pulsar, others[0]), [], "ledgers in one rack, after Pulsar has moved one of them")
    finally:
        for bookie in (alone, *others):
            cluster.rack(bookie, "--remove")
        pulsar.broker.restart()


def _without(pulsar: Pulsar, bookie: str) -> list[int]:
    """Ledgers of new topics that have no entry on a bookie: without racks, one of four would be such."""
    ledgers = []
    for _ in range(24):
        topic = pulsar.topic()
        pulsar.produced(topic, range(1))
        ledgers += pulsar.ledgers(topic)
    with fencepost.connect(pulsar.cluster.uri) as store:
        return [each for each in ledgers if bookie not in store.ledger_metadata(each).fragments[0].ensemble]


@dataclass(frozen=True)
class Kind:
    """The metadata service of a cluster, settings of the broker, and the cases. ``secured``: nobody speaks without TLS,
    and both sides show a certificate.
    """

    metadata: str
    settings: Mapping[str, object]
    cases: Mapping[str, Case]
    secured: bool = False


KINDS: Mapping[str, Kind] = {
    "version 2": Kind(FENCEPOST, NONE, {**EVERY, **FIRST}),
    "version 3, striped, a quorum": Kind(QUORUM, OTHER, EVERY),
    "TLS": Kind(FENCEPOST, NONE, SECURED, secured=True),
}
"""Clusters by their names."""
