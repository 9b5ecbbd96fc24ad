"""The process of this machine at the other end of a connection, where the operating system reports it."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any


def process_of(peer: Any, own: Any) -> int | None:
    """The id of the process that a connection comes from. None for a connection from another machine, or where the
    operating system does not report the process.
    """
    try:
        if not peer or not own or ":" in peer[0]:
            return None
        inode = _inode(_written(peer), _written(own))
        return None if inode is None else _holder(f"socket:[{inode}]")
    except OSError:
        return None


def _written(address: tuple[str, int]) -> str:
    """An address as in the kernel's table: the bytes in the machine's order."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def _inode(local: str, remote: str) -> str | None:
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            words = line.split(None, 10)
            if words[1] == local and words[2] == remote:
                return words[9]
    return None


def _holder(name: str) -> int | None:
    """The process that has a file open by this name, among those that this one may look at."""
    for process in os.listdir("/proc"):
        if not process.isdecimal():
            continue
        folder = f"/proc/{process}/fd"
        try:
            for file in os.listdir(folder):
                if os.readlink(f"{folder}/{file}") == name:
                    return int(process)
        except OSError:
            continue
    return None
