"""How hosts become a cluster, and how a host with an empty folder joins one.

Each host is started with the ids and endpoints of all. A folder that is empty gets a directory id of its own at once,
so it is another replica than any before it. Then the host asks the others who they are:

- If one of them belongs to a cluster, the host joins it: as a voter if the cluster has it among its voters, by host and
  directory; otherwise as an observer, which an operator may make a voter.
- If none of them does, all have been reached, and the host has the smallest id of all, it makes the cluster, whose
  voters are all of them. Nobody else does, so there is one. A host alone makes a cluster of itself at once.

So a host whose disk was lost never makes a cluster anew while another one is reached that knows of it, and as long as
one is not reached it waits. The exception is a host that is alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from fencepost.quorum.driver.frames import Welcome
from fencepost.quorum.driver.links import LinkError, Links
from fencepost.quorum.files.directory import Meta, draw_id, join_cluster, read_meta, write_meta
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import EMPTY_SNAPSHOT, OffsetAndEpoch, Snapshot
from fencepost.store.disk.files import Files

_logger = logging.getLogger(__name__)

_AGAIN = 0.1
"""Seconds after which the others are asked again."""
_REMINDER = 100
"""Rounds after which the hosts that are waited for are logged."""


def prepare(files: Files, host_id: int | None) -> Meta:
    """The owner of a folder; an empty one becomes a new replica's, of the host 1 if no other is given. Raises
    :class:`fencepost.store.disk.journal.Damage`, and ``ValueError`` if it is another host's."""
    meta = read_meta(files)
    if meta is None:
        meta = Meta(ReplicaKey(1 if host_id is None else host_id, draw_id()))
        write_meta(files, meta)
    if host_id is not None and meta.key.host_id != host_id:
        raise ValueError(f"the folder is that of the host {meta.key.host_id}, and not of {host_id}")
    return meta


async def form(files: Files, meta: Meta, me: Node, hosts: Mapping[int, str], links: Links) -> Meta:
    """Wait until this replica belongs to a cluster, and make its files.

    ``hosts``: the endpoints of all by their ids, of this one, too. Raises :class:`ValueError` if one of them is of
    another host.
    """
    others = {host: endpoint for host, endpoint in hosts.items() if host != me.key.host_id}
    rounds = 0
    while True:
        found = dict(zip(others, await asyncio.gather(*(_who(links, each) for each in others.values())), strict=True))
        cluster = next((each for each in found.values() if each is not None and each.cluster_id), None)
        if cluster is not None:
            return _join(files, meta, cluster)
        reached = [each for each in found.values() if each is not None]
        for host, each in found.items():
            if each is not None and each.node.key.host_id != host:
                raise ValueError(f"{others[host]} is the host {each.node.key.host_id}, and not {host}")
        if len(reached) == len(others) and all(me.key.host_id < host for host in others):
            return _make(files, meta, VoterSet.of([me, *(each.node for each in reached)]))
        if rounds % _REMINDER == _REMINDER - 1:
            missing = [others[host] for host, each in found.items() if each is None]
            wanted = (
                f"waits for {', '.join(missing)}" if missing else f"waits for host {min(hosts)} to make the cluster"
            )
            _logger.warning("%s belongs to no cluster yet: it %s", me, wanted)
        rounds += 1
        await asyncio.sleep(_AGAIN)


async def _who(links: Links, endpoint: str) -> Welcome | None:
    try:
        return await links.identify(endpoint)
    except LinkError:
        return None
    finally:
        links.forget(endpoint)


def _join(files: Files, meta: Meta, cluster: Welcome) -> Meta:
    joined = replace(meta, cluster_id=cluster.cluster_id)
    is_voter = meta.key in cluster.voters
    snapshot = Snapshot(OffsetAndEpoch(0, 0), cluster.voters) if is_voter else EMPTY_SNAPSHOT
    join_cluster(files, joined, snapshot)
    _logger.warning(
        "%s joins the cluster %s as %s", meta.key, joined.cluster_id, "a voter" if is_voter else "an observer"
    )
    return joined


def _make(files: Files, meta: Meta, voters: VoterSet) -> Meta:
    made = replace(meta, cluster_id=draw_id())
    join_cluster(files, made, Snapshot(OffsetAndEpoch(0, 0), voters))
    level = logging.WARNING if len(voters) > 1 else logging.INFO
    _logger.log(level, "%s makes the cluster %s of %s", meta.key, made.cluster_id, ", ".join(map(str, voters.nodes)))
    return made
