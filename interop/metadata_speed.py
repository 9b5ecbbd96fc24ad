"""Operations a second of ZooKeeper and of Fencepost's metadata service, turn by turn in one run, and the CPU that one
of them costs.

python -m interop.metadata_speed --operations 20000
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interop.metadata_differential import servers, zk

Frames = Callable[[zk.Client, str, int], list[bytes]]


def creates(client: zk.Client, root: str, count: int) -> list[bytes]:
    return [client.request(zk.CREATE, [f"{root}/{number}", b"x" * 100, zk.OPEN, 0]) for number in range(count)]


def sets(client: zk.Client, root: str, count: int) -> list[bytes]:
    return [client.request(zk.SET_DATA, [root, b"x" * 100, -1]) for _ in range(count)]


def gets(client: zk.Client, root: str, count: int) -> list[bytes]:
    return [client.request(zk.GET_DATA, [root, False]) for _ in range(count)]


def seconds(port: int, make: Frames, count: int, in_flight: int) -> float:
    """How long ``count`` requests of one client take, with ``in_flight`` outstanding."""
    client = zk.Client(port)
    client.connect(30_000)
    root = f"/speed{time.time_ns()}"
    client.call([zk.CREATE, [root, b"", zk.OPEN, 0]])
    frames = make(client, root, count)
    sent = answered = 0
    received = bytearray()
    began = time.perf_counter()
    while answered < count:
        if sent < count and sent - answered <= in_flight // 2:
            upto = min(count, answered + in_flight)
            client.socket.sendall(b"".join(frames[sent:upto]))
            sent = upto
        received += client.socket.recv(1 << 20)
        at = 0
        while len(received) - at >= 4:
            length = int.from_bytes(received[at : at + 4], "big")
            if len(received) - at - 4 < length:
                break
            at += 4 + length
            answered += 1
        del received[:at]
    took = time.perf_counter() - began
    client.drop()
    return took


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    cases: list[tuple[str, Any, int]] = [
        (make.__name__, make, in_flight) for make in (creates, sets, gets) for in_flight in (1, 100, 1_000)
    ]
    with servers() as running:
        names = ("ZooKeeper", "Fencepost")
        print(f"{'':<8}{'in flight':>10}" + "".join(f"{name + ', 1/s':>18}{'CPU us each':>14}" for name in names))
        for name, make, in_flight in cases:
            count = given.operations if in_flight > 1 else given.operations // 20
            took = dict.fromkeys(names, 0.0)
            used = dict.fromkeys(names, 0.0)
            for _ in range(given.turns):
                for each, server in zip(names, running, strict=True):
                    before = cpu(server.pid)
                    took[each] += seconds(server.port, make, count, in_flight)
                    used[each] += cpu(server.pid) - before
            total = count * given.turns
            print(
                f"{name:<8}{in_flight:>10,}"
                + "".join(f"{total / took[each]:>18,.0f}{used[each] / total * 1e6:>14.0f}" for each in names),
                flush=True,
            )


if __name__ == "__main__":
    main()
