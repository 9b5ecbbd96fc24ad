"""Adds that are under way: what the owner of a ledger and a recovery do alike to get entries to an ack quorum of bookies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec

from fencepost.store.messages import AddEntry
from fencepost.store.roles.interface import Effect, Received, Send, Unanswered
from fencepost.store.rules.adding import AddOutcome, counts, lac_reached, outcome_of_add
from fencepost.store.rules.ensembles import may_go_on, newly_asked, preferred, replaced, still_confirmed
from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.rules.quorums import Ensemble, is_committed, write_set


class PendingAdd(msgspec.Struct):
    """An entry that is not confirmed yet. ``length``: bytes of data of the ledger up to and including it; ``token``: of its call."""

    request: AddEntry
    length: int
    token: int
    write_set: Ensemble[str]
    confirmed: frozenset[str] = frozenset()


class Adds:
    """The entries that a client has sent and that are not confirmed, and the ensemble they are sent to.

    ``confirmed``: the last entry that is committed together with all before it, and ``length`` the bytes of data up to there.
    ``failed``: bookies of the ensemble that are to be replaced; ``failed_before``: those that were. Requests are numbered from ``txns``.
    """

    def __init__(
        self,
        txns: count[int],
        ensemble: Sequence[str],
        write_quorum: int,
        ack_quorum: int,
        confirmed: int,
        length: int,
        protections: Protections = ALL,
    ) -> None:
        self.txns = txns
        self.ensemble = ensemble
        self.write_quorum = write_quorum
        self.ack_quorum = ack_quorum
        self.protections = protections
        self.confirmed = self.pushed = confirmed
        self.length = length
        self.pending: dict[int, PendingAdd] = {}
        self.failed: list[str] = []
        self.failed_before: list[str] = []
        self.sent: dict[int, int] = {}
        """The entry that is in each request that is not answered."""

    def __repr__(self) -> str:
        return f"Adds({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def push(self, request: AddEntry, length: int, token: int, effects: list[Effect]) -> None:
        """Send the next entry to its write set."""
        entry_id = self.pushed = request.entry_id
        bookies = write_set(entry_id, self.ensemble, self.write_quorum)
        self.pending[entry_id] = PendingAdd(request, length, token, bookies)
        for bookie in bookies:
            self._send(bookie, request, effects)

    def _send(self, bookie: str, request: AddEntry, effects: list[Effect]) -> None:
        txn = next(self.txns)
        self.sent[txn] = request.entry_id
        effects.append(Send(txn, bookie, request))

    def take(self, event: Received | Unanswered) -> AddOutcome | None:
        """Take the answer to an add, or that there is none; what it means. None if it means nothing any more."""
        entry_id = self.sent.pop(event.txn, None)
        if entry_id is None:
            return None
        bookie = event.bookie
        outcome = outcome_of_add(event.response.code if type(event) is Received else None)
        if outcome is AddOutcome.CONFIRMED:
            add = self.pending.get(entry_id)
            if add is not None and counts(bookie, add.write_set, True):
                add.confirmed |= {bookie}
        elif bookie not in self.ensemble:
            return None  # it was replaced since
        elif outcome is AddOutcome.BOOKIE_FAILED and bookie not in self.failed:
            self.failed.append(bookie)
        return outcome

    def confirm(self, changing_ensemble: bool = False) -> list[PendingAdd]:
        """The entries that are confirmed now, in order."""
        following = self.pending.get(self.confirmed + 1)
        if self.protections.confirmed_in_order and (
            following is None or not is_committed(following.confirmed, self.ack_quorum)
        ):
            return []  # as after most answers

        def committed(entry_id: int) -> bool:
            return is_committed(self.pending[entry_id].confirmed, self.ack_quorum)

        reached = lac_reached(self.confirmed, self.pushed, committed, changing_ensemble, self.protections)
        adds = [self.pending.pop(entry_id) for entry_id in range(self.confirmed + 1, reached + 1)]
        if adds:
            self.confirmed, self.length = reached, adds[-1].length
        return adds

    def replacement(self, ensemble: tuple[str, ...], bookies: Sequence[str]) -> tuple[str, ...] | None:
        """An ensemble without as many as possible of those that failed, given all bookies that there are; None if none can be replaced."""
        candidates = preferred(bookies, self.failed_before)
        for number in range(len(self.failed), 0, -1):
            changed = replaced(ensemble, self.failed[:number], candidates)
            if changed is not None:
                return changed
        return None

    def may_go_on(self) -> bool:
        """Whether the bookies that have not failed are enough."""
        return may_go_on(self.ensemble, self.failed, self.write_quorum, self.ack_quorum)

    def give_up(self) -> list[PendingAdd]:
        """The entries that are not confirmed, and will not be."""
        adds = [*self.pending.values()]
        self.pending.clear()
        self.pushed = self.confirmed
        return adds

    def change_ensemble(self, ensemble: Sequence[str], effects: list[Effect]) -> None:
        """Go on with another ensemble: bookies that left it no longer count, and those that are new are sent what they lack."""
        before, self.ensemble = self.ensemble, ensemble
        left = [bookie for bookie in before if bookie not in ensemble]
        self.failed_before += [bookie for bookie in left if bookie not in self.failed_before]
        self.failed = [bookie for bookie in self.failed if bookie in ensemble]
        for entry_id, add in self.pending.items():
            add.confirmed = still_confirmed(add.confirmed, left, self.protections)
            add.write_set = write_set(entry_id, ensemble, self.write_quorum)
            for bookie in newly_asked(entry_id, before, ensemble, self.write_quorum):
                self._send(bookie, add.request, effects)
