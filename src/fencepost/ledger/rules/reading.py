"""Reading: what a bookie answers, also in limbo, which bookie a reader asks, and how reads and recovery reads end."""

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
    """A bookie's answer to a read. It serves the entries that it has. In limbo it never answers that it lacks an entry
    (BP-46).

    ``unreadable``: it should have the entry but cannot read it. That does not show whether the entry ever existed.
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
    """A bookie's answer to a read of its LAC or of its list of entries. In limbo it may have lost entries and a higher
    LAC, so it must not give an answer.
    """
    if limbo and protections.limbo_is_unknown:
        return Code.UNKNOWN_LEDGER_STATE
    if unreadable:
        return Code.IO_ERROR
    return Code.OK if known_ledger else Code.NO_LEDGER


def is_poll_over(lac: int, previous_lac: int, fenced: bool) -> bool:
    """Whether a long poll is over. On a fenced ledger the reader should look at the metadata instead of waiting."""
    return lac > previous_lac or fenced


def answer_to_poll(code: Code) -> Code:
    """A bookie's answer to a long poll, given its answer to the read of the accompanying entry.

    The reader wants the LAC. The entry after its LAC may be on other bookies if entries are striped.
    """
    return Code.OK if code is Code.NO_ENTRY else code


BATCH_HEADER, BATCH_ENTRY = 36, 4
"""Bytes of a response to a batch read without its entries, and the overhead of each entry, as BookKeeper counts
them.
"""


def size_of_batch(asked_for: int, limit: int) -> int:
    """The limit of a batch, in entries or bytes: what the reader requests if that is more than 0, up to the bookie's
    limit.
    """
    return min(asked_for, limit) if asked_for > 0 else limit


def batch(
    look_up: Callable[[int], tuple[Code, bytes | None]], first: int, max_count: int, max_size: int
) -> tuple[Code, tuple[bytes, ...]]:
    """The result of a batch read from the ``first`` entry on: the code of the first entry, and the bodies to send.

    The first entry is sent whatever its size. Others follow within ``max_count`` entries and ``max_size`` bytes of
    response. A batch ends before an entry that is missing or unreadable. Only a read of that entry alone gives the
    reason.
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
    """How many of ``wanted`` look-ups a bookie starts: as many as if they had arrived one after another."""
    return max(0, min(wanted, limit - under_way))


# -- readers and recoveries -------------------------------------------------------------------------------------------


class ReadOutcome(enum.Enum):
    """The outcome of a read of an entry at one bookie, answered or not."""

    FOUND = "found"
    NEGATIVE = "negative"
    FAILED = "failed"
    REFUSED = "refused"
    """The master key is wrong. Every other bookie would refuse too."""


def outcome_of_read(code: Code | None, is_intact: bool) -> ReadOutcome:
    """The outcome of a read by the code of its answer; None: no answer. An entry with a wrong digest counts as no
    answer.
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
    """How the recovery read of one entry ends, given the bookies that lack it (``negative``) and those that ``failed``.

    One copy is enough to write the entry back. The entry is given up only if too many bookies lack it for it to be
    committed. If all have answered and neither holds, the recovery cannot continue.
    """
    if found:
        return Verdict.POSITIVE
    if covers(negative, write_set, ack_quorum) or (negative and not protections.negatives_cover_quorum):
        return Verdict.NEGATIVE
    if all(b in negative or b in failed for b in write_set):
        return Verdict.UNKNOWN
    return Verdict.WAITING


def ordinary_read(found: bool, negative: Collection[B], failed: Collection[B], write_set: Collection[B]) -> Verdict:
    """How a reader's read ends. An entry is missing only if every bookie of its write set says so."""
    if found:
        return Verdict.POSITIVE
    if all(b in negative for b in write_set):
        return Verdict.NEGATIVE
    return Verdict.UNKNOWN if all(b in negative or b in failed for b in write_set) else Verdict.WAITING


def order_to_ask(write_set: Ensemble[B], entry_id: int, suspects: Collection[B]) -> tuple[B, ...]:
    """The write set of an entry in the order in which a reader asks it. The first bookie rotates with the entry, to
    share the load. Suspects, which did not answer their last request, come last.
    """
    bookies = tuple(write_set)
    start = entry_id % len(bookies)
    order = bookies[start:] + bookies[:start]
    return tuple(sorted(order, key=lambda b: b in suspects)) if suspects else order


def place_to_ask(entry_id: int, turn: int, ensemble_size: int, write_quorum: int) -> int:
    """The index in the ensemble of the bookie of its write set that a reader asks first for an entry. It rotates with
    each turn.

    Entries read together have the same turn, so that one bookie is asked for many consecutive entries.
    """
    return turn % ensemble_size if write_quorum == ensemble_size else (entry_id + turn % write_quorum) % ensemble_size


def least_asked(under_way: Sequence[int], suspected: Sequence[bool], turn: int) -> int:
    """The index in the ensemble of the bookie that a reader asks for entries that all bookies have. It prefers bookies
    that are not suspected, then those with the fewest entries under way. Ties rotate with the turn.
    """
    best = turn % len(under_way)
    if not (under_way[best] or suspected[best]):
        return best
    for place in (*range(best + 1, len(under_way)), *range(best)):
        if (suspected[place], under_way[place]) < (suspected[best], under_way[best]):
            best = place
    return best


def may_wait(wanted: int, under_way: int, enough: int) -> bool:
    """Whether wanted single entries wait before they are requested. They wait while fewer are wanted than ``enough``
    and than a bookie has under way. All that come until it answers are then requested together.
    """
    return wanted < under_way and wanted < enough


def next_to_ask(asked: Collection[B], answered: Collection[B], write_set: Ensemble[B], has_waited: bool) -> B | None:
    """The bookie that a reader asks next: None while an answer may come, unless it ``has_waited`` long enough to ask
    one more (speculation).
    """
    if len(answered) < len(asked) and not has_waited:
        return None
    return next((b for b in write_set if b not in asked), None)


def says_lac(code: Code | None) -> bool:
    """Whether an answer tells a LAC. A bookie that does not know the ledger implies the lowest LAC. A bookie in limbo
    tells nothing.
    """
    return code is Code.OK or code in NEGATIVES


def may_be_elsewhere(asked: Collection[B], write_set: Collection[B]) -> bool:
    """Whether to retry a read that found nothing, given the write set in the latest metadata.

    A LAC can be ahead of the fragments that a reader knows: the bookies it asked may have left the ensemble before the
    entry was added.
    """
    return any(b not in asked for b in write_set)


def last_readable(lac: int, last_entry: int | None) -> int:
    """The last entry that a reader may request: the end of a closed ledger, or the LAC of an open one."""
    return lac if last_entry is None else last_entry


def is_readable(entry_id: int, lac: int, last_entry: int | None) -> bool:
    """Whether a reader may request an entry."""
    return 0 <= entry_id <= last_readable(lac, last_entry)
