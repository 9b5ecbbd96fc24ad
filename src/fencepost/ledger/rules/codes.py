"""The outcome of an operation: one bookie's answer, and the verdict on the answers of several."""

from __future__ import annotations

import enum


class Code(enum.Enum):
    """The codes of a bookie's answers, with BookKeeper's names and the values of its wire protocol, version 3."""

    OK = 0
    NO_LEDGER = 402
    NO_ENTRY = 403
    BAD_REQUEST = 404
    IO_ERROR = 501
    UNAUTHORIZED = 502
    BAD_VERSION = 503
    FENCED = 504
    READ_ONLY = 505
    TOO_MANY_REQUESTS = 506
    UNKNOWN_LEDGER_STATE = 507
    """The bookie cannot know whether it ever had the entry, because the ledger is in limbo (BP-46)."""


NEGATIVES = frozenset({Code.NO_LEDGER, Code.NO_ENTRY})
"""The answers that say that a bookie lacks an entry. All other failures leave that open."""


class Verdict(enum.Enum):
    """The verdict on a request to several bookies. ``UNKNOWN`` is final too: no further answer can decide it."""

    WAITING = "waiting"
    POSITIVE = "positive"
    NEGATIVE = "negative"
    UNKNOWN = "unknown"
