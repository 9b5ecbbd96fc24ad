"""The client's compiled loops once they are loaded, and plain Python until then.

A client with few entries never loads them, since loading would slow down a command line. After some thousands of
entries it loads them in the background (:mod:`fencepost.ledger.kernels.ready`) and uses plain Python meanwhile.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from sys import getrefcount
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fencepost.ledger.entries import Digests
from fencepost.ledger.kernels import ready
from fencepost.ledger.messages import AddEntry
from fencepost.ledger.roles.adds import PLAIN, Masks, PlainLoops
from fencepost.ledger.roles.interface import AddBatch
from fencepost.ledger.rules.protections import Protections

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGE = 16 * 1024
"""The entry size in bytes above which handling an entry in place is faster than copying it next to others."""

WORTH = 2_000
"""The number of entries after which a process loads the loops."""

MODULES = ("fencepost.ledger.rules.ensembles", "fencepost.ledger.rules.adding", "fencepost.ledger.kernels.client")
"""The loops, and the rules that are compiled with them."""


class Loops:
    """The compiled loops of this process, from modules ``names``. They are loaded after ``worth`` entries were carried
    without them. ``module``: the last of the modules once it is loaded, None before.
    """

    def __init__(self, names: Sequence[str], worth: int = WORTH) -> None:
        self.module: Any = None
        self._names = names
        self._worth = worth
        self._carried = 0
        self._is_begun = False

    def carried(self, entries: int) -> None:
        """Count entries sent or read without the loops. Start loading once there are enough."""
        self._carried += entries
        if not self._is_begun and (self._carried >= self._worth or ready.is_required()):
            self._is_begun = True
            ready.begin(self._names, self._use)

    def load(self) -> Any:
        """Load the loops now. Compiles them if needed."""
        self._use([importlib.import_module(name) for name in self._names])
        return self.module

    @contextmanager
    def without(self) -> Iterator[None]:
        """Use plain Python for a while, however many entries are carried."""
        before, self.module = (self.module, self._is_begun), None
        self._is_begun = True
        try:
            yield
        finally:
            self.module, self._is_begun = before

    def _use(self, modules: list[ModuleType]) -> None:
        self.module = modules[-1]


LOOPS = Loops(MODULES)


class Blocks:
    """A pool of large blocks of bytes. A block is reused once nobody refers to it, because new memory costs a page
    fault per 4 KiB.

    ``kept``: the most bytes to keep. A caller gets a new block if none is free.
    """

    _SMALL = 32 * 1024
    _LOOKED_AT = 4

    def __init__(self, kept: int) -> None:
        self.room = kept
        self._blocks: deque[NDArray[np.uint8]] = deque()
        one = deque([object()]).popleft()
        self._alone = getrefcount(one)
        """The reference count of an object with a single reference from a local variable. It differs between versions
        of Python.
        """

    def take(self, np: Any, size: int) -> NDArray[np.uint8]:
        """A block of at least ``size`` bytes."""
        if size < self._SMALL:
            small: NDArray[np.uint8] = np.empty(size, np.uint8)
            return small
        for _ in range(min(self._LOOKED_AT, len(self._blocks))):
            block = self._blocks.popleft()
            is_free = getrefcount(block) == self._alone
            if is_free and len(block) < size:
                self.room += len(block)  # the needed size has grown
                continue
            self._blocks.append(block)
            if is_free:
                return block
        # Rounded up, so that similar sizes share blocks and little is wasted.
        step = 1 << size.bit_length() - 4
        made: NDArray[np.uint8] = np.empty(-(-size // step) * step, np.uint8)
        if len(made) <= self.room:
            self.room -= len(made)
            self._blocks.append(made)
        return made


BLOCKS = Blocks(80 << 20)


class AddRows:
    """Adds of consecutive entries, in one block. ``size``: bytes of all their frames."""

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
        """Bytes of data in the ledger up to and including one of the entries."""
        return int(self.table[index, -1])


class RowLoops(PlainLoops, frozen=True):
    """Work on many entries at once, by the compiled loops once they are loaded."""

    loops: Loops

    def batch(self, digests: Digests, first: AddEntry, length: int, entries: Sequence[bytes]) -> AddBatch:
        """See :class:`fencepost.ledger.roles.adds.PlainLoops`."""
        loops = self.loops.module
        if loops is None:
            self.loops.carried(len(entries))
        if loops is None or len(entries) == 1:  # for a single entry rows cost more
            return PLAIN.batch(digests, first, length, entries)
        np, key = loops.np, first.master_key
        count, digest_type = len(entries), digests.digest_type.value
        sizes = np.fromiter(map(len, entries), np.int64, count)
        total = int(sizes.sum())
        if digest_type in (loops.CRC32C, loops.CRC32) or not digests.size:
            made = np.empty((0, digests.size), np.uint8)
        else:
            made = _digests(np, digests, first, length, entries)
        parts = BLOCKS.take(np, total + count * (loops.PART_LIMIT + len(key)))
        table, of_key = np.empty((count, loops.ADD_COLUMNS), np.int64), np.frombuffer(bytearray(key), np.uint8)
        are_large = total >= count * LARGE
        portions = (
            [(row, row + 1, data) for row, data in enumerate(entries)] if are_large else [(0, count, b"".join(entries))]
        )
        size = 0
        for start, stop, data in portions:
            end = loops.add_parts(
                np.frombuffer(data, np.uint8), sizes[start:stop], made[start:stop], digest_type, first.ledger,
                first.entry_id + start, first.lac,
                length, of_key, first.deferred_sync, parts[size:], table[start:stop],
            )  # fmt: skip
            table[start:stop, [loops.PART, loops.BODY]] += size
            size, length = size + end, int(table[stop - 1, loops.LENGTH])
        return AddRows(first, parts, table, size + count * loops.HEAD)

    def confirm(
        self,
        masks: Masks,
        entry_ids: Sequence[int] | NDArray[np.int64],
        number: int,
        place: int,
        pending: tuple[int, int],
        quorums: tuple[int, int],
    ) -> None:
        """See :class:`fencepost.ledger.roles.adds.PlainLoops`."""
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
        """See :class:`fencepost.ledger.roles.adds.PlainLoops`."""
        loops = self.loops.module
        if loops is None or changing_ensemble or isinstance(masks, list) or pending[1] - pending[0] < 8:
            return PLAIN.reached(masks, pending, ack_quorum, changing_ensemble, protections)
        return int(loops.reached(loops.np.frombuffer(masks, loops.np.int64), *pending, ack_quorum))


def _digests(np: Any, digests: Digests, first: AddEntry, length: int, entries: Sequence[bytes]) -> Any:
    """The digests of entries, one row each."""
    made = bytearray()
    for entry_id, data in enumerate(entries, first.entry_id):
        length += len(data)
        made += digests.digest(first.ledger, entry_id, first.lac, length, data)
    return np.frombuffer(made, np.uint8).reshape(len(entries), digests.size)


def _plain(entry_ids: Sequence[int] | NDArray[np.int64]) -> Sequence[int]:
    """The ids as Python integers."""
    return entry_ids.tolist() if hasattr(entry_ids, "tolist") else entry_ids
