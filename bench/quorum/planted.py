"""``python -m bench.quorum.planted FAULT metadata ...``: ``fencepost metadata`` with a fault planted in it, or with
``none``.

``FENCEPOST_BENCH_SLOW`` names a file with a number: each sync takes that number of milliseconds longer. The faults are
those that a campaign of processes can see. Written data survives the kill of a process, so only simulation and unit
tests find a missing sync.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partialmethod
from typing import Any

import msgspec

from fencepost.files.folders import OsFile
from fencepost.metadata import member, protocol
from fencepost.metadata.codes import Code
from fencepost.metadata.reads import Requester
from fencepost.metadata.server import Item, Service
from fencepost.quorum import rules
from fencepost.quorum.driver import node
from fencepost.quorum.roles import interface
from fencepost.quorum.roles.replica import Replica


def _slow_disks() -> None:
    path, sync = os.environ.get("FENCEPOST_BENCH_SLOW", ""), OsFile.sync

    def slowly(self: OsFile) -> None:
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            time.sleep(int(file.read()) / 1_000)
        sync(self)

    OsFile.sync = slowly  # type: ignore[method-assign]


def _none() -> None:
    """Nothing is planted."""


def _without(protection: str) -> Callable[[], None]:
    def plant() -> None:
        protections = rules.ALL.replace(**{protection: False})
        Replica.__init__ = partialmethod(Replica.__init__, protections=protections)  # type: ignore[method-assign,assignment]

    return plant


def _acknowledges_alone() -> None:
    """A leader commits what it has stored itself, before a majority has it."""
    whole = rules.high_watermark

    def first(known: int, ends: Iterable[int], epoch_start: int, protections: rules.Protections = rules.ALL) -> int:
        most = max(ends, default=known)
        return max(known, most) if most > epoch_start else whole(known, ends, epoch_start, protections)

    rules.high_watermark = first


def _forgets_votes() -> None:
    """What a replica has voted is not stored."""
    store = node.QuorumNode._store_election

    def forgotten(self: node.QuorumNode, effect: interface.StoreState) -> None:
        if effect.election.leader is not None:
            store(self, effect)

    node.QuorumNode._store_election = forgotten  # type: ignore[method-assign]


def _syncs_at_once() -> None:
    """A sync does not go through the log."""
    of_service = Service.answer

    def answer(
        self: Service, requester: Requester[Any], xid: int, request: protocol.Query | Code, last: bool = False
    ) -> None:
        if isinstance(request, protocol.Sync) and not requester.watcher.waiting:
            item = Item(requester, xid, answer=request, last=last, since=self.heard_at)
            self._answer(requester, item, request)
        else:
            of_service(self, requester, xid, request, last)

    member.Member.answer = answer  # type: ignore[method-assign]


def _attaches_at_once() -> None:
    """A client that comes with its session is answered before what the session has done elsewhere is applied."""
    enqueue = member.Member._enqueue

    def attached(self: member.Member, item: Item) -> None:
        request, connection = item.answer, item.connection
        enqueue(self, item)
        if not isinstance(request, protocol.Connect) or connection is None:
            return
        opened = self.tree.sessions.get(request.session)
        if opened is not None and self._last.get(connection) is item:
            self._uncount(item)
            del self._last[connection]
            item.answer = item.connection = None
            item.size = 0
            self._count(item)
            self._attach(connection, request.session, connection.timeout, opened.password)

    member.Member._enqueue = attached  # type: ignore[method-assign]


def _keeps_quiet() -> None:
    """Members do not tell the leader whom they hear from."""

    def report(self: member.Member) -> None:
        touched, self._touched = self._touched, set()
        if touched and self._decides:
            self._hear_all(touched)

    member.Member._report_heard = report  # type: ignore[method-assign]


def _expires_strangers() -> None:
    """A new leader takes sessions for over whose clients are not its own, and gives them no time."""
    became = member.Member.became_leader

    def led(self: member.Member, epoch: int) -> None:
        became(self, epoch)
        for session in set(self.tree.sessions) - set(self.by_session):
            self.change(Requester(None, session, ()), 0, protocol.CloseSession(expired=True))

    member.Member.became_leader = led  # type: ignore[method-assign]


def _asks_again() -> None:
    """What was sent to a leader that is gone is sent to the next one, though it may have been done."""
    put = member.Member._enqueue
    requests: dict[int, member.LogRequest] = {}

    def enqueue(self: member.Member, item: Item) -> None:
        put(self, item)
        requests.update((requested.number, requested) for _, requested in self._unsent[-1:])

    def kept(self: member.Member) -> None:
        self._unsent += [(item, requests[number]) for number, item in self._in_flight.items()]

    member.Member._enqueue = enqueue  # type: ignore[method-assign]
    member.Member._lose_in_flight = kept  # type: ignore[method-assign]


def _anybody_may_finish() -> None:
    """Changes of a connection that its session has left are done."""
    read = member._read_entry

    def read_entry(record: bytes) -> member.Entry:
        entry = read(record)
        if isinstance(entry.request.request, member.Attach | member.Mark | protocol.CreateSession):
            return entry
        return msgspec.structs.replace(entry, request=msgspec.structs.replace(entry.request, token=0))

    member._read_entry = read_entry  # type: ignore[assignment]


FAULTS: dict[str, Callable[[], None]] = {
    "none": _none,
    "acknowledges-alone": _acknowledges_alone,
    "forgets-votes": _forgets_votes,
    "votes-twice": _without("one_vote_an_epoch"),
    "logs-not-compared": _without("logs_are_compared"),
    "logs-not-matched": _without("logs_are_matched"),
    "majority-not-heard": _without("majority_is_heard"),
    "syncs-at-once": _syncs_at_once,
    "attaches-at-once": _attaches_at_once,
    "keeps-quiet": _keeps_quiet,
    "expires-strangers": _expires_strangers,
    "asks-again": _asks_again,
    "anybody-may-finish": _anybody_may_finish,
}


def program(fault: str) -> tuple[str, ...]:
    """How a member with a fault is started: the words behind the interpreter."""
    return ("-m", "bench.quorum.planted", fault)


def main() -> int:
    """Be ``fencepost`` with a fault."""
    from fencepost.cli import main as cli

    _slow_disks()
    FAULTS[sys.argv[1]]()
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
