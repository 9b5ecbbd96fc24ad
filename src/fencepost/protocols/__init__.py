"""The protocols that ship with Fencepost: known by name, and imported when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from fencepost.errors import NotAProtocol

if TYPE_CHECKING:
    from fencepost.spec.protocol import Protocol

SHIPPED: dict[str, str] = {
    "bookkeeper": "fencepost.protocols.bookkeeper.current:BookKeeper",
    "bookkeeper-4.13": "fencepost.protocols.bookkeeper.v4_13:BookKeeper413",
    "bookkeeper-boot": "fencepost.protocols.bookkeeper.boot:BookKeeperBoot",
    "bookkeeper-limbo": "fencepost.protocols.bookkeeper.limbo:BookKeeperLimbo",
    "kraft-kip-853": "fencepost.protocols.kraft.kip_853:KRaft",
    "kraft-kip-853-join": "fencepost.protocols.kraft.join:KRaftJoin",
    "quorum": "fencepost.quorum.checked.quorum:Quorum",
    "store": "fencepost.store.checked.store:Store",
    "store-roles": "fencepost.store.checked.roles:StoreRoles",
    "booting-store": "fencepost.store.checked.booting:BootingStore",
    "running-store": "fencepost.store.checked.running:RunningStore",
    "log": "fencepost.log.checked.log:Log",
    "log-leader": "fencepost.log.checked.leading:LogLeader",
    "quorum-replica": "fencepost.quorum.checked.replicas:Replicas",
    "running-quorum": "fencepost.quorum.checked.running:RunningQuorum",
    "running-log": "fencepost.log.checked.running:RunningLog",
    "ledger-chaining": "fencepost.protocols.ledger_chaining:LedgerChaining",
}
"""Every shipped protocol: its name on the command line, and the module and class that hold it."""


def shipped(name: str) -> type[Protocol]:
    """The class of the shipped protocol called ``name``.

    Raises :class:`fencepost.NotAProtocol` for any other name, with the nearest one that exists.
    """
    if name not in SHIPPED:
        from fencepost.spec.protocol import unknown_name

        raise NotAProtocol(unknown_name("protocol", name, SHIPPED, "fencepost"))
    module, _, owner = SHIPPED[name].partition(":")
    return cast("type[Protocol]", getattr(import_module(module), owner))
