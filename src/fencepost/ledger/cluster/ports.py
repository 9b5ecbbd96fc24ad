"""Free ports of this machine for a cluster."""

from __future__ import annotations

import random
import socket

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


def free_ports(wanted: list[int], taken: set[int]) -> list[int]:
    """The wanted ports if all are free, otherwise as many others. None of them is in ``taken``.

    The others are outside the kernel's range for outgoing connections, so that a restarted bookie finds its port free.
    """
    if not taken.intersection(wanted) and all(map(is_free, wanted)):
        return wanted
    lowest, highest = _outgoing()
    choice = random.Random()
    found: list[int] = []
    for _ in range(TRIES):
        port = choice.randint(FIRST, LAST)
        if not lowest <= port <= highest and port not in taken and port not in found and is_free(port):
            found.append(port)
            if len(found) == len(wanted):
                return found
    raise SystemFailure(
        f"no {len(wanted)} free ports were found on {HOST}: give some with --metadata-port and --bookie-port"
    )


def _outgoing() -> tuple[int, int]:
    """The kernel's range of ports for outgoing connections."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest, highest = file.read().split()
    return int(lowest), int(highest)
