"""The election: of all who do auto-recovery on a cluster, ours and BookKeeper's, one is the auditor."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fencepost.store.autorecovery.tasks import Change, until_one_ends
from fencepost.store.metadata.underreplication import UnderReplication

_log = logging.getLogger("fencepost.store.autorecovery")


class Election:
    """Stands for auditor, and audits while it is the one."""

    def __init__(self, nodes: UnderReplication, audit: Callable[[], Awaitable[None]]) -> None:
        self.is_auditor = False
        self._nodes = nodes
        self._audit = audit
        self._vote = ""

    async def run(self) -> None:
        """Stand, and audit whenever elected; it does not end by itself. Raises :class:`StoreError` if the metadata
        service fails."""
        while True:
            changed = Change()
            try:
                is_elected = bool(self._vote) and await self._nodes.is_elected(self._vote, changed.notice)
            except ValueError:  # the vote is gone, with a session or by another hand
                self._vote = ""
            if not self._vote:
                self._vote = await self._nodes.vote()
                continue
            if not is_elected:
                await changed.wait()
                continue
            _log.info("%s is the auditor", self._nodes.name)
            self.is_auditor = True
            try:
                await until_one_ends(self._audit(), self._is_over())
            finally:
                self.is_auditor = False
            _log.warning("%s is the auditor no more", self._nodes.name)

    async def _is_over(self) -> None:
        """Wait until the vote is not the first one any more."""
        while True:
            changed = Change()
            try:
                if not await self._nodes.is_elected(self._vote, changed.notice):
                    return
            except ValueError:
                return
            await changed.wait()
