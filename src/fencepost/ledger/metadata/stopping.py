"""Whether a bookie may stop, from the metadata: its ledgers, the registered bookies, and what is under-replicated."""

from __future__ import annotations

import msgspec

from fencepost.ledger.metadata import paths
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.racks import placement_of
from fencepost.ledger.metadata.underreplication import UnderReplication
from fencepost.ledger.rules.placement import POLICY, Policy, Unplaced, told
from fencepost.ledger.rules.replication import Risk, fragments_on, is_closed_fragment, risks


class AtRisk(msgspec.Struct, frozen=True):
    """A fragment that needs the bookie: its first entry, whether entries are still added to it, the risk, and the
    bookies of its ensemble that are away already or lack entries.
    """

    ledger: int
    first_entry: int
    is_open: bool
    risk: str
    away: list[str]

    def text(self) -> str:
        """Why the fragment needs the bookie, in one line."""
        state = "open" if self.is_open else "closed"
        away = f"{', '.join(self.away)} cannot take its place" if self.away else "all others of its ensemble serve"
        return (
            f"ledger {self.ledger}, {state} fragment from entry {self.first_entry}: {_LOSES[Risk(self.risk)]}; {away}"
        )


_LOSES = {
    Risk.UNREADABLE: "acknowledged entries may be on no bookie that serves",
    Risk.UNWRITABLE: "no ack quorum would serve, and too few others are writable",
    Risk.MISPLACED: "no ack quorum would serve, and no others are in racks that the placement asks for",
    Risk.UNKNOWN: "no ack quorum would serve, and whether others are in racks that the placement asks for is not known:"
    f" {told(Unplaced.UNKNOWN)}",
}


class Stop(msgspec.Struct, frozen=True):
    """What depends on a bookie: how many ledgers name it, and the fragments that need it now."""

    bookie: str
    is_safe: bool
    is_registered: bool
    ledgers: int
    at_risk: list[AtRisk]

    def text(self) -> str:
        """Whether the bookie may stop, in one line."""
        down = "" if self.is_registered else "; it is not registered"
        if self.is_safe:
            return f"bookie {self.bookie} may stop: {self.ledgers:,} ledgers name it, and none needs it now{down}"
        needing = len({each.ledger for each in self.at_risk})
        return f"bookie {self.bookie} must not stop: {needing:,} of {self.ledgers:,} ledgers that name it need it{down}"


async def stop_of(client: MetadataClient, bookie: str, policy: Policy = POLICY) -> Stop | None:
    """What happens if a bookie stops now; None if neither the cluster nor a ledger knows it. ``policy``: that of
    writers, who may have to replace the bookie.

    A bookie counts as serving if it is registered both before and after the search of all metadata. For an
    under-replicated ledger, the bookies that its mark names do not count. Raises :class:`StoreError`.
    """
    await client.sync()
    before = await client.bookies()
    marked = {each.ledger: frozenset(each.missing) async for each in UnderReplication(client, "").all()}
    named = [(ledger, metadata) async for ledger, metadata in client.all_metadata() if fragments_on(metadata, bookie)]
    after = await client.bookies()
    writable = frozenset(before.writable) & frozenset(after.writable)
    registered = frozenset((*before.writable, *before.read_only)) & frozenset((*after.writable, *after.read_only))
    if not named and bookie not in registered and bookie not in (await client.names_in(paths.COOKIES) or ()):
        return None
    at_risk: list[AtRisk] = []
    for ledger, metadata in named:
        serving = registered - marked.get(ledger, frozenset())
        placement = placement_of(after.placement(policy), metadata.custom_metadata)
        for place, risk in risks(metadata, bookie, serving, writable, placement):
            fragment = metadata.fragments[place]
            away = sorted({*fragment.ensemble} - serving - {bookie})
            is_open = not is_closed_fragment(metadata, place)
            at_risk.append(AtRisk(ledger, fragment.first_entry_id, is_open, risk.value, away))
    return Stop(bookie, not at_risk, bookie in registered, len(named), at_risk)
