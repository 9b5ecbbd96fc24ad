"""The client of a cluster: ``async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store``, or ``with`` in
synchronous code. It rests on the ledgers of :mod:`fencepost.store.client` and the logs of :mod:`fencepost.log`.
"""

from fencepost.client.client import Client
from fencepost.client.connecting import Connecting, connect, connect_sync
from fencepost.client.sync import SyncClient

__all__ = ["Client", "Connecting", "SyncClient", "connect", "connect_sync"]
