"""Paths of znodes: which are possible, and their parts. The rules are those of ZooKeeper's ``PathUtils``."""

from __future__ import annotations

import re

ROOT = "/"
SYSTEM = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""Znodes that are there from the beginning, and stay."""

# ZooKeeper looks at UTF-16: whatever is beyond the first plane is a pair of surrogates there, which it refuses.
_REFUSED = re.compile("[\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]|//|/\\.\\.?(?=/|$)")


def is_valid(path: str) -> bool:
    """Whether a znode can have this path: absolute, no empty, ``.`` or ``..`` component, and no control or private
    characters.
    """
    if path[:1] != "/":
        return False
    return path == ROOT or (path[-1] != "/" and _REFUSED.search(path) is None)


def parent(path: str) -> str:
    """The path of the parent of a znode; the root is its own."""
    return path[: path.rindex("/")] or ROOT


def name(path: str) -> str:
    """The last component of a path."""
    return path[path.rindex("/") + 1 :]
