"""Expressions and searches that would never end are ended with a reason. Everything else continues."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator

import pytest
from explorer.serving import LIMITS
from explorer.walks import Coin, Lamp
from patience import PATIENCE

from fencepost import OptionError, Protocol, SearchOptions, action, state
from fencepost.explorer.app import Explorer
from fencepost.explorer.session import Session
from fencepost.language.loading import load


@pytest.fixture
def lamp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    # of a processor: who else uses the machine does not matter
    monkeypatch.setattr("fencepost.explorer.watch.SECONDS", 0.25)
    explorer = Explorer(Session(Lamp()), limits=LIMITS)
    yield explorer
    explorer.close()


def watched(explorer: Explorer, *texts: str) -> list[tuple[str, str | None]]:
    shown = explorer.look({"session": explorer.name, "at": 0, "watches": list(texts)})["watches"]
    return [(one["now"], one["error"]) for one in shown]


ENDLESS = "max(iter(int, 1))"
"""Blocks the interpreter within one call, so that only the end of its process ends it."""


@pytest.mark.parametrize("expression", [ENDLESS, "[1 for x in iter(int, 1)]"])
def test_an_expression_that_never_ends(lamp: Explorer, expression: str) -> None:
    assert watched(lamp, "on", expression, "broken") == [
        ("False", None),
        ("", "it is no longer evaluated: it takes longer than 0.25 seconds for the states of this history"),
        ("False", None),
    ]  # fmt: skip
    # It is not retried at every step, and the next request is answered.
    pids = {lamp._watcher._worker.pid} if lamp._watcher._worker is not None else set()
    assert watched(lamp, expression, "pressed")[1] == ("0", None)
    assert lamp._watcher._worker is not None
    assert {lamp._watcher._worker.pid} == pids
    with pytest.raises(OptionError, match="takes longer"):
        lamp.find({"session": lamp.name, "at": 0, "expression": expression})
    assert lamp.search is None


def test_an_expression_that_takes_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # it is memory that ends it, however slowly that is given
    monkeypatch.setattr("fencepost.explorer.watch.SECONDS", 60)
    explorer = Explorer(Session(Lamp()), limits=LIMITS)
    try:
        found = watched(explorer, "[bytes(10 ** 6) for _ in range(10 ** 6)]", "on")
        assert found == [("(out of memory)", None), ("False", None)]
    finally:
        explorer.close()


def test_what_is_evaluated_in_another_process_is_what_is_evaluated_here() -> None:
    session = Session(load("bookkeeper-4.13")())
    explorer = Explorer(session)
    node = session.starts[0]
    try:
        for _ in range(6):
            node = session.take(node, session.enabled(node)[0].offers[0].move)
        for text in ("self", "meta", "network", "self.no_entry_is_lost()", "bookie[b1].entries", "1 / 0"):
            assert explorer._watcher.watch(text, node.line) == session.watch(text, node.line)
    finally:
        explorer.close()


def test_a_search_that_does_not_look_up_is_ended() -> None:
    """As one does not that compiles, or whose expression is endless in some state only."""
    explorer = Explorer(Session(Lamp()), limits=SearchOptions(workers=1, timeout=600))
    try:
        explorer.find({"session": explorer.name, "at": 0, "expression": f"on and {ENDLESS}"})
        assert explorer.search is not None
        assert explorer.search.finding.running
        # Where the first state is seen before the search stands still, one state may have been reported.
        ended = "Stopped before it began.", "Stopped after 1 state."
        told = explorer.stop({})["search"]
        assert told["said"] in (("Stopping",) if told["running"] else ended)
        assert watched(explorer, "on") == [("False", None)]  # meanwhile
        assert explorer.search.wait(PATIENCE).said in ended
        # The next one has a new process.
        explorer.find({"session": explorer.name, "at": 0, "expression": "broken"})
        assert explorer.search.wait(PATIENCE).said == "Found 2 steps from here: no way is shorter."
    finally:
        explorer.close()


def test_a_search_keeps_its_limits_even_if_it_does_not_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is ended at once. Its own limit, which it checks itself, is far away.
    monkeypatch.setattr("fencepost.explorer.find.SPARE", -1.2 * PATIENCE)
    explorer = Explorer(Session(Lamp()), limits=SearchOptions(workers=1, timeout=PATIENCE))
    try:
        explorer.find({"session": explorer.name, "at": 0, "expression": f"on and {ENDLESS}"})
        assert explorer.search is not None
        found = explorer.search.wait(PATIENCE)
        assert not found.running
        assert found.said == "Not found within the limits: the search did not end in time."
    finally:
        explorer.close()


def test_processes_end_with_the_explorer() -> None:
    one, other = Explorer(Session(Coin())), Explorer(Session(Coin()))
    for explorer in (one, other):
        watched(explorer, "heads")
        explorer.find({"session": explorer.name, "at": 0, "expression": f"heads and {ENDLESS}"})
    workers = [e._watcher._worker for e in (one, other)] + [e._searcher._worker for e in (one, other)]
    forkservers = [e._forkserver._pid for e in (one, other)]
    one.close()
    other.close()
    for pid in [worker.pid for worker in workers if worker is not None] + forkservers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class Harmful(Protocol):
    """Its functions do to processes what an author's Python can do."""

    n: int = state(0)

    @action
    def one(self) -> None:
        self.n = 1 - self.n

    def ends(self) -> bool:
        os._exit(3)

    def forks(self) -> int:
        return os.fork()

    def copies(self) -> int:
        return int(ctypes.CDLL(None).fork() > 0)


@pytest.fixture
def harmful() -> Iterator[Explorer]:
    explorer = Explorer(Session(Harmful()), limits=LIMITS)
    yield explorer
    explorer.close()


def test_a_fork_server_that_was_ended_is_started_anew(harmful: Explorer) -> None:
    assert watched(harmful, "n") == [("0", None)]
    for number in (signal.SIGKILL, signal.SIGTERM):
        before = harmful._forkserver._pid
        os.kill(before, number)
        os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)  # until then it may still answer
        harmful.find({"session": harmful.name, "at": 0, "expression": "n == 1"})
        assert harmful.search is not None
        assert harmful.search.wait(PATIENCE).said == "Found 1 step from here: no way is shorter."
        harmful._searcher._worker = harmful._watcher._worker = None
        assert watched(harmful, f"n + {number:d}") == [(str(int(number)), None)]
        assert harmful._forkserver._pid != before


def test_a_fork_server_that_was_stopped_is_started_anew(harmful: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    harmful._forkserver._line.settimeout(0.2)
    os.kill(harmful._forkserver._pid, signal.SIGSTOP)
    assert watched(harmful, "n") == [("0", None)]


def test_who_ends_its_own_process_is_told_so(harmful: Explorer) -> None:
    said = "it is no longer evaluated: the author's Python ended its process"
    assert watched(harmful, "self.ends()", "n") == [("", said), ("0", None)]
    with pytest.raises(OptionError, match="the author's Python ended its process"):
        harmful.find({"session": harmful.name, "at": 0, "expression": "self.ends()"})


def test_no_copy_of_a_worker_answers_in_its_place(harmful: Explorer) -> None:
    """Not even for root, to whom no limit of processes applies."""
    assert "no process may be started here" in watched(harmful, "self.forks()")[0][0]
    for n in range(5):
        assert watched(harmful, "self.copies()", f"n + {n}", f"n + {n + 100}")[1:] == [
            (str(n), None),
            (str(n + 100), None),
        ]
