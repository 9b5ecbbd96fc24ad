"""The racks of bookies, in the node where Pulsar's ``BookieRackAffinityMapping`` has them for BookKeeper's clients.

It is JSON, ``{GROUP: {BOOKIE: {"rack": "/zone/rack", "hostname": ...}}}``. What else is in it is preserved.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.ledger.rules.placement import rack

DEFAULT_GROUP = "default"
"""The group of a bookie that has none yet."""

Mapping = dict[str, dict[str, dict[str, Any]]]
"""The content of the node."""


def from_bytes(data: bytes) -> Mapping:
    """Decode the node. Raises ``ValueError`` if it is something else."""
    try:
        return msgspec.json.decode(data or b"{}", type=Mapping)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the racks of bookies cannot be read: {error}") from error


def to_bytes(mapping: Mapping) -> bytes:
    """Encode the node."""
    return msgspec.json.encode(mapping, order="sorted")


def racks_of(mapping: Mapping) -> dict[str, str]:
    """The rack of each bookie that has one."""
    found = {
        bookie: rack(info["rack"]) if isinstance(info.get("rack"), str) else None
        for group in mapping.values()
        for bookie, info in group.items()
    }
    return {bookie: place for bookie, place in found.items() if place is not None}


def groups_of(mapping: Mapping) -> tuple[tuple[str, str], ...]:
    """The groups of the bookies that are in one, as pairs."""
    return tuple(sorted((bookie, group) for group, bookies in mapping.items() for bookie in bookies))


def with_rack(mapping: Mapping, bookie: str, place: str | None) -> Mapping:
    """The mapping with this rack for a bookie, or with None without the bookie. It stays in its group. Groups without
    bookies are removed, as Pulsar does.
    """
    before = next((name for name, bookies in mapping.items() if bookie in bookies), None)
    others = {
        name: {each: info for each, info in bookies.items() if each != bookie} for name, bookies in mapping.items()
    }
    if place is not None:
        known = {} if before is None else mapping[before][bookie]
        hostname = bookie.rpartition(":")[0] or bookie
        info = {"hostname": hostname, **known, "rack": place}
        others.setdefault(before or DEFAULT_GROUP, {})[bookie] = info
    return {name: bookies for name, bookies in others.items() if bookies}
