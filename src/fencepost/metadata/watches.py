"""The watches of znodes: one-time, persistent, or persistent and recursive. They belong to connections, and are not
part of the state.

As in ZooKeeper there are two tables: watches for the data and existence of znodes, and watches for children.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from fencepost.metadata import paths
from fencepost.metadata.tree import NODE_CHILDREN_CHANGED, NODE_DELETED, WatchEvent

W = TypeVar("W", bound=Hashable)

ONCE = 1
PERSISTENT = 2
RECURSIVE = 4

_CHILDREN, _DATA, _ANY, _PERSISTENT, _RECURSIVE = range(1, 6)  # the protocol's kinds of watchers


class Watches(Generic[W]):
    """The watches of all watchers."""

    def __init__(self) -> None:
        self.data: Table[W] = Table()
        self.children: Table[W] = Table()
        self.tables = self.data, self.children

    def __len__(self) -> int:
        return sum(table.count for table in self.tables)

    def add(self, path: str, watcher: W, recursive: bool) -> None:
        """Add a persistent watch of a path: the znode and its children, or its whole subtree if ``recursive``."""
        if recursive:
            self.data.add(path, watcher, RECURSIVE)
        else:
            self.data.add(path, watcher, PERSISTENT)
            self.children.add(path, watcher, PERSISTENT)

    def triggered(self, event: WatchEvent) -> list[W]:
        """The watchers to notify of an event. One-time watches are removed."""
        if event.kind == NODE_CHILDREN_CHANGED:
            return list(self.children.triggered(event.path))
        watchers = self.data.triggered(event.path)
        if event.kind == NODE_DELETED:
            watchers |= self.children.triggered(event.path)
        return list(watchers)

    def has(self, path: str, kind: int, watcher: W) -> bool:
        """Return whether a watcher has a watch of one of the protocol's kinds: children, data, any, persistent or
        recursive.
        """
        if kind == _CHILDREN:
            return bool(self.children.modes(path, watcher) & ONCE)
        if kind == _ANY:
            return bool(self.children.modes(path, watcher) | self.data.modes(path, watcher))
        return bool(self.data.modes(path, watcher) & _MODES[kind])

    def remove(self, path: str, kind: int, watcher: W) -> bool:
        """Remove the watches of a kind. Returns whether there was one."""
        removed = False
        if kind in (_CHILDREN, _ANY, _PERSISTENT):
            removed = self.children.remove(path, watcher, _MODES[kind])
        if kind != _CHILDREN:
            removed |= self.data.remove(path, watcher, _MODES[kind])
        return removed

    def forget(self, watcher: W) -> None:
        """Remove all watches of a watcher that is gone."""
        self.data.forget(watcher)
        self.children.forget(watcher)


_MODES = {
    _CHILDREN: ONCE,
    _DATA: ONCE,
    _ANY: ONCE | PERSISTENT | RECURSIVE,
    _PERSISTENT: PERSISTENT,
    _RECURSIVE: RECURSIVE,
}


class Table(Generic[W]):
    """Watches by path and watcher. Each is a sum of ONCE, PERSISTENT and RECURSIVE."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, int]] = {}
        self.by_watcher: dict[W, dict[str, None]] = {}
        self.count = 0
        self._recursive = 0

    def add(self, path: str, watcher: W, mode: int) -> None:
        watchers = self.by_path.setdefault(path, {})
        old = watchers.get(watcher, 0)
        self._set(path, watcher, watchers, old, old | mode)

    def remove(self, path: str, watcher: W, mode: int) -> bool:
        watchers = self.by_path.get(path, {})
        old = watchers.get(watcher, 0)
        self._set(path, watcher, watchers, old, old & ~mode)
        return bool(old & mode)

    def modes(self, path: str, watcher: W) -> int:
        return self.by_path.get(path, {}).get(watcher, 0)

    def triggered(self, path: str) -> dict[W, None]:
        """The watchers of a path, and the recursive ones of paths above it. One-time watches are removed."""
        triggered: dict[W, None] = {}
        watchers = self.by_path.get(path)
        if watchers:
            for watcher, modes in list(watchers.items()):
                triggered[watcher] = None
                self._set(path, watcher, watchers, modes, modes & ~ONCE)
        if self._recursive:
            for above in _above(path):
                for watcher, modes in self.by_path.get(above, {}).items():
                    if modes & RECURSIVE:
                        triggered[watcher] = None
        return triggered

    def forget(self, watcher: W) -> None:
        for path in list(self.by_watcher.get(watcher, ())):
            watchers = self.by_path[path]
            self._set(path, watcher, watchers, watchers[watcher], 0)

    def _set(self, path: str, watcher: W, watchers: dict[W, int], old: int, new: int) -> None:
        if old == new:
            return
        self._recursive += bool(new & RECURSIVE) - bool(old & RECURSIVE)
        if not old:
            self.count += 1
            self.by_watcher.setdefault(watcher, {})[path] = None
        if new:
            watchers[watcher] = new
            return
        self.count -= 1
        del watchers[watcher]
        if not watchers:
            del self.by_path[path]
        own = self.by_watcher[watcher]
        del own[path]
        if not own:
            del self.by_watcher[watcher]


def _above(path: str) -> Iterator[str]:
    """The paths above a path, up to the root."""
    while path != paths.ROOT:
        path = paths.parent(path)
        yield path
