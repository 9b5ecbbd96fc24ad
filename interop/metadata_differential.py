"""The same random metadata operations on ZooKeeper and on Fencepost's metadata service: the first difference, or that
there is none.

    python -m interop.metadata_differential --operations 100000 --seed 1 --seed 2
    python -m interop.metadata_differential --operations 900 --seed 11 --record FILE

The second form writes what ZooKeeper answers to a file, which the tests compare with the service. Results, versions,
zxids, errors, and events and where they come among the replies are compared; times and session ids are not. ``--ports``
takes two servers that run already; they are to be fresh and to have the same settings.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import Any, NamedTuple

from interop import jars
from interop.processes import Server, free_port

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from metadata import zkclient as zk
from metadata.workload import Run, Workload, written

__all__ = ("servers", "zk")

SETTINGS = {"tickTime": 500, "minSessionTimeout": 1_000, "maxSessionTimeout": 60_000}


def compare(ports: tuple[int, int], seed: int, operations: int, expiring: float) -> int:
    """Do the steps of a seed on both servers side by side; the number of operations, or SystemExit at the first
    difference.
    """
    runs = [Run(port) for port in ports]
    steps, *copies = tee(Workload(seed, expiring).steps(operations), 3)
    before: deque[Any] = deque(maxlen=6)
    done = 0
    for step, first, second in zip(
        steps, *(run.run(copy) for run, copy in zip(runs, copies, strict=True)), strict=True
    ):
        before.append(step)
        done += len(step[2]) if step[0] in ("calls", "expire") else 1
        if first != second:
            print(f"seed {seed}: after {done:,} operations they differ. The last steps:")
            for each in before:
                print("   ", each)
            for port, report in zip(ports, (first, second), strict=True):
                print(port, report)
            raise SystemExit(1)
    for run in runs:
        for index in list(run.clients):
            run._close(index)
    return done


def record(port: int, seed: int, operations: int, expiring: float, path: Path) -> None:
    """Write steps, and what came of them on a server, as lines of JSON."""
    steps, copy = tee(Workload(seed, expiring).steps(operations))
    run = Run(port)
    with open(path, "w") as file:
        for step, report in zip(steps, run.run(copy), strict=True):
            file.write(written(step, report) + "\n")
    run.close()


class Running(NamedTuple):
    """A server that serves."""

    port: int
    pid: int


def _serves(port: int) -> bool:
    """Whether a server answers a four-letter word, which takes no zxid as a session would."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"srvr")
            return connection.recv(9) == b"Zookeeper"
    except OSError:
        return False


@contextlib.contextmanager
def servers() -> Iterator[tuple[Running, Running]]:
    """ZooKeeper and our service, fresh and with the same settings."""
    jars.fetch()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        theirs, ours = free_port(), free_port()
        zoo = Path(folder, "zoo.cfg")
        lines = {**SETTINGS, "dataDir": f"{folder}/zookeeper", "clientPort": theirs, "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false", "maxClientCnxns": 0}  # fmt: skip
        zoo.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        toml = Path(folder, "settings.toml")
        toml.write_text(
            "".join(f"{name} = {value}\n" for name, value in SETTINGS.items())
            + "znode.container.checkIntervalMs = 100000000\n"
        )
        java = jars.java(
            "-Dznode.container.checkIntervalMs=100000000", "-cp", jars.class_path(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(zoo), heap=512, short=False,
        )  # fmt: skip
        words = ["metadata", f"{folder}/ours", "--port", str(ours), "--settings", str(toml)]
        python = [sys.executable, "-m", "fencepost", *words]
        zookeeper = Server("ZooKeeper", java, Path(folder, "zookeeper.log"), lambda _: _serves(theirs))
        service = Server(
            "our metadata service", python, Path(folder, "ours.log"), lambda server: " serves" in server.said()
        )
        for server in (zookeeper, service):
            ends.callback(server.kill)
            server.start()
        yield Running(theirs, zookeeper.pid), Running(ours, service.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument(
        "--expiring", type=float, default=0.0004, help="the share of steps that wait for a session to expire"
    )
    parser.add_argument("--record", metavar="FILE", type=Path)
    parser.add_argument("--ports", metavar="PORT", type=int, nargs=2)
    given = parser.parse_args()
    with contextlib.ExitStack() as ends:
        ports = given.ports or [server.port for server in ends.enter_context(servers())]
        for seed in given.seed or [1]:
            start = time.monotonic()
            if given.record is not None:
                record(ports[0], seed, given.operations, given.expiring, given.record)
                return
            done = compare((ports[0], ports[1]), seed, given.operations, given.expiring)
            print(f"seed {seed}: {done:,} operations, no difference ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
