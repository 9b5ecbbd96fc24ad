"""The compiled loops of a client, once they are there, and the plain ones before.

A client that carries few entries never loads them: a command line would only be slower. After some thousands of entries a thread does, when they have
been compiled, for which there is a process of low priority.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fencepost.store.entries import Digests
from fencepost.store.messages import AddEntry
from fencepost.store.roles.adds import PLAIN, Masks
from fencepost.store.roles.interface import AddBatch
from fencepost.store.rules.metadata import DigestType
from fencepost.store.rules.protections import Protections

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORTH = 2_000
"""Entries that a process has carried when it is worth to load the loops."""

_MODULE = "fencepost.store.rows.client"


class Loops:
    """The loops of this process. ``module``: :mod:`fencepost.store.rows.client` once it is loaded, None before."""

    def __init__(self) -> None:
        self.module: Any = None
        self._carried = 0
        self._loading: threading.Thread | None = None

    def carried(self, entries: int) -> None:
        """So many entries were sent or read without the loops: load them in a while, if they are worth it."""
        self._carried += entries
        if self._carried >= WORTH and self._loading is None:
            self._loading = threading.Thread(target=self._load, name="fencepost loops", daemon=True)
            self._loading.start()

    def load(self) -> Any:
        """Load them now, and compile them if they have not been."""
        self.module = importlib.import_module(_MODULE)
        return self.module

    def _load(self) -> None:
        with contextlib.suppress(OSError):
            command = [sys.executable, "-c", f"import os; os.nice(19); import {_MODULE}"]
            nowhere = subprocess.DEVNULL
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            if subprocess.run(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment, check=False).returncode == 0:
                self.load()


LOOPS = Loops()


class AddRows:
    """Adds of entries that follow one another, in one block. ``size``: bytes of the frames of all of them."""

    __slots__ = ("count", "first", "parts", "request", "size", "table")

    def __init__(self, request: AddEntry, parts: NDArray[np.uint8], table: NDArray[np.int64], size: int) -> None:
        self.first = request.entry_id
        self.request = request
        self.parts = parts
        self.table = table
        self.count = len(table)
        self.size = size

    def __repr__(self) -> str:
        return f"entries {self.first} to {self.first + self.count - 1}"

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> AddEntry:
        _, _, body, size, _ = self.table[index].tolist()
        like = self.request
        return AddEntry(
            like.ledger,
            self.first + index,
            like.lac,
            self.parts[body : body + size].tobytes(),
            like.master_key,
            deferred_sync=like.deferred_sync,
        )

    def length(self, index: int) -> int:
        """Bytes of data of the ledger up to and including one of the entries."""
        return int(self.table[index, -1])


class RowLoops:
    """What is done for many entries at once, by the loops once they are loaded."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops

    def batch(self, digests: Digests, first: AddEntry, length: int, entries: Sequence[bytes]) -> AddBatch:
        """See :class:`fencepost.store.roles.adds.AddLoops`."""
        loops = self.loops.module
        if loops is None:
            self.loops.carried(len(entries))
            return PLAIN.batch(digests, first, length, entries)
        np, key = loops.np, first.master_key
        count, is_crc32c = len(entries), digests.digest_type is DigestType.CRC32C
        data = bytearray().join(entries)
        sizes = np.fromiter(map(len, entries), np.int64, count)
        if is_crc32c or not digests.size:
            made = np.empty((0, digests.size), np.uint8)
        else:
            made = _digests(np, digests, first, length, entries)
        parts = np.empty(len(data) + count * (loops.PART_LIMIT + len(key)), np.uint8)
        table = np.empty((count, loops.ADD_COLUMNS), np.int64)
        size = loops.add_parts(
            np.frombuffer(data, np.uint8),
            sizes,
            made,
            is_crc32c,
            first.ledger,
            first.entry_id,
            first.lac,
            length,
            np.frombuffer(bytearray(key), np.uint8),
            first.deferred_sync,
            parts,
            table,
        )
        return AddRows(first, parts, table, size + count * loops.HEAD)

    def confirm(
        self, masks: Masks, entry_ids: Sequence[int], number: int, place: int, pending: tuple[int, int], quorums: tuple[int, int]
    ) -> None:
        """See :class:`fencepost.store.roles.adds.AddLoops`."""
        loops = self.loops.module
        if loops is None or len(entry_ids) < 8 or isinstance(masks, list):
            PLAIN.confirm(masks, _plain(entry_ids), number, place, pending, quorums)
            return
        np = loops.np
        ids = entry_ids if isinstance(entry_ids, np.ndarray) else np.array(entry_ids, np.int64)
        loops.confirm(np.frombuffer(masks, np.int64), ids, number, place, *pending, *quorums)

    def reached(
        self, masks: Masks, pending: tuple[int, int], ack_quorum: int, changing_ensemble: bool, protections: Protections
    ) -> int:
        """See :class:`fencepost.store.roles.adds.AddLoops`."""
        loops = self.loops.module
        if loops is None or changing_ensemble or isinstance(masks, list) or pending[1] - pending[0] < 8:
            return PLAIN.reached(masks, pending, ack_quorum, changing_ensemble, protections)
        return int(loops.reached(loops.np.frombuffer(masks, loops.np.int64), *pending, ack_quorum))


def _digests(np: Any, digests: Digests, first: AddEntry, length: int, entries: Sequence[bytes]) -> Any:
    """The digest of each entry, a row for each."""
    made = bytearray()
    for entry_id, data in enumerate(entries, first.entry_id):
        length += len(data)
        made += digests.digest(first.ledger, entry_id, first.lac, length, data)
    return np.frombuffer(made, np.uint8).reshape(len(entries), digests.size)


def _plain(entry_ids: Sequence[int]) -> Sequence[int]:
    """Python's own integers."""
    return entry_ids.tolist() if hasattr(entry_ids, "tolist") else entry_ids
