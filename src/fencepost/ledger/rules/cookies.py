"""Cookies: whether a bookie may start on its directories.

A cookie says who owns a directory: which bookie, which cluster, and which other directories belong with it. At the
first start it is stamped into every directory, and then into the metadata. A bookie whose cookies disagree does not
start, because it would answer that it lacks entries that it has confirmed. If it is configured to repair itself, it may
start as a bookie that has lost a directory (:mod:`fencepost.ledger.rules.boot`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from fencepost.language.values import Record


class Cookie(Record):
    """The owner of a directory. ``instance_id``: of the cluster, empty if the cluster has none.

    ``token``: a new random one whenever all directories are stamped. It reveals a directory that was absent then. Empty
    in BookKeeper's cookies.
    """

    bookie_id: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    index_directories: tuple[str, ...] = ()
    instance_id: str = ""
    token: str = ""


class Stamped(Record):
    """A directory. ``cookie``: the cookie in it, None if there is none. ``is_empty``: whether nothing else is in it.
    ``is_under_repair``: a repair has started to use it.
    """

    path: str
    cookie: Cookie | None
    is_empty: bool
    is_under_repair: bool = False


class Boot(enum.Enum):
    """Whether a bookie starts."""

    READY = "ready"
    """Every directory and the metadata have its cookie."""
    STAMP = "stamp"
    """The bookie starts for the first time and still has to stamp its cookie."""
    OTHER_CLUSTER = "other cluster"
    OTHER_BOOKIE = "other bookie"
    OTHER_DIRECTORIES = "other directories"
    """The bookie had other directories before."""
    OTHER_TIME = "other time"
    """A directory was absent while the bookie lost others, or is a copy from before that."""
    NOT_EMPTY = "not empty"
    """A directory has no cookie but is not empty."""
    DIRECTORY_LOST = "directory lost"
    """A directory has no cookie but should have one."""
    MISSING_IN_METADATA = "missing in metadata"
    """The directories have cookies and entries, but the metadata have no cookie: the bookie was removed from the
    cluster.
    """


class Decision(Record):
    """Whether a bookie starts. If not: the faulty directory (empty: the metadata) and the cookie in it."""

    boot: Boot
    path: str = ""
    found: Cookie | None = None


def may_boot(own: Cookie, in_metadata: Cookie | None, directories: Sequence[Stamped]) -> Decision:
    """Whether a bookie starts on its directories, given its expected cookie and the existing ones.

    A first start that was interrupted has stamped some directories, which are otherwise empty. It is repeated.
    """
    found = [*((each.path, each.cookie) for each in directories), ("", in_metadata)]
    for path, cookie in found:
        if cookie is not None and cookie != own:
            return Decision(_difference(own, cookie), path, cookie)
    if in_metadata is None:
        used = [each for each in directories if not each.is_empty]
        unstamped = [each for each in used if each.cookie is None]
        if unstamped:
            return Decision(Boot.NOT_EMPTY, unstamped[0].path)
        return Decision(Boot.MISSING_IN_METADATA, used[0].path, used[0].cookie) if used else Decision(Boot.STAMP)
    lost = [each.path for each in directories if each.cookie is None]
    return Decision(Boot.DIRECTORY_LOST, lost[0], in_metadata) if lost else Decision(Boot.READY)


def may_repair(own: Cookie, in_metadata: Cookie | None, directories: Sequence[Stamped]) -> bool:
    """Whether a bookie with disagreeing cookies can start as one that has lost a directory. The metadata must have its
    cookie, and no directory may belong to another bookie or cluster. Directories without a cookie must be empty, or
    must have been empty when a repair began.

    A bookie without a cookie in the metadata was removed from the cluster. Only an operator knows why.
    """
    if in_metadata is None:
        return False
    found = [in_metadata, *(each.cookie for each in directories if each.cookie is not None)]
    return all((each.bookie_id, each.instance_id) == (own.bookie_id, own.instance_id) for each in found) and all(
        each.is_empty or each.is_under_repair for each in directories if each.cookie is None
    )


def has_lost_all(is_first_start: bool, has_files: bool) -> bool:
    """Whether a bookie with all cookies has lost everything else. Only at a first start are there no files."""
    return not has_files and not is_first_start


def _difference(own: Cookie, other: Cookie) -> Boot:
    if other.instance_id != own.instance_id:
        return Boot.OTHER_CLUSTER
    if other.bookie_id != own.bookie_id:
        return Boot.OTHER_BOOKIE
    return Boot.OTHER_TIME if other.replace(token=own.token) == own else Boot.OTHER_DIRECTORIES
