"""Which entries of a ledger a bookie has, as bytes: the form of BookKeeper's ``AvailabilityOfEntriesOfLedger``.

64 bytes of header, which begin with the version, 0, and the number of groups; then each group in 24 bytes. A group is
runs of one length at one distance: the first id of its first run, that of its last run, the length of a run, and the
distance from run to run (0 if there is one run). So a bookie that has every entry of a large ensemble that is its own
takes one group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from fencepost.ledger.wire.frames import WireError

Runs = tuple[tuple[int, int], ...]
"""Runs of entries, each its first and last id, ascending and not adjacent."""

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_LARGEST = 2**31 - 1
RUNS_LIMIT = 1_000_000
"""Runs that are taken from another side at most: a few bytes can stand for any number."""


def encode(runs: Iterable[tuple[int, int]]) -> bytes:
    """The bytes of runs. A run that is too long for the form is cut."""
    groups: list[list[int]] = []
    for first, last in runs:
        while first <= last:
            length = min(last - first + 1, _LARGEST)
            _take(groups, first, length)
            first += length
    return _HEADER.pack(0, len(groups)) + b"".join(_GROUP.pack(*group) for group in groups)


def _take(groups: list[list[int]], first: int, length: int) -> None:
    """Put a run into the last group, or begin one with it."""
    if groups:
        group = groups[-1]
        distance = first - group[1]
        if group[2] == length and (group[3] == distance or (not group[3] and distance <= _LARGEST)):
            group[1], group[3] = first, distance
            return
    groups.append([first, first, length, 0])


def decode(data: bytes) -> Runs:
    """The runs that the bytes stand for. Raises :class:`WireError` for any other bytes."""
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
