"""Free ports of this machine for a cluster."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable

from fencepost.errors import SystemFailure

HOST = "127.0.0.1"

FIRST, LAST = 10_000, 60_999
TRIES = 10_000


def is_free(port: int) -> bool:
    """Whether a port of the loopback interface has no listener."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, is_wanted: Callable[[int], bool] = is_free) -> list[int]:
    """Some ports that are wanted, outside the kernel's range for outgoing connections, so that a restarted bookie finds
    its port free. Raises :class:`fencepost.SystemFailure` if there are too few.
    """
    lowest, highest = _outgoing()
    choice = random.Random()
    found: list[int] = []
    for _ in range(TRIES):
        port = choice.randint(FIRST, LAST)
        if not lowest <= port <= highest and port not in found and is_wanted(port):
            found.append(port)
            if len(found) == count:
                return found
    raise SystemFailure(f"no {count} free ports were found on {HOST}: give some with --metadata-port and --bookie-port")


class Ports:
    """The ports of a cluster. No other cluster of this machine takes them until they are closed, or the process ends:
    neither before a part listens there, nor while it is down.

    A name in the abstract namespace of Unix sockets stands for each. The kernel gives a name to one process at a time,
    and takes it back when that ends; a bound port would be in the way of the part.
    """

    def __init__(self) -> None:
        self._names: dict[int, socket.socket] = {}

    def close(self) -> None:
        """Leave the ports to others."""
        self._leave([*self._names])

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, ports: Iterable[int]) -> None:
        """Take the ports of an existing cluster, those that can be taken."""
        for port in ports:
            self._is_taken(port)

    def take(self, ports: Iterable[int]) -> int | None:
        """Take ports. If one of them is not free, returns it, and takes none."""
        taken: list[int] = []
        for port in ports:
            if port in self._names or not self._is_taken(port):
                self._leave(taken)
                return port
            taken.append(port)
            if not is_free(port):
                self._leave(taken)
                return port
        return None

    def take_free(self, wanted: list[int]) -> list[int]:
        """Take the wanted ports if all are free, otherwise as many others. Raises as :func:`free_ports`."""
        if self.take(wanted) is None:
            return wanted
        return free_ports(len(wanted), lambda port: self.take([port]) is None)

    def _is_taken(self, port: int) -> bool:
        """Take the name of a port, and return whether this process has it now."""
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0fencepost cluster port {port}")
        except OSError:
            name.close()
            return False
        self._names[port] = name
        return True

    def _leave(self, ports: Iterable[int]) -> None:
        for port in ports:
            self._names.pop(port).close()


def _outgoing() -> tuple[int, int]:
    """The kernel's range of ports for outgoing connections."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest, highest = file.read().split()
    return int(lowest), int(highest)
