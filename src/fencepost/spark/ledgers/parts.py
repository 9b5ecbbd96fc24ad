"""The work of a query, divided: each part has ranges of entries, each of one fragment of one ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

OVERHEAD = 64
"""Bytes that an entry counts for besides its data."""

OPENING = 64 * 1024
"""Bytes that a range counts for besides its entries: the ledger has to be opened."""


class Range(msgspec.Struct, frozen=True):
    """Entries of a ledger from ``first`` to ``last``, both included, of the fragment that begins with the entry
    ``fragment``. All are confirmed. ``created``: the time that the ledger has in the list of its log, in milliseconds
    since 1970.
    """

    ledger: int
    fragment: int
    first: int
    last: int
    created: int = 0


class Span(msgspec.Struct, frozen=True):
    """Entries of a ledger from ``first`` to before ``stop`` that are to be read. ``fragments``: the first entry of
    each, ascending. ``mean``: bytes that an entry has on average. ``created``: see :class:`Range`.
    """

    ledger: int
    first: int
    stop: int
    fragments: Sequence[int] = (0,)
    mean: int = 0
    created: int = 0


def ranges(span: Span, most: int) -> list[Range]:
    """The entries of a span in ranges of about the same size, each in one fragment and of at most ``most`` bytes, or of
    one entry.
    """
    per = max(1, most // (span.mean + OVERHEAD))
    found = []
    for fragment, following in zip(span.fragments, [*span.fragments[1:], span.stop], strict=True):
        first, stop = max(fragment, span.first), min(following, span.stop)
        count = -(-(stop - first) // per)
        for number in range(count):
            start, end = (first + (stop - first) * each // count for each in (number, number + 1))
            found.append(Range(span.ledger, fragment, start, end - 1, span.created))
    return found


def parts(spans: Iterable[Span], most: int) -> list[tuple[Range, ...]]:
    """The entries of all spans in parts of about ``most`` bytes at most: many small ledgers are one part, a large one
    is several.
    """
    found: list[tuple[Range, ...]] = []
    together: list[Range] = []
    size = 0
    for span in spans:
        for each in ranges(span, most):
            of_range = OPENING + (each.last - each.first + 1) * (span.mean + OVERHEAD)
            if together and size + of_range > most:
                found.append(tuple(together))
                together, size = [], 0
            together.append(each)
            size += of_range
    return [*found, tuple(together)] if together else found
