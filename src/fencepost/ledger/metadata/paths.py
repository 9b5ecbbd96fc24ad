"""Paths in the metadata service, relative to the root of a cluster (``/ledgers`` by default).

A ledger is at ``00/0000/L0001``: its id as ten digits, split into 2, 4 and 4. Ids from 2,147,483,647 on, and all
ledgers of BookKeeper's ``LongHierarchicalLedgerManagerFactory``, are at ``000/0000/0021/4748/L3647``: nineteen digits,
split into 3, 4, 4, 4 and 4.

An under-replicated ledger has the node ``underreplication/ledgers/0000/0000/0000/0001/urL0000000001``: its id as
sixteen hexadecimal digits, then as at least ten decimal ones. Its replicator holds the lock
``underreplication/locks/urL0000000001``.
"""

from __future__ import annotations

import re

LAYOUT = "LAYOUT"
INSTANCE_ID = "INSTANCEID"
AVAILABLE = "available"
READ_ONLY = "available/readonly"
COOKIES = "cookies"
RACKS = "../bookies"
"""The racks of bookies, which Pulsar has beside the root."""
ID_GENERATOR = "idgen"
LONG_ID_GENERATOR = "idgen-long"

UNDER_REPLICATION = "underreplication"
UNDER_REPLICATED = f"{UNDER_REPLICATION}/ledgers"
LOCKS = f"{UNDER_REPLICATION}/locks"
ELECTION = f"{UNDER_REPLICATION}/auditorelection"
DISABLED = f"{UNDER_REPLICATION}/disable"
RECOVERY_DELAY = f"{UNDER_REPLICATION}/lostBookieRecoveryDelay"
CHECKED = f"{UNDER_REPLICATION}/checkallledgersctime"

FIRST_LONG_ID = 2**31 - 1
"""The first ledger id without a short path."""

LAST_ID = 2**63 - 1

TOP = re.compile(r"\d{2}|\d{3}")
"""The top-level folders of ledgers: two digits for short paths, three for long ones."""

LEVELS, DIGITS = 4, 4
"""The folders of under-replicated ledgers: the depth of nesting, and the hexadecimal digits in each name."""

_FOLDER = re.compile(rf"{UNDER_REPLICATED}" + rf"/([0-9a-f]{{{DIGITS}}})" * LEVELS)

_SHORT = re.compile(r"(\d\d)/(\d{4})/L(\d{4})")
_LONG = re.compile(r"(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})")


def ledger_path(ledger: int, always_long: bool = False) -> str:
    """The path of a ledger, relative to the root. Raises ``ValueError`` for a number that is no ledger id."""
    if not 0 <= ledger <= LAST_ID:
        raise ValueError(f"{ledger} is no id of a ledger: ids are from 0 to {LAST_ID}")
    if ledger < FIRST_LONG_ID and not always_long:
        digits = f"{ledger:010}"
        return f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger:019}"
    return f"{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_of(path: str) -> int | None:
    """The ledger with this path, relative to the root; None if it is not a ledger's path."""
    found = _SHORT.fullmatch(path) or _LONG.fullmatch(path)
    return int("".join(found.groups())) if found else None


def under_replicated_name(ledger: int) -> str:
    """The name of an under-replicated ledger's node, and of its lock."""
    return f"urL{ledger:010}"


def under_replicated_path(ledger: int) -> str:
    """The path of an under-replicated ledger's node, relative to the root."""
    digits = f"{ledger:016x}"
    parts = "/".join(digits[place : place + 4] for place in range(0, 16, 4))
    return f"{UNDER_REPLICATED}/{parts}/{under_replicated_name(ledger)}"


def lock_path(ledger: int) -> str:
    """The path of an under-replicated ledger's lock, relative to the root."""
    return f"{LOCKS}/{under_replicated_name(ledger)}"


def ledger_of_folder(path: str) -> int | None:
    """The ledger whose under-replication node would be in this folder, a path relative to the root; None for any other
    path.
    """
    found = _FOLDER.fullmatch(path)
    return int("".join(found.groups()), 16) if found else None
