"""Expressions and searches that would never end: they are ended, it is said why, and everything else goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from explorer.serving import LIMITS
from explorer.walks import Coin, Lamp
from patience import PATIENCE

from fencepost import OptionError, SearchOptions
from fencepost.explorer.app import Explorer
from fencepost.explorer.find import Finding
from fencepost.explorer.session import Session
from fencepost.loading import load


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
"""Holds the interpreter within one call, so that nothing but the end of its process ends it."""


@pytest.mark.parametrize("expression", [ENDLESS, "[1 for x in iter(int, 1)]"])
def test_an_expression_that_never_ends(lamp: Explorer, expression: str) -> None:
    assert watched(lamp, "on", expression, "broken") == [
        ("False", None),
        ("", "it is not evaluated any more: it takes longer than 0.25 seconds for the states of this history"),
        ("False", None),
    ]  # fmt: skip
    # It is not tried again with every step, and what is asked next is answered.
    pids = {lamp._watcher._worker.pid} if lamp._watcher._worker is not None else set()
    assert watched(lamp, expression, "pressed")[1] == ("0", None)
    assert lamp._watcher._worker is not None
    assert {lamp._watcher._worker.pid} == pids
    with pytest.raises(OptionError, match="takes longer"):
        lamp.find({"session": lamp.name, "at": 0, "expression": expression})
    assert lamp.search is None


def test_an_expression_that_takes_all_memory(lamp: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    # it is memory that ends it, however slowly that is given
    monkeypatch.setattr("fencepost.explorer.watch.SECONDS", 60)
    assert watched(lamp, "[bytes(10 ** 6) for _ in range(10 ** 6)]", "on") == [
        ("(out of memory)", None),
        ("False", None),
    ]


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
        told = explorer.stop({})["search"]
        assert (told["running"], told["said"]) in ((True, "Stopping"), (False, "Stopped before it began."))
        assert watched(explorer, "on") == [("False", None)]  # meanwhile
        assert explorer.search.wait(PATIENCE).said == "Stopped before it began."
        # The next one has a new process.
        explorer.find({"session": explorer.name, "at": 0, "expression": "broken"})
        assert explorer.search.wait(PATIENCE).said == "Found 2 steps from here: no way is shorter."
    finally:
        explorer.close()


def test_a_search_keeps_its_limits_even_if_it_does_not_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.explorer.find.SPARE", 0.0)
    explorer = Explorer(Session(Lamp()), limits=SearchOptions(workers=1, timeout=0.1))
    try:
        explorer.find({"session": explorer.name, "at": 0, "expression": f"on and {ENDLESS}"})
        assert explorer.search is not None
        assert explorer.search.wait(PATIENCE) == Finding(
            False, "Not found within the limits: the search did not end in time."
        )
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
