"""A new cluster: what the metadata service has to hold before the first bookie can register."""

from __future__ import annotations

from contextlib import suppress

from fencepost.store.errors import ClusterExistsError
from fencepost.store.metadata.client import MetadataClient


async def create(uri: str) -> str:
    """Make a cluster where there is none; gives its instance id. Raises :class:`ClusterExistsError` and what the client raises."""
    async with await MetadataClient.connect(uri) as client:
        return await client.initialise()


async def create_if_missing(uri: str) -> None:
    """Make a cluster, unless there is one. Raises what the client raises."""
    with suppress(ClusterExistsError):
        await create(uri)
