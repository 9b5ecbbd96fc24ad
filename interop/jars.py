"""What comes from Maven: BookKeeper, ZooKeeper, BookKeeper's own tests, Kafka's tools, and Pulsar's broker; and our
Java, compiled against them.

Everything lies in ``.interop`` at the top of the repository, which git ignores, and is made anew when ``pom.xml`` or a
source changes. ``pom.xml`` has the releases; the environment variable ``INTEROP_BOOKKEEPER`` names another one of
BookKeeper. Each has a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parent / ".interop"
KAFKA = FOLDER / "kafka"
CODEC = FOLDER / "codec"
PULSAR = FOLDER / "pulsar"
OFFLOADERS = PULSAR / "offloaders"
"""What a broker of Pulsar loads to move ledgers to an object store, out of an archive among the jars."""
MESSAGES = FOLDER / "messages"
MANAGED = FOLDER / "managed"
MANAGED_SHIM = FOLDER / "managed-shim"

LINES = HERE / "java" / "lines"
"""What programs of ours have that are asked over standard input."""
PROCESSES = HERE / "java" / "processes"
"""What others' tests have in place of a cluster in the same virtual machine."""


def _pinned() -> list[str]:
    """The releases of BookKeeper that ``pom.xml`` has, the older one first."""
    return re.findall("<bookkeeper.(?:version|newer)>(.*)</bookkeeper", (HERE / "pom.xml").read_text())


RELEASES = [os.environ["INTEROP_BOOKKEEPER"]] if os.environ.get("INTEROP_BOOKKEEPER") else _pinned()
"""Of BookKeeper."""
RELEASE = RELEASES[0]
"""The one in use."""

# Netty and RocksDB reach into these packages by reflection.
OPENED = ("java.nio", "jdk.internal.misc", "java.io", "java.util.zip", "java.lang", "sun.nio.ch")

NETWORK = ("-Dio.netty.tryReflectionSetAccessible=true", "-Djava.net.preferIPv4Stack=true")


class Unavailable(Exception):
    """Java or Maven is not here, or what they were to do failed."""


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise Unavailable(f"interop needs {command[0]}, which is not installed; install a JDK 17 and Maven")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command[:4])} ... failed:\n{done.stdout}{done.stderr}")


def _made(target: Path, sources: list[Path]) -> bool:
    """Whether ``target`` was made of just these sources."""
    stamp = target / ".made-of"
    return stamp.is_file() and stamp.read_text() == _digest(sources)


def _digest(sources: list[Path]) -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _copy(pom: Path, target: Path, *words: str) -> None:
    if not _made(target, [pom]):
        shutil.rmtree(target, ignore_errors=True)
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={target}")
        _run("mvn", "-q", "-B", "-f", str(pom), f"-Dbookkeeper.version={RELEASE}", *words, *copy)
        (target / ".made-of").write_text(_digest([pom]))


def _compile(target: Path, roots: Sequence[Path], class_path: str, pom: Path) -> None:
    sources = [pom, *(source for root in roots for source in sorted(root.rglob("*.java")))]
    if _made(target, sources):
        return
    shutil.rmtree(target, ignore_errors=True)
    _run("javac", "-d", str(target), "-cp", class_path, *map(str, sources[1:]))
    (target / ".made-of").write_text(_digest(sources))


def use(release: str) -> None:
    """Fetch and start this release of BookKeeper from now on."""
    global RELEASE
    RELEASE = release


def _of_release(part: str) -> Path:
    """A folder of the release in use: ``lib``, ``tests`` (BookKeeper's own, with all that they need), and ours, which
    are ``exam`` and ``shim``.
    """
    return FOLDER / RELEASE / part


def fetch(tests: bool = False) -> None:
    """Bring the jars and compile our classes, where that is not done yet; ``tests``: BookKeeper's own tests too, which
    not every release has published. Raises :class:`Unavailable`.
    """
    pom = HERE / "pom.xml"
    _copy(pom, _of_release("lib"))
    _compile(_of_release("exam"), [HERE / "java" / "exam", LINES], f"{_of_release('lib')}/*", pom)
    if tests:
        _copy(pom, _of_release("tests"), "-Ptests")
        _compile(_of_release("shim"), [HERE / "java" / "shim", PROCESSES], f"{_of_release('tests')}/*", pom)


def fetch_kafka() -> None:
    """The same for Kafka's tools, which have a folder of their own. Raises :class:`Unavailable`."""
    pom = HERE / "kafka" / "pom.xml"
    _copy(pom, KAFKA)
    _compile(CODEC, [HERE / "java" / "kafka"], f"{KAFKA}/*", pom)


def fetch_pulsar(tests: bool = False) -> None:
    """The same for Pulsar's broker and client; ``tests``: Pulsar's tests of its managed ledgers instead. Raises
    :class:`Unavailable`.
    """
    pom = HERE / "pulsar" / "pom.xml"
    if tests:
        _copy(pom, MANAGED, "-Ptests")
        _compile(MANAGED_SHIM, [HERE / "java" / "managed", PROCESSES], f"{MANAGED}/*", pom)
        return
    _copy(pom, PULSAR)
    if not OFFLOADERS.is_dir():
        (archive,) = PULSAR.glob("pulsar-offloader-*.tar.gz")
        with tarfile.open(archive) as members, tempfile.TemporaryDirectory(dir=PULSAR) as whole:
            members.extractall(whole, filter="data")
            (unpacked,) = Path(whole).glob("*/offloaders")
            unpacked.rename(OFFLOADERS)
        archive.unlink()
    _compile(MESSAGES, [HERE / "java" / "pulsar", LINES], f"{PULSAR}/*", pom)


def pulsar_class_path(tests: bool = False) -> str:
    """The class path of Pulsar's broker and client, or of its tests, and of what is ours beside them."""
    ours, jars = (MANAGED_SHIM, MANAGED) if tests else (MESSAGES, PULSAR)
    return os.pathsep.join([str(ours), str(HERE / "java"), f"{jars}/*"])


def kafka_class_path() -> str:
    """The class path of Kafka's tools, and of what is ours beside them."""
    return os.pathsep.join([str(CODEC), f"{KAFKA}/*"])


def class_path(*ours: str, tests: bool = False, racks: bool = False) -> str:
    """The class path of servers and clients, with ``exam`` or ``shim`` of ours ahead; ``tests``: and of BookKeeper's
    own tests; ``racks``: with Pulsar's class that reads racks behind them, which BookKeeper has not.
    """
    jars = _of_release("tests" if tests else "lib")
    behind = [f"{PULSAR}/*"] if racks else []
    return os.pathsep.join([*(str(_of_release(part)) for part in ours), str(HERE / "java"), f"{jars}/*", *behind])


def java(*words: str, heap: int = 256, short: bool = True) -> list[str]:
    """The command line of a Java virtual machine with a heap of ``heap`` MiB; ``short``: one that starts fast and ends
    soon.
    """
    opened = [word for package in OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    speed = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"] if short else ["-XX:+UseG1GC"]
    memory = [f"-Xms{heap // 4 if short else heap}m", f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={heap}m"]
    # A bookie of 4.18 takes the last address of its interface, whose IPv6 ones are no valid id.
    return ["java", *speed, *memory, *opened, *NETWORK, *words]
