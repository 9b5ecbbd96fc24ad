"""The racks and groups of bookies, in the node where Pulsar's ``BookieRackAffinityMapping`` has them for BookKeeper's
clients.

It is JSON, ``{GROUP: {BOOKIE: {"rack": "/zone/rack", "hostname": ...}}}``. What else is in it is preserved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fencepost.ledger.rules.placement import Placement, rack

OF_LEDGER = "EnsemblePlacementPolicyConfig"
"""The name in a ledger's custom metadata under which Pulsar has the groups of the namespace."""

ISOLATED = "IsolatedBookieEnsemblePlacementPolicy"
"""The class to which these belong, without its package."""

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


def with_rack(mapping: Mapping, bookie: str, place: str | None, group: str | None = None) -> Mapping:
    """The mapping with this rack for a bookie, or with None without the bookie. It stays in its group, unless one is
    given. Groups without bookies are removed, as Pulsar does.
    """
    before = next((name for name, bookies in mapping.items() if bookie in bookies), None)
    others = {
        name: {each: info for each, info in bookies.items() if each != bookie} for name, bookies in mapping.items()
    }
    if place is not None:
        known = {} if before is None else mapping[before][bookie]
        hostname = bookie.rpartition(":")[0] or bookie
        info = {"hostname": hostname, **known, "rack": place}
        others.setdefault(group or before or DEFAULT_GROUP, {})[bookie] = info
    return {name: bookies for name, bookies in others.items() if bookies}


class _Config(msgspec.Struct, rename="camel"):
    """The placement of a namespace, as Pulsar's ``EnsemblePlacementPolicyConfig`` writes it."""

    policy_class: str
    properties: dict[str, Any]


def placement_of(placement: Placement, custom_metadata: Iterable[tuple[str, bytes]]) -> Placement:
    """The placement of a ledger: that of its client, with the groups that Pulsar has left in the ledger's custom
    metadata, if it did. What cannot be read there counts as absent, as in Pulsar.
    """
    data = dict(custom_metadata).get(OF_LEDGER)
    try:
        config = None if data is None else msgspec.json.decode(data, type=_Config)
    except msgspec.MsgspecError:
        return placement
    if config is None or config.policy_class.rpartition(".")[2] != ISOLATED:
        return placement
    primary, secondary = (
        tuple(part.strip() for part in str(config.properties.get(name) or "").split(",") if part.strip())
        for name in ("isolationBookieGroups", "secondaryIsolationBookieGroups")
    )
    policy = placement.policy.replace(isolation_bookie_groups=primary, secondary_isolation_bookie_groups=secondary)
    return placement.replace(policy=policy)
