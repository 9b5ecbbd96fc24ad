"""Adds and reads of many entries over one connection, kept in rows of arrays instead of one object per request."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fencepost.ledger.client.loops import BLOCKS, LARGE, AddRows
from fencepost.ledger.rules.ensembles import is_in_write_set

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_ONCE = 4096
"""The most responses parsed at once."""

_OWNERS = 64
"""The fewest owners at which those without requests are removed. Where more have requests, it is twice as many."""


class Pipeline:
    """A ring of unanswered requests, one row each, and their owners. ``loops``:
    :mod:`fencepost.ledger.kernels.client`.
    """

    def __init__(self, loops: Any) -> None:
        self.loops = loops
        self.np: Any = loops.np
        self.ring: NDArray[np.int64] = self.np.zeros((1024, loops.RING_COLUMNS), self.np.int64)
        self.oldest = self.next = loops.FIRST_TXN
        self.deadlines: deque[tuple[int, int, float, int]] = deque()
        """For requests sent together: the first number, the number after the last, their deadline, and 1 for adds."""
        self.reached = [0, 0]
        """The highest request number answered, of adds at 1 and of reads at 0. ``reached_at``: when."""
        self.reached_at = [0.0, 0.0]
        self.owners: dict[int, Any] = {}
        self.numbers: dict[Any, int] = {}
        """The numbers of owners of adds. An owner sends all its adds under one number."""
        self._most_numbers = _OWNERS
        self.left: dict[int, int] = {}
        """Unanswered reads under each odd number. Reads sent together share a number, which ends with them."""
        self.last_number = 0
        self.responses: NDArray[np.int64] = self.np.empty((_AT_ONCE, loops.RESPONSE_COLUMNS), self.np.int64)
        self.answered: NDArray[np.int64] = self.np.empty((2, _AT_ONCE), self.np.int64)
        """The entry ids of answered requests, and the rows of their responses."""
        self._entry_ids, self._rows = self.answered

    # -- requests ------------------------------------------------------------------------------------------------------

    def is_full(self, requests: int) -> bool:
        """Whether no numbers are left for ``requests`` more. Numbers restart once nothing is unanswered."""
        if self.next + requests < self.loops.END_TXN:
            return False
        self._advance()
        if self.oldest == self.next:
            self.oldest = self.next = self.loops.FIRST_TXN
            self.reached = [0, 0]
            self.deadlines.clear()
            return False
        return True

    def adds(
        self, owner: Any, adds: AddRows, place: int, ensemble_size: int, write_quorum: int, deadline: float
    ) -> tuple[list[memoryview], int]:
        """The frames of the adds for the bookie at ``place`` in the ensemble, as one piece or several, and their size
        in bytes. The adds count as unanswered from now on. Large bodies are shared between bookies, not copied for
        each.
        """
        loops, first = self.loops, adds.first
        self._make_room(len(adds))
        are_large = adds.size >= len(adds) * LARGE
        out = BLOCKS.take(self.np, len(adds) * loops.HEAD if are_large else adds.size)
        size, after = loops.add_frames(
            adds.parts,
            adds.table,
            first,
            place,
            ensemble_size,
            write_quorum,
            self.next,
            self._number(owner),
            self.ring,
            out,
            are_large,
        )
        frames = self._sent(out, size, after, deadline, 1)
        if not are_large:
            return [frames], size
        pieces, head, parts = [], 0, adds.parts.data
        for entry_id, (start, part, *_) in enumerate(adds.table.tolist(), first):
            if is_in_write_set(place, entry_id, ensemble_size, write_quorum):
                pieces += [frames[head : head + loops.HEAD], parts[start : start + part]]
                head += loops.HEAD
                size += part
        return pieces, size

    def reads(self, owner: Any, ledger: int, entry_ids: Sequence[int], deadline: float) -> memoryview:
        """The frames that read these entries. The reads count as unanswered from now on."""
        self._make_room(len(entry_ids))
        out = self.np.empty(len(entry_ids) * self.loops.READ_FRAME, self.np.uint8)
        is_range = type(entry_ids) is range
        wanted = (
            self.np.arange(entry_ids[0], entry_ids[-1] + 1) if is_range else self.np.array(entry_ids, self.np.int64)
        )
        self.last_number += 2
        number = self.last_number + 1
        self.owners[number], self.left[number] = owner, len(entry_ids)
        size = self.loops.read_frames(ledger, wanted, self.next, number, self.ring, out)
        return self._sent(out, size, self.next + len(entry_ids), deadline, 0)

    def _sent(self, out: NDArray[np.uint8], size: int, after: int, deadline: float, is_add: int) -> memoryview:
        if after > self.next:
            self.deadlines.append((self.next, after, deadline, is_add))
            self.next = after
        return out.data[:size]

    def _number(self, owner: Any) -> int:
        """The number of an owner of adds in the ring. It is even."""
        number = self.numbers.get(owner)
        if number is None:
            if len(self.numbers) >= self._most_numbers:
                self._forget_owners()
            self.last_number += 2
            number = self.numbers[owner] = self.last_number
            self.owners[number] = owner
        return number

    def _forget_owners(self) -> None:
        """Forget owners without unanswered adds."""
        waited_for = {*self.np.unique(self.ring[:, self.loops.OWNER]).tolist()}
        self.numbers = {key: number for key, number in self.numbers.items() if number in waited_for}
        self.owners = {number: owner for number, owner in self.owners.items() if number % 2 or number in waited_for}
        self._most_numbers = max(_OWNERS, 2 * len(self.numbers))

    def _owner_answered(self, number: int, requests: int) -> Any:
        """The owner of a number, after ``requests`` of its requests were answered."""
        owner = self.owners[number]
        if number % 2:
            left = self.left[number] - requests
            if left:
                self.left[number] = left
            else:
                del self.left[number], self.owners[number]
        return owner

    def _make_room(self, requests: int) -> None:
        size = len(self.ring)
        if self.next + requests - self.oldest <= size:
            return
        self._advance()
        while self.next + requests - self.oldest > size:
            size *= 2
        if size > len(self.ring):
            old, self.ring = self.ring, self.np.zeros((size, self.loops.RING_COLUMNS), self.np.int64)
            txns = self.np.arange(self.oldest, self.next)
            self.ring[txns & size - 1] = old[txns & len(old) - 1]

    def _advance(self) -> None:
        self.oldest = self.loops.oldest_of(self.ring, self.oldest, self.next)

    # -- answers -------------------------------------------------------------------------------------------------------

    def receive(
        self, data: NDArray[np.uint8], start: int, stop: int, limit: int, now: float
    ) -> tuple[int, int, int, int, Any, int, int]:
        """Fill ``responses``. Gives the number of responses, where the next begins, and what is there. Then come the
        results of :meth:`complete` for the first responses, with 0 as the response after them if the first is not a
        plain one.
        """
        entry_ids, rows = self._entry_ids, self._rows
        count, at, how, after, number, taken, size = self.loops.receive(
            data, start, stop, limit, self.responses, self.ring, self.oldest, self.next, entry_ids, rows
        )
        return count, at, how, after, self._completed(number, taken, now) if taken else None, taken, size

    def complete(self, first: int, count: int, now: float) -> tuple[int, Any, int, int]:
        """Complete the requests answered by the responses from ``first`` on, as far as these have one kind and one
        owner.

        Gives the response after them, the owner, the number of requests and their size in bytes. Fills ``answered``.
        """
        after, number, taken, size = self.loops.complete(
            self.responses, first, count, self.ring, self.oldest, self.next, self._entry_ids, self._rows
        )
        return after, self._completed(number, taken, now) if taken else None, taken, size

    def _completed(self, number: int, taken: int, now: float) -> Any:
        self._reach(self.responses.item(self._rows.item(taken - 1), self.loops.TXN), 1 - number % 2, now)
        return self._owner_answered(number, taken)

    def _reach(self, txn: int, is_add: int, now: float) -> None:
        if txn > self.reached[is_add]:
            self.reached[is_add] = txn
            self.reached_at[is_add] = now

    def take(self, txn: int, now: float) -> tuple[Any, int, int] | None:
        """Complete one request. Gives its owner, entry id and size in bytes; None if it was not outstanding."""
        if not self.oldest <= txn < self.next:
            return None
        owner, entry_id, size = self.ring[txn & len(self.ring) - 1].tolist()
        if not owner:
            return None
        self.ring[txn & len(self.ring) - 1, self.loops.OWNER] = 0
        self._reach(txn, 1 - owner % 2, now)
        return self._owner_answered(owner, 1), entry_id, size

    # -- what is not answered ------------------------------------------------------------------------------------------

    def late(self, now: float, patience: float) -> list[tuple[int, int]]:
        """Ranges of numbers, each as first and stop, with overdue requests. A queued request is not overdue while the
        queue moves.
        """
        self._advance()
        while self.deadlines and self.deadlines[0][1] <= self.oldest:
            self.deadlines.popleft()
        stretches = []
        for first, stop, deadline, is_add in self.deadlines:
            if deadline > now:
                break
            if self.reached_at[is_add] + patience > now:
                stop = min(stop, self.reached[is_add])
            if first < stop and self.loops.oldest_of(self.ring, max(first, self.oldest), stop) < stop:
                stretches.append((first, stop))
        return stretches

    def all(self) -> list[tuple[int, int]]:
        """The range of all outstanding numbers."""
        return [(self.oldest, self.next)]

    @property
    def is_waiting(self) -> bool:
        """Whether a request is unanswered."""
        self._advance()
        return bool(self.oldest < self.next)

    def give_up(self, first: int, stop: int) -> tuple[list[tuple[Any, NDArray[np.int64], bool]], int]:
        """Give up the requests numbered from ``first`` to before ``stop``. Gives entry ids by owner and whether they
        are adds, and the size of all these requests in bytes.
        """
        first = max(first, self.oldest)
        owners, entry_ids = self.np.empty((2, max(0, stop - first)), self.np.int64)
        taken, size = self.loops.give_up(self.ring, first, stop, owners, entry_ids)
        owners, entry_ids = owners[:taken], entry_ids[:taken]
        numbers = self.np.unique(owners).tolist()
        by_number = [(number, entry_ids[owners == number]) for number in numbers]
        return [(self._owner_answered(number, len(these)), these, number % 2 == 0) for number, these in by_number], size
