"""Answers requests that change nothing from the state. Checks come in ZooKeeper's order (``FinalRequestProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from fencepost.metadata import acl as acls
from fencepost.metadata import protocol
from fencepost.metadata.acl import Ids
from fencepost.metadata.codes import Code, Refusal
from fencepost.metadata.jute import INT, buffer, string, vector
from fencepost.metadata.protocol import (
    AddWatch,
    Body,
    CheckWatches,
    Exists,
    GetACL,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    MultiRead,
    MultiResult,
    NumberOf,
    Ping,
    Query,
    RemoveWatches,
    Result,
    SetWatches,
    StatOf,
    Sync,
    Token,
    WhoAmI,
)
from fencepost.metadata.tree import NODE_CHILDREN_CHANGED, NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED, Tree
from fencepost.metadata.watches import ONCE, Watches

W = TypeVar("W", bound=Hashable)


class Requester(msgspec.Struct, Generic[W], frozen=True):
    """The client of a request: the watcher to notify, the session, and its identities."""

    watcher: W
    session: int
    ids: Ids


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A result, or None if the header is enough; and (kind, path) events to send before it."""

    result: Result | None
    events: tuple[tuple[int, str], ...] = ()


def answer(tree: Tree, watches: Watches[W], requester: Requester[W], request: Query) -> Answer:
    """Answer a request from the state, and set the watches that it asks for. Raises :class:`Refusal`."""
    result = _HANDLERS[type(request)](tree, watches, requester, request)
    return result if isinstance(result, Answer) else Answer(result)


def watches_of(request: Query) -> int:
    """The most watches that a request may set."""
    if isinstance(request, SetWatches):
        once = len(request.data) + len(request.exist) + len(request.child)
        return once + 2 * len(request.persistent) + len(request.recursive)
    if isinstance(request, AddWatch):
        return 2
    return int(isinstance(request, Exists | GetData | GetChildren) and request.watch)


def _exists(tree: Tree, watches: Watches[W], requester: Requester[W], request: Exists) -> Result:
    path = request.path
    if "\0" in path:
        raise Refusal(Code.BAD_ARGUMENTS)
    if path in tree.nodes:
        tree.permitted(path, acls.READ, requester.ids)
    if request.watch:
        watches.data.add(path, requester.watcher, ONCE)
    return StatOf(tree.stat(path, tree.node(path)))


def _get_data(tree: Tree, watches: Watches[W], requester: Requester[W], request: GetData) -> Result:
    node = tree.permitted(request.path, acls.READ, requester.ids)
    if request.watch:
        watches.data.add(request.path, requester.watcher, ONCE)
    return Body(buffer(node.data) + tree.stat(request.path, node).encoded())


def _get_children(tree: Tree, watches: Watches[W], requester: Requester[W], request: GetChildren) -> Result:
    node = tree.permitted(request.path, acls.READ, requester.ids)
    if request.watch:
        watches.children.add(request.path, requester.watcher, ONCE)
    names = vector(map(string, tree.names(request.path)))
    return Body(names + tree.stat(request.path, node).encoded() if request.stat else names)


def _get_acl(tree: Tree, _: Watches[W], requester: Requester[W], request: GetACL) -> Result:
    node = tree.permitted(request.path, acls.READ | acls.ADMIN, requester.ids)
    acl = node.acl if acls.permits(node.acl, acls.ADMIN, requester.ids) else acls.masked(node.acl)
    entries = vector(INT.pack(entry.perms) + string(entry.id.scheme) + string(entry.id.id) for entry in acl)
    return Body(entries + tree.stat(request.path, node).encoded())


def _get_ephemerals(tree: Tree, _: Watches[W], requester: Requester[W], request: GetEphemerals) -> Result:
    prefix = request.prefix or ""
    if prefix.strip() in ("", "/"):
        prefix = ""
    return Body(vector(string(path) for path in tree.ephemerals.get(requester.session, ()) if path.startswith(prefix)))


def _get_all_children_number(
    tree: Tree, _: Watches[W], requester: Requester[W], request: GetAllChildrenNumber
) -> Result:
    tree.permitted(request.path, acls.READ, requester.ids)
    if request.path == "/":
        return NumberOf(len(tree.nodes) - 1)
    below = request.path + "/"
    return NumberOf(sum(path.startswith(below) for path in tree.nodes))


def _multi_read(tree: Tree, watches: Watches[W], requester: Requester[W], request: MultiRead) -> Result:
    results: list[tuple[int, Code, Result]] = []
    for operation in request.operations:
        try:
            if isinstance(operation, GetData):
                results.append((protocol.GET_DATA, Code.OK, _get_data(tree, watches, requester, operation)))
            else:
                results.append((protocol.GET_CHILDREN, Code.OK, _get_children(tree, watches, requester, operation)))
        except Refusal as refusal:
            results += protocol.not_done([refusal.code]).results
    return MultiResult(tuple(results))


def _who_am_i(_: Tree, __: Watches[W], requester: Requester[W], ___: WhoAmI) -> Result:
    # Schemes, and names without secrets.
    return Body(vector(string(each.scheme) + string((each.id or "").split(":")[0]) for each in requester.ids))


def _set_watches(tree: Tree, watches: Watches[W], requester: Requester[W], request: SetWatches) -> Answer:
    events = []
    for path in request.data:
        node = tree.nodes.get(path)
        if node is None:
            events.append((NODE_DELETED, path))
        elif node.mzxid > request.zxid:
            events.append((NODE_DATA_CHANGED, path))
        else:
            watches.data.add(path, requester.watcher, ONCE)
    for path in request.exist:
        if path in tree.nodes:
            events.append((NODE_CREATED, path))
        else:
            watches.data.add(path, requester.watcher, ONCE)
    for path in request.child:
        node = tree.nodes.get(path)
        if node is None:
            events.append((NODE_DELETED, path))
        elif node.pzxid > request.zxid:
            events.append((NODE_CHILDREN_CHANGED, path))
        else:
            watches.children.add(path, requester.watcher, ONCE)
    for path in request.persistent:
        watches.add(path, requester.watcher, recursive=False)
    for path in request.recursive:
        watches.add(path, requester.watcher, recursive=True)
    return Answer(None, tuple(events))


def _add_watch(_: Tree, watches: Watches[W], requester: Requester[W], request: AddWatch) -> Result:
    watches.add(request.path, requester.watcher, request.recursive)
    return NumberOf(Code.OK)


def _check_watches(_: Tree, watches: Watches[W], requester: Requester[W], request: CheckWatches) -> None:
    if not watches.has(request.path, request.kind, requester.watcher):
        raise Refusal(Code.NO_WATCHER)


def _remove_watches(_: Tree, watches: Watches[W], requester: Requester[W], request: RemoveWatches) -> None:
    if not watches.remove(request.path, request.kind, requester.watcher):
        raise Refusal(Code.NO_WATCHER)


_HANDLERS: dict[type, Callable[[Tree, Any, Requester[Any], Any], Result | Answer | None]] = {
    Exists: _exists,
    GetData: _get_data,
    GetChildren: _get_children,
    GetACL: _get_acl,
    GetEphemerals: _get_ephemerals,
    GetAllChildrenNumber: _get_all_children_number,
    MultiRead: _multi_read,
    Sync: lambda tree, watches, requester, request: Body(string(request.path)),
    Ping: lambda tree, watches, requester, request: None,
    Token: lambda tree, watches, requester, request: Body(buffer(request.token)),
    WhoAmI: _who_am_i,
    SetWatches: _set_watches,
    AddWatch: _add_watch,
    CheckWatches: _check_watches,
    RemoveWatches: _remove_watches,
}
