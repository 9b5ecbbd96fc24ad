"""Divides the entries of a query into parts: each has ranges of entries, and each range is in one fragment of a
ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

OVERHEAD = 64
"""Bytes that an entry counts for in addition to its data."""

OPENING = 64 * 1024
"""Bytes that a range counts for in addition to its entries, since its ledger has to be opened."""


class Range(msgspec.Struct, frozen=True):
    """Entries of a ledger from ``first`` to ``last``, both included, in the fragment that begins with the entry
    ``fragment``. All are confirmed. ``created``: the ledger's time in the chain of its log, in milliseconds since 1970.
    """

    ledger: int
    fragment: int
    first: int
    last: int
    created: int = 0


class Span(msgspec.Struct, frozen=True):
    """Entries of a ledger to read, from ``first`` to before ``stop``. ``fragments``: the first entry of each fragment,
    ascending. ``mean``: the average bytes of an entry. ``created``: see :class:`Range`.
    """

    ledger: int
    first: int
    stop: int
    fragments: Sequence[int] = (0,)
    mean: int = 0
    created: int = 0


def ranges(span: Span, most: int) -> list[Range]:
    """Divide a span into ranges of about the same size, each in one fragment. A range has at most ``most`` bytes, or
    one entry.
    """
    per = max(1, most // (span.mean + OVERHEAD))
    divided = []
    for fragment, following in zip(span.fragments, [*span.fragments[1:], span.stop], strict=True):
        first, stop = max(fragment, span.first), min(following, span.stop)
        count = -(-(stop - first) // per)
        for number in range(count):
            start, end = (first + (stop - first) * each // count for each in (number, number + 1))
            divided.append(Range(span.ledger, fragment, start, end - 1, span.created))
    return divided


def parts(spans: Iterable[Span], most: int) -> list[tuple[Range, ...]]:
    """Divide spans into parts of at most about ``most`` bytes. Many small ledgers are one part; a large one is
    several.
    """
    divided: list[tuple[Range, ...]] = []
    together: list[Range] = []
    size = 0
    for span in spans:
        for each in ranges(span, most):
            of_range = OPENING + (each.last - each.first + 1) * (span.mean + OVERHEAD)
            if together and size + of_range > most:
                divided.append(tuple(together))
                together, size = [], 0
            together.append(each)
            size += of_range
    return [*divided, tuple(together)] if together else divided
