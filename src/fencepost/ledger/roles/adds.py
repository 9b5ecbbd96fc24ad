"""Pending adds: how a ledger's owner and a recovery bring entries to an ack quorum of bookies."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, TypeAlias

import msgspec

from fencepost.ledger.entries import Digests, Entry, Runs, runs_of
from fencepost.ledger.messages import AddEntry
from fencepost.ledger.roles.interface import AddBatch, AddsAnswered, BookiesChanged, Effect, SendAdds, Trace
from fencepost.ledger.rules.adding import AddOutcome, lac_reached, outcome_of_add
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import (
    is_committed,
    is_in_write_set,
    may_be_committed,
    newly_asked,
    still_confirmed,
)
from fencepost.ledger.rules.placement import Unplaced, replaced
from fencepost.ledger.rules.protections import ALL, Protections

Masks: TypeAlias = "array[int] | list[int]"
"""A ring of masks, one for each entry in flight, at its id modulo the length (a power of two). A bit is set for each
bookie that has confirmed the entry.
"""

_BITS = 63
"""The bits of a mask in an array. Larger ensembles use a list of masks, for which there are no compiled loops."""


def trace_of_answer(who: str, ledger: int, bookie: str, entries: Runs, code: Code | None, outcome: AddOutcome) -> Trace:
    """The trace of an answer to adds, or with no code of a missing answer. Action names begin with ``who``."""
    fields: dict[str, Any] = {"bookie": bookie, "entries": entries}
    if outcome is AddOutcome.CONFIRMED:
        return Trace(f"{who}_receives_add_confirmed_response", ledger, fields)
    if outcome is AddOutcome.FENCED:
        return Trace(f"{who}_receives_add_fenced_response", ledger, fields)
    return Trace(f"{who}_gives_up_on_add", ledger, {**fields, "code": code.name if code is not None else None})


class PlainAdds:
    """Consecutive entries, with an object for each. ``lengths``: bytes of data in the ledger up to and including
    each.
    """

    __slots__ = ("first", "lengths", "requests")

    def __init__(self, requests: Sequence[AddEntry], lengths: Sequence[int]) -> None:
        self.first = requests[0].entry_id
        self.requests = requests
        self.lengths = lengths

    def __repr__(self) -> str:
        return f"entries {self.first} to {self.first + len(self) - 1}"

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, index: int) -> AddEntry:
        return self.requests[index]

    def length(self, index: int) -> int:
        """Bytes of data in the ledger up to and including one of the entries."""
        return self.lengths[index]


class PlainLoops(msgspec.Struct, frozen=True):
    """Work on many entries, done one at a time. Compiled loops do the same for many at once."""

    def batch(self, digests: Digests, first: AddEntry, length: int, entries: Sequence[bytes]) -> AddBatch:
        """Consecutive entries from ``first``, which has their shared fields and no body. ``length``: bytes in the
        ledger before them.
        """
        requests, lengths = [], []
        for entry_id, data in enumerate(entries, first.entry_id):
            length += len(data)
            body = digests.entry_body(Entry(first.ledger, entry_id, first.lac, length, data))
            requests.append(
                AddEntry(first.ledger, entry_id, first.lac, body, first.master_key, deferred_sync=first.deferred_sync)
            )
            lengths.append(length)
        return PlainAdds(requests, lengths)

    def confirm(
        self,
        masks: Masks,
        entry_ids: Sequence[int],
        number: int,
        place: int,
        pending: tuple[int, int],
        quorums: tuple[int, int],
    ) -> None:
        """Set the bit ``number`` of the entries that the bookie at ``place`` has confirmed. Only pending entries of its
        write sets count.

        ``pending``: the last confirmed and the last sent entry. ``quorums``: ensemble size and write quorum.
        """
        confirmed, pushed = pending
        for entry_id in entry_ids:
            if confirmed < entry_id <= pushed and is_in_write_set(place, entry_id, *quorums):
                masks[entry_id & len(masks) - 1] |= 1 << number

    def reached(
        self, masks: Masks, pending: tuple[int, int], ack_quorum: int, changing_ensemble: bool, protections: Protections
    ) -> int:
        """The last entry up to which all are committed, see :func:`lac_reached`."""

        def committed(entry_id: int) -> bool:
            return is_committed(masks[entry_id & len(masks) - 1].bit_count(), ack_quorum)

        return lac_reached(*pending, committed, changing_ensemble, protections)


PLAIN = PlainLoops()


class PendingAdds(msgspec.Struct):
    """Entries that were sent together and are not all confirmed. ``token``: of their call, which may have more
    entries.
    """

    adds: AddBatch
    token: int


class Failure(msgspec.Struct):
    """A failed bookie. ``pushed``: the last entry sent before its latest failure. ``missed``: entries that it has
    failed to confirm, some of them possibly confirmed since. ``is_over``: whether it works again.
    """

    pushed: int
    missed: set[int]
    is_over: bool = False


class Adds:
    """A client's unconfirmed entries, and the ensemble that they are sent to.

    ``confirmed``: the last entry that is committed together with all before it, with ``length`` bytes of data up to
    there. ``failed``: bookies of the ensemble to replace, in the order in which they failed. ``failed_before``: those
    already replaced. A bookie that cannot be replaced still receives new entries. It counts again once it confirms some
    of them. ``attempt``: answers with another attempt number are ignored.
    """

    def __init__(
        self,
        ensemble: Sequence[str],
        write_quorum: int,
        ack_quorum: int,
        confirmed: int,
        length: int,
        protections: Protections = ALL,
        loops: PlainLoops = PLAIN,
        attempt: int = 0,
    ) -> None:
        self.attempt = attempt
        self.ensemble = ensemble
        self.write_quorum = write_quorum
        self.ack_quorum = ack_quorum
        self.protections = protections
        self.loops = loops
        self.confirmed = self.pushed = confirmed
        self.length = length
        self.pending: dict[int, PendingAdds] = {}
        """The unconfirmed entries, in order, by the first of each batch."""
        self.failed: dict[str, Failure] = {}
        self.failed_before: list[str] = []
        self.numbers: dict[str, int] = {}
        """The bit of each bookie in a mask."""
        self.masks: Masks = array("q", bytes(8 * 16))
        self._number(ensemble)

    def __repr__(self) -> str:
        return f"Adds({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    # -- who has confirmed ---------------------------------------------------------------------------------------------

    def _number(self, ensemble: Iterable[str]) -> None:
        """Assign a bit to each bookie that has none."""
        taken = {*self.numbers.values()}
        free = (number for number in count() if number not in taken)
        for bookie in ensemble:
            if bookie not in self.numbers:
                self.numbers[bookie] = next(free)
        if max(self.numbers.values(), default=0) >= _BITS:
            self.masks = [*self.masks]

    def confirmed_by(self, entry_id: int) -> frozenset[str]:
        """The bookies of the ensemble that have confirmed a pending entry."""
        mask = self.masks[entry_id & len(self.masks) - 1]
        return frozenset(bookie for bookie, number in self.numbers.items() if mask >> number & 1)

    def _make_room(self, entries: int) -> None:
        """Make room for the masks of ``entries`` more entries."""
        masks, size = self.masks, len(self.masks)
        in_flight = self.pushed - self.confirmed
        if in_flight + entries <= size:
            return
        while in_flight + entries > size:
            size *= 2
        self.masks = array("q", bytes(8 * size)) if isinstance(masks, array) else [0] * size
        for entry_id in range(self.confirmed + 1, self.pushed + 1):
            self.masks[entry_id & size - 1] = masks[entry_id & len(masks) - 1]

    # -- sending -------------------------------------------------------------------------------------------------------

    def push(self, adds: AddBatch, token: int, effects: list[Effect]) -> None:
        """Send the next entries to their write sets."""
        self._make_room(len(adds))
        self.pushed = adds.first + len(adds) - 1
        self.pending[adds.first] = PendingAdds(adds, token)
        for place, bookie in enumerate(self.ensemble):
            self._send(bookie, place, adds, effects)

    def _send(self, bookie: str, place: int, adds: AddBatch, effects: list[Effect]) -> None:
        """Send a bookie its entries of a batch, if there are any."""
        quorums = len(self.ensemble), self.write_quorum
        some = range(adds.first, adds.first + min(len(adds), quorums[0]))
        if quorums[0] == quorums[1] or any(is_in_write_set(place, entry_id, *quorums) for entry_id in some):
            effects.append(SendAdds(bookie, adds, place, *quorums, self.attempt))

    def _send_one(self, bookie: str, add: PendingAdds, entry_id: int, effects: list[Effect]) -> None:
        """Resend one entry of a batch."""
        at = entry_id - add.adds.first
        one = PlainAdds((add.adds[at],), (add.adds.length(at),))
        self._send(bookie, self.ensemble.index(bookie), one, effects)

    # -- answers -------------------------------------------------------------------------------------------------------

    def take(self, event: AddsAnswered) -> AddOutcome | None:
        """Take the answer to adds, or its absence. Gives the outcome; None if the answer no longer matters."""
        if event.attempt != self.attempt:
            return None
        outcome = outcome_of_add(event.code)
        if outcome is AddOutcome.CONFIRMED and event.bookie in self.ensemble:
            self.loops.confirm(
                self.masks,
                event.entry_ids,
                self.numbers[event.bookie],
                self.ensemble.index(event.bookie),
                (self.confirmed, self.pushed),
                (len(self.ensemble), self.write_quorum),
            )
        if outcome is AddOutcome.CONFIRMED:
            if event.bookie in self.failed:
                self._works(self.failed[event.bookie], event.entry_ids)
        elif event.bookie not in self.ensemble:
            return None  # it was replaced since
        elif outcome is AddOutcome.BOOKIE_FAILED:
            self._fails(event.bookie, event.entry_ids)
        return outcome

    def confirm(self, changing_ensemble: bool = False) -> None:
        """Confirm the entries that are committed now."""
        masks, ring, before = self.masks, len(self.masks) - 1, self.confirmed
        if self.protections.confirmed_in_order and not is_committed(
            masks[before + 1 & ring].bit_count(), self.ack_quorum
        ):
            return  # the usual case: most answers confirm nothing
        pending = before, self.pushed
        reached = self.loops.reached(masks, pending, self.ack_quorum, changing_ensemble, self.protections)
        if reached == before:
            return
        over: list[int] = []
        for first, add in self.pending.items():
            if first > reached:
                break
            self.length = add.adds.length(min(reached - first, len(add.adds) - 1))
            if first + len(add.adds) - 1 > reached:
                break
            over.append(first)
        for first in over:
            del self.pending[first]
        self._clear(before + 1, reached)
        self.confirmed = reached

    def _clear(self, first: int, last: int) -> None:
        """Clear the masks of entries that are no longer pending."""
        masks, size = self.masks, len(self.masks)
        if isinstance(masks, list) or last - first < 4:
            for entry_id in range(first, last + 1):
                masks[entry_id & size - 1] = 0
            return
        start, stop = first & size - 1, last + 1 & size - 1
        if start < stop:
            masks[start:stop] = array("q", bytes(8 * (stop - start)))
        else:
            masks[start:] = array("q", bytes(8 * (size - start)))
            masks[:stop] = array("q", bytes(8 * stop))

    # -- bookies that fail ---------------------------------------------------------------------------------------------

    def _fails(self, bookie: str, entry_ids: Iterable[int]) -> None:
        """A bookie of the ensemble failed to confirm entries."""
        failure = self.failed.setdefault(bookie, Failure(self.pushed, set()))
        failure.pushed, failure.is_over = self.pushed, False
        place, quorums = self.ensemble.index(bookie), (len(self.ensemble), self.write_quorum)
        for entry_id in map(int, entry_ids):
            if is_in_write_set(place, entry_id, *quorums) and self._is_missed(bookie, entry_id):
                failure.missed.add(entry_id)
        if len(failure.missed) > 2 * (self.pushed - self.confirmed):
            failure.missed = {entry_id for entry_id in failure.missed if self._is_missed(bookie, entry_id)}

    def _works(self, failure: Failure, entry_ids: Sequence[int]) -> None:
        """A failed bookie confirmed entries. It works again if one of them was sent after its failure was known. An
        answer to an earlier entry may have been on its way already.
        """
        failure.missed.difference_update(map(int, entry_ids))
        failure.is_over = failure.is_over or int(max(entry_ids)) > failure.pushed

    def _is_missed(self, bookie: str, entry_id: int) -> bool:
        """Whether an entry is pending and the bookie has not confirmed it."""
        is_pending = self.confirmed < entry_id <= self.pushed
        return is_pending and not self.masks[entry_id & len(self.masks) - 1] >> self.numbers[bookie] & 1

    def send_missed(self, effects: list[Effect]) -> list[dict[str, Any]]:
        """Send bookies that work again the entries they missed, except those committed without them. They no longer
        count as failed. Gives the fields of a trace for each bookie.
        """
        sent: list[dict[str, Any]] = []
        for bookie in [bookie for bookie, failure in self.failed.items() if failure.is_over]:
            missed, anew = self.failed.pop(bookie).missed, list[int]()
            wanted = deque(entry_id for entry_id in sorted(missed) if self._is_missed(bookie, entry_id))
            for first, add in self.pending.items():
                while wanted and wanted[0] < first + len(add.adds):
                    entry_id = wanted.popleft()
                    if not is_committed(self.masks[entry_id & len(self.masks) - 1].bit_count(), self.ack_quorum):
                        anew.append(entry_id)
                        self._send_one(bookie, add, entry_id, effects)
            if anew:
                sent.append({"bookie": bookie, "entries": runs_of(anew)})
        return sent

    def replacement(self, ensemble: tuple[str, ...], available: BookiesChanged) -> tuple[str, ...] | Unplaced:
        """An ensemble with as many failed bookies replaced as possible, given all available bookies."""
        failed, suspects = [*self.failed], available.suspects.union(self.failed_before)
        quorums, found = (self.write_quorum, self.ack_quorum), set[Unplaced]()
        for number in range(len(failed), 0, -1):
            changed = replaced(ensemble, failed[:number], available.bookies, quorums, available.placement, suspects)
            if not isinstance(changed, Unplaced):
                return changed
            found.add(changed)
        return next((why for why in (Unplaced.UNKNOWN, Unplaced.UNMET) if why in found), Unplaced.TOO_FEW)

    def may_go_on(self) -> bool:
        """Whether every pending entry can still be committed by bookies that have not failed to confirm it."""
        if may_be_committed(len(self.failed), self.write_quorum, self.ack_quorum):
            return True  # the usual case: enough even if all of these failed the same entry
        missed_by = Counter(
            entry_id
            for bookie, failure in self.failed.items()
            for entry_id in failure.missed
            if self._is_missed(bookie, entry_id)
        )
        return may_be_committed(max(missed_by.values(), default=0), self.write_quorum, self.ack_quorum)

    def give_up(self) -> list[PendingAdds]:
        """Give up the unconfirmed entries. Gives their batches."""
        adds = [*self.pending.values()]
        self.pending.clear()
        self._clear(self.confirmed + 1, self.pushed)
        self.pushed = self.confirmed
        return adds

    def resent(self, ensemble: Sequence[str]) -> dict[str, Any]:
        """The fields of the trace of an ensemble change. Each pending entry is sent again to the bookies new in its
        write set.
        """
        entries = ((self.confirmed + 1, self.pushed),) if self.pending else ()
        return {"entries": entries, "before": list(self.ensemble), "ensemble": list(ensemble)}

    def change_ensemble(self, ensemble: Sequence[str], effects: list[Effect]) -> None:
        """Switch to another ensemble. Confirmations of removed bookies no longer count, and new bookies are sent the
        entries they lack.
        """
        before, self.ensemble = self.ensemble, ensemble
        left = [bookie for bookie in before if bookie not in ensemble]
        self.failed_before += [bookie for bookie in left if bookie not in self.failed_before]
        self.failed = {bookie: failure for bookie, failure in self.failed.items() if bookie in ensemble}
        self._number(ensemble)
        joined = [] if len(before) != len(ensemble) else [bookie for bookie in ensemble if bookie not in before]
        for first, add in self.pending.items():
            by_batch = joined if first > self.confirmed else []
            for bookie in by_batch:  # all of its entries in these batches are new to it
                self._send(bookie, ensemble.index(bookie), add.adds, effects)
            for entry_id in range(max(first, self.confirmed + 1), first + len(add.adds)):
                still = still_confirmed(self.confirmed_by(entry_id), left, self.protections)
                self.masks[entry_id & len(self.masks) - 1] = sum(1 << self.numbers[bookie] for bookie in still)
                for bookie in newly_asked(entry_id, before, ensemble, self.write_quorum):
                    if bookie not in by_batch:
                        self._send_one(bookie, add, entry_id, effects)
        if self.protections.confirmations_withdrawn:
            for bookie in left:
                del self.numbers[bookie]
