"""How an operation ends: a bookie's answer, and what has come of something that several bookies were asked."""

from __future__ import annotations

import enum


class Code(enum.Enum):
    """The codes of answers of a bookie, by BookKeeper's names and with the values of its wire protocol, version 3."""

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
    """The bookie cannot know whether it ever had the entry: the ledger is in limbo (BP-46)."""


NEGATIVES = frozenset({Code.NO_LEDGER, Code.NO_ENTRY})
"""The answers by which a bookie says that it lacks an entry. Every other failure leaves that open."""


class Verdict(enum.Enum):
    """The verdict on a question to several bookies. ``UNKNOWN`` is final too: no answer to come can decide it."""

    WAITING = "waiting"
    POSITIVE = "positive"
    NEGATIVE = "negative"
    UNKNOWN = "unknown"
