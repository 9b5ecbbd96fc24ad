"""Where things are in the metadata service, below the root of a cluster (``/ledgers`` by default).

A ledger is at ``00/0000/L0001``: ten digits of its id, split in 2, 4 and 4. From 2,147,483,647 on, and for all ledgers of BookKeeper's
``LongHierarchicalLedgerManagerFactory``, it is at ``000/0000/0021/4748/L3647``: nineteen digits in 3, 4, 4, 4 and 4.
"""

from __future__ import annotations

import re

LAYOUT = "LAYOUT"
INSTANCE_ID = "INSTANCEID"
AVAILABLE = "available"
READ_ONLY = "available/readonly"
COOKIES = "cookies"
ID_GENERATOR = "idgen"
LONG_ID_GENERATOR = "idgen-long"

FIRST_LONG_ID = 2**31 - 1
"""The first ledger that does not have a short path."""

LAST_ID = 2**63 - 1

TOP = re.compile(r"\d{2}|\d{3}")
"""The nodes below the root that ledgers are under: of short paths with two digits, of long ones with three."""

_SHORT = re.compile(r"(\d\d)/(\d{4})/L(\d{4})")
_LONG = re.compile(r"(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})")


def ledger_path(ledger: int, always_long: bool = False) -> str:
    """The path of a ledger below the root. Raises ``ValueError`` for a number that is no ledger's id."""
    if not 0 <= ledger <= LAST_ID:
        raise ValueError(f"{ledger} is no id of a ledger: ids are from 0 to {LAST_ID}")
    if ledger < FIRST_LONG_ID and not always_long:
        digits = f"{ledger:010}"
        return f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger:019}"
    return f"{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_of(path: str) -> int | None:
    """The ledger that is at a path below the root; None if the path is not one of a ledger."""
    found = _SHORT.fullmatch(path) or _LONG.fullmatch(path)
    return int("".join(found.groups())) if found else None
