"""The list of a ledger's entries at a bookie, in the format of BookKeeper's ``AvailabilityOfEntriesOfLedger``.

A header of 64 bytes begins with the version, 0, and the number of groups. Each group has 24 bytes. A group is a series
of equal runs at equal distances. It holds the first id of its first run, the first id of its last run, the length of a
run, and the distance between starts of runs (0 for a single run). So a bookie that stripes a large ensemble and misses
no entry needs one group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from fencepost.ledger.wire.frames import WireError

Runs = tuple[tuple[int, int], ...]
"""Runs of entries as (first, last), ascending and not adjacent."""

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_LARGEST = 2**31 - 1
RUNS_LIMIT = 1_000_000
"""The most runs accepted from a peer, because a few bytes can describe any number."""


def encode(runs: Iterable[tuple[int, int]]) -> bytes:
    """Encode runs. A run too long for the format is split."""
    groups: list[list[int]] = []
    for first, last in runs:
        while first <= last:
            length = min(last - first + 1, _LARGEST)
            _take(groups, first, length)
            first += length
    return _HEADER.pack(0, len(groups)) + b"".join(_GROUP.pack(*group) for group in groups)


def _take(groups: list[list[int]], first: int, length: int) -> None:
    """Add a run to the last group, or begin a new one with it."""
    if groups:
        group = groups[-1]
        distance = first - group[1]
        if group[2] == length and (group[3] == distance or (not group[3] and distance <= _LARGEST)):
            group[1], group[3] = first, distance
            return
    groups.append([first, first, length, 0])


def decode(data: bytes) -> Runs:
    """Decode runs. Raises :class:`WireError` for malformed bytes."""
    if len(data) < _HEADER.size:
        raise WireError(f"a list of entries has {len(data)} bytes, and its header alone takes {_HEADER.size}")
    version, count = _HEADER.unpack_from(data)
    if version != 0 or count < 0 or len(data) < _HEADER.size + count * _GROUP.size:
        raise WireError(f"a list of entries of version {version} says that it has {count} groups, in {len(data)} bytes")
    runs: list[tuple[int, int]] = []
    for number in range(count):
        first, last_start, length, distance = _GROUP.unpack_from(data, _HEADER.size + number * _GROUP.size)
        alone = first == last_start
        if (
            first < 0
            or length < 1
            or last_start < first
            or not (alone or (distance > 0 and (last_start - first) % distance == 0))
        ):
            raise WireError(
                f"a list of entries has a group from {first} to {last_start} of {length} entries every {distance}"
            )
        if len(runs) + (1 if alone else (last_start - first) // distance + 1) > RUNS_LIMIT:
            raise WireError(f"a list of entries has more than {RUNS_LIMIT:,} runs")
        for start in (first,) if alone else range(first, last_start + 1, distance):
            if runs and start <= runs[-1][1]:
                raise WireError(f"a list of entries has entry {start} after entry {runs[-1][1]}")
            if runs and start == runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], start + length - 1)
            else:
                runs.append((start, start + length - 1))
    return tuple(runs)
