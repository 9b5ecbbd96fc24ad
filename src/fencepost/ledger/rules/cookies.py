"""Cookies: whether a bookie may start on the directories that it is given.

A cookie says whose a directory is: of which bookie, of which cluster, and which other directories belong to it. It is
stamped into every directory and into the metadata at the first start, into the directories first. A bookie whose
cookies disagree does not start: it would answer that it lacks entries which it has confirmed. If it is configured to
repair itself it may start all the same, as a bookie that has lost a directory (:mod:`fencepost.ledger.rules.boot`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from fencepost.language.values import Record


class Cookie(Record):
    """Whose a directory is. ``instance_id``: that of the cluster, empty if the cluster has none.

    ``token``: drawn at random whenever all directories are stamped. By it a directory is known that was away meanwhile.
    Empty in cookies of BookKeeper's.
    """

    bookie_id: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    index_directories: tuple[str, ...] = ()
    instance_id: str = ""
    token: str = ""


class Stamped(Record):
    """A directory: the cookie in it, None if it has none, and whether nothing else is in it. ``is_under_repair``: a
    repair has begun to use it.
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
    """The bookie starts for the first time: its cookie is still to be stamped."""
    OTHER_CLUSTER = "other cluster"
    OTHER_BOOKIE = "other bookie"
    OTHER_DIRECTORIES = "other directories"
    """The bookie had other directories than those that it is given."""
    OTHER_TIME = "other time"
    """A directory was away while the bookie lost others, or is a copy from before that."""
    NOT_EMPTY = "not empty"
    """A directory has no cookie, and is not empty either."""
    DIRECTORY_LOST = "directory lost"
    """A directory has no cookie, and should."""
    MISSING_IN_METADATA = "missing in metadata"
    """The directories have cookies and entries, and the metadata no cookie: the bookie was removed from the cluster."""


class Decision(Record):
    """Whether a bookie starts; if it does not, the directory at fault (empty: the metadata) and the cookie found
    there.
    """

    boot: Boot
    path: str = ""
    found: Cookie | None = None


def may_boot(own: Cookie, in_metadata: Cookie | None, directories: Sequence[Stamped]) -> Decision:
    """Whether a bookie starts on its directories, given the cookie that it should have and those that there are.

    A first start that was cut short has stamped some of the directories, which hold nothing else yet: it is done again.
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
    """Whether a bookie whose cookies disagree can start as one that has lost a directory: the metadata know it, no
    directory is another bookie's or another cluster's, and those without a cookie are empty, or were when a repair
    began.

    A bookie without a cookie in the metadata was removed from the cluster, and only an operator can say why.
    """
    if in_metadata is None:
        return False
    found = [in_metadata, *(each.cookie for each in directories if each.cookie is not None)]
    return all((each.bookie_id, each.instance_id) == (own.bookie_id, own.instance_id) for each in found) and all(
        each.is_empty or each.is_under_repair for each in directories if each.cookie is None
    )


def has_lost_all(is_first_start: bool, has_files: bool) -> bool:
    """Whether a bookie that has its cookies has lost all else. Only at its first start there is nothing yet."""
    return not has_files and not is_first_start


def _difference(own: Cookie, other: Cookie) -> Boot:
    if other.instance_id != own.instance_id:
        return Boot.OTHER_CLUSTER
    if other.bookie_id != own.bookie_id:
        return Boot.OTHER_BOOKIE
    return Boot.OTHER_TIME if other.replace(token=own.token) == own else Boot.OTHER_DIRECTORIES
