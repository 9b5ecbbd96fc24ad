"""Paths of znodes: validation and parts. The rules are those of ZooKeeper's ``PathUtils``."""

from __future__ import annotations

import re

ROOT = "/"
SYSTEM = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""Znodes that always exist."""

# ZooKeeper checks UTF-16 code units. It refuses surrogates, so characters beyond the basic plane are refused too.
_REFUSED = re.compile("[\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]|//|/\\.\\.?(?=/|$)")


def is_valid(path: str) -> bool:
    """Return whether a path is valid: absolute, without empty, ``.`` or ``..`` components, and without control or
    private characters.
    """
    if path[:1] != "/":
        return False
    return path == ROOT or (path[-1] != "/" and _REFUSED.search(path) is None)


def parent(path: str) -> str:
    """The path of a znode's parent. The root is its own parent."""
    return path[: path.rindex("/")] or ROOT


def name(path: str) -> str:
    """The last component of a path."""
    return path[path.rindex("/") + 1 :]
