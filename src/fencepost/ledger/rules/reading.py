"""Reading: what a bookie answers, limbo included, whom a reader asks, and how a recovery read and a reader's read
end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from fencepost.ledger.rules.codes import NEGATIVES, Code, Verdict
from fencepost.ledger.rules.ensembles import Ensemble, covers
from fencepost.ledger.rules.protections import ALL, Protections

B = TypeVar("B")


# -- the bookie -------------------------------------------------------------------------------------------------------


def answer_to_read(
    *, stored: bool, known_ledger: bool, limbo: bool, unreadable: bool = False, protections: Protections = ALL
) -> Code:
    """The answer of a bookie to a read. It serves the entries that it has; in limbo it never answers that it lacks an
    entry (BP-46).

    ``unreadable``: it should have the entry, and cannot read it. That is no word on whether the entry was ever there.
    """
    if unreadable:
        return Code.IO_ERROR
    if stored:
        return Code.OK
    if limbo and protections.limbo_is_unknown:
        return Code.UNKNOWN_LEDGER_STATE
    return Code.NO_ENTRY if known_ledger else Code.NO_LEDGER


def answer_to_read_lac(
    *, known_ledger: bool, limbo: bool, unreadable: bool = False, protections: Protections = ALL
) -> Code:
    """The answer of a bookie to a read of its LAC, or of its list of entries. In limbo it may have lost a higher LAC
    and entries, and must not answer that it lacks them.
    """
    if limbo and protections.limbo_is_unknown:
        return Code.UNKNOWN_LEDGER_STATE
    if unreadable:
        return Code.IO_ERROR
    return Code.OK if known_ledger else Code.NO_LEDGER


def is_poll_over(lac: int, previous_lac: int, fenced: bool) -> bool:
    """Whether a long poll has what it waits for. On a fenced ledger it should look at the metadata, and not wait
    here.
    """
    return lac > previous_lac or fenced


def answer_to_poll(code: Code) -> Code:
    """The answer of a bookie to a long poll, given its answer to a read of the entry that is to come along.

    The LAC was asked for. Where entries are striped, the one after the reader's LAC may be elsewhere.
    """
    return Code.OK if code is Code.NO_ENTRY else code


BATCH_HEADER, BATCH_ENTRY = 36, 4
"""Bytes of a response to a batch read besides its entries, and besides the body of each, as BookKeeper counts them."""


def size_of_batch(asked_for: int, limit: int) -> int:
    """The entries, or the bytes, that a batch may have: as many as the reader asks for, if that is more than 0, up to
    the bookie's limit.
    """
    return min(asked_for, limit) if asked_for > 0 else limit


def batch(
    look_up: Callable[[int], tuple[Code, bytes | None]], first: int, max_count: int, max_size: int
) -> tuple[Code, tuple[bytes, ...]]:
    """The result of the look-ups of a batch read, from the ``first`` entry on: the code of the first entry, and the
    bodies that are sent.

    The first entry is sent however large it is, and others as long as there are no more than ``max_count`` and the
    response has no more than ``max_size`` bytes. A batch ends before an entry that is lacking or cannot be read: only
    a read of that entry alone says why.
    """
    code, body = look_up(first)
    if code is not Code.OK or body is None:
        return code, ()
    bodies: list[bytes] = []
    size = BATCH_HEADER
    while code is Code.OK and body is not None:
        size += BATCH_ENTRY + len(body)
        if bodies and size > max_size:
            break
        bodies.append(body)
        if len(bodies) >= max_count or size + BATCH_ENTRY >= max_size:
            break
        code, body = look_up(first + len(bodies))
    return Code.OK, tuple(bodies)


def how_many_may_begin(wanted: int, under_way: int, limit: int) -> int:
    """With how many look-ups a bookie begins that are asked for at once: with as many as it would if they came one
    after another.
    """
    return max(0, min(wanted, limit - under_way))


# -- whoever reads ----------------------------------------------------------------------------------------------------


class ReadOutcome(enum.Enum):
    """The outcome of a read of an entry at one bookie, answered or not."""

    FOUND = "found"
    NEGATIVE = "negative"
    FAILED = "failed"
    REFUSED = "refused"
    """The master key is wrong, as every other bookie would say."""


def outcome_of_read(code: Code | None, is_intact: bool) -> ReadOutcome:
    """The outcome of a read by the code of its answer; None: there was no answer. An entry that fails its digest is as
    good as no answer.
    """
    if code is Code.OK and is_intact:
        return ReadOutcome.FOUND
    if code is Code.UNAUTHORIZED:
        return ReadOutcome.REFUSED
    return ReadOutcome.NEGATIVE if code in NEGATIVES else ReadOutcome.FAILED


def recovery_read(
    found: bool,
    negative: Collection[B],
    failed: Collection[B],
    write_set: Collection[B],
    ack_quorum: int,
    protections: Protections = ALL,
) -> Verdict:
    """How the recovery read of one entry ends, given who lacks it (``negative``) and who cannot be asked (``failed``).

    One copy is enough to write the entry back. It is given up only if so many lack it that it cannot have been
    committed. When all have answered and it is neither, the recovery cannot go on.
    """
    if found:
        return Verdict.POSITIVE
    if covers(negative, write_set, ack_quorum) or (negative and not protections.negatives_cover_quorum):
        return Verdict.NEGATIVE
    if all(b in negative or b in failed for b in write_set):
        return Verdict.UNKNOWN
    return Verdict.WAITING


def ordinary_read(found: bool, negative: Collection[B], failed: Collection[B], write_set: Collection[B]) -> Verdict:
    """How a reader's read ends. That there is no such entry is believed only if every bookie of its write set says
    so.
    """
    if found:
        return Verdict.POSITIVE
    if all(b in negative for b in write_set):
        return Verdict.NEGATIVE
    return Verdict.UNKNOWN if all(b in negative or b in failed for b in write_set) else Verdict.WAITING


def order_to_ask(write_set: Ensemble[B], entry_id: int, suspects: Collection[B]) -> tuple[B, ...]:
    """The write set of an entry in the order in which a reader asks it: from entry to entry another bookie first, so
    that all have as much to do; and suspects, who left the last question unanswered, at the end.
    """
    bookies = tuple(write_set)
    start = entry_id % len(bookies)
    order = bookies[start:] + bookies[:start]
    return tuple(sorted(order, key=lambda b: b in suspects)) if suspects else order


def place_to_ask(entry_id: int, turn: int, ensemble_size: int, write_quorum: int) -> int:
    """The place in the ensemble of the bookie that a reader asks first for an entry: one of its write set, from turn to
    turn another one.

    Entries that are read together have one turn, so that a bookie is asked for many that follow one another.
    """
    return turn % ensemble_size if write_quorum == ensemble_size else (entry_id + turn % write_quorum) % ensemble_size


def least_asked(under_way: Sequence[int], suspected: Sequence[bool], turn: int) -> int:
    """The place in the ensemble of the bookie that a reader asks for entries that any of them has, given how many are
    under way at each: one that is not suspected, if there is one, and then one with the fewest; among equals from turn
    to turn another one.
    """
    best = turn % len(under_way)
    if not (under_way[best] or suspected[best]):
        return best
    for place in (*range(best + 1, len(under_way)), *range(best)):
        if (suspected[place], under_way[place]) < (suspected[best], under_way[best]):
            best = place
    return best


def may_wait(wanted: int, under_way: int, enough: int) -> bool:
    """Whether entries that are wanted one by one are not asked for yet, since a bookie has more of their kind under way
    than these are and fewer than ``enough`` are wanted: those that come until it answers are asked for together with
    them.
    """
    return wanted < under_way and wanted < enough


def next_to_ask(asked: Collection[B], answered: Collection[B], write_set: Ensemble[B], has_waited: bool) -> B | None:
    """Whom a reader asks next: nobody while an answer may come, unless it ``has_waited`` long enough to ask one more
    (speculation).
    """
    if len(answered) < len(asked) and not has_waited:
        return None
    return next((b for b in write_set if b not in asked), None)


def says_lac(code: Code | None) -> bool:
    """Whether an answer tells a LAC: a bookie that does not know the ledger tells the lowest. In limbo it tells
    nothing.
    """
    return code is Code.OK or code in NEGATIVES


def may_be_elsewhere(asked: Collection[B], write_set: Collection[B]) -> bool:
    """Whether a read that found nothing is to be tried anew, given the write set as the metadata have it by now.

    A LAC can be ahead of the fragments that a reader knows: the bookies it asked have left the ensemble before the
    entry was added.
    """
    return any(b not in asked for b in write_set)


def last_readable(lac: int, last_entry: int | None) -> int:
    """The last entry that a reader may ask for: the end of a closed ledger, the LAC of one that is not."""
    return lac if last_entry is None else last_entry


def is_readable(entry_id: int, lac: int, last_entry: int | None) -> bool:
    """Whether a reader may ask for an entry."""
    return 0 <= entry_id <= last_readable(lac, last_entry)
