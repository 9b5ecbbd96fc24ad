"""Whether a bookie may stop, from the metadata: its ledgers, the registered bookies, and what is under-replicated."""

from __future__ import annotations

import msgspec

from fencepost.ledger.metadata import paths
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.underreplication import UnderReplication
from fencepost.ledger.rules.replication import fragments_on, is_closed_fragment, risks


class AtRisk(msgspec.Struct, frozen=True):
    """A fragment that needs the bookie: its first entry, whether entries are still added to it, the risk, and the
    bookies of its ensemble that are away already or lack entries.
    """

    ledger: int
    first_entry: int
    is_open: bool
    risk: str
    away: list[str]


class Stop(msgspec.Struct, frozen=True):
    """What depends on a bookie: how many ledgers name it, and the fragments that need it now."""

    bookie: str
    is_safe: bool
    is_registered: bool
    ledgers: int
    at_risk: list[AtRisk]


async def stop_of(client: MetadataClient, bookie: str) -> Stop | None:
    """What happens if a bookie stops now; None if neither the cluster nor a ledger knows it.

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
        for place, risk in risks(metadata, bookie, serving, writable):
            fragment = metadata.fragments[place]
            away = sorted({*fragment.ensemble} - serving - {bookie})
            is_open = not is_closed_fragment(metadata, place)
            at_risk.append(AtRisk(ledger, fragment.first_entry_id, is_open, risk.value, away))
    return Stop(bookie, not at_risk, bookie in registered, len(named), at_risk)
