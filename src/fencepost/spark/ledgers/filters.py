"""The ledgers and entries that a query needs, from its conditions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class Wanted(msgspec.Struct, frozen=True):
    """The values of a column that a query may need: from ``first`` to ``last`` (None: no end), and only those in
    ``among`` unless that is None.
    """

    first: int = 0
    last: int | None = None
    among: frozenset[int] | None = None

    def has(self, value: int) -> bool:
        """Return whether the query may need a value."""
        return (
            self.first <= value
            and (self.last is None or value <= self.last)
            and (self.among is None or value in self.among)
        )

    def within(self, first: int, stop: int) -> tuple[int, int]:
        """The part of ``first`` to before ``stop`` that the query may need, ignoring ``among``."""
        first = max(first, self.first)
        return first, max(first, stop if self.last is None else min(stop, self.last + 1))

    def narrowed(self, first: int = 0, last: int | None = None, among: Iterable[int] | None = None) -> Wanted:
        """Restrict the values by another condition."""
        lasts = [each for each in (self.last, last) if each is not None]
        sets = [frozenset(each) for each in (self.among, among) if each is not None]
        return Wanted(max(self.first, first), min(lasts, default=None), frozenset.intersection(*sets) if sets else None)


ANY = Wanted()


def take(condition: Any, ledgers: Wanted, entries: Wanted) -> tuple[Wanted, Wanted, bool]:
    """Restrict the ledgers and entries by one condition of a query. Also returns whether the restriction is exact.

    ``condition``: any filter of :mod:`pyspark.sql.datasource`. All conditions of a query must hold.
    """
    kind, attribute = type(condition).__name__, getattr(condition, "attribute", ())
    if attribute not in (("ledger",), ("entry",)):
        return ledgers, entries, False
    value: Any = getattr(condition, "value", None)
    of = ledgers if attribute == ("ledger",) else entries
    is_all = True
    if kind == "IsNotNull":
        return ledgers, entries, True
    if kind == "In" and all(type(each) is int for each in value):
        first, last = min(value, default=0), max(value, default=-1)
        if attribute == ("ledger",):
            of = of.narrowed(among=value)
        else:  # entries are read in ranges
            of, is_all = of.narrowed(max(0, first), last), False
    elif type(value) is not int:
        return ledgers, entries, False
    elif kind in ("EqualTo", "EqualNullSafe"):
        of = of.narrowed(value, value)
    elif kind in ("GreaterThan", "GreaterThanOrEqual"):
        of = of.narrowed(value + (kind == "GreaterThan"))
    elif kind in ("LessThan", "LessThanOrEqual"):
        of = of.narrowed(last=value - (kind == "LessThan"))
    else:
        return ledgers, entries, False
    return (of, entries, is_all) if attribute == ("ledger",) else (ledgers, of, is_all)
