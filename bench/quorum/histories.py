"""Whether what clients saw of one znode can be explained by one operation after another, each at a moment between its
beginning and its end.

Linearizability is local (Herlihy and Wing, 1990), so each znode is checked alone. The search is that of Wing and Gong
with Lowe's "just in time" order ("Testing for linearizability", 2017). It takes events in the order of their times, and
orders a call only when a call that has ended must be ordered. A call with an unknown outcome also has an end: the
moment after which it cannot take effect. It may or may not have taken effect by then.

:mod:`fencepost.language.linearizability` decides the same for protocols. It tries every pending call everywhere, which
is right for histories of a few calls. Tests compare this search with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Znode = tuple[str, int] | None
"""What a znode is: its value and its version; None if it is not there."""

ANY = -1
"""The version that fits every znode."""

NO_NODE, NODE_EXISTS, BAD_VERSION = "no node", "node exists", "bad version"
DONE = "done"
UNKNOWN = None

LIMIT = 200_000
"""Orders that are tried at the same time, at the most."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client. ``what`` is create, write, delete or read; ``result`` what was answered: for a write the
    version, for a read the znode, else DONE or why not; UNKNOWN if there was no answer. Times are in seconds of one
    clock.
    """

    begin: float
    end: float
    what: str
    value: str = ""
    version: int = ANY
    result: object = UNKNOWN
    client: str = ""


class TooMany(Exception):
    """There are more orders to try than the limit."""


def done(znode: Znode, call: Call) -> tuple[Znode, object]:
    """The znode after a call that takes effect, and what is answered."""
    if call.what == "create":
        return (znode, NODE_EXISTS) if znode is not None else ((call.value, 0), DONE)
    if call.what == "read":
        return znode, NO_NODE if znode is None else znode
    if znode is None:
        return None, NO_NODE
    if call.version not in (ANY, znode[1]):
        return znode, BAD_VERSION
    if call.what == "delete":
        return None, DONE
    return (call.value, znode[1] + 1), znode[1] + 1


def contradiction(calls: Iterable[Call], first: Znode = None) -> str:
    """Why no order explains what was answered; empty if one does. ``first``: what the znode is before all calls.

    Raises :class:`TooMany`.
    """
    events: list[tuple[float, int, int, Call]] = []
    for number, call in enumerate(calls):
        if call.result is UNKNOWN and call.what == "read":
            continue
        events += [(call.begin, 0, number, call), (call.end, 1, number, call)]
    events.sort(key=lambda event: event[:3])
    pending: dict[int, Call] = {}
    possible: set[tuple[Znode, frozenset[int]]] = {(first, frozenset())}
    for _, ends, number, call in events:
        if not ends:
            pending[number] = call
            continue
        before = possible
        possible = {(znode, ahead - {number}) for znode, ahead in before if number in ahead}
        late = [each for each in before if number not in each[1]]
        if call.result is UNKNOWN:
            possible.update(late)
        seen = set(late)
        while late:
            znode, ahead = late.pop()
            for other, another in pending.items():
                if other in ahead:
                    continue
                after, answered = done(znode, another)
                if another.result is UNKNOWN:
                    if after == znode:
                        continue  # that it is done changes nothing, so it is as if it were not
                elif answered != another.result:
                    continue
                if other == number:
                    possible.add((after, ahead))
                    continue
                longer = after, ahead | {other}
                if longer not in seen:
                    seen.add(longer)
                    late.append(longer)
            if len(seen) > LIMIT:
                raise TooMany(f"there are more than {LIMIT:,} orders of {len(pending)} calls to try")
        del pending[number]
        if not possible:
            states = ", ".join(sorted({str(znode) for znode, _ in before})[:4])
            return (
                f"{call.client} got {call.result!r} from {_shown(call)} at {call.begin:.3f} to {call.end:.3f}; before,"
                f" it was {states}"
            )
    return ""


def _shown(call: Call) -> str:
    words = [
        call.what,
        *([call.value] if call.value else []),
        *([f"at version {call.version}"] if call.version != ANY else []),
    ]
    return " ".join(words)
