"""The client: the ledgers of a cluster, and the logs that are made of them."""

from __future__ import annotations

from fencepost.log.log import Log
from fencepost.store.client.store import Store


class Client(Store):
    """A cluster of bookies and its metadata service, as one client sees it. :func:`fencepost.connect` makes one."""

    def log(self, name: str, *, password: bytes | str = b"") -> Log:
        """A log by its name, see :class:`.Log`: ledger after ledger, with one writer at a time. It need not be there
        yet.

        ``password``: that of its ledgers, if it was created with one. Raises :class:`fencepost.OptionError` for what is
        no name.
        """
        return Log(self, name, password)
