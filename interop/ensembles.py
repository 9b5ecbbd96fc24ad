"""An ensemble of real ZooKeeper servers, as processes on loopback."""

from __future__ import annotations

import socket
from pathlib import Path

from interop import jars
from interop.processes import Server, free_port


def mode(port: int) -> str:
    """What a server of ZooKeeper's protocol says that it is: leader, follower, observer, standalone; empty if it does
    not serve.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5) as connection:
            connection.settimeout(0.5)
            connection.sendall(b"srvr")
            said = b""
            while data := connection.recv(4096):
                said += data
    except OSError:
        return ""
    return next(
        (line.split()[1] for line in said.decode(errors="replace").splitlines() if line.startswith("Mode:")), ""
    )


class Ensemble:
    """Some ZooKeeper servers that make an ensemble, by their ids, from 1.

    Unless ``force_sync``, they do not wait for the disk: processes are killed, the machine is not.
    """

    def __init__(
        self, folder: Path, count: int, settings: dict[str, object], heap: int = 128, force_sync: bool = False
    ) -> None:
        jars.fetch()
        numbers = range(1, 1 + count)
        peers = {number: (free_port(), free_port()) for number in numbers}
        self.ports = {number: free_port() for number in numbers}
        self.servers: dict[int, Server] = {}
        for number in numbers:
            home = folder / f"zookeeper-{number}"
            home.mkdir(parents=True)
            (home / "myid").write_text(f"{number}\n")
            lines = {
                "tickTime": 500, "initLimit": 20, "syncLimit": 10, **settings, "dataDir": home,
                "clientPort": self.ports[number],
                "clientPortAddress": "127.0.0.1", "admin.enableServer": "false", "maxClientCnxns": 0,
                "4lw.commands.whitelist": "*",
                **{f"server.{each}": f"127.0.0.1:{quorum}:{election}" for each, (quorum, election) in peers.items()},
            }  # fmt: skip
            (home / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            command = jars.java(
                f"-Dzookeeper.forceSync={'yes' if force_sync else 'no'}", "-Dznode.container.checkIntervalMs=100000000",
                "-Dinterop.log=WARN", "-cp", jars.class_path(),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(home / "zoo.cfg"), heap=heap,
            )  # fmt: skip
            port = self.ports[number]
            serves = lambda _, port=port: mode(port) in ("leader", "follower")  # noqa: E731
            self.servers[number] = Server(f"ZooKeeper {number}", command, home / "log", serves)

    def start(self) -> None:
        """Start all, and wait until they serve."""
        for server in self.servers.values():
            server.launch()
        for server in self.servers.values():
            server.wait()

    @property
    def leader(self) -> int:
        """Who leads; 0 if nobody does."""
        return next((number for number, port in self.ports.items() if mode(port) == "leader"), 0)

    def kill(self) -> None:
        """End all."""
        for server in self.servers.values():
            server.kill()
