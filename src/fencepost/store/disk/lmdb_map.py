"""An ordered map in a folder of its own, by LMDB."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import lmdb

MAP_SIZE = 1 << 40
"""The most that an index can grow to. It takes addresses, no memory and no room on the disk."""


class LmdbMap:
    """An empty ordered map in a folder; what was in that is removed.

    It is never synced: the index can always be made anew from entry logs, and is, whenever a bookie starts.
    """

    def __init__(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        self._environment = lmdb.open(
            path, map_size=MAP_SIZE, sync=False, metasync=False, readahead=False, max_spare_txns=8, max_readers=1024
        )

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(key):
                found: bytes = cursor.key()
                if found != key and not cursor.prev():
                    return None
            elif not cursor.last():
                return None
            item: tuple[bytes, bytes] = cursor.item()
            return item

    def between(self, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(first):
                for key, value in cursor:
                    if key > last:
                        break
                    found.append((key, value))
        return found

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        if puts or deletes:
            with self._environment.begin(write=True) as transaction:
                for key in deletes:
                    transaction.delete(key)
                if puts:
                    with transaction.cursor() as cursor:
                        cursor.putmulti(puts)

    def close(self) -> None:
        self._environment.close()
