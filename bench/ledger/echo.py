"""Processes that do with bytes what the store does with entries, and nothing else: receive, write, sync, answer.

They set the pace that nothing can beat on a machine that does it the same way: ``python -m bench.ledger.echo
serve|ask|give|take ...``, each of which prints a line of JSON at its end. They import nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import deque

CHUNK = 1 << 20
"""Bytes that are received or sent at once, at most."""
FILE = 64 << 20
"""Bytes of the file that stands for a journal. It is written before, so that a sync has no metadata to write, and over
and over again.
"""


def listener() -> socket.socket:
    """A socket that listens on any port of the loopback interface, which is printed."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    return listening


def dialled(port: int) -> socket.socket:
    """A connection to it."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def serve(path: str, request: int, answer: int) -> None:
    """Answer each request of ``request`` bytes with ``answer`` bytes. First write the received bytes to a file and sync
    it, unless the path is ``-``.
    """
    file = -1
    if path != "-":
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        for at in range(0, FILE, CHUNK):
            os.pwrite(file, bytes(CHUNK), at)
        os.fsync(file)
    connection, _ = listener().accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer, answers = memoryview(bytearray(CHUNK)), memoryview(bytes(max(answer, CHUNK) // answer * answer))
    began = time.process_time()
    pending, at = 0, 0
    while count := connection.recv_into(buffer):
        pending += count
        if file >= 0:
            if at + count > FILE:
                at = 0
            os.pwrite(file, buffer[:count], at)
            at += count
            if pending >= request:
                os.fdatasync(file)
        size = pending // request * answer
        pending %= request
        while size > 0:
            size -= connection.send(answers[:size])
    print(json.dumps({"cpu": time.process_time() - began}))


def ask(request: int, answer: int, in_flight: int, seconds: float, needed: int, *ports: int) -> None:
    """Send requests to servers for ``seconds``, with ``in_flight`` outstanding.

    A request goes to all servers and is done when ``needed`` have answered. If ``needed`` is 0, each request goes to
    one server, in turn, and is done when that server has answered.
    """
    links = [dialled(port) for port in ports]
    poll = select.epoll()
    by_number = {link.fileno(): number for number, link in enumerate(links)}
    for link in links:
        link.setblocking(False)
        poll.register(link.fileno(), select.EPOLLIN)
    requests, buffer = memoryview(bytes(max(request, CHUNK) // request * request)), bytearray(CHUNK)
    wanted = [0] * len(links)  # bytes that are to be sent
    sent, received = [0] * len(links), [0] * len(links)
    asked = done = 0
    groups: deque[tuple[int, float]] = deque()  # up to which request, and when it was sent
    latencies: list[float] = []
    began, began_cpu = time.perf_counter(), time.process_time()
    end = began + seconds
    now, over = began, 0.0
    while (
        now < end or sum(received) < sum(wanted) // request * answer
    ):  # the slowest server too: it would answer to nobody
        count = in_flight - (asked - done)
        if count >= max(1, in_flight // 8) and now < end:
            if needed:
                wanted = [size + count * request for size in wanted]
            else:
                for number in range(len(links)):
                    wanted[number] += len(range((number - asked) % len(links), count, len(links))) * request
            asked += count
            groups.append((asked, now))
        for number, link in enumerate(links):
            while sent[number] < wanted[number]:
                start = sent[number] % request
                try:
                    sent[number] += link.send(
                        requests[start : start + min(wanted[number] - sent[number], len(requests) - start)]
                    )
                except BlockingIOError:
                    break
        writing = [number for number in range(len(links)) if sent[number] < wanted[number]]
        for number in writing:
            poll.modify(links[number].fileno(), select.EPOLLIN | select.EPOLLOUT)
        for descriptor, events in poll.poll(1):
            if events & select.EPOLLIN:
                count = links[by_number[descriptor]].recv_into(buffer)
                if not count:
                    raise SystemExit("a server has ended")
                received[by_number[descriptor]] += count
        for number in writing:
            poll.modify(links[number].fileno(), select.EPOLLIN)
        answered = sorted((size // answer for size in received), reverse=True)
        done = answered[needed - 1] if needed else sum(answered)
        now = time.perf_counter()
        while groups and groups[0][0] <= done:
            latencies.append(now - groups.popleft()[1])
        if done < asked:
            over = now
    took, cpu = max(over, end) - began, time.process_time() - began_cpu
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * share)] * 1e3 for share in (0.5, 0.99))
    print(json.dumps({"entries": done, "seconds": took, "p50": p50, "p99": p99, "cpu": cpu}))


def give(size: int) -> None:
    """Send ``size`` bytes to the first client that connects."""
    connection, _ = listener().accept()
    data = memoryview(bytes(CHUNK))
    began, left = time.process_time(), size
    while left:
        left -= connection.send(data[: min(left, CHUNK)])
    print(json.dumps({"cpu": time.process_time() - began}))


def take(size: int, port: int) -> None:
    """Receive ``size`` bytes."""
    connection, buffer = dialled(port), bytearray(CHUNK)
    began, began_cpu, left = time.perf_counter(), time.process_time(), size
    while left:
        left -= connection.recv_into(buffer, min(left, CHUNK))
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - began_cpu}))


def main() -> None:
    """Do what the command line says."""
    verb, *words = sys.argv[1:]
    if verb == "serve":
        serve(words[0], *map(int, words[1:]))
    elif verb == "ask":
        request, answer, in_flight, seconds, needed, *ports = words
        ask(int(request), int(answer), int(in_flight), float(seconds), int(needed), *map(int, ports))
    elif verb == "give":
        give(int(words[0]))
    else:
        take(*map(int, words))


if __name__ == "__main__":
    main()
